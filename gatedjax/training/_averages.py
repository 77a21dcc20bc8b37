"""Moving averages of parameters, and the choice of the parameters to evaluate."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gatedjax.training._transforms import is_masked


class EmaState(NamedTuple):
    """State of `params_ema`, a transformation that averages parameters."""

    steps: jax.Array
    ema: Any


def params_ema(decay: float) -> optax.GradientTransformation:
    """Returns a transformation that computes a moving average of the parameters.

    ema <- d ema + (1 - d) params,  d = min(decay, (1 + t) / (10 + t)) after t updates, so that the
    average soon forgets the first parameters. Updates pass through unchanged. The average of
    bfloat16 and float16 parameters is stored in float32; `eval_params` rounds it to their dtype.

        >>> tx = optax.chain(optax.sgd(0.5), params_ema(0.9))
        >>> params = {"w": jnp.array(1.0)}
        >>> state = tx.init(params)
        >>> updates, state = tx.update({"w": jnp.array(2.0)}, state, params)
        >>> print(eval_params(params, state)["w"])
        0.1

    Args:
      decay: the weight of the old average, in [0, 1).

    Returns:
      The transformation. It belongs at the end of a chain, because it averages the parameters that
      the updates it receives lead to.

    Raises:
      ValueError: if decay is outside [0, 1).
    """
    if not 0 <= decay < 1:
        raise ValueError(f"ema_decay must be in [0, 1) or None, got {decay}")

    def init(params: Any) -> EmaState:
        average = lambda p: jnp.array(p, _wide(jnp.asarray(p).dtype))  # noqa: E731
        return EmaState(jnp.zeros((), jnp.int32), jax.tree.map(average, params))

    def update(updates: Any, state: EmaState, params: Any = None) -> tuple[Any, EmaState]:
        if params is None:
            raise ValueError("params must be given to update of params_ema, got None")
        t = state.steps.astype(jnp.float32)
        d = jnp.minimum(decay, (1 + t) / (10 + t))
        new = optax.apply_updates(params, updates)
        ema = jax.tree.map(lambda e, p: (d * e + (1 - d) * p).astype(e.dtype), state.ema, new)
        return updates, EmaState(state.steps + 1, ema)

    return optax.GradientTransformation(init, update)


def _wide(dtype: Any) -> Any:
    # The small steps of an average would round to 0 in bfloat16 and float16.
    is_narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32
    return jnp.float32 if is_narrow else dtype


def eval_params(params: Any, opt_state: Any) -> Any:
    """Returns the parameters to evaluate and to save, which depend on the optimiser.

    With `params_ema` they are the moving average, with a schedule-free optimiser the result of
    `optax.contrib.schedule_free_eval_params`, with `optax.contrib.sam` the parameters to which it
    returns after its ascent steps, and with all other optimisers `params` unchanged. The states of
    these transformations are found inside chains and wrappers. A parameter that a transformation
    masks (`optax.masked`, `optax.partition`) is returned as in `params`.

        >>> params = {"w": jnp.array(1.0)}
        >>> float(eval_params(params, optax.sgd(0.1).init(params))["w"])
        1.0
        >>> state = EmaState(jnp.array(1), {"w": jnp.array(0.5)})
        >>> float(eval_params(params, state)["w"])
        0.5

    Args:
      params: the parameters of the last step.
      opt_state: the state of the optimiser after the last step.

    Returns:
      Parameters with the structure, shapes and dtypes of `params`.
    """
    ours = lambda node: isinstance(node, _AVERAGES)  # noqa: E731  (optax.ema averages gradients)
    point = params
    # In a chain the point moves from node to node, so that each parameter has the value of the last
    # transformation that does not mask it.
    for node in filter(ours, jax.tree.leaves(opt_state, is_leaf=ours)):
        point = _move(node, params, point)
    return point


_COMPUTED = (optax.contrib.ScheduleFreeState, optax.contrib.SAMState)
_AVERAGES = (EmaState, *_COMPUTED)


def is_computed(opt_state: Any) -> bool:
    """Returns True if `eval_params` computes its result, and False if it only looks it up."""
    computed = lambda node: isinstance(node, _COMPUTED)  # noqa: E731
    return any(map(computed, jax.tree.leaves(opt_state, is_leaf=computed)))


def _move(node: Any, params: Any, point: Any) -> Any:
    """Returns the parameters to evaluate according to a node of the optimiser state."""

    def take_unmasked(tree: Any) -> Any:
        return jax.tree.map(lambda x, p: x if is_masked(x) else p, tree, params, is_leaf=is_masked)

    if isinstance(node, EmaState):
        new_point = node.ema
    elif isinstance(node, optax.contrib.ScheduleFreeState):
        new_point = optax.contrib.schedule_free_eval_params(node, take_unmasked(node.z))
    elif node.cache is None:  # the opaque mode of SAM has no other parameters
        return point
    else:
        # Between two ascent steps the parameters are perturbed, and the cache has the parameters to
        # which the optimiser returns.
        is_back = node.steps_since_sync == 0
        keep = lambda saved, p: jnp.where(is_back, p, saved)  # noqa: E731
        new_point = jax.tree.map(keep, node.cache, take_unmasked(node.cache))

    def round_to_dtype(x: Any, p: Any) -> Any:
        if is_masked(x):
            return p
        return x if x.dtype == p.dtype else x.astype(p.dtype)

    moved = jax.tree.map(round_to_dtype, new_point, point, is_leaf=is_masked)
    # An average that needs no change is returned itself, so that no arrays are copied.
    pairs = jax.tree.leaves(moved), jax.tree.leaves(new_point)
    is_whole = len(pairs[0]) == len(pairs[1])
    return new_point if is_whole and all(x is y for x, y in zip(*pairs, strict=True)) else moved
