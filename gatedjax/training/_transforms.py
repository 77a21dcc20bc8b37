"""Optax transformations that the chains of `make_optimizer` are built with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gatedjax.training._rows import LazyRows, lazy_rows


def train_all_but(
    tx: optax.GradientTransformation, frozen: tuple[str, ...]
) -> optax.GradientTransformation:
    """Leaves the named parameters as they are; they have no optimiser state.

    Args:
      tx: what updates the others.
      frozen: paths such as "embed/table", or "encoder" for everything below it.

    Raises:
      ValueError: in `init`, if there is no parameter of a name.
    """

    if isinstance(tx, LazyRows):  # it stays the outermost
        return lazy_rows(train_all_but(tx.inner, frozen))

    def labels(params: Any) -> Any:
        def label(path: Any, _: Any) -> str:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            names.append(name)
            below = [at for at in frozen if f"{name}/".startswith(f"{at}/")]
            found.update(below)
            return "frozen" if below else "trained"

        names: list[str] = []
        found: set[str] = set()
        tree = jax.tree_util.tree_map_with_path(label, params)
        if missing := sorted(set(frozen) - found):
            raise ValueError(f"frozen must be among {sorted(names)}, got {missing}")
        return tree

    return optax.partition({"trained": tx, "frozen": optax.set_to_zero()}, labels)


class ResetState(NamedTuple):
    """State of `reset_where`.

    Attributes:
      steps: updates made.
      inner: state of what is reset.
    """

    steps: jax.Array
    inner: Any


def reset_where(
    inner: optax.GradientTransformation, when: Callable[[jax.Array], jax.Array]
) -> optax.GradientTransformation:
    """Starts the inner transformation afresh before every update whose number `when` picks."""

    def init(params: Any) -> ResetState:
        return ResetState(jnp.zeros((), jnp.int32), inner.init(params))

    def update(updates: Any, state: ResetState, params: Any = None) -> tuple[Any, ResetState]:
        again = when(state.steps)
        # of the updates: they have the shapes of the parameters, which may not be given
        fresh = inner.init(updates if params is None else params)
        old = jax.tree.map(lambda new, old: jnp.where(again, new, old), fresh, state.inner)
        updates, new = inner.update(updates, old, params)
        return updates, ResetState(state.steps + 1, new)

    return optax.GradientTransformation(init, update)
