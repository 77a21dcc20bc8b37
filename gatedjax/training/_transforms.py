"""Optax transformations for `make_optimizer` and `fit`."""

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


def promoting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` with the standard promotion of dtypes, which the rules of Optax need."""

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return function(*args, **options)

    return run


def train_all_but(
    tx: optax.GradientTransformation, frozen: tuple[str, ...]
) -> optax.GradientTransformation:
    """Returns a transformation that does not change the frozen parameters."""

    def labels(params: Any) -> Any:
        def label(path: Any, _: Any) -> str:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            names.append(name)
            below = [at for at in frozen if f"{name}/".startswith(f"{at}/")]
            matched.update(below)
            return "frozen" if below else "trained"

        names: list[str] = []
        matched: set[str] = set()
        tree = jax.tree_util.tree_map_with_path(label, params)
        if missing := sorted(set(frozen) - matched):
            raise ValueError(f"frozen must be among {sorted(names)}, got {missing}")
        return tree

    # `set_to_zero` has no state, so that frozen parameters need no memory in the optimiser.
    groups = {"trained": tx, "frozen": optax.set_to_zero()}
    parts = optax.partition(groups, labels, mask_compatible_extra_args=True)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        if value_fn := extra.get("value_fn"):
            # Optax calls it without the frozen parameters.
            extra["value_fn"] = lambda trained: value_fn(fill_masked(trained, params))
        return parts.update(updates, state, params, **extra)

    return optax.GradientTransformationExtraArgs(parts.init, update)


def is_masked(leaf: Any) -> bool:
    """Returns True if `leaf` is an `optax.MaskedNode`, which stands for a masked array."""
    return isinstance(leaf, optax.MaskedNode)


def fill_masked(tree: Any, params: Any) -> Any:
    """Returns `tree` with the array of `params` in the place of each `optax.MaskedNode`."""
    return jax.tree.map(lambda x, p: p if is_masked(x) else x, tree, params, is_leaf=is_masked)


class ResetState(NamedTuple):
    """State of `reset_where`, a transformation that resets another transformation."""

    steps: jax.Array
    inner: Any


def reset_where(
    inner: optax.GradientTransformation, when: Callable[[jax.Array], jax.Array]
) -> optax.GradientTransformation:
    """Returns a transformation that resets `inner` before each update for which `when` is True."""

    def init(params: Any) -> ResetState:
        return ResetState(jnp.zeros((), jnp.int32), inner.init(params))

    def update(updates: Any, state: ResetState, params: Any = None) -> tuple[Any, ResetState]:
        again = when(state.steps)
        # The parameters may be missing; the updates have the same shapes.
        fresh = inner.init(updates if params is None else params)
        old = jax.tree.map(lambda new, old: jnp.where(again, new, old), fresh, state.inner)
        updates, new = inner.update(updates, old, params)
        return updates, ResetState(state.steps + 1, new)

    return optax.GradientTransformation(init, update)


def as_transformation(optimizer: Any) -> Any:
    """Returns the Optax transformation of an `optax.MultiSteps`, or another object unchanged."""
    if isinstance(optimizer, optax.MultiSteps):
        # The method gradient_transformation() of MultiSteps would drop extra arguments.
        return optax.GradientTransformationExtraArgs(optimizer.init, optimizer.update)
    return optimizer


def call_update(
    tx: optax.GradientTransformation, grads: Any, state: Any, params: Any, **extra: Any
) -> tuple[Any, Any]:
    """Calls the update of a transformation with the extra arguments that it accepts."""
    update = optax.with_extra_args_support(as_transformation(tx)).update
    while True:
        try:
            return update(grads, state, params, **extra)
        except TypeError as error:
            # Optax has no way to ask which arguments a transformation accepts, so the name is read
            # from the message of Python.
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            if unknown is None or unknown[1] not in extra:
                raise
            del extra[unknown[1]]


def is_key(leaf: Any) -> bool:
    """Returns True if the array `leaf` has typed PRNG keys (`jax.random.key`)."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def keys_as_data(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """Returns a transformation that stores PRNG keys as integers, as NumPy has no typed keys."""

    def data(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)

    def init(params: Any) -> Any:
        return data(tx.init(params))

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        impls: list[Any] = []

        def kinds(params: Any) -> None:
            leaves = jax.tree.leaves(tx.init(params))
            impls.extend(jax.random.key_impl(x) if is_key(x) else None for x in leaves)

        # Integers do not show which generator they belong to, so the kinds are taken from a traced
        # `init`.
        jax.eval_shape(kinds, updates if params is None else params)
        leaves, structure = jax.tree.flatten(state)
        keys = [
            x if impl is None else jax.random.wrap_key_data(x, impl=impl)
            for x, impl in zip(leaves, impls, strict=True)
        ]
        updates, new = call_update(
            tx, updates, jax.tree.unflatten(structure, keys), params, **extra
        )
        return updates, data(new)

    return optax.GradientTransformationExtraArgs(init, update)
