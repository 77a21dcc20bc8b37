"""The recurrent attention unit: weights, a step with each form of its attention, masked scans."""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gatedjax._utils.choices import check_choice
from gatedjax.functional._cell_scan import Blocks, Cell, Terms, run_cell, run_forward, terms_of
from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._devices import run_core
from gatedjax.functional._directions import Unit, kind_of, register, run_recurrences
from gatedjax.functional._export import exportable
from gatedjax.functional._gru import gates_of, products_of
from gatedjax.functional._masked_scan import scan_steps
from gatedjax.functional._persistent._backend import RecurrenceImplementation
from gatedjax.functional._recurrence import (
    Restarts,
    as_outputs,
    check_recurrent_bias,
    check_state,
    check_weights,
    dropout_mask,
    matmul,
    real_alone,
)
from gatedjax.functional._types import ArrayLike, Carry, Tree, Weights

RAUAttention = Literal[
    "feature_proj", "concat", "matrix", "time_causal", "sigmoid", "additive_relu"
]
"""The forms of the attention, see `rau_step`."""


@exportable
class RAUWeights(NamedTuple):
    """Weights for the attention forms feature_proj, sigmoid and additive_relu.

    Kernels multiply from the right, in blocks of H columns: reset gate r, update gate z, candidate
    c, attention logits a and values u, in this order. D is the width of the inputs, H that of the
    hidden state.

    Attributes:
      input: kernels that multiply the input x [D, 5H].
      recurrent: kernels that multiply the hidden state h [H, 5H].
      bias: biases of the blocks [5H].
      recurrent_bias: a second bias of c [H], used with reset_after only; None means zeros.
    """

    input: Float[Array, "D 5H"]
    recurrent: Float[Array, "H 5H"]
    bias: Float[Array, "5H"]
    recurrent_bias: Float[Array, " H"] | None = None


@exportable
class RAUHiddenWeights(NamedTuple):
    """Weights with attention logits from a tanh layer of width K.

    The blocks are the r, z, c and u of `RAUWeights`, and S is the number of logits: H for the forms
    of `RAUWeights`, 1 for time_causal, where score_bias cancels and may be None (zeros).

        >>> from gatedjax.functional import rau
        >>> blocks = jnp.ones((3, 16)), jnp.ones((4, 16)), jnp.zeros(16)
        >>> logits = jnp.ones((7, 5)), jnp.zeros(5), jnp.ones((5, 4)), jnp.zeros(4)
        >>> rau(RAUHiddenWeights(*blocks, *logits), jnp.ones((2, 5, 3)))[0].shape
        (2, 4)

    Attributes:
      input, recurrent, bias: weights of x [D, 4H], weights of h [H, 4H] and biases [4H] of the
        blocks.
      hidden, hidden_bias: W_h [D + H, K] and b_h [K] of the tanh layer, which reads [x, h].
      score, score_bias: W_a [K, S] and b_a [S], from the tanh layer to the logits.
      recurrent_bias: a second bias of c [H], used with reset_after only; None means zeros.
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
    """Weights for the attention form concat, with logits over the D + H entries of [x, h].

    The blocks are the r, z and c of `RAUWeights`.

        >>> from gatedjax.functional import rau
        >>> blocks = jnp.ones((3, 12)), jnp.ones((4, 12)), jnp.zeros(12)
        >>> attention = jnp.ones((7, 7)), jnp.zeros(7), jnp.ones((7, 4)), jnp.zeros(4)
        >>> weights = RAUConcatWeights(*blocks, *attention)
        >>> rau(weights, jnp.ones((2, 5, 3)), attention="concat")[0].shape
        (2, 4)

    Attributes:
      input, recurrent, bias: weights of x [D, 3H], weights of h [H, 3H] and biases [3H] of the
        blocks.
      score, score_bias: W_a [D + H, D + H] and b_a [D + H], from [x, h] to the logits.
      value, value_bias: W_u [D + H, H] and b_u [H], from the weighted [x, h] to the H features.
      recurrent_bias: a second bias of c [H], used with reset_after only; None means zeros.
    """

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
    """Weights for the attention form matrix, with logits over [x, h] for each of the H features.

    The blocks are the r, z and c of `RAUWeights`.

        >>> from gatedjax.functional import rau
        >>> blocks = jnp.ones((3, 12)), jnp.ones((4, 12)), jnp.zeros(12)
        >>> logits = jnp.ones((4, 7)), jnp.ones((7, 7)), jnp.zeros(7)
        >>> weights = RAUMatrixWeights(*blocks, *logits)
        >>> rau(weights, jnp.ones((2, 5, 3)), attention="matrix")[0].shape
        (2, 4)

    Attributes:
      input, recurrent, bias: weights of x [D, 3H], weights of h [H, 3H] and biases [3H] of the
        blocks.
      affinity: the part of the logits that depends on the feature [H, D + H].
      score, score_bias: W_a [D + H, D + H] and b_a [D + H], from [x, h] to the part of the logits
        that all features share.
      recurrent_bias: a second bias of c [H], used with reset_after only; None means zeros.
    """

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

        >>> state = RAUTimeState(jnp.zeros((2, 4)), jnp.full((2, 1), -jnp.inf), jnp.zeros((2, 1)))
        >>> state.hidden.shape
        (2, 4)

    Attributes:
      hidden: the hidden state h [B, H] of B rows and H hidden units.
      log_norm: log sum exp of the logits so far [B, 1], -inf before the first step.
      steps: the number of steps so far [B, 1].
    """

    hidden: Float[Array, "B H"]
    log_norm: Float[Array, "B 1"]
    steps: Float[Array, "B 1"]


