"""Greedy search and beam search for the best target of any autoregressive model."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from gatedjax._utils.types import Tree
from gatedjax.functional._export import exportable

Step = Callable[[Int[Array, "B K"], Tree, Int[Array, ""]], tuple[Float[Array, "B K V"], Tree]]
"""A function (last tokens, cache, position) that returns (log-probabilities of the next, cache)."""


@exportable
class Found(NamedTuple):
    """The targets of a search for B rows: K targets of at most T tokens per row, the best first.

    A row is an input of the model, such as a sentence to translate.

    Attributes:
      tokens: int32 [B, K, T], the stop token included, 0 after it.
      scores: log-probabilities divided by the length penalty [B, K]; -inf if a row has fewer than
        K targets.
    """

    tokens: Int[Array, "B K T"]
    scores: Float[Array, "B K"]


def length_penalty(length: Array | int, alpha: float) -> Array:
    """Computes ((5 + length) / 6)^alpha (Wu et al. 2016), which divides log-probabilities."""
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


def check_search(beam_size: int, alpha: float, size: int) -> None:
    """Raises ValueError if an option of a search is out of range."""
    if beam_size < 1:
        raise ValueError(f"beam_size must be at least 1, got {beam_size}")
    if not 0 <= alpha < math.inf:
        raise ValueError(f"length_penalty must be at least 0 and finite, got {alpha}")
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")


def beam_search(
    step: Step,
    cache: Tree,
    limits: Int[Array, " B"],
    *,
    size: int,
    beam_size: int,
    alpha: float,
    start: int,
    stop: int,
) -> Found:
    """Searches for the targets with the highest penalised log-probability.

    Each step extends the K unfinished targets of a row by all tokens. Among the best 2K extensions,
    stop tokens among the first K finish their targets, of which the search remembers the best K;
    the first K extensions without a stop token go on. A row is done when K targets are finished, or
    at its limit, where only the stop token is allowed. With K = 1 this is greedy search; with K as
    large as the number of targets the search is exhaustive. Rows do not depend on each other.

        >>> def step(tokens, cache, position):  # 0 is the stop token
        ...     chances = jnp.array([0.25, 0.5, 0.25])
        ...     return jnp.broadcast_to(jnp.log(chances), (*tokens.shape, 3)), cache
        >>> options = {"size": 3, "beam_size": 2, "alpha": 0.0, "start": 2, "stop": 0}
        >>> targets = beam_search(step, {}, jnp.array([2]), **options)
        >>> print(targets.tokens[0], jnp.exp(targets.scores[0]).round(3))
        [[0 0 0]
         [1 0 0]] [0.25  0.125]

    Args:
      step: the model, a function (last tokens int [B, K], cache, position from 0) that returns
        (log-probabilities [B, K, V] of the V possible next tokens, new cache).
      cache: the first cache of `step`, a tree of arrays [B, K, ...].
      limits: maximum length of the targets of each of B rows (the inputs of the model, such as
        sentences to translate), the stop token included, in [1, size].
      size: T, the maximum length of all targets.
      beam_size: K, the number of targets per row.
      alpha: exponent of the `length_penalty`.
      start: id of the token before the first.
      stop: id of the token after the last.

    Returns:
      A `Found` with `tokens` [B, K, T], the targets of each row with the best first and 0 after
      the stop token, and their `scores` [B, K]. Each row has a target; missing further targets
      have the score -inf.

    Raises:
      ValueError: if an option is out of range.
    """
    check_search(beam_size, alpha, size)
    rows = limits.shape[0]
    state = _beginning(cache, rows, beam_size, size, start)

    def follow(cache: Tree, parents: Int[Array, "B K"]) -> Tree:
        # A target that goes on may have a parent in another place of the beam, if it has several.
        return cache if beam_size == 1 else jax.tree.map(lambda x: _pick(x, parents), cache)

    def body(s: dict[str, Tree]) -> dict[str, Tree]:
        """Returns the state of the search after another step."""
        at = s["position"]
        log_probs, cache = step(s["last"], s["cache"], at)
        classes = log_probs.shape[-1]
        log_probs = _only_stop(log_probs, at + 1 >= limits, stop)
        totals = (s["alive_scores"][..., None] + log_probs).reshape(rows, beam_size * classes)
        # At most K of the best 2K extensions are stop tokens, so that K unfinished targets remain.
        best, index = lax.top_k(totals, min(2 * beam_size, beam_size * classes))
        # The extensions of a row form a single axis of K V entries, target by target.
        parents, tokens = index // classes, (index % classes).astype(jnp.int32)
        longer = _pick(s["alive"], parents).at[:, :, at].set(tokens)
        ends = tokens == stop

        # A stop token beyond rank K belongs to a target that the beam would have dropped.
        first = jnp.arange(best.shape[1])[None] < beam_size
        ending = ends & first & (best > -jnp.inf) & ~s["done"][:, None]
        # The penalty applies to finished targets only: unfinished targets of a step have equal
        # lengths.
        scores = jnp.where(ending, best / length_penalty(at + 1, alpha), -jnp.inf)
        scores = jnp.concatenate([s["ended_scores"], scores], axis=1)
        best_scores, best_ended = lax.top_k(scores, beam_size)
        ended_targets = _pick(jnp.concatenate([s["ended"], longer], axis=1), best_ended)

        # Finished targets cannot go on.
        alive_scores, going = lax.top_k(jnp.where(ends, -jnp.inf, best), beam_size)
        # The search of a row ends after K finished targets, also if better ones could follow.
        count = s["count"] + jnp.sum(ending, axis=1)
        return {
            "position": at + 1,
            "last": jnp.take_along_axis(tokens, going, axis=1),
            "alive": _pick(longer, going),
            "alive_scores": alive_scores,
            "ended": ended_targets,
            "ended_scores": best_scores,
            "count": count,
            "done": s["done"] | (count >= beam_size) | (at + 1 >= limits),
            "cache": follow(cache, jnp.take_along_axis(parents, going, axis=1)),
        }

    def is_unfinished(s: dict[str, Tree]) -> Array:
        return (s["position"] < size) & ~jnp.all(s["done"])

    state = lax.while_loop(is_unfinished, body, state)
    return Found(state["ended"], state["ended_scores"])


def _beginning(cache: Tree, rows: int, beam_size: int, size: int, start: int) -> dict[str, Tree]:
    """Returns the state of a beam search before its first step, a dict of arrays."""
    # All targets but the first have -inf, because equal targets would fill the beam with copies.
    no_scores = jnp.full((rows, beam_size), -jnp.inf)
    return {
        "position": jnp.zeros((), jnp.int32),
        "last": jnp.full((rows, beam_size), start, jnp.int32),
        "alive": jnp.zeros((rows, beam_size, size), jnp.int32),
        "alive_scores": no_scores.at[:, 0].set(0.0),
        "ended": jnp.zeros((rows, beam_size, size), jnp.int32),
        "ended_scores": no_scores,
        "count": jnp.zeros((rows,), jnp.int32),
        "done": jnp.zeros((rows,), bool),
        "cache": cache,
    }


def greedy_search(
    step: Step, cache: Tree, limits: Int[Array, " B"], *, size: int, start: int, stop: int
) -> Found:
    """Searches for a target by the most probable token at each step.

        >>> def step(tokens, cache, position):  # 0 is the stop token
        ...     chances = jnp.where(position < 2, jnp.array([0.25, 0.75]), jnp.array([0.5, 0.5]))
        ...     return jnp.broadcast_to(jnp.log(chances), (*tokens.shape, 2)), cache
        >>> targets = greedy_search(step, {}, jnp.array([4]), size=4, start=1, stop=0)
        >>> print(targets.tokens[0])
        [[1 1 0 0]]

    Args:
      step: the model, a function (last tokens int [B, 1], cache, position from 0) that returns
        (log-probabilities [B, 1, V] of the V possible next tokens, new cache). If tokens are
        equally probable, the first is chosen.
      cache: the first cache of `step`, a tree of arrays [B, 1, ...].
      limits: maximum length of the target of each of B rows (the inputs of the model, such as
        sentences to translate), the stop token included, in [1, size].
      size: T, the maximum length of all targets.
      start: id of the token before the first.
      stop: id of the token after the last.

    Returns:
      A target per row, `tokens` [B, 1, T], with its log-probability, `scores` [B, 1].

    Raises:
      ValueError: if size is below 1.
    """
    options = {"size": size, "start": start, "stop": stop}
    return beam_search(step, cache, limits, beam_size=1, alpha=0.0, **options)


def _only_stop(log_probs: Array, at_limit: Array, stop: int) -> Array:
    other = jnp.arange(log_probs.shape[-1]) != stop
    return jnp.where(at_limit[:, None, None] & other[None, None], -jnp.inf, log_probs)


def _pick(array: Array, index: Int[Array, "B K"]) -> Array:
    return jax.vmap(lambda row, places: row[places])(array, index)
