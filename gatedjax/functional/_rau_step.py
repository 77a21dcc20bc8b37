"""The recurrent attention unit: weights, checks and one step of each form of its attention."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._export import exportable
from gatedjax.functional._gru import GRUWeights, gru_gates
from gatedjax.functional._recurrence import (
    apply_dropout,
    check_state,
    check_weights,
    matmul,
    wide_of,
)

RAUAttention = Literal[
    "feature_proj", "concat", "matrix", "time_causal", "sigmoid", "additive_relu"
]


@exportable
class RAUWeights(NamedTuple):
    """Kernels that multiply from the right; blocks of H columns in the order r, z, c, a, u.

    For the attention forms feature_proj, sigmoid and additive_relu. As in all tuples of the RAU,
    recurrent_bias (None means zeros) is used with reset_after only.
    """

    input: Float[Array, "D 5H"]
    recurrent: Float[Array, "H 5H"]
    bias: Float[Array, "5H"]
    recurrent_bias: Float[Array, " H"] | None = None


@exportable
class RAUHiddenWeights(NamedTuple):
    """Attention logits from a tanh layer of width K; blocks r, z, c, u.

    S = H for the forms that `RAUWeights` serves; S = 1 for time_causal, where score_bias, which
    cancels, may be None (zeros).
    """

    input: Float[Array, "D 4H"]
    recurrent: Float[Array, "H 4H"]
    bias: Float[Array, "4H"]
    hidden: Float[Array, "D+H K"]
    hidden_bias: Float[Array, " K"]
    score: Float[Array, "K S"]
    score_bias: Float[Array, " S"] | None = None
    recurrent_bias: Float[Array, " H"] | None = None


@exportable
class RAUConcatWeights(NamedTuple):
    """For the attention form concat: logits and weights over [x, h]; blocks r, z, c."""

    input: Float[Array, "D 3H"]
    recurrent: Float[Array, "H 3H"]
    bias: Float[Array, "3H"]
    score: Float[Array, "D+H D+H"]
    score_bias: Float[Array, " D+H"]
    value: Float[Array, "D+H H"]
    value_bias: Float[Array, " H"]
    recurrent_bias: Float[Array, " H"] | None = None


@exportable
class RAUMatrixWeights(NamedTuple):
    """For the attention form matrix: a row of weights over [x, h] per unit; blocks r, z, c."""

    input: Float[Array, "D 3H"]
    recurrent: Float[Array, "H 3H"]
    bias: Float[Array, "3H"]
    affinity: Float[Array, "H D+H"]
    score: Float[Array, "D+H D+H"]
    score_bias: Float[Array, " D+H"]
    recurrent_bias: Float[Array, " H"] | None = None


AnyRAUWeights = RAUWeights | RAUHiddenWeights | RAUConcatWeights | RAUMatrixWeights


@exportable
class RAUTimeState(NamedTuple):
    """The carry of the attention form time_causal.

    log_norm is log sum exp of the logits so far (-inf before the first), steps their number.
    """

    hidden: Float[Array, "B H"]
    log_norm: Float[Array, "B 1"]
    steps: Float[Array, "B 1"]


def initial_state(attention: str, rows: int, size: int, dtype: Any) -> Any:
    """The carry of a form of the attention before the first step."""
    hidden = jnp.zeros((rows, size), dtype)
    if attention != "time_causal":
        return hidden
    column = jnp.zeros((rows, 1), dtype)
    return RAUTimeState(hidden, column - jnp.inf, column)


class Options(NamedTuple):
    """The static options of a step."""

    attention: RAUAttention
    rescale: bool
    reset_after: bool


def rau_step(
    weights: AnyRAUWeights,
    carry: Float[Array, "B H"] | RAUTimeState,
    x: Float[Array, "B D"],
    *,
    attention: RAUAttention = "feature_proj",
    rescale: bool = False,
    reset_after: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
) -> Float[Array, "B H"] | RAUTimeState:
    """One step of a recurrent attention unit; the equations `rau` is tested against.

    z and c are those of `gru_step`, and h' = (1 - z) h + z c / 2 + z s / 2. With u = [x, m h] and
    the affine maps A(u) = u W_a + b_a and V(u) = u W_u + b_u, the attention candidate s is

    feature_proj    tanh(p V(u)),  p = softmax(A(u)) over the H features
    sigmoid         tanh(p V(u)),  p = sigmoid(A(u)), a control without competition
    concat          tanh(V(p u)),  p = softmax(A(u)) over the D + H entries of u
    matrix          tanh(P u),     P_ij = softmax over j of affinity_ij + A(u)_j, H x (D + H)
    time_causal     tanh(p V(u)),  p = exp(a_t) / sum over s <= t of exp(a_s), a_t a scalar A(.)
    additive_relu   added to a whole GRU: h' = (1 - z) h + z c + softmax(A(u)) relu(V(u))

    With `RAUHiddenWeights`, which time_causal needs and the forms of `RAUWeights` may have,
    A acts on tanh(u W_h + b_h) instead of u.

    Args:
      weights: `RAUWeights` or `RAUHiddenWeights`, for concat `RAUConcatWeights`, for matrix
        `RAUMatrixWeights`, for time_causal `RAUHiddenWeights`.
      carry: h, or the state of time_causal.
      x: inputs; the products are formed in its dtype, softmax and sums in float32.
      attention: one of the forms above.
      rescale: multiply p by the length of the softmax's axis (the steps so far for time_causal),
        so that its mean is 1; otherwise s is near 0 for wide layers. Not for sigmoid.
      reset_after: apply the reset gate after the recurrent product, see `gru_step`.
      recurrent_dropout_mask: m, a multiplicative mask; None means all ones.

    Returns:
      The next carry in float32, or in float64 for float64 inputs. Its entries stay within
      [-1, 1] if they start there, but with additive_relu. With H = 1 a softmax over features is 1.
      A non-finite input makes its own row non-finite and no other.

    Raises:
      ValueError: also if attention is the softmax over all steps as printed, recurrent_bias is
        given without reset_after, or sigmoid is to be rescaled.

    Reference: Zhong, Yue and Ling 2018, "Recurrent Attention Unit", equations 1 to 8.
    Deviations: the printed softmax runs over all T steps, which no recurrence can compute (a_t
    needs h_{t-1}, which needs the weights before it, whose denominators need a_t); time_causal is
    the nearest form. The paper leaves shapes and the map to H features open and shows no bias
    in the attention; additive_relu follows third parties.
    """
    options = check_options(attention, rescale, reset_after)
    sizes = check_rau_weights(weights, x, "B D", options)
    shape = (jnp.shape(x)[0], sizes[1])
    check_carry("carry", carry, shape, options)
    if recurrent_dropout_mask is not None:
        check_state("recurrent_dropout_mask", recurrent_dropout_mask, shape)
    x = jnp.asarray(x)
    carry = jax.tree.map(lambda value: jnp.asarray(value, wide_of(x.dtype)), carry)
    return advance(options, weights, carry, x, recurrent_dropout_mask)


def advance(options: Options, weights: Any, carry: Any, x: Array, dropout: Array | None) -> Any:
    """`rau_step` without its checks."""
    return advance_and_attend(options, weights, carry, x, dropout)[0]


def advance_and_attend(
    options: Options, weights: Any, carry: Any, x: Array, dropout: Array | None
) -> tuple[Any, Array]:
    """`advance`, and the attention weights p of the step."""
    timed = isinstance(carry, RAUTimeState)
    h = carry.hidden if timed else carry
    size, dtype, wide = h.shape[1], x.dtype, h.dtype
    fed = apply_dropout(h, dropout)
    joined = jnp.concatenate([x.astype(wide), fed], axis=1)

    def affine(inputs: Array, kernel: Array, bias: Array | None) -> Array:
        product = matmul(inputs.astype(dtype), jnp.asarray(kernel, dtype), wide)
        return product if bias is None else product + jnp.asarray(bias, wide)[None]

    def block(index: int) -> Array:
        columns = slice(index * size, (index + 1) * size)
        parts = [jnp.asarray(w)[:, columns] for w in (weights.input, weights.recurrent)]
        return affine(joined, jnp.concatenate(parts), weights.bias[columns])

    kernel, recurrent, bias = (jnp.asarray(value)[..., : 3 * size] for value in weights[:3])
    gates = GRUWeights(kernel, recurrent, bias, weights.recurrent_bias)
    z, candidate = gru_gates(gates, fed, x, options.reset_after)

    if isinstance(weights, RAUHiddenWeights):
        inner = jnp.tanh(affine(joined, weights.hidden, weights.hidden_bias))
        logits, value = affine(inner, weights.score, weights.score_bias), block(3)
    elif isinstance(weights, RAUWeights):
        logits, value = block(3), block(4)
    else:
        logits, value = affine(joined, weights.score, weights.score_bias), joined
    if options.attention == "matrix":
        logits = logits[:, None, :] + jnp.asarray(weights.affinity, wide)[None]

    norm = steps = h  # of time_causal only
    if options.attention == "sigmoid":
        p = jax.nn.sigmoid(logits)
    elif timed:
        norm, steps = jnp.logaddexp(carry.log_norm, logits), carry.steps + 1
        p = jnp.exp(logits - norm) * (steps if options.rescale else 1)
    else:
        p = jax.nn.softmax(logits, axis=-1) * (logits.shape[-1] if options.rescale else 1)

    if options.attention == "additive_relu":
        return (1 - z) * h + z * candidate + p * jax.nn.relu(value), p
    if options.attention == "matrix":
        second = jnp.tanh(jnp.sum(p * joined[:, None, :], axis=-1))
    elif options.attention == "concat":
        second = jnp.tanh(affine(p * joined, weights.value, weights.value_bias))
    else:
        second = jnp.tanh(p * value)
    new = (1 - z) * h + z * (candidate + second) / 2
    return (RAUTimeState(new, norm, steps) if timed else new), p


def check_options(attention: Any, rescale: Any, reset_after: Any) -> Options:
    """Checks the options of a step and returns them together."""
    if attention == "time":
        raise ValueError(
            "attention='time', the softmax over all T steps as printed, is not causal and cannot "
            "be computed: a_t needs the state before it, which needs the attention weights before "
            "it, whose denominators need a_t. Use 'time_causal' (a softmax over the steps so far)"
        )
    if attention not in get_args(RAUAttention):
        raise ValueError(f"attention must be one of {get_args(RAUAttention)}, got {attention!r}")
    for name, value in {"rescale": rescale, "reset_after": reset_after}.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")
    if rescale and attention == "sigmoid":
        raise ValueError("rescale must be False for attention='sigmoid': there is no softmax axis")
    return Options(attention, rescale, reset_after)


def check_rau_weights(
    weights: AnyRAUWeights, xs: Any, xs_axes: str, options: Options
) -> tuple[int, int]:
    """Checks type, shapes and dtypes of weights against xs [..., D]; returns (D, H)."""
    kinds: dict[str, tuple[type[AnyRAUWeights], ...]] = {
        "concat": (RAUConcatWeights,),
        "matrix": (RAUMatrixWeights,),
        "time_causal": (RAUHiddenWeights,),
    }
    wanted = kinds.get(options.attention, (RAUWeights, RAUHiddenWeights))
    if not isinstance(weights, wanted):
        raise TypeError(
            f"weights must be {' or '.join(kind.__name__ for kind in wanted)} for "
            f"attention={options.attention!r}, got {type(weights).__name__}"
        )
    num_blocks = {RAUWeights: 5, RAUHiddenWeights: 4}.get(type(weights), 3)
    sizes = check_weights(
        type(weights), num_blocks, weights, xs, xs_axes, _shapes_of(weights, options)
    )
    if sizes[1] < 1:
        raise ValueError("recurrent must have a hidden width of at least 1, got 0")
    if weights.recurrent_bias is not None and not options.reset_after:
        raise ValueError(
            "recurrent_bias must be None unless reset_after=True, got shape "
            f"{jnp.shape(weights.recurrent_bias)}"
        )
    return sizes


def _shapes_of(weights: Any, options: Options) -> Callable[[int, int], dict[str, tuple[int, ...]]]:
    def shapes(features: int, hidden: int) -> dict[str, tuple[int, ...]]:
        both = features + hidden
        if isinstance(weights, RAUConcatWeights):
            value = {"value": (both, hidden), "value_bias": (hidden,)}
            return {"score": (both, both), "score_bias": (both,), **value}
        if isinstance(weights, RAUMatrixWeights):
            return {"affinity": (hidden, both), "score": (both, both), "score_bias": (both,)}
        if isinstance(weights, RAUWeights):
            return {}
        inner = (*jnp.shape(weights.hidden), 0, 0)[1]
        scores = 1 if options.attention == "time_causal" else hidden
        score = {"score": (inner, scores), "score_bias": (scores,)}
        return {"hidden": (both, inner), "hidden_bias": (inner,), **score}

    return shapes


def check_carry(name: str, carry: Any, shape: tuple[int, int], options: Options) -> None:
    """Raises unless carry is what the attention form carries, of shape [B, H]."""
    if options.attention != "time_causal":
        if isinstance(carry, RAUTimeState):
            raise TypeError(
                f"{name} must be an array for attention={options.attention!r}, got RAUTimeState"
            )
        check_state(name, carry, shape)
        return
    if not isinstance(carry, RAUTimeState):
        raise TypeError(
            f"{name} must be a RAUTimeState for attention='time_causal', got {type(carry).__name__}"
        )
    check_state(f"{name}.hidden", carry.hidden, shape)
    check_state(f"{name}.log_norm", carry.log_norm, (shape[0], 1))
    check_state(f"{name}.steps", carry.steps, (shape[0], 1))
