"""Exact moments and gradients of a loss over few gates, by enumeration of all 2^n patterns.

The code of a pattern is an integer; its bit r is the r-th real gate. A sum over patterns is
computed as u^T M v, where M is the matrix of losses, and u and v are the probabilities of the upper
and the lower half of the bits, so the 2^n probabilities are never in memory together. The
derivative of the sum with respect to the probability of a gate is the effect of that gate. In
reverse mode all effects cost as much as the sum, and no term is divided by a probability.
"""

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from gatedjax._utils.fields import check_type
from gatedjax._utils.tracing import check_key
from gatedjax.functional import gumbel_sigmoid, logistic_noise, threshold_gates
from gatedjax.functional._checks import check_positive, is_known, wide_dtype
from gatedjax.functional._export import exportable
from gatedjax.functional._types import ArrayLike
from gatedjax.gates._expectation import check_row
from gatedjax.gates._objective import Loss, Objective, check_loss

LARGEST = 20
"""The largest number of gates that is enumerated without an explicit number of chunks."""
# Codes are int32, and the number of patterns has to be an int32 too.
_INDEX_BITS = 30
_PER_CHUNK_BITS = 12


class BitLayout(NamedTuple):
    """The gates of the bits: bit r of a code is 1 if the r-th real gate is open."""

    real: Bool[Array, " n"]  # True at real gates
    rank: Int[Array, " n"]  # the bit of each gate; of a masked gate any bit
    position: Int[Array, " bits"]  # the gate of each bit; 0 beyond the last real gate
    used: Bool[Array, " bits"]  # True at bits with a gate


def assign_bits(mask: Bool[Array, " n"], bits: int) -> BitLayout:
    """Assigns the bits of a code to the real gates, in their order, from the lowest bit."""
    # A masked gate before the first real gate would have the rank -1.
    rank = jnp.maximum(jnp.cumsum(mask) - 1, 0)
    # The size is static, because under `jit` a shape cannot depend on the mask.
    (position,) = jnp.nonzero(mask, size=bits, fill_value=0)
    return BitLayout(mask, rank, position, jnp.arange(bits) < jnp.sum(mask))


def decode_pattern(code: Int[Array, ""], layout: BitLayout) -> Bool[Array, " n"]:
    """Returns the pattern of a code, True at open gates; False also at masked gates."""
    return ((code >> layout.rank.astype(code.dtype)) & 1).astype(bool) & layout.real


def check_known(n: object) -> None:
    """Raises ValueError unless the number n of gates is an int."""
    if not isinstance(n, int):
        raise ValueError(
            f"logits must have a number n of gates that is known while tracing, got shape ({n},): "
            "2^n patterns are enumerated; add open rows by jax.vmap instead"
        )


def count_chunks(bits: int, chunks: int | None, itemsize: int = 4) -> int:
    """Returns the number of chunks, a power of 2; raises ValueError for too many patterns."""
    if chunks is not None:
        check_type("chunks", chunks, int)
        if chunks < 1:
            raise ValueError(f"chunks must be at least 1, got {chunks}")
    if bits > _INDEX_BITS or (bits > LARGEST and chunks is None):
        cost = f"2^{bits} = {2**bits:,} evaluations of the loss and {itemsize * 2**bits:,} bytes"
        way = "; set chunks to allow it" if bits <= _INDEX_BITS else ""
        most = LARGEST if way else _INDEX_BITS
        raise ValueError(f"n must be at most {most}, got {bits} gates: {cost}{way}")
    if chunks is None:
        return 1 << max(0, bits - _PER_CHUNK_BITS)
    # A power of 2 divides the 2^n patterns into equal chunks.
    return 1 << min(bits, math.ceil(math.log2(chunks)))


def compute_losses(
    objective: Objective, layout: BitLayout, bits: int, chunks: int
) -> Float[Array, " patterns"]:
    """Computes the losses [2^bits] of all codes in their order, one chunk after the other."""
    size = (1 << bits) // chunks

    @jax.checkpoint  # a gradient computes a chunk again instead of storing it
    def chunk(start):
        codes = start + jnp.arange(size, dtype=jnp.int32)
        gates = jax.vmap(decode_pattern, in_axes=(0, None))(codes, layout)
        return objective.values(gates)

    if chunks == 1:
        return chunk(jnp.int32(0))
    starts = jnp.arange(chunks, dtype=jnp.int32) * size
    return jax.lax.map(chunk, starts).reshape(1 << bits)


def _weigh_patterns(probability: Float[Array, " bits"]) -> Float[Array, " patterns"]:
    # Each bit doubles the vector. The new bit is the highest so far: its half with value 1 comes
    # last, in the order of the codes.
    weights = jnp.ones(1, probability.dtype)
    for bit in range(probability.shape[0]):
        p = probability[bit]
        weights = jnp.concatenate([weights * (1 - p), weights * p])
    return weights


