"""The matrix products of a recurrence without its gates, a lower bound for the time of any cell."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from experiments.core.kinds import Array
from gatedjax.functional._recurrence import (
    Form,
    GateSums,
    form_for,
    matmul,
    shift_states,
    time_major,
    weight_gradient,
)


def linear_recurrence(
    weights: Any, xs: Array, mask: Array, *, reverse: bool = False
) -> tuple[Array, Array]:
    """Runs h_t = sum_k (x_t W + h_{t-1} U + b)_k over the blocks k of H columns, step by step.

    The products are those of a cell with as many blocks, in the same form, forwards and backwards.
    Only the sum remains of the rest of the cell.

    Args:
      weights: the weights of a cell: input [D, KH], recurrent [H, KH], bias [KH].
      xs: inputs [B, T, D].
      mask: unused, because padding is computed.
      reverse: True runs from the last step to the first.

    Returns:
      The last state [B, H] and all states [B, T, H].
    """
    del mask
    form = form_for(xs.shape[0], weights.recurrent.shape[0])
    states = _run(form, reverse, tuple(weights[:3]), xs)
    return states[:, 0 if reverse else -1], states


def _start(form: Form, xs: Array, recurrent: Array) -> Array:
    return form.turn(jnp.zeros((xs.shape[0], recurrent.shape[0]), xs.dtype))


def _forward(
    form: Form, reverse: bool, weights: tuple[Array, ...], xs: Array
) -> tuple[Array, tuple[Any, ...]]:
    kernel, recurrent, bias = weights
    hidden, columns = recurrent.shape
    sums = GateSums(form, kernel, recurrent, bias)

    def body(h: Array, x: Array) -> tuple[Array, Array]:
        blocks = sums.of_both(sums.prepare(x), h)
        h = sum(form.part(blocks, k, k + hidden) for k in range(0, columns, hidden))
        return h, form.turn(h)

    steps = sums.steps(time_major(xs))
    states = lax.scan(body, _start(form, xs, recurrent), steps, reverse=reverse)[1]
    return time_major(states), (weights, xs, states)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _run(form: Form, reverse: bool, weights: tuple[Array, ...], xs: Array) -> Array:
    return _forward(form, reverse, weights, xs)[0]


def _backward(
    form: Form, reverse: bool, stored: tuple[Any, ...], cotangent: Array
) -> tuple[tuple[Array, ...], Array]:
    (kernel, recurrent, _), xs, states = stored
    blocks = recurrent.shape[1] // recurrent.shape[0]
    turned, start = form.turn(recurrent.T), _start(form, xs, recurrent)

    def body(dh: Array, dy: Array) -> tuple[Array, Array]:
        gates = form.join([dh + form.turn(dy)] * blocks)
        return form.product(turned, gates, xs.dtype), form.turn(gates)

    gates = lax.scan(body, start, time_major(cotangent), reverse=not reverse)[1]
    before = shift_states(states, form.turn(start), reverse)
    changes = (
        weight_gradient(time_major(xs), gates, xs.dtype),
        weight_gradient(before, gates, xs.dtype),
        jnp.sum(gates, axis=(0, 1)),
    )
    return changes, time_major(matmul(gates, kernel.T, xs.dtype))


_run.defvjp(_forward, _backward)
