"""One pure training step over a small state of arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from gatedjax.training.metrics import Metrics, Ratio
from gatedjax.training.task import AnyTask, Batch, Carry, is_stateful

STREAMS = ("dropout", "gate")


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
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=tx.init(params),
        carry=init_carry(task, batch),
    )


def init_carry(task: AnyTask, batch: Batch) -> Carry:
    """What a task carries before the first batch; None if it carries nothing."""
    return task.init_carry(batch) if is_stateful(task) else None  # type: ignore[union-attr]


def _with_carry(task: Any) -> Callable[..., Any]:
    """The loss of any task as (params, batch, rngs, carry) -> (loss, (metrics, carry))."""
    if is_stateful(task):
        return task.loss

    def loss(params: Any, batch: Batch, rngs: Any, carry: Carry) -> Any:
        total, metrics = task.loss(params, batch, rngs)
        return total, (metrics, carry)

    return loss


def _summed_gradients(
    task: AnyTask, params: Any, batch: Batch, rngs: Any, carry: Carry, parts: int
) -> Any:
    """(loss, (metrics, carry)), and the gradient of the summed loss, in parts of the batch."""
    grad_fn = jax.value_and_grad(_with_carry(task), has_aux=True)
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


def make_train_step(
    task: AnyTask,
    tx: optax.GradientTransformation,
    *,
    axis_name: str | None = None,
    accumulate: int = 1,
) -> TrainStep:
    """Builds the step: gradient of the mean loss, update, metrics.

    A loss or gradient that is not finite leaves parameters, optimiser state and carried state as
    they are; the step counts all the same, and "skipped" says so.

    Args:
      task: the model and its loss.
      tx: the Optax chain.
      axis_name: sum gradients and metrics over this mapped axis (`jax.pmap`).
      accumulate: parts of the batch whose gradients are computed one after the other and summed;
        random bits belong to examples, so the update is that of the whole batch.
    """

    def train_step(
        state: TrainState, batch: Batch, seed_key: jax.Array
    ) -> tuple[TrainState, Metrics]:
        rngs = step_rngs(seed_key, state.step)
        with jax.named_scope("loss_and_gradient"):
            (total, (metrics, carry)), grads = _summed_gradients(
                task, state.params, batch, rngs, state.carry, accumulate
            )
        if axis_name is not None:
            total, metrics, grads = jax.lax.psum((total, metrics, grads), axis_name)
        count = jnp.maximum(metrics["loss"].count, 1)
        grads = jax.tree.map(lambda g: g / count.astype(g.dtype), grads)
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(total) & jnp.isfinite(norm)
        with jax.named_scope("update"):
            updates, opt_state = tx.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
        keep = lambda new, old: jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)  # noqa: E731
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
        state = TrainState(
            step=state.step + 1,
            params=keep(params, state.params),
            opt_state=keep(opt_state, state.opt_state),
            carry=keep(carry, state.carry),
        )
        return state, metrics

    return train_step
