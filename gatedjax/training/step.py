"""The training step, a pure function of a state of arrays, a batch and a key."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from gatedjax._utils.tracing import check_key
from gatedjax.training.metrics import Metrics, Ratio
from gatedjax.training.task import Batch, Carried, Trainable, call_loss, init_carried, objective

# The position of a name is folded into the key. A new stream belongs at the end, because another
# order would change the random bits of all runs.
STREAMS = ("dropout", "gate")


@struct.dataclass
class TrainState:
    """The arrays that a training step takes and returns.

        >>> params = {"w": jnp.zeros(2)}
        >>> state = TrainState(jnp.array(0), params, optax.sgd(0.1).init(params))
        >>> dataclasses.replace(state, step=state.step + 1).step.item()
        1

    Attributes:
      step: the number of updates so far, int32.
      params: the parameters, a tree of arrays.
      opt_state: the state of the Optax chain, which has no arrays for frozen parameters.
      carried: the arrays that the task carries from batch to batch.
    """

    step: jax.Array
    params: Any
    opt_state: optax.OptState
    carried: Carried = Carried()


def step_rngs(seed_key: jax.Array, step: jax.Array | int) -> dict[str, jax.Array]:
    """Returns the PRNG keys of the streams "dropout" and "gate" of a step.

    The keys depend only on the seed and the step. A model folds in "example_id", so that the random
    bits of an example do not depend on the other examples of its batch.

        >>> sorted(step_rngs(jax.random.key(0), 3))
        ['dropout', 'gate']

    Args:
      seed_key: the key of the seed, `jax.random.key(seed)`.
      step: the number of the step, from 0; it may be traced.

    Returns:
      A key for each stream, by name.
    """
    check_key(seed_key=seed_key)
    key = jax.random.fold_in(seed_key, step)
    return {name: jax.random.fold_in(key, number) for number, name in enumerate(STREAMS)}


def path_of(path: Any) -> str:
    """Returns the path of an array in a tree, such as "dense/kernel"."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def trained(task: Any, params: Any) -> Any:
    """Returns the parameters with None in the places of parameters that `task.frozen` names."""
    frozen, matched = tuple(getattr(task, "frozen", ())), set()

    def keep(path: Any, leaf: Any) -> Any:
        above = [at for at in frozen if f"{path_of(path)}/".startswith(f"{at}/")]
        matched.update(above)
        return None if above else leaf

    result = jax.tree_util.tree_map_with_path(keep, params)
    if missing := sorted(set(frozen) - matched):
        names = sorted(path_of(path) for path, _ in jax.tree.leaves_with_path(params))
        raise ValueError(f"frozen must be among {names}, got {missing}")
    return result


def fill_in(part: Any, params: Any) -> Any:
    """Returns `params` with the arrays of `part`, a result of `trained`, in their places."""
    pick = lambda new, old: old if new is None else new  # noqa: E731
    return jax.tree.map(pick, part, params, is_leaf=lambda x: x is None)


def init_state(
    task: Trainable,
    tx: optax.GradientTransformation,
    key: jax.Array,
    batch: Batch,
    params: Any = None,
) -> TrainState:
    """Returns the train state before the first step.

        >>> class Scale:
        ...     def init(self, key, batch):
        ...         return {"w": jnp.zeros(batch["x"].shape[1])}
        >>> batch = {"x": jnp.zeros((4, 3)), "weight": jnp.ones(4)}
        >>> init_state(Scale(), optax.sgd(0.1), jax.random.key(0), batch).params["w"].shape
        (3,)

    Args:
      task: the task, which initialises the parameters and the carried arrays.
      tx: the optimizer, as Optax transformation. Frozen parameters (`task.frozen`) are None in the
        tree that it receives.
      key: a PRNG key for `task.init`.
      batch: a batch with the names, shapes and dtypes of the training batches.
      params: parameters to start from (default: those of `task.init`).

    Returns:
      The train state, with step 0.

    Raises:
      ValueError: if `task.frozen` names no parameter.
    """
    params = task.init(key, batch) if params is None else params
    opt_state = tx.init(trained(task, params))
    return TrainState(jnp.zeros((), jnp.int32), params, opt_state, init_carried(task, key, batch))