def initial_state(attention: str, hidden: Array) -> Tree:
    """Returns the first carry with a hidden state of zeros [B, H], or a `RAUTimeState` of it."""
    if attention != "time_causal":
        return hidden
    column = jnp.zeros_like(hidden[:, :1])
    # -inf is the logarithm of an empty sum, so that the first step has p = 1.
    return RAUTimeState(hidden, column - jnp.inf, column)


class RAUOptions(NamedTuple):
    """The options of `rau_step` that are known while tracing."""

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
) -> tuple[Float[Array, "B H"] | RAUTimeState, Float[Array, "B H"]]:
    """Computes a step of a recurrent attention unit.

    z and c are those of `gru_step`, and h' = (1 - z) h + z c / 2 + z s / 2. With u = [x, m h] and
    the affine maps A(u) = u W_a + b_a and V(u) = u W_u + b_u, the attention candidate s is

    feature_proj    tanh(p V(u)),  p = softmax(A(u)) over the H features
    sigmoid         tanh(p V(u)),  p = sigmoid(A(u)), a control without competition
    concat          tanh(V(p u)),  p = softmax(A(u)) over the D + H entries of u
    matrix          tanh(P u),     P_ij = softmax over j of affinity_ij + A(u)_j, H x (D + H)
    time_causal     tanh(p V(u)),  p = exp(a_t) / sum over s <= t of exp(a_s), a_t a scalar A(.)
    additive_relu   added to a whole GRU: h' = (1 - z) h + z c + softmax(A(u)) relu(V(u))

    With `RAUHiddenWeights` (required by time_causal, optional for the forms of `RAUWeights`)
    A acts on tanh(u W_h + b_h) instead of u.

        >>> weights = RAUWeights(jnp.ones((3, 20)), jnp.ones((4, 20)), jnp.zeros(20))
        >>> carry, output = rau_step(weights, jnp.zeros((2, 4)), jnp.ones((2, 3)))
        >>> carry.shape, output.shape
        ((2, 4), (2, 4))

    Args:
      weights: `RAUWeights` or `RAUHiddenWeights`, for concat `RAUConcatWeights`, for matrix
        `RAUMatrixWeights`, for time_causal `RAUHiddenWeights`.
      carry: h, the hidden state of B rows, or a `RAUTimeState` for time_causal.
      x: inputs of width D; the products are formed in its dtype, softmax and sums in float32.
      attention: the form of the attention, a name of the table above.
      rescale: multiply p by the length of the softmax's axis (the steps so far for time_causal),
        so that its mean is 1; otherwise s is near 0 for wide layers. Not for sigmoid.
      reset_after: apply the reset gate after the recurrent product, see `gru_step`.
      recurrent_dropout_mask: m, a multiplicative mask of h, 0 or 1 / keep; None means all ones.

    Returns:
      (carry, output): the next carry in float32, or in float64 for float64 inputs; and h' in the
      dtype of x, in the order of `jax.lax.scan`. The entries of h' stay within [-1, 1] if they
      start there, but with additive_relu. With H = 1 a softmax over features is 1. A non-finite
      input makes its own row non-finite and no other.

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
    x = jnp.asarray(x)
    wide = wide_dtype(x.dtype)
    carry = jax.tree.map(lambda value: jnp.asarray(value, wide), carry)
    dropout = dropout_mask(recurrent_dropout_mask, shape, wide)
    new, _ = advance_and_attend(options, weights, carry, x, dropout)
    return new, hidden_of(new).astype(x.dtype)


def hidden_of(carry: Carry) -> Array:
    """Returns the hidden state h [B, H] of a carry, which is h or a `RAUTimeState`."""
    return carry.hidden if isinstance(carry, RAUTimeState) else carry


def cell_of(options: RAUOptions, weights: Weights) -> Cell:
    """Returns the equation for weights of any kind; it runs by itself with `RAUWeights`."""
    blocks = num_blocks(type(weights))
    return Cell(_advance, options, blocks, products_of(blocks, options.reset_after))


def num_blocks(kind: Any) -> int:
    """Returns the number of blocks of columns of the kernels in weights of a class."""
    return {RAUWeights: 5, RAUHiddenWeights: 4}.get(kind, 3)


def advance_and_attend(
    options: RAUOptions, weights: Weights, carry: Carry, x: Array, dropout: Array | None
) -> tuple[Tree, Array]:
    """Returns the next carry, and the attention weights p of the step, without checks. p is [B, H],
    but [B, D + H] for concat, [B, H, D + H] for matrix and [B, 1] for time_causal.
    """
    terms = terms_of(cell_of(options, weights), weights, x, dropout)
    fed = terms.drop(hidden_of(carry))
    u = jnp.concatenate([x.astype(fed.dtype), fed], axis=1)
    return _attend(options, terms, carry, weights, _Inputs(u, x.dtype))


def _advance(options: RAUOptions, terms: Terms, carry: Carry) -> Carry:
    return _attend(options, terms, carry)[0]


# The equation of `rau_step` and of the scans of `rau`, forwards and backwards. The kernel for GPUs
# (recurrence.cu, the kind "rau") repeats it and its derivative for feature_proj.
def _attend(
    options: RAUOptions, terms: Terms, carry: Carry, weights: Any = None, inputs: Any = None
) -> tuple[Tree, Array]:
    h = hidden_of(carry)
    # The first three blocks are a GRU's in all kinds of weights.
    z, candidate, blocks = gates_of(options.reset_after, terms, h)
    if isinstance(carry, RAUTimeState):
        p, second, log_norm, steps = _time_causal(weights, inputs, blocks, carry, options.rescale)
        return RAUTimeState(h + z * ((candidate + second) / 2 - h), log_norm, steps), p
    p, second = _FORMS[options.attention](weights, inputs, blocks, options.rescale)
    if options.attention == "additive_relu":
        return h + z * (candidate - h) + second, p
    return h + z * ((candidate + second) / 2 - h), p


class _Inputs(NamedTuple):
    """The inputs of the attention of a step."""

    u: Array  # [x, m h], the input and the state after dropout, [B, D + H]
    dtype: jnp.dtype  # of products; sums have the dtype of u

    def affine(self, inputs: Array, kernel: Array, bias: Array | None) -> Array:
        wide = self.u.dtype
        product = matmul(inputs.astype(self.dtype), jnp.asarray(kernel, self.dtype), wide)
        return product if bias is None else product + jnp.asarray(bias, wide)[None]


def _logits_and_value(weights: Weights, inputs: _Inputs, blocks: Blocks) -> tuple[Array, Array]:
    if len(blocks) == 2:  # `RAUWeights`
        return blocks[0], blocks[1]
    inner = jnp.tanh(inputs.affine(inputs.u, weights.hidden, weights.hidden_bias))
    return inputs.affine(inner, weights.score, weights.score_bias), blocks[0]


def _softmax(logits: Array, rescale: bool) -> Array:
    return jax.nn.softmax(logits, axis=-1) * (logits.shape[-1] if rescale else 1)


# A function per attention form, see `rau_step`.
Attended = tuple[Array, Array]  # (p, s)


def _feature_proj(weights: Weights, inputs: _Inputs, blocks: Blocks, rescale: bool) -> Attended:
    logits, value = _logits_and_value(weights, inputs, blocks)
    p = _softmax(logits, rescale)
    return p, jnp.tanh(p * value)


def _sigmoid(weights: Weights, inputs: _Inputs, blocks: Blocks, rescale: bool) -> Attended:
    logits, value = _logits_and_value(weights, inputs, blocks)
    # `rescale` has no effect, because a sigmoid has no sum over the features. `check_options`
    # refuses it.
    p = jax.nn.sigmoid(logits)
    return p, jnp.tanh(p * value)


def _additive_relu(weights: Weights, inputs: _Inputs, blocks: Blocks, rescale: bool) -> Attended:
    logits, value = _logits_and_value(weights, inputs, blocks)
    p = _softmax(logits, rescale)
    return p, p * jax.nn.relu(value)


def _concat(weights: RAUConcatWeights, inputs: _Inputs, _: Blocks, rescale: bool) -> Attended:
    p = _softmax(inputs.affine(inputs.u, weights.score, weights.score_bias), rescale)
    return p, jnp.tanh(inputs.affine(p * inputs.u, weights.value, weights.value_bias))


def _matrix(weights: RAUMatrixWeights, inputs: _Inputs, _: Blocks, rescale: bool) -> Attended:
    logits = inputs.affine(inputs.u, weights.score, weights.score_bias)[:, None, :]
    # The affinity [H, D + H] is the same for all examples, and only the logits depend on the input.
    p = _softmax(logits + jnp.asarray(weights.affinity, logits.dtype)[None], rescale)
    return p, jnp.tanh(jnp.sum(p * inputs.u[:, None, :], axis=-1))


def _time_causal(
    weights: RAUHiddenWeights, inputs: _Inputs, blocks: Blocks, carry: RAUTimeState, rescale: bool
) -> tuple[Array, Array, Array, Array]:
    """Returns p, the step's weight among the steps so far, s, and the fields of the next carry."""
    logits, value = _logits_and_value(weights, inputs, blocks)
    # The sum runs in log space, because a later logit may exceed all logits so far and no maximum
    # is known in advance.
    log_norm, steps = jnp.logaddexp(carry.log_norm, logits), carry.steps + 1
    p = jnp.exp(logits - log_norm) * (steps if rescale else 1)
    return p, jnp.tanh(p * value), log_norm, steps


