"""The training step, a pure function of a state of arrays, a batch and a key."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from gatedjax._utils.tracing import check_key
from gatedjax.training._transforms import call_update
from gatedjax.training.metrics import Metrics, Ratio
from gatedjax.training.task import (
    AnyTask,
    Batch,
    Carry,
    call_loss,
    has_model_state,
    is_stateful,
)

# The position of a name is folded into the key. A new stream belongs at the end, because another
# order would change the random bits of all runs.
STREAMS = ("dropout", "gate")
MEAN_LOSS = "loss is a mean"


@struct.dataclass
class TrainState:
    """The arrays that a training step takes and returns.

        >>> params = {"w": jnp.zeros(2)}
        >>> state = TrainState(jnp.array(0), params, optax.sgd(0.1).init(params))
        >>> state.replace(step=state.step + 1).step.item()
        1

    Attributes:
      step: the number of updates so far, int32.
      params: the parameters, a tree of arrays.
      opt_state: the state of the Optax chain.
      carry: the carried state of a `StatefulTask`, with rows first; None for other tasks.
      model_state: the model state of a `ModelStateTask`; None for other tasks.
    """

    step: jax.Array
    params: Any
    opt_state: optax.OptState
    carry: Any = None
    model_state: Any = None


def best_of(params: Any, model_state: Any) -> Any:
    """Returns the best parameters for a checkpoint: `params`, or a dict with a model state."""
    if not jax.tree.leaves(model_state):
        return params
    return {"params": params, "model_state": model_state}


def split_best(best: Any, model_state: Any) -> tuple[Any, Any]:
    """Splits a result of `best_of` into (params, model_state)."""
    if not jax.tree.leaves(model_state):
        return best, model_state
    return best["params"], best["model_state"]


TrainStep = Callable[[TrainState, Batch, jax.Array], tuple[TrainState, Metrics]]


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


def init_state(
    task: AnyTask,
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
        >>> state = init_state(Scale(), optax.sgd(0.1), jax.random.key(0), batch)
        >>> state.step.item(), state.params["w"].shape
        (0, (3,))

    Args:
      task: the task, which initialises the parameters, the carry and the model state.
      tx: the optimizer, as Optax transformation.
      key: a PRNG key for `task.init`.
      batch: a batch with the names, shapes and dtypes of the training batches.
      params: parameters to start from (default: those of `task.init`).

    Returns:
      The train state, with step 0.
    """
    if params is None:
        params = task.init(key, batch)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=tx.init(params),
        carry=init_carry(task, batch),
        model_state=task.init_model_state(key, batch) if has_model_state(task) else None,  # type: ignore[union-attr]
    )


def init_carry(task: AnyTask, batch: Batch) -> Carry:
    """Returns the carried state before the first batch; None if the task has no carried state."""
    return task.init_carry(batch) if is_stateful(task) else None  # type: ignore[union-attr]


def _with_carry(
    task: Any, check_loss: bool, gather: Callable[[Any], Any] | None
) -> Callable[..., Any]:
    """Returns the loss of a task of any kind, (params, batch, rngs, carry, model_state) to (loss,
    (metrics, (carry, model_state))). `gather` makes split parameters whole.
    """

    def loss(params: Any, batch: Batch, rngs: Any, carry: Carry, model_state: Any) -> Any:
        if gather is not None:
            params = gather(params)
        total, metrics, *new = call_loss(task, params, batch, rngs, carry, model_state)
        if check_loss:
            metrics = metrics | {MEAN_LOSS: _is_mean(total, metrics["loss"], len(batch["weight"]))}
        return total, (metrics, tuple(new))

    return loss


def _is_mean(total: jax.Array, loss: Ratio, rows: int) -> Ratio:
    """Returns a `Ratio` with total 1 if a loss is a mean over the rows, else with total 0. A loss
    must be the sum over the rows, metrics["loss"].total; a mean equals it only after multiplication
    by the number of rows.
    """
    # With a single row the mean equals the sum, so a total that equals the sum is never refused.
    # The tolerances cover the rounding of float32 sums.
    differs = jnp.abs(total - loss.total) > 0.01 * jnp.abs(loss.total)
    equal = [
        jnp.abs(total * n - loss.total) < 1e-4 * jnp.abs(loss.total) for n in (loss.count, rows)
    ]
    flag = differs & (equal[0] | equal[1])
    return Ratio(total=flag.astype(jnp.float32), count=jnp.ones((), jnp.float32))


def refuse_mean_loss(metrics: Metrics, fresh: bool) -> Metrics:
    """Returns the metrics without `MEAN_LOSS`; raises ValueError if a fresh run has a mean loss."""
    if fresh and np.any(jax.device_get(metrics[MEAN_LOSS].total)):
        raise ValueError(
            "loss must be the sum over the rows of the batch, got their mean: at step 0 it is "
            "metrics['loss'] divided by the rows. fit divides by metrics['loss'].count itself"
        )
    return {name: ratio for name, ratio in metrics.items() if name != MEAN_LOSS}