def make_train_step(
    task: Trainable,
    tx: optax.GradientTransformation,
    *,
    axis_name: str | None = None,
    accumulate: int = 1,
    reach: bool = False,
    gather: Callable[[Any], Any] = lambda params: params,
) -> Callable[[TrainState, Batch, jax.Array], tuple[TrainState, Metrics]]:
    """Builds the training step, which follows the gradient of the mean loss.

    An update is skipped if the loss, the gradient or an updated parameter is not finite, or if a
    shared carried array has a NaN: the state stays as it is, except that the step counts, and the
    metric "skipped" is 1. Optimisers that accept them receive `value=` (the mean loss), `grad=`
    and `value_fn=` (the mean loss of this batch, as a function of the parameters).

        >>> class Scale:
        ...     def loss(self, params, batch, rngs):
        ...         return {"loss": Ratio.of((params["w"] * batch["x"] - 2) ** 2, batch["weight"])}
        >>> params, tx = {"w": jnp.array(0.0)}, optax.sgd(0.25)
        >>> state = TrainState(jnp.array(0), params, tx.init(params))
        >>> batch = {"x": jnp.ones(2), "weight": jnp.ones(2)}
        >>> state, metrics = make_train_step(Scale(), tx)(state, batch, jax.random.key(0))
        >>> state.params["w"].item(), metrics["loss"].value()
        (1.0, 4.0)

    Args:
      task: the task, a model with its loss (see `Task`).
      tx: the optimizer, as Optax transformation.
      axis_name: the mapped axis of `jax.pmap` over which gradients and metrics are summed. If the
        task has shared carried arrays, each device computes the whole batch instead.
      accumulate: the number of parts of the batch. Their gradients are computed in turn and summed.
        Random bits depend on examples, so that the update does not depend on the parts.
      reach: True adds the metric "reached". Its total has for each trained parameter the number
        of steps with a gradient that is not 0.
      gather: maps parameters that are split over devices to the whole parameters for the loss.

    Returns:
      A pure function (state, batch, seed_key) -> (state, metrics), which the caller may compile.
      seed_key is `jax.random.key(seed)`, the same at all steps. The metrics are "grad_norm",
      "skipped" and the metrics of the loss without "objective", each a `Ratio`.

    Raises:
      ValueError: when called, for accumulate > 1 with shared carried arrays.
    """
    tx = optax.with_extra_args_support(tx)

    def train_step(
        state: TrainState, batch: Batch, seed_key: jax.Array
    ) -> tuple[TrainState, Metrics]:
        rngs, carried = step_rngs(seed_key, state.step), state.carried
        shares = bool(jax.tree.leaves(carried.shared))  # then each device has the whole batch
        if shares and accumulate > 1:
            raise ValueError(
                f"accumulate must be 1 for {type(task).__name__}, whose shared carried arrays are "
                f"of the whole batch, got {accumulate}"
            )
        if shares and axis_name:
            batch, rows = jax.lax.all_gather((batch, carried.rows), axis_name, tiled=True)
            carried = dataclasses.replace(carried, rows=rows)
        sum_axis = None if shares else axis_name

        def loss(params: Any, batch: Batch, carried: Carried) -> Any:
            metrics, carried = call_loss(
                task, gather(fill_in(params, state.params)), batch, rngs, carried
            )
            target = objective(metrics)
            metrics.pop("objective", None)
            return target.total, (target.count, metrics, carried)

        def mean_gradient(params: Any) -> Any:
            return in_parts(loss, accumulate, params, batch, carried, sum_axis)

        params = trained(task, state.params)
        with jax.named_scope("loss_and_gradient"):
            value, grads, metrics, new = mean_gradient(params)
        if shares and axis_name:
            count = len(batch["weight"]) // jax.lax.axis_size(axis_name)
            first = jax.lax.axis_index(axis_name) * count
            own = lambda x: jax.lax.dynamic_slice_in_dim(x, first, count)  # noqa: E731
            new = dataclasses.replace(new, rows=jax.tree.map(own, new.rows))
        value_fn = with_gradient(lambda params: mean_gradient(params)[:2])
        with jax.named_scope("update"), jax.numpy_dtype_promotion("standard"):
            updates, opt_state = tx.update(
                grads, state.opt_state, params, value=value, grad=grads, value_fn=value_fn
            )
            updated = fill_in(optax.apply_updates(params, updates), state.params)
        squares = [jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)]
        norm = jnp.sqrt(sum(squares))
        finite = jnp.isfinite(value) & jnp.isfinite(norm)
        finite &= ~any_leaf(lambda x: ~jnp.isfinite(x), updated)
        finite &= ~any_leaf(jnp.isnan, new.shared)
        pick = lambda new, old: jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)  # noqa: E731
        state = pick(TrainState(state.step, updated, opt_state, new), state)
        state = dataclasses.replace(state, step=state.step + 1)
        # A skipped step must not turn the sums of its interval into NaN.
        metrics = pick(metrics, jax.tree.map(jnp.zeros_like, metrics))
        done = finite.astype(jnp.float32)
        metrics["grad_norm"] = Ratio(total=jnp.where(finite, norm, 0), count=done)
        metrics["skipped"] = Ratio(total=1 - done, count=jnp.ones(()))
        if reach:
            reached = (jnp.stack(squares) > 0) | ~finite
            metrics["reached"] = Ratio(total=reached.astype(jnp.float32), count=jnp.ones(()))
        return state, metrics

    return train_step


