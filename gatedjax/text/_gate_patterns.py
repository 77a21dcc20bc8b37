"""The loss of a text under all patterns of its gates, from a single pass of the encoder.

The pooled state of a pattern follows from its lower half, the gates of the first 10 words, and its
upper half, the gates of all further words:

    c = s c_low + (1 - s) c_up,  s = sigmoid(l_low - l_up),  l = log sum_t g_t exp(e_t)

A loop over the upper halves computes a few sums over all lower halves for each. No array has 2^n
elements, therefore, and the number of upper halves may depend on the text, so that texts of all
lengths share a program.

The code of a pattern or of a half is the integer with its gates as bits, the first gate lowest.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gatedjax._utils.types import Params
from gatedjax.functional._checks import wide_dtype

LOWER = 10
"""The number of words in the lower half of a pattern."""
Head = Callable[[Params, Array], Array]
"""A hashable function: (parameters, pooled states [k, D]) -> class scores [k, C]."""


class PatternInputs(NamedTuple):
    """The arrays that determine a text's loss under a pattern, padded to 10 words or more."""

    states: Float[Array, "T D"]  # of the encoder, finite at padding too
    scores: Float[Array, " T"]  # the attention scores e in nats, finite at padding too
    logits: Float[Array, " T"]  # of the gates, -inf at padding
    closed: Float[Array, " C"]  # the class scores without an open gate
    label: Int[Array, ""]  # the true class
    size: Int[Array, ""]  # the number n of real words


class TextTruth(NamedTuple):
    """The exact results of a text of n words and C classes under Bernoulli gates b, in float64."""

    loss: float  # the expected cross-entropy in nats
    variance: float  # of the cross-entropy
    right: float  # the probability that the label is predicted
    probabilities: Float[np.ndarray, " C"]  # expected, of each class
    gradient: Float[np.ndarray, " n"]  # of the expected loss with respect to the gate logits
    effects: Float[np.ndarray, " n"]  # E[loss | b_i = 1] - E[loss | b_i = 0] for each gate i
    # The pattern with the lowest loss, True at open gates: among several that with the smallest
    # code, its loss, and whether the label is predicted.
    best: Bool[np.ndarray, " n"]
    best_loss: float
    best_right: bool


class _Sums(NamedTuple):
    """The sums over all lower halves for an upper half, weighted by their probabilities."""

    loss: Array  # the expected loss minus the centre
    square: Array  # the expected square of the loss minus the centre
    right: Array  # the probability that the label is predicted
    probabilities: Array  # [C], the expected probability of each class
    effects: Array  # [LOWER], the effects of the gates of the lower half on the loss
    least: Array  # the lowest loss
    code: Array  # the code of the lower half with the lowest loss
    least_right: Array  # True if the label is predicted with the lower half `code`


def _factors(p: Any, xp: Any) -> tuple[Any, Any]:
    """Returns the bits of the codes of n gates, bool [2^n, n], and the probability of each bit."""
    n = p.shape[0]
    bits = (np.arange(1 << n)[:, None] >> np.arange(n)[None]) & 1 > 0
    return bits, xp.where(bits, p[None], 1 - p[None])


def _weights(p: Any, xp: Any) -> Any:
    return xp.prod(_factors(p, xp)[1], axis=1)


def _contrasts(p: Any, xp: Any) -> Any:
    """Computes c [2^n, n] with sum_b c_bi f(b) = E[f | b_i = 1] - E[f | b_i = 0] for all i."""
    bits, factors = _factors(p, xp)
    remaining = xp.where(np.eye(p.shape[0], dtype=bool)[None], 1, factors[:, None, :])
    return xp.where(bits, 1, -1) * xp.prod(remaining, axis=2)


def _half(scores: Array, states: Array) -> tuple[Array, Array]:
    """Computes log sum exp(e) and the pooled state of all codes; -inf and 0 if all are closed."""
    n = scores.shape[0]
    codes = jnp.arange(1 << n)[:, None]
    is_open = (codes >> jnp.arange(n)[None]) & 1 > 0
    joint = jnp.where(is_open, scores[None], -jnp.inf)
    top = jnp.max(joint, axis=1, keepdims=True, initial=-jnp.inf)
    # If no word is open the maximum is -inf, and -inf minus -inf would be NaN.
    shift = jnp.where(jnp.isneginf(top), 0, top)
    weights = jnp.exp(joint - shift)
    total = jnp.sum(weights, axis=1, keepdims=True)
    level = jnp.where(total > 0, shift + jnp.log(jnp.where(total > 0, total, 1)), -jnp.inf)
    weights = weights / jnp.where(total > 0, total, 1)
    return level[:, 0], jnp.matmul(weights, states, precision=jax.lax.Precision.HIGHEST)