def _summed_gradients(
    loss: Callable[..., Any],
    params: Any,
    batch: Batch,
    rngs: Any,
    carry: Carry,
    model_state: Any,
    parts: int,
) -> Any:
    """Returns ((loss, (metrics, (carry, model_state))), grads), summed over `parts` of a batch."""
    grad_fn = jax.value_and_grad(loss, has_aux=True)
    if parts == 1:
        return grad_fn(params, batch, rngs, carry, model_state)
    rows = len(batch["weight"])
    if rows % parts:
        raise ValueError(f"accumulate must divide the rows of a batch, got {parts} for {rows}")

    # A part has the rows i, i + parts, ..., so that the rows of a device stay on it.
    def split(value: jax.Array) -> jax.Array:
        return jnp.swapaxes(value.reshape(rows // parts, parts, *value.shape[1:]), 0, 1)

    def join(value: jax.Array) -> jax.Array:
        return jnp.swapaxes(value, 0, 1).reshape(rows, *value.shape[2:])

    def compute_part(part: Any) -> Any:
        # A task with a model state has no parts, see `refuse_parts`.
        (total, (metrics, (new, _))), grads = grad_fn(params, part[0], rngs, part[1], None)
        return (total, metrics, grads), new

    def add(sums: Any, part: Any) -> Any:
        outputs, new = compute_part(part)
        return jax.tree.map(jnp.add, sums, outputs), new

    pieces = jax.tree.map(split, (batch, carry))
    first = jax.tree.map(lambda value: value[0], pieces)
    zeros = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(compute_part, first)[0]
    )
    (total, metrics, grads), new = jax.lax.scan(add, zeros, pieces)
    return (total, (metrics, (jax.tree.map(join, new), None))), grads


def refuse_parts(task: Any, accumulate: int) -> None:
    """Raises ValueError for several parts of a batch if a task has a model state."""
    if accumulate > 1 and has_model_state(task):
        raise ValueError(
            f"accumulate must be 1 for {type(task).__name__}, which has a model state: that is of "
            f"the whole batch, got {accumulate}"
        )


def _own_rows(tree: Any, axis_name: str) -> Any:
    devices, index = jax.lax.axis_size(axis_name), jax.lax.axis_index(axis_name)

    def take_rows(value: jax.Array) -> jax.Array:
        rows = len(value) // devices
        return jax.lax.dynamic_slice_in_dim(value, index * rows, rows)

    return jax.tree.map(take_rows, tree)


def _mean_loss(compute: Callable[[Any], Any]) -> Callable[[Any], jax.Array]:
    # JAX would derive another gradient from a sum over the devices of `jax.pmap`.
    @jax.custom_vjp
    def mean_loss(params: Any) -> jax.Array:
        return compute(params)[0]

    def pull_back(grads: Any, cotangent: jax.Array) -> Any:
        return (jax.tree.map(lambda g: g * cotangent.astype(g.dtype), grads),)

    mean_loss.defvjp(compute, pull_back)
    return mean_loss


def _all_finite(tree: Any) -> jax.Array:
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.logical_and, leaves, jnp.array(True))


def _any_nan(tree: Any) -> jax.Array:
    leaves = [jnp.any(jnp.isnan(leaf)) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.logical_or, leaves, jnp.array(False))


