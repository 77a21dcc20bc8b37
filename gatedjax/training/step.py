"""One pure training step over a small state of arrays."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from gatedjax.training._rows import (
    BESIDE,
    LazyRows,
    Rows,
    batch_rows,
    parameters_of,
    put_rows,
    take_rows,
    with_ids,
)
from gatedjax.training.metrics import Metrics, Ratio
from gatedjax.training.task import (
    AnyTask,
    Batch,
    Carry,
    frozen_parameters,
    is_stateful,
    table_lookups,
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
    """

    step: jax.Array
    params: Any
    opt_state: optax.OptState
    carry: Any = None


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
    """Parameters, optimiser state and carried state before the first step."""
    params = task.init(key, batch)
    lookups = _lazy_lookups(task, tx)
    if missing := sorted(set(lookups) - set(parameters_of(params))):
        raise ValueError(
            f"lookups of the task must be parameters among {sorted(parameters_of(params))}, "
            f"got {missing}"
        )
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=tx.init(params),
        carry=init_carry(task, batch),
    )


def init_carry(task: AnyTask, batch: Batch) -> Carry:
    """What a task carries before the first batch; None if it carries nothing."""
    return task.init_carry(batch) if is_stateful(task) else None  # type: ignore[union-attr]


def _lazy_lookups(task: AnyTask, tx: optax.GradientTransformation) -> dict[str, tuple[str, ...]]:
    """The tables whose rows are updated lazily, if any are; see `table_lookups`."""
    if not isinstance(tx, LazyRows):
        return {}
    lookups = table_lookups(task)
    if not lookups:
        raise ValueError(
            "lazy_rows needs a task that looks up rows of a table by ids of the batch, such as "
            f"word vectors: {type(task).__name__} names none in `lookups`"
        )
    held = frozen_parameters(task)
    if still := [path for path in lookups if any(f"{path}/".startswith(f"{at}/") for at in held)]:
        raise ValueError(f"lazy_rows needs tables that are trained, frozen are {still}")
    return lookups


def _with_carry(task: Any, check_loss: bool, rows: Rows) -> Callable[..., Any]:
    """The loss of any task as (params, batch, rngs, carry) -> (loss, (metrics, carry))."""

    def loss(params: Any, batch: Batch, rngs: Any, carry: Carry) -> Any:
        params = with_ids(params, rows)
        if is_stateful(task):
            total, (metrics, carry) = task.loss(params, batch, rngs, carry)
        else:
            total, metrics = task.loss(params, batch, rngs)
        if check_loss:
            metrics = metrics | {MEAN_LOSS: _is_mean(total, metrics["loss"], len(batch["weight"]))}
        return total, (metrics, carry)

    return loss