def in_parts(
    loss: Callable[..., Any],
    parts: int,
    params: Any,
    batch: Batch,
    carried: Carried,
    sum_axis: str | None,
) -> Any:
    """Returns (mean loss, its gradient, metrics, carried), computed in parts of the batch. Sums and
    gradients are summed over the devices of `sum_axis`.
    """
    over_devices = lambda tree: jax.lax.psum(tree, sum_axis) if sum_axis else tree  # noqa: E731
    at_least_1 = lambda count: jnp.maximum(count, 1)  # noqa: E731  (filler rows only have 0)
    if parts == 1:
        total, pull_back, (count, metrics, carried) = jax.vjp(
            lambda params: loss(params, batch, carried), params, has_aux=True
        )
        total, count, metrics = over_devices((total, count, metrics))
        # A division of the gradient itself would take an operation for each parameter.
        (grads,) = pull_back((1 / at_least_1(count)).astype(total.dtype))
        return total / at_least_1(count), over_devices(grads), metrics, carried
    if len(batch["weight"]) % parts:
        rows = len(batch["weight"])
        raise ValueError(f"accumulate must divide the rows of a batch, got {parts} for {rows}")
    # A part has the rows i, i + parts, ..., so that the rows of a device stay on it.
    split = lambda x: jnp.swapaxes(x.reshape(-1, parts, *x.shape[1:]), 0, 1)  # noqa: E731
    join = lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])  # noqa: E731

    def compute_part(part: Any) -> Any:
        value_and_grad = jax.value_and_grad(loss, has_aux=True)
        (total, (count, metrics, carried)), grads = value_and_grad(params, *part)
        return (total, count, metrics, grads), carried

    def add(sums: Any, part: Any) -> Any:
        values, carried = compute_part(part)
        return jax.tree.map(jnp.add, sums, values), carried

    pieces = jax.tree.map(split, (batch, carried))
    shapes = jax.eval_shape(compute_part, jax.tree.map(lambda x: x[0], pieces))[0]
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    sums, carried = jax.lax.scan(add, zeros, pieces)
    total, count, metrics, grads = over_devices(sums)
    grads = jax.tree.map(lambda g: g / at_least_1(count).astype(g.dtype), grads)
    return total / at_least_1(count), grads, metrics, jax.tree.map(join, carried)


def with_gradient(value_and_grad: Callable[[Any], tuple[jax.Array, Any]]) -> Callable[..., Any]:
    """Returns the value as a function of the parameters, with the gradient that is computed."""

    # JAX would derive another gradient from a sum over the devices of `jax.pmap`.
    @jax.custom_vjp
    def value(params: Any) -> jax.Array:
        return value_and_grad(params)[0]

    def pull_back(grads: Any, cotangent: jax.Array) -> Any:
        return (jax.tree.map(lambda g: g * cotangent.astype(g.dtype), grads),)

    value.defvjp(value_and_grad, pull_back)
    return value


def any_leaf(test: Callable[[jax.Array], jax.Array], tree: Any) -> jax.Array:
    """Returns True if `test` is True for any number of a tree."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.any(jnp.array([jnp.any(test(x)) for x in leaves])) if leaves else jnp.array(False)
