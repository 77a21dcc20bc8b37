"""One pure training step over a small state of arrays."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

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

STREAMS = ("dropout", "gate")
MEAN_LOSS = "loss is a mean"


@struct.dataclass
class TrainState:
    """What a step reads and writes; arrays only.

    Attributes:
      step: updates made so far, int32.
      params: parameters.
      opt_state: state of the Optax chain.
      carry: what a `StatefulTask` carries from batch to batch, rows first; None for other tasks.
      model_state: what the loss of a `ModelStateTask` returned last; None for other tasks.
    """

    step: jax.Array
    params: Any
    opt_state: optax.OptState
    carry: Any = None
    model_state: Any = None


def best_of(params: Any, model_state: Any) -> Any:
    """Returns what is kept of a train state as the best one, and saved as such.

    It is the parameters alone, or {"params": ..., "model_state": ...} with a model state that has
    arrays.
    """
    if not jax.tree.leaves(model_state):
        return params
    return {"params": params, "model_state": model_state}


def split_best(best: Any, model_state: Any) -> tuple[Any, Any]:
    """Returns (params, model_state) of what `best_of` returned.

    Args:
      best: the result of `best_of`.
      model_state: the model state of any step, which tells whether it has arrays.
    """
    if not jax.tree.leaves(model_state):
        return best, model_state
    return best["params"], best["model_state"]


TrainStep = Callable[[TrainState, Batch, jax.Array], tuple[TrainState, Metrics]]


def step_rngs(seed_key: jax.Array, step: jax.Array | int) -> dict[str, jax.Array]:
    """The named streams of a step: a function of (seed, step) and nothing else.

    A model folds in "example_id", so the bits of example i in step s can be drawn again alone.
    """
    key = jax.random.fold_in(seed_key, step)
    return {name: jax.random.fold_in(key, number) for number, name in enumerate(STREAMS)}


def init_state(
    task: AnyTask, tx: optax.GradientTransformation, key: jax.Array, batch: Batch
) -> TrainState:
    """Parameters, optimiser state, carried state and model state before the first step."""
    params = task.init(key, batch)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=tx.init(params),
        carry=init_carry(task, batch),
        model_state=task.init_model_state(key, batch) if has_model_state(task) else None,  # type: ignore[union-attr]
    )


def init_carry(task: AnyTask, batch: Batch) -> Carry:
    """What a task carries before the first batch; None if it carries nothing."""
    return task.init_carry(batch) if is_stateful(task) else None  # type: ignore[union-attr]


def _with_carry(task: Any, check_loss: bool) -> Callable[..., Any]:
    """The loss of any task as (params, batch, rngs, carry, model_state) -> (loss, (metrics, new)).

    `new` is (carry, model_state).
    """

    def loss(params: Any, batch: Batch, rngs: Any, carry: Carry, model_state: Any) -> Any:
        total, metrics, *new = call_loss(task, params, batch, rngs, carry, model_state)
        if check_loss:
            metrics = metrics | {MEAN_LOSS: _is_mean(total, metrics["loss"], len(batch["weight"]))}
        return total, (metrics, tuple(new))

    return loss


def _is_mean(total: jax.Array, loss: Ratio, rows: int) -> Ratio:
    """Whether a loss is not the sum that its metric says, but its mean over rows or weights."""
    apart = jnp.abs(total - loss.total) > 0.01 * jnp.abs(loss.total)
    equal = [
        jnp.abs(total * n - loss.total) < 1e-4 * jnp.abs(loss.total) for n in (loss.count, rows)
    ]
    flag = apart & (equal[0] | equal[1])
    return Ratio(total=flag.astype(jnp.float32), count=jnp.ones((), jnp.float32))


def refuse_mean_loss(metrics: Metrics, fresh: bool) -> Metrics:
    """The metrics of a step less the note of `check_loss`.

    Args:
      metrics: of a step; a leading axis over lanes is fine.
      fresh: it was the first step of a run, whose note is looked at.

    Raises:
      ValueError: if its loss was a mean, not a sum.
    """
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
    """(loss, (metrics, new)), and the gradient of the summed loss, in parts of the batch."""
    grad_fn = jax.value_and_grad(loss, has_aux=True)
    if parts == 1:
        return grad_fn(params, batch, rngs, carry, model_state)
    rows = len(batch["weight"])
    if rows % parts:
        raise ValueError(f"accumulate must divide the rows of a batch, got {parts} for {rows}")

    # Every part takes every parts-th row: rows that a device holds stay on it.
    def split(value: jax.Array) -> jax.Array:
        return jnp.swapaxes(value.reshape(rows // parts, parts, *value.shape[1:]), 0, 1)

    def join(value: jax.Array) -> jax.Array:
        return jnp.swapaxes(value, 0, 1).reshape(rows, *value.shape[2:])

    def one(part: Any) -> Any:
        # a task with a model state has no parts, see `refuse_parts`
        (total, (metrics, (new, _))), grads = grad_fn(params, part[0], rngs, part[1], None)
        return (total, metrics, grads), new

    def add(sums: Any, part: Any) -> Any:
        found, new = one(part)
        return jax.tree.map(jnp.add, sums, found), new

    pieces = jax.tree.map(split, (batch, carry))
    first = jax.tree.map(lambda value: value[0], pieces)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(one, first)[0])
    (total, metrics, grads), new = jax.lax.scan(add, zeros, pieces)
    return (total, (metrics, (jax.tree.map(join, new), None))), grads


def refuse_parts(task: Any, accumulate: int) -> None:
    """Raises ValueError if a batch is computed in parts whose task has a model state."""
    if accumulate > 1 and has_model_state(task):
        raise ValueError(
            f"accumulate must be 1 for {type(task).__name__}, which has a model state: that is of "
            f"the whole batch, got {accumulate}"
        )


def _own_rows(tree: Any, axis_name: str) -> Any:
    """Returns the rows of this device from arrays with the rows of all devices of a mapped axis."""
    devices, here = jax.lax.axis_size(axis_name), jax.lax.axis_index(axis_name)

    def own(value: jax.Array) -> jax.Array:
        rows = len(value) // devices
        return jax.lax.dynamic_slice_in_dim(value, here * rows, rows)

    return jax.tree.map(own, tree)


def _mean_loss(compute: Callable[[Any], Any]) -> Callable[[Any], jax.Array]:
    """Returns the mean loss as a function of the parameters, for `value_fn=` of Optax.

    Its gradient is given outright, because a sum over the devices of `jax.pmap` has another one.

    Args:
      compute: from parameters to the mean loss and its gradient, over all devices.
    """

    @jax.custom_vjp
    def mean_loss(params: Any) -> jax.Array:
        return compute(params)[0]

    def pull_back(grads: Any, cotangent: jax.Array) -> Any:
        return (jax.tree.map(lambda g: g * cotangent.astype(g.dtype), grads),)

    mean_loss.defvjp(compute, pull_back)
    return mean_loss


def _all_finite(tree: Any) -> jax.Array:
    """Whether every number of every array is finite; a bool scalar."""
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.logical_and, leaves, jnp.array(True))


def _any_nan(tree: Any) -> jax.Array:
    """Whether any number of any array is NaN; a bool scalar."""
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
) -> TrainStep:
    """Builds the step: gradient of the mean loss, update, metrics.

    A loss, a gradient or updated parameters that are not finite leave parameters, optimiser state,
    carried state and model state as they are, and so does a NaN in the new model state; the step
    counts all the same, and "skipped" says so.

    Optimisers that ask for `value=` (the mean loss of the batch), `grad=` (its gradient) or
    `value_fn=` (the mean loss of the same batch and random bits as a function of the parameters)
    get them, such as `optax.contrib.reduce_on_plateau`, `optax.polyak_sgd` and `optax.lbfgs`.

    Args:
      task: the model and its loss.
      tx: the Optax chain.
      axis_name: sum gradients and metrics over this mapped axis (`jax.pmap`). A task with a model
        state computes the whole batch on every device instead.
      accumulate: parts of the batch whose gradients are computed one after the other and summed;
        random bits belong to examples, so the update is that of the whole batch.
      check_loss: note in the metrics whether the loss is a mean, for `refuse_mean_loss`.
    """
    refuse_parts(task, accumulate)
    # the state of a model is that of the whole batch, which no device of `jax.pmap` has
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
            loss = _with_carry(task, check_loss)
            (total, (metrics, (carry, model_state))), grads = _summed_gradients(
                loss, state.params, *inputs
            )
        if gathered and axis_name is not None:
            carry = _own_rows(carry, axis_name)
        total, metrics, grads = over_devices((total, metrics, grads))
        note = {MEAN_LOSS: metrics.pop(MEAN_LOSS)} if check_loss else {}
        count = jnp.maximum(metrics["loss"].count, 1)
        divide = lambda tree: jax.tree.map(lambda g: g / count.astype(g.dtype), tree)  # noqa: E731
        grads = divide(grads)
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(total) & jnp.isfinite(norm)
        old = (state.params, state.opt_state, state.carry, state.model_state)

        def compute(params: Any) -> Any:
            (value, _), slope = _summed_gradients(_with_carry(task, False), params, *inputs)
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
            # The barrier keeps the check out of the update's own loops: those stay as they are
            # without it, to the last bit.
            new = jax.lax.optimization_barrier(_where(finite, new, old))
            finite &= _all_finite(new[0])
            if has_model_state(task):
                finite &= ~_any_nan(new[3])
            params, opt_state, carry, model_state = _where(finite, new, old)
        one = jnp.ones((), jnp.float32)
        # A step that was skipped must not turn the sums of its interval into NaN.
        metrics = {
            name: Ratio(
                total=jnp.where(finite, ratio.total, 0), count=jnp.where(finite, ratio.count, 0)
            )
            for name, ratio in metrics.items()
        }
        metrics["grad_norm"] = Ratio(
            total=jnp.where(finite, norm, 0).astype(jnp.float32), count=finite.astype(jnp.float32)
        )
        metrics["skipped"] = Ratio(total=1 - finite.astype(jnp.float32), count=one)
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