def _check_read(task: Any, rows: Rows, state: TrainState, batch: Batch, rngs: Any) -> None:
    """Raises ValueError unless the loss asks which rows a table has, or it would read others."""

    def loss(rows: Rows) -> Any:
        return _with_carry(task, False, rows)(state.params, batch, rngs, state.carry)

    traced = jax.make_jaxpr(loss)(dict(rows)).jaxpr
    read = {id(variable) for equation in traced.eqns for variable in equation.invars}
    for path, variable in zip(sorted(rows), traced.invars, strict=True):
        if id(variable) not in read:
            raise ValueError(
                f"the loss of {type(task).__name__} must find its words in {path + BESIDE!r} where "
                f"the optimiser is lazy, as nn.WordEmbedding does; it did not read that"
            )


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
    loss: Callable[..., Any], params: Any, batch: Batch, rngs: Any, carry: Carry, parts: int
) -> Any:
    """(loss, (metrics, carry)), and the gradient of the summed loss, in parts of the batch."""
    grad_fn = jax.value_and_grad(loss, has_aux=True)
    if parts == 1:
        return grad_fn(params, batch, rngs, carry)
    rows = len(batch["weight"])
    if rows % parts:
        raise ValueError(f"accumulate must divide the rows of a batch, got {parts} for {rows}")

    # Every part takes every parts-th row: rows that a device holds stay on it.
    def split(value: jax.Array) -> jax.Array:
        return jnp.swapaxes(value.reshape(rows // parts, parts, *value.shape[1:]), 0, 1)

    def join(value: jax.Array) -> jax.Array:
        return jnp.swapaxes(value, 0, 1).reshape(rows, *value.shape[2:])

    def one(part: Any) -> Any:
        (total, (metrics, new)), grads = grad_fn(params, part[0], rngs, part[1])
        return (total, metrics, grads), new

    def add(sums: Any, part: Any) -> Any:
        found, new = one(part)
        return jax.tree.map(jnp.add, sums, found), new

    pieces = jax.tree.map(split, (batch, carry))
    first = jax.tree.map(lambda value: value[0], pieces)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(one, first)[0])
    (total, metrics, grads), new = jax.lax.scan(add, zeros, pieces)
    return (total, (metrics, jax.tree.map(join, new))), grads


def _all_finite(tree: Any) -> jax.Array:
    """Whether every number of every array is finite; a bool scalar."""
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.logical_and, leaves, jnp.array(True))


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

    Under `lazy_rows` it is the step of a network with the words of the batch alone, whose rows are
    then written back. Give it the state as a donated argument of `jax.jit`, or the whole table is
    copied for it.

    A loss, a gradient or updated parameters that are not finite leave parameters, optimiser state
    and carried state as they are; the step counts all the same, and "skipped" says so.

    Args:
      task: the model and its loss.
      tx: the Optax chain.
      axis_name: sum gradients and metrics over this mapped axis (`jax.pmap`).
      accumulate: parts of the batch whose gradients are computed one after the other and summed;
        random bits belong to examples, so the update is that of the whole batch.
      check_loss: note in the metrics whether the loss is a mean, for `refuse_mean_loss`.
    """
    lookups = _lazy_lookups(task, tx)
    update = tx.inner.update if isinstance(tx, LazyRows) else tx.update

    def step_on(
        rows: Rows, state: TrainState, batch: Batch, seed_key: jax.Array
    ) -> tuple[TrainState, Metrics]:
        rngs = step_rngs(seed_key, state.step)
        if rows:
            _check_read(task, rows, state, batch, rngs)
        with jax.named_scope("loss_and_gradient"):
            (total, (metrics, carry)), grads = _summed_gradients(
                _with_carry(task, check_loss, rows),
                state.params,
                batch,
                rngs,
                state.carry,
                accumulate,
            )
        if axis_name is not None:
            total, metrics, grads = jax.lax.psum((total, metrics, grads), axis_name)
        note = {MEAN_LOSS: metrics.pop(MEAN_LOSS)} if check_loss else {}
        count = jnp.maximum(metrics["loss"].count, 1)
        grads = jax.tree.map(lambda g: g / count.astype(g.dtype), grads)
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(total) & jnp.isfinite(norm)
        old = (state.params, state.opt_state, state.carry)
        with jax.named_scope("update"):
            updates, opt_state = update(grads, state.opt_state, state.params)
            new = (optax.apply_updates(state.params, updates), opt_state, carry)
            # The barrier keeps the check out of the update's own loops: those stay as they are
            # without it, to the last bit.
            new = jax.lax.optimization_barrier(_where(finite, new, old))
            finite &= _all_finite(new[0])
            params, opt_state, carry = _where(finite, new, old)
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
        )
        return state, metrics

    return _lazily(step_on, lookups, axis_name) if lookups else functools.partial(step_on, {})


def _lazily(
    step_on: Callable[..., Any], lookups: dict[str, tuple[str, ...]], axis_name: str | None
) -> TrainStep:
    """A step of the rows of a batch, which are then put back where they were.

    What is not finite is seen in these rows and undone there: no other row can have changed.
    """

    def train_step(
        state: TrainState, batch: Batch, seed_key: jax.Array
    ) -> tuple[TrainState, Metrics]:
        tables = parameters_of(state.params)
        rows = batch_rows(lookups, tables, batch, axis_name)
        small = dataclasses.replace(
            state,
            params=take_rows(rows, tables, state.params),
            opt_state=take_rows(rows, tables, state.opt_state),
        )
        new, metrics = step_on(rows, small, batch, seed_key)
        params = put_rows(rows, tables, state.params, new.params)
        opt_state = put_rows(rows, tables, state.opt_state, new.opt_state)
        return dataclasses.replace(new, params=params, opt_state=opt_state), metrics

    return train_step
