"""All patterns of the gates of one text, without reading it again.

Gated attention pools by sums over open words, so that of a pattern follows from those of its lower
and of its upper half:

    c = s c_low + (1 - s) c_up,  s = sigmoid(l_low - l_up),  l = log sum_t g_t exp(e_t)

with c_low, l_low of the first 10 words and c_up, l_up of the others. A pattern costs one such mean,
one tanh of it and the classifier. The upper halves are taken in turn, and each leaves a few sums
over its lower ones, so that memory holds no 2^n of anything, and the number of upper halves may be
known when the program runs only: texts of all lengths share one program.
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
"""Words of the lower half."""
Head = Callable[[Params, Array], Array]
"""(parameters, pooled states [k, D]) -> class scores [k, C]; hashable."""


class Held(NamedTuple):
    """What gates of one text act on, padded to LOWER words or more.

    Attributes:
      states: h; what stands at padding is finite.
      scores: e, in nats; finite.
      logits: a, the log-odds of open gates; -inf at padding.
      closed: class scores of the pattern without an open gate.
      label: the true class.
      size: n, words that are no padding.
    """

    states: Float[Array, "T D"]
    scores: Float[Array, " T"]
    logits: Float[Array, " T"]
    closed: Float[Array, " C"]
    label: Int[Array, ""]
    size: Int[Array, ""]


class TextTruth(NamedTuple):
    """What is exactly true of one text under Bernoulli gates; NumPy, float64.

    Attributes:
      loss: expected cross-entropy.
      variance: of the cross-entropy.
      right: probability that the label is predicted.
      probabilities: expected probability of each class.
      gradient: of the expected loss with respect to the logits.
      effects: E[loss | b_i = 1] - E[loss | b_i = 0].
      best: the pattern with the lowest loss (the first by its code, gate 0 the lowest bit).
      best_loss: its loss.
      best_right: whether the label is predicted under it.
    """

    loss: float
    variance: float
    right: float
    probabilities: Float[np.ndarray, " C"]
    gradient: Float[np.ndarray, " n"]
    effects: Float[np.ndarray, " n"]
    best: Bool[np.ndarray, " n"]
    best_loss: float
    best_right: bool


class _Sums(NamedTuple):
    """Of one upper half, expectations over the lower ones; losses less a centre."""

    loss: Array
    square: Array
    right: Array
    probabilities: Array
    effects: Array
    least: Array
    code: Array
    least_right: Array


def _factors(p: Any, xp: Any) -> tuple[Any, Any]:
    """(bits of every code [2^n, n], the first gate the lowest; probability of each of them)."""
    n = p.shape[0]
    bits = (np.arange(1 << n)[:, None] >> np.arange(n)[None]) & 1 > 0
    return bits, xp.where(bits, p[None], 1 - p[None])


def _weights(p: Any, xp: Any) -> Any:
    """P(b) of every code."""
    return xp.prod(_factors(p, xp)[1], axis=1)


def _contrasts(p: Any, xp: Any) -> Any:
    """[2^n, n] that make an effect of values: +- the probability of the other gates."""
    bits, factors = _factors(p, xp)
    others = xp.where(np.eye(p.shape[0], dtype=bool)[None], 1, factors[:, None, :])
    return xp.where(bits, 1, -1) * xp.prod(others, axis=2)


def _half(scores: Array, states: Array) -> tuple[Array, Array]:
    """(log sum exp e, mean state) over the open words of every code; (-inf, 0) without one."""
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
def _sums(head: Head, params: Params, held: Held, centre: Float[Array, ""]) -> _Sums:
    """The sums of every upper half; those of halves beyond the text are 0."""
    width = wide_dtype(held.states, held.scores, held.logits)
    states, scores = held.states.astype(width), held.scores.astype(width)
    p = jax.nn.sigmoid(held.logits[:LOWER].astype(width))
    weights, contrasts = _weights(p, jnp), _contrasts(p, jnp)
    level, mean = _half(scores[:LOWER], states[:LOWER])
    level_up, mean_up = _half(scores[LOWER:], states[LOWER:])
    codes = jnp.arange(1 << LOWER)
    real = codes < (1 << jnp.minimum(held.size, LOWER))
    total = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

    def sums(upper: Array) -> _Sums:
        # where both halves are closed there is nothing to weigh, and what is closed is put in
        ratio = level - level_up[upper]
        share = jax.nn.sigmoid(jnp.where(jnp.isnan(ratio), 0, ratio))[:, None]
        pooled = share * mean + (1 - share) * mean_up[upper][None]
        scored = head(params, pooled.astype(held.states.dtype)).astype(width)
        first = (codes == 0) & (upper == 0)
        scored = jnp.where(first[:, None], held.closed.astype(width)[None], scored)
        log_p = jax.nn.log_softmax(scored)
        loss = -jnp.take(log_p, held.label, axis=1)
        right = jnp.argmax(scored, axis=1) == held.label
        # The variance is a difference of squares. Without the centre it would lose digits if the
        # loss is large.
        off = loss - centre
        least = jnp.argmin(jnp.where(real, loss, jnp.inf))
        return _Sums(
            total(weights, off),
            total(weights, off**2),
            total(weights, right.astype(width)),
            total(weights, jnp.exp(log_p)),
            total(off, contrasts),
            loss[least],
            least,
            right[least],
        )

    halves = 1 << (held.scores.shape[0] - LOWER)
    like = jax.eval_shape(sums, jax.ShapeDtypeStruct((), jnp.int32))
    empty = jax.tree.map(lambda x: jnp.zeros((halves, *x.shape), x.dtype), like)

    def step(upper: Array, found: _Sums) -> _Sums:
        put = lambda all_of, one: all_of.at[upper].set(one)  # noqa: E731
        return jax.tree.map(put, found, sums(upper))

    count = 1 << jnp.maximum(held.size - LOWER, 0)
    return jax.lax.fori_loop(0, count, step, empty)


def text_truth(head: Head, params: Params, held: Held, centre: float) -> TextTruth:
    """Every pattern of one text.

    Args:
      head: what follows pooling.
      params: its parameters.
      held: the text.
      centre: a loss about as large as those of the patterns: sums are of what differs from it.

    Raises:
      ValueError: if the loss is not finite at some pattern.
    """
    n = int(held.size)
    count = 1 << max(n - LOWER, 0)
    cut = lambda x: np.asarray(x)[:count]  # noqa: E731
    found: Any = jax.tree.map(cut, jax.device_get(_sums(head, params, held, centre)))
    logits = np.asarray(held.logits, np.float64)[:n]
    # 1 - p is computed from the logit, because the difference of 1 and a p near 1 would lose
    # digits. An overflow of exp gives the correct limit 0.
    with np.errstate(over="ignore"):
        p, q = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits))
    weights, contrasts = _weights(p[LOWER:], np), _contrasts(p[LOWER:], np)
    loss, square, right = (
        float(weights @ x.astype(np.float64)) for x in (found.loss, found.square, found.right)
    )
    if not np.isfinite(square):
        raise ValueError(f"the loss must be finite at every pattern of the gates, got {square}")
    effects = np.concatenate([
        weights @ found.effects.astype(np.float64), found.loss.astype(np.float64) @ contrasts
    ])[np.r_[: min(n, LOWER), LOWER : max(n, LOWER)]]  # fmt: skip
    best = int(np.argmin(found.least))
    code = (best << LOWER) | int(found.code[best])
    return TextTruth(
        loss=centre + loss,
        variance=max(square - loss**2, 0.0),
        right=right,
        probabilities=weights @ found.probabilities.astype(np.float64),
        gradient=effects * p * q,
        effects=effects,
        best=(code >> np.arange(n) & 1).astype(bool),
        best_loss=float(found.least[best]),
        best_right=bool(found.least_right[best]),
    )