_FORMS: dict[str, Callable[[Any, Any, Blocks, bool], Attended]] = {
    "feature_proj": _feature_proj,
    "sigmoid": _sigmoid,
    "additive_relu": _additive_relu,
    "concat": _concat,
    "matrix": _matrix,
}


def check_options(
    attention: Any = "feature_proj", rescale: Any = False, reset_after: Any = False
) -> RAUOptions:
    """Checks the options `attention`, `rescale` and `reset_after` of `rau_step`."""
    if attention == "time":
        raise ValueError(
            "attention must be causal, got 'time', the softmax over all T steps as printed: a_t "
            "needs the state before it, which needs earlier attention weights, and their "
            "denominators need a_t; use 'time_causal', a softmax over the steps so far"
        )
    check_choice(RAUAttention, attention=attention)
    for name, value in {"rescale": rescale, "reset_after": reset_after}.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")
    if rescale and attention == "sigmoid":
        raise ValueError(
            "rescale must be False for attention='sigmoid', got True: there is no softmax axis"
        )
    return RAUOptions(attention, rescale, reset_after)


def kinds_of(attention: str) -> tuple[type[AnyRAUWeights], ...]:
    """Returns the classes of weights for a form of the attention, that of a tanh layer last."""
    kinds: dict[str, tuple[type[AnyRAUWeights], ...]] = {
        "concat": (RAUConcatWeights,),
        "matrix": (RAUMatrixWeights,),
        "time_causal": (RAUHiddenWeights,),
    }
    return kinds.get(attention, (RAUWeights, RAUHiddenWeights))