def _where(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def make_train_step(
    task: AnyTask,
    tx: optax.GradientTransformation,
    *,
    axis_name: str | None = None,
    accumulate: int = 1,
    check_loss: bool = False,
    gather: Callable[[Any], Any] | None = None,
) -> TrainStep:
    """Builds the training step, which computes the gradient of the mean loss and updates the state.

    The update is skipped if the loss, the gradient or an updated parameter is not finite, or if the
    new model state has a NaN: parameters, optimiser state, carried state and model state stay
    unchanged. A skipped update counts as a step, and the metric "skipped" is 1.

    Optimisers that accept them receive `value=` (the mean loss of the batch), `grad=` (its
    gradient) and `value_fn=` (the mean loss of the same batch with the same random bits, as a
    function of the parameters), for example `optax.contrib.reduce_on_plateau`, `optax.polyak_sgd`
    and `optax.lbfgs`.

        >>> class Scale:
        ...     def loss(self, params, batch, rngs):
        ...         errors = batch["weight"] * (params["w"] * batch["x"] - 2) ** 2
        ...         return errors.sum(), {"loss": Ratio.of(errors, batch["weight"])}
        >>> params, tx = {"w": jnp.array(0.0)}, optax.sgd(0.25)
        >>> state = TrainState(jnp.array(0), params, tx.init(params))
        >>> batch = {"x": jnp.ones(2), "weight": jnp.ones(2)}
        >>> state, metrics = make_train_step(Scale(), tx)(state, batch, jax.random.key(0))
        >>> state.params["w"].item(), metrics["loss"].value()
        (1.0, 4.0)

    Args:
      task: the task, a model with its loss (see `Task`).
      tx: the optimizer, as Optax transformation.
      axis_name: the mapped axis of `jax.pmap` over which gradients and metrics are summed. For a
        task with a model state each device computes the whole batch instead.
      accumulate: the number of parts of the batch. Their gradients are computed in turn and summed.
        Random bits depend on examples, so that the update does not depend on the parts.
      check_loss: True adds an entry to the metrics, a `Ratio` with total 1 if the loss is a mean
        over the rows, which `refuse_mean_loss` checks and removes.
      gather: maps parameters that are split over devices to the whole parameters that the loss
        receives, and its gradient back to the split parameters; None changes nothing.

    Returns:
      A pure function (state, batch, seed_key) -> (state, metrics), which the caller may compile.
      The states are `TrainState`s, seed_key is `jax.random.key(seed)`, the same at all steps, and
      metrics are `Ratio`s by name.

    Raises:
      ValueError: if accumulate is above 1 for a task with a model state.
    """
    refuse_parts(task, accumulate)
    # A model state depends on the whole batch, of which a device of `jax.pmap` has only a part.
    gathered = axis_name is not None and has_model_state(task)
    sum_axis = None if gathered else axis_name

    def over_devices(tree: Any) -> Any:
        return tree if sum_axis is None else jax.lax.psum(tree, sum_axis)

    def train_step(
        state: TrainState, batch: Batch, seed_key: jax.Array
    ) -> tuple[TrainState, Metrics]:
        rngs = step_rngs(seed_key, state.step)
        carried = state.carry
        if gathered:
            batch, carried = jax.lax.all_gather((batch, carried), axis_name, tiled=True)
        inputs = batch, rngs, carried, state.model_state, accumulate
        with jax.named_scope("loss_and_gradient"):
            loss = _with_carry(task, check_loss, gather)
            (total, (metrics, (carry, model_state))), grads = _summed_gradients(
                loss, state.params, *inputs
            )
        if gathered and axis_name is not None:
            # Each device computed all rows, and carries only its rows to the next batch.
            carry = _own_rows(carry, axis_name)
        total, metrics, grads = over_devices((total, metrics, grads))
        note = {MEAN_LOSS: metrics.pop(MEAN_LOSS)} if check_loss else {}
        # A batch of filler rows only has the count 0.
        count = jnp.maximum(metrics["loss"].count, 1)
        divide = lambda tree: jax.tree.map(lambda g: g / count.astype(g.dtype), tree)  # noqa: E731
        grads = divide(grads)
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(total) & jnp.isfinite(norm)
        old = (state.params, state.opt_state, state.carry, state.model_state)

        def compute(params: Any) -> Any:
            (value, _), slope = _summed_gradients(_with_carry(task, False, gather), params, *inputs)
            return divide(over_devices((value, slope)))

        with jax.named_scope("update"):
            updates, opt_state = call_update(
                tx,
                grads,
                state.opt_state,
                state.params,
                value=divide(total),
                grad=grads,
                value_fn=_mean_loss(compute),
            )
            new = (optax.apply_updates(state.params, updates), opt_state, carry, model_state)
            # Without the barrier the compiler would fuse the check into the loops of the update
            # and change their last bits.
            new = jax.lax.optimization_barrier(_where(finite, new, old))
            finite &= _all_finite(new[0])
            if has_model_state(task):
                finite &= ~_any_nan(new[3])
            params, opt_state, carry, model_state = _where(finite, new, old)
        unit = jnp.ones((), jnp.float32)
        # A skipped step must not turn the sums of its interval into NaN.
        metrics = {
            name: Ratio(
                total=jnp.where(finite, ratio.total, 0), count=jnp.where(finite, ratio.count, 0)
            )
            for name, ratio in metrics.items()
        }
        metrics["grad_norm"] = Ratio(
            # Skipped updates are left out of the mean norm, so they do not count.
            total=jnp.where(finite, norm, 0).astype(jnp.float32),
            count=finite.astype(jnp.float32),
        )
        metrics["skipped"] = Ratio(total=1 - finite.astype(jnp.float32), count=unit)
        metrics |= note
        state = TrainState(
            step=state.step + 1,
            params=params,
            opt_state=opt_state,
            carry=carry,
            model_state=model_state,
        )
        return state, metrics

    return train_step
