"""The expectation of a loss over the gates of every row of a batch, whose rows are run together."""

from collections.abc import Callable
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from gatedjax._utils.types import Tree
from gatedjax.functional._checks import wide_dtype
from gatedjax.gates._expectation import Estimator, cut, noise_rows
from gatedjax.gates._objective import Objective

Losses = Callable[[Float[Array, "B k n"]], tuple[Float[Array, "B k"], Tree]]
"""(the loss of k patterns of every row, anything else that is wanted of them)."""


class _Replayed:
    """Stands for an `Objective`: notes the patterns it is asked for, and answers from a list.

    Args:
      answers: the values of the patterns in their order; None answers with zeros.
      held: the same without derivatives with respect to the other arguments, as `Objective.held`.
    """

    def __init__(
        self, answers: Float[Array, " k"] | None = None, held: "_Replayed | None" = None
    ) -> None:
        self._answers = answers
        self.held = held
        self.asked: list[Array] = []

    def __call__(self, gates: Float[Array, " n"]) -> Float[Array, ""]:
        return self.values(gates[None])[0]

    def values(self, gates: Float[Array, "k n"]) -> Float[Array, " k"]:
        start = sum(map(len, self.asked))
        self.asked.append(gates)
        if self._answers is None:
            return jnp.zeros(len(gates), wide_dtype(gates))
        return self._answers[start : start + len(gates)]


def expectation_together(
    losses: Losses,
    estimator: Estimator,
    logits: Float[Array, "B n"],
    keys: Key[Array, " B"],
    mask: Bool[Array, "B n"] | None = None,
) -> tuple[Float[Array, " B"], Tree]:
    """`expectation` of every row, by one evaluation of the loss for all rows and patterns.

    The patterns of a `ByValues` do not depend on values of the loss, so they are collected first.
    `jax.vmap` of `expectation` gives the same numbers, but runs a network row by row: what comes
    back to its parameters is then formed for every row before it is summed, which costs a
    recurrence several times as much.

    Args:
      losses: differentiable with respect to what it closes over. The gates are in the dtype of the
        logits; pattern 0 is the first draw.
      estimator: a `ByValues`.
      logits, keys, mask: of every row, as of `expectation`.

    Returns:
      (the estimates, whatever losses returned beside the values).
    """
    a = logits if mask is None else jax.vmap(cut)(logits, mask)
    n = a.shape[-1]
    noise = jax.vmap(lambda key: noise_rows(key, estimator.rows, n))(keys)

    def run(row: Array, noise: Array, replayed: _Replayed) -> Array:
        objective = cast(Objective, replayed)
        return estimator.surrogate(objective, row.astype(wide_dtype(row)), noise)

    def patterns(row: Array, noise: Array) -> tuple[Array, Array]:
        held = _Replayed()
        live = _Replayed(held=held)
        run(row, noise, live)
        none = jnp.zeros((0, n), row.dtype)
        join = lambda asked: jnp.concatenate([none, *asked], dtype=row.dtype)  # noqa: E731
        return join(live.asked), join(held.asked)

    def replay(row: Array, noise: Array, live: Array, held: Array) -> Array:
        return run(row, noise, _Replayed(live, _Replayed(held)))

    live, held = jax.lax.stop_gradient(jax.vmap(patterns)(a, noise))
    values, more = losses(live)
    constants = jnp.zeros(held.shape[:2], values.dtype)
    if held.shape[1]:
        constants = jax.lax.stop_gradient(losses(held)[0])
    return jax.vmap(replay)(a, noise, values, constants), more