def shapes_of(
    kind: Any, attention: str, features: int, hidden: int, inner: int
) -> dict[str, tuple[int, ...]]:
    """Returns {field: shape} of the fields of the attention, for the widths D, H and K."""
    both, scores = features + hidden, 1 if attention == "time_causal" else hidden
    score = {"score": (both, both), "score_bias": (both,)}
    if kind is RAUConcatWeights:
        return score | {"value": (both, hidden), "value_bias": (hidden,)}
    if kind is RAUMatrixWeights:
        return score | {"affinity": (hidden, both)}
    if kind is RAUWeights:
        return {}
    layer = {"hidden": (both, inner), "hidden_bias": (inner,)}
    return layer | {"score": (inner, scores), "score_bias": (scores,)}


def check_rau_weights(
    weights: AnyRAUWeights, xs: Any, xs_axes: str, options: RAUOptions
) -> tuple[int, int]:
    """Checks type, shapes and dtypes of weights against xs [..., D]; returns (D, H)."""
    fitting, kind = kinds_of(options.attention), type(weights)
    if kind not in fitting:
        names = " or ".join(its.__name__ for its in fitting)
        raise TypeError(
            f"weights must be {names} for attention={options.attention!r}, got {kind.__name__}"
        )
    # A `hidden` with fewer than two axes gets a width of 0 here, and the check of its shape then
    # refuses it with a message.
    layer = jnp.shape(weights.hidden) if isinstance(weights, RAUHiddenWeights) else ()
    inner = (*layer, 0, 0)[1]

    def shapes(features: int, hidden: int) -> dict[str, tuple[int, ...]]:
        return shapes_of(kind, options.attention, features, hidden, inner)

    sizes = check_weights(kind, num_blocks(kind), weights, xs, xs_axes, shapes)
    # A softmax over H = 0 features has no maximum to subtract.
    if sizes[1] < 1:
        raise ValueError("recurrent must have a hidden width of at least 1, got 0")
    check_recurrent_bias(weights.recurrent_bias, options.reset_after)
    return sizes