def contract(
    values: Float[Array, " patterns"], probability: Float[Array, " bits"]
) -> Float[Array, ""]:
    """Computes sum_b P(b) values_b for independent gates: the values' multilinear extension."""
    low = probability.shape[0] // 2
    upper, lower = _weigh_patterns(probability[low:]), _weigh_patterns(probability[:low])
    square = values.reshape(upper.shape[0], lower.shape[0])
    # The default precision of products on accelerators may be below float32, and these sums are
    # called exact.
    rows = jnp.matmul(square, lower, precision=jax.lax.Precision.HIGHEST)
    return jnp.matmul(upper, rows, precision=jax.lax.Precision.HIGHEST)


@exportable
class Truth(NamedTuple):
    """Exact properties of a loss f over n gates b_i ~ Bernoulli(sigmoid(a_i)) with logits a [n].

    Attributes:
      expectation: E f(b), a scalar.
      variance: the variance of f(b), a scalar.
      gradient: the gradient [n] of E f(b) with respect to the logits; 0 at masked gates.
      effects: E[f(b) | b_i = 1] - E[f(b) | b_i = 0] for each gate i [n]; 0 at masked gates.
      best: the pattern [n] of the smallest loss, in the dtype of the logits. Among equal losses it
        has the smallest code, in which gate 0 is the lowest bit.
      modes: a dict with the loss, a scalar, of each gate mode: "sample" (the expectation),
        "threshold" ([a > 0], the likeliest pattern), "best" (the pattern of the smallest loss),
        "expected" (mean field: gates sigmoid(a)) and, with a key, "relaxed" (the mean over
        Gumbel-sigmoid gates). All but "relaxed" are exact.
    """

    expectation: Float[Array, ""]
    variance: Float[Array, ""]
    gradient: Float[Array, " n"]
    effects: Float[Array, " n"]
    best: Float[Array, " n"]
    modes: dict[str, Float[Array, ""]]


class _CheckedTruth(NamedTuple):
    """A `Truth`, and whether all losses are finite."""

    truth: Truth
    bad: Int[Array, ""]  # the code of the first pattern with a loss that is not finite, or -1


@functools.partial(jax.jit, static_argnames=("loss", "bits", "chunks", "draws"))
def _compute_truth(
    loss: Loss,
    logits: Float[Array, " n"],
    mask: Bool[Array, " n"],
    args: tuple[Any, ...],
    key: Key[Array, ""] | None,
    temperature: ArrayLike,
    *,
    bits: int,
    chunks: int,
    draws: int,
) -> _CheckedTruth:
    """Computes the `Truth`, and the code of a pattern with a loss that is not finite, or -1."""
    objective = Objective(loss, args, logits.dtype)
    wide = jnp.where(mask, logits, -jnp.inf).astype(wide_dtype(logits))
    # q is not computed as 1 - p, which rounds to 0 where p is near 1.
    p, q, layout = jax.nn.sigmoid(wide), jax.nn.sigmoid(-wide), assign_bits(mask, bits)
    losses = compute_losses(objective, layout, bits, chunks)
    probability = jnp.where(layout.used, p[layout.position], 0).astype(losses.dtype)
    # A masked gate has the rank of another gate, so the mask sets its effect to 0.
    expectation, by_bit = jax.value_and_grad(contract, argnums=1)(losses, probability)
    effects = jnp.where(mask, by_bit[layout.rank] if bits else 0, 0).astype(wide.dtype)
    best, is_finite = jnp.argmin(losses), jnp.isfinite(losses)
    modes = {
        "sample": expectation,
        "threshold": objective(threshold_gates(wide)),
        "best": losses[best],
        "expected": objective(p),
    }
    if key is not None:
        modes["relaxed"] = _average_relaxed(objective, wide, key, temperature, draws)
    truth = Truth(
        expectation=expectation,
        variance=contract((losses - expectation) ** 2, probability),
        # The chain rule: E f(b) is linear in each p_i, and dp / da = p (1 - p).
        gradient=effects * p * q,
        effects=effects,
        best=decode_pattern(best, layout).astype(logits.dtype),
        modes=modes,
    )
    return _CheckedTruth(truth, jnp.where(jnp.all(is_finite), -1, jnp.argmin(is_finite)))


def _average_relaxed(
    objective: Objective,
    logits: Float[Array, " n"],
    key: Key[Array, ""],
    temperature: ArrayLike,
    draws: int,
) -> Float[Array, ""]:
    """Returns the mean loss of `draws` draws of Gumbel-sigmoid gates [n] at a temperature."""

    def evaluate(key):
        noise = logistic_noise(key, logits.shape)
        return objective(gumbel_sigmoid(logits, noise, temperature=temperature))

    # Batches of draws bound the memory: all draws at once would need as many copies of the
    # intermediate values of the loss.
    return jnp.mean(jax.lax.map(evaluate, jax.random.split(key, draws), batch_size=min(draws, 256)))