@functools.partial(jax.jit, static_argnames="head")
def _sums(head: Head, params: Params, inputs: PatternInputs, centre: Float[Array, ""]) -> _Sums:
    """Computes the `_Sums` of the 2^(T - LOWER) upper halves; 0 where a gate at padding is open."""
    width = wide_dtype(inputs.states, inputs.scores, inputs.logits)
    states, scores = inputs.states.astype(width), inputs.scores.astype(width)
    p = jax.nn.sigmoid(inputs.logits[:LOWER].astype(width))
    weights, contrasts = _weights(p, jnp), _contrasts(p, jnp)
    level, mean = _half(scores[:LOWER], states[:LOWER])
    level_up, mean_up = _half(scores[LOWER:], states[LOWER:])
    codes = jnp.arange(1 << LOWER)
    is_real = codes < (1 << jnp.minimum(inputs.size, LOWER))
    total = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

    def sums(upper: Array) -> _Sums:
        # The ratio is NaN if both halves are closed, because both logs are -inf. The class scores
        # of this pattern are replaced by `closed` below.
        ratio = level - level_up[upper]
        share = jax.nn.sigmoid(jnp.where(jnp.isnan(ratio), 0, ratio))[:, None]
        pooled = share * mean + (1 - share) * mean_up[upper][None]
        scored = head(params, pooled.astype(inputs.states.dtype)).astype(width)
        is_all_closed = (codes == 0) & (upper == 0)
        scored = jnp.where(is_all_closed[:, None], inputs.closed.astype(width)[None], scored)
        log_p = jax.nn.log_softmax(scored)
        loss = -jnp.take(log_p, inputs.label, axis=1)
        right = jnp.argmax(scored, axis=1) == inputs.label
        # The variance is a difference of squares. Without the centre it would lose digits if the
        # loss is large.
        difference = loss - centre
        least = jnp.argmin(jnp.where(is_real, loss, jnp.inf))
        return _Sums(
            total(weights, difference),
            total(weights, difference**2),
            total(weights, right.astype(width)),
            total(weights, jnp.exp(log_p)),
            total(difference, contrasts),
            loss[least],
            least,
            right[least],
        )

    # The results have room for all upper halves of T words, and the loop fills only those of the
    # real words, because the number of real words is not known while tracing.
    halves = 1 << (inputs.scores.shape[0] - LOWER)
    shapes = jax.eval_shape(sums, jax.ShapeDtypeStruct((), jnp.int32))
    zeros = jax.tree.map(lambda x: jnp.zeros((halves, *x.shape), x.dtype), shapes)

    def step(upper: Array, results: _Sums) -> _Sums:
        insert = lambda array, value: array.at[upper].set(value)  # noqa: E731
        return jax.tree.map(insert, results, sums(upper))

    count = 1 << jnp.maximum(inputs.size - LOWER, 0)
    return jax.lax.fori_loop(0, count, step, zeros)


def text_truth(head: Head, params: Params, inputs: PatternInputs, centre: float) -> TextTruth:
    """Computes the exact results from all patterns; a `centre` near the losses saves digits."""
    n = int(inputs.size)
    count = 1 << max(n - LOWER, 0)
    take_real = lambda x: np.asarray(x)[:count]  # noqa: E731
    results: Any = jax.tree.map(take_real, jax.device_get(_sums(head, params, inputs, centre)))
    logits = np.asarray(inputs.logits, np.float64)[:n]
    # 1 - p is computed from the logit, because the difference of 1 and a p near 1 would lose
    # digits. An overflow of exp gives the correct limit 0.
    with np.errstate(over="ignore"):
        p, q = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits))
    weights, contrasts = _weights(p[LOWER:], np), _contrasts(p[LOWER:], np)
    loss, square, right = (
        float(weights @ x.astype(np.float64)) for x in (results.loss, results.square, results.right)
    )
    if not np.isfinite(square):
        raise ValueError(f"loss must be finite for all patterns of the gates, got {square}")
    effects = np.concatenate([
        weights @ results.effects.astype(np.float64), results.loss.astype(np.float64) @ contrasts
    ])[np.r_[: min(n, LOWER), LOWER : max(n, LOWER)]]  # fmt: skip
    best = int(np.argmin(results.least))
    code = (best << LOWER) | int(results.code[best])
    return TextTruth(
        loss=centre + loss,
        variance=max(square - loss**2, 0.0),
        right=right,
        probabilities=weights @ results.probabilities.astype(np.float64),
        gradient=effects * p * q,
        effects=effects,
        best=(code >> np.arange(n) & 1).astype(bool),
        best_loss=float(results.least[best]),
        best_right=bool(results.least_right[best]),
    )