def check_carry(name: str, carry: Carry, shape: tuple[int, int], options: RAUOptions) -> None:
    """Raises unless the carry has the type of the attention form and the shape [B, H]."""
    timed = options.attention == "time_causal"
    if timed != isinstance(carry, RAUTimeState):
        kind = "a RAUTimeState" if timed else "an array"
        raise TypeError(
            f"{name} must be {kind} for attention={options.attention!r}, got {type(carry).__name__}"
        )
    if not timed:
        return check_state(name, carry, shape)
    check_state(f"{name}.hidden", carry.hidden, shape)
    check_state(f"{name}.log_norm", carry.log_norm, (shape[0], 1))
    check_state(f"{name}.steps", carry.steps, (shape[0], 1))


def rau(
    weights: AnyRAUWeights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    initial: Float[Array, "B H"] | RAUTimeState | None = None,
    resets: Bool[Array, "B T"] | None = None,
    reset_to: Float[Array, "B H"] | RAUTimeState | None = None,
    reverse: bool = False,
    attention: RAUAttention = "feature_proj",
    rescale: bool = False,
    reset_after: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
    implementation: RecurrenceImplementation = "auto",
) -> tuple[Float[Array, "B H"] | RAUTimeState, Float[Array, "B T H"]]:
    """Runs a recurrent attention unit over time: `rau_step` at each step of a batch of rows.

        >>> weights = RAUWeights(jnp.ones((3, 20)), jnp.ones((4, 20)), jnp.zeros(20))
        >>> final, outputs = rau(weights, jnp.ones((2, 5, 3)), lengths=jnp.array([5, 2]))
        >>> final.shape, outputs.shape
        ((2, 4), (2, 5, 4))

    Args:
      weights: the parameters, see `rau_step`, of any floating dtype.
      xs, mask, lengths, resets, reset_to, reverse: as in `lstm`, with the same effect of padding;
        the softmax is in float32, too.
      initial: the carry before the first step: a hidden state [B, H] of H units, or a
        `RAUTimeState` for time_causal; None means zeros (for time_causal: no step yet).
      attention: the form of the attention: "feature_proj", "sigmoid", "concat", "matrix",
        "time_causal" or "additive_relu", with the equations of `rau_step`. matrix keeps
        [B, H, D + H] per step and is meant for small sizes.
      rescale: True gives the attention weights of a step the mean 1 instead of the sum 1.
      reset_after: apply the reset gate after the recurrent product, see `gru_step`.
      recurrent_dropout_mask: multiplies the hidden state that enters the products and the
        attention, the same at every step (variational dropout), with 1 / keep already in it.
      implementation: "scan", a loop of XLA; "persistent", one launch for all steps on an NVIDIA
        GPU, for feature_proj with `RAUWeights` and without reset_after; or "auto", the faster of
        both.

    Returns:
      The final carry and the hidden state of every step, as `lstm` does.

    Derivatives: `jax.grad` of any order, and forward over reverse. feature_proj and sigmoid have a
    custom backward pass with `RAUWeights`, so `jax.jvp` and `jax.jacfwd` fail there. If you need
    them, scan `rau_step`.

    Reference and deviations: as `rau_step`; recurrent dropout of Gal and Ghahramani 2016.
    """
    call = check_call(
        weights,
        xs,
        mask,
        lengths=lengths,
        initial=initial,
        resets=resets,
        reset_to=reset_to,
        reverse=reverse,
        attention=attention,
        rescale=rescale,
        reset_after=reset_after,
        recurrent_dropout_mask=recurrent_dropout_mask,
        implementation=implementation,
    )
    return run_recurrences((call,))[0]