def enumerate(
    loss: Loss,
    logits: Float[Array, " n"],
    *args: Any,
    mask: Bool[Array, " n"] | None = None,
    chunks: int | None = None,
    key: Key[Array, ""] | None = None,
    temperature: float | Float[Array, ""] = 0.5,
    draws: int = 1024,
) -> Truth:
    """Evaluates a loss at all 2^n patterns of its gates, for exact expectations and gradients.

        E f(b) = sum_b prod_i p_i^b_i (1 - p_i)^(1 - b_i) f(b),  p = sigmoid(a)

    The loss is evaluated once per pattern; moments, effects and gradients follow from these values.
    If the mask is known while tracing, only the real gates are enumerated. The program is compiled
    once per loss (by the identity of the function), shapes and number of gates, so pass values that
    change between calls in args. Composes under `jit` and `vmap`.

        >>> truth = enumerate(lambda gates: gates[0] + 2 * gates[1], jnp.zeros(2))
        >>> print(truth.expectation, truth.gradient, truth.best)
        1.5 [0.25 0.5 ] [0. 0.]

    Args:
      loss: loss(gates, *args) -> scalar; gates [n] in the dtype of the logits.
      logits: a, the log-odds of open gates; a gate with an infinite logit is certain.
      *args: further arguments of the loss.
      mask: True at real gates; the other gates are closed in all patterns. None means all are real.
      chunks: the number of equal parts in which the patterns are evaluated one after the other
        (rounded up to a power of 2); None means parts of at most 4096. The losses of all patterns
        are in memory at once. More than 20 gates, at most 30, need an explicit number.
      key: a PRNG key for the mode "relaxed", the mean loss of Gumbel-sigmoid gates; None leaves the
        mode out.
      temperature: the temperature of the mode "relaxed".
      draws: the number of draws of the mode "relaxed".

    Returns:
      A `Truth` with the expectation and the variance of the loss, the gradient [n] of the
      expectation with respect to the logits, the effect of each gate [n], the pattern [n] of the
      smallest loss, and the loss of each gate mode. Under `jit`, where no value can be checked, a
      loss that is not finite at a pattern makes the expectation not finite.

    Raises:
      ValueError: for more than 20 gates without chunks, for a number of gates that `jax.export`
        leaves open (the number of rows of a `vmap` may be open), for a loss that is not a scalar,
        and for a loss that is NaN or infinite at a pattern, which the message names.
    """
    check_loss(loss)
    check_positive(temperature=temperature, draws=draws)
    check_type("draws", draws, int)
    check_row(logits, mask)
    if key is not None:
        check_key(key=key)
    logits = jnp.asarray(logits)
    n = logits.shape[0]
    check_known(n)
    real: ArrayLike = np.ones(n, bool) if mask is None else mask
    # The number of bits sets shapes, so a traced mask cannot lower it.
    bits = int(np.sum(np.asarray(real))) if is_known(real) else n
    chunks = count_chunks(bits, chunks, wide_dtype(logits).itemsize)
    checked = _compute_truth(
        loss, logits, real, args, key, temperature, bits=bits, chunks=chunks, draws=draws
    )
    if is_known(checked.bad) and int(checked.bad) >= 0:
        _refuse(loss, logits, real, args, int(checked.bad), bits)
    return checked.truth


def _refuse(
    loss: Loss, logits: ArrayLike, mask: ArrayLike, args: tuple[Any, ...], code: int, bits: int
) -> None:
    gates = decode_pattern(jnp.int32(code), assign_bits(jnp.asarray(mask), bits))
    value = Objective(loss, args, jnp.result_type(logits))(gates)
    pattern_values = np.asarray(gates).astype(int).tolist()
    raise ValueError(f"loss must be finite for all patterns, got {value} at gates {pattern_values}")


@dataclasses.dataclass(frozen=True)
class Enumerate:
    """The exact gradient, as an estimator.

        gradient = d/da sum_b P(b) f(b)

    The sum runs over the patterns b of n gates, P(b) is their probability under the logits a, and f
    is the loss. The estimate is unbiased and has variance 0. It evaluates the loss 2^n times,
    without its derivative; n includes masked gates. The gradients of the other arguments of the
    loss are exact, too.

        >>> from gatedjax.gates import expectation
        >>> expected = expectation(lambda gates: gates[0] + 2 * gates[1], Enumerate())
        >>> print(jax.grad(expected)(jnp.zeros(2), jax.random.key(0)))
        [0.25 0.5 ]

    Attributes:
      chunks: the number of equal parts in which the patterns are evaluated, one after the other;
        None means parts of at most 4096 patterns.

    Reference: the definition of the expectation.
    """

    chunks: int | None = None
    unbiased: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = False
    rows: ClassVar[int] = 0

    def evaluations(self, n: int) -> int:
        """Returns 2^n, the number of patterns of n gates."""
        return 1 << n

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """Returns the expected loss E f(b), with its exact gradient.

        objective is the loss f as a function of the gates, and logits are [n]; the noise has no
        rows and is not used.
        """
        bits = logits.shape[0]
        check_known(bits)
        chunks = count_chunks(bits, self.chunks, logits.dtype.itemsize)
        # A gate with the logit -inf is closed in all patterns, because the loss may be undefined
        # where it is open.
        layout = assign_bits(jnp.ones(bits, bool), bits)._replace(real=logits > -jnp.inf)
        losses = compute_losses(objective, layout, bits, chunks)
        return contract(losses, jax.nn.sigmoid(logits).astype(losses.dtype))