def _check(weights: AnyRAUWeights, xs: ArrayLike, axes: str, **options: Any) -> None:
    check_rau_weights(weights, xs, axes, check_options(**options))


def rau_unit(weights: AnyRAUWeights, **options: Any) -> Unit:
    """Returns the `Unit` of `rau`, after a check of its options."""
    its = check_options(**options)
    check = functools.partial(check_carry, options=its)

    def start(h: Array) -> Carry:
        return initial_state(its.attention, h)

    # Only these two forms have a custom backward pass. JAX differentiates the loop of all other
    # forms, which have more products than a `Cell`.
    if its.attention in ("feature_proj", "sigmoid") and isinstance(weights, RAUWeights):
        kind, name = kind_of("rau", reset_after=its.reset_after, attention=its.attention)
        scale = float(weights.recurrent.shape[0]) if its.rescale else 1.0
        cell = cell_of(its, weights)
        return Unit(kind, name, run_cell, run_forward, cell, start, check, scale=scale)
    name = f"rau with attention={its.attention!r} and {type(weights).__name__}"
    return Unit(None, name, _plain, _plain, its, start, check)


check_call = register(rau, _check, rau_unit)


def rau_attention(
    weights: AnyRAUWeights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    resets: Bool[Array, "B T"] | None = None,
    attention: RAUAttention = "feature_proj",
    rescale: bool = False,
    reset_after: bool = False,
) -> Float[Array, "B T ..."]:
    """Returns the attention weights p of each step of `rau` from a zero state, for analysis.

        >>> weights = RAUWeights(jnp.ones((3, 20)), jnp.ones((4, 20)), jnp.zeros(20))
        >>> rau_attention(weights, jnp.ones((2, 5, 3))).shape
        (2, 5, 4)

    Args:
      weights: the parameters, of the class that the attention needs (see `rau_step`).
      xs, mask, lengths, resets, attention, rescale, reset_after: as in `rau`. The weights are
        returned with the mean 1 if `rescale` is True; the state is zero at a reset.

    Returns:
      The attention weights in float32 (float64 for float64 inputs), 0 where the mask is False:
      [B, T, H], a weight for each of H features; concat [B, T, D + H]; matrix [B, T, H, D + H];
      time_causal [B, T, 1].
    """
    call = check_call(
        weights,
        xs,
        mask,
        lengths=lengths,
        resets=resets,
        attention=attention,
        rescale=rescale,
        reset_after=reset_after,
    )
    options = check_options(attention, rescale, reset_after)
    weights, xs, mask, initial, _, begins = call.arguments
    return run_core(_attention, (options,), (weights, xs, mask, initial, begins), (xs,))


def _attention(
    options: RAUOptions,
    weights: Weights,
    xs: Array,
    mask: Array | None,
    initial: Carry,
    begins: Restarts,
) -> Array:
    """Returns the attention weights p of all steps [B, T, ...], 0 at padding."""

    def step(carry: Carry, x: Array) -> tuple[Carry, Array]:
        return advance_and_attend(options, weights, carry, x, None)

    _, p = scan_steps(step, initial, xs, mask, begins)
    return real_alone(p, mask)


def _plain(
    options: RAUOptions,
    reverse: bool,
    unroll: int,
    weights: Weights,
    xs: Array,
    mask: Array | None,
    initial: Carry,
    dropout: Array | None,
    begins: Restarts,
) -> tuple[Tree, Array]:
    """Runs `rau` as a scan of the step, where there is no custom derivative."""
    del unroll

    def step(carry: Carry, x: Array) -> tuple[Carry, Array]:
        new, _ = advance_and_attend(options, weights, carry, x, dropout)
        return new, hidden_of(new)

    carry, states = scan_steps(step, initial, xs, mask, begins, reverse)
    return carry, as_outputs(states, mask, xs.dtype)
