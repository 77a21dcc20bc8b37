"""Shared parts of the recurrences: checks of their arguments, restarts, memory layout."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from gatedjax.functional._checks import (
    check_dtype,
    check_floating,
    check_shape,
    check_that,
    width_error,
)
from gatedjax.functional._devices import run_core
from gatedjax.functional._types import ArrayLike, Carry, Dtype, Tree, Weights


class Restarts(NamedTuple):
    """The steps at which a recurrence starts a segment of a row with a new carry."""

    goes_on: Array | None  # [B, T], False at real steps that start with `carry`; None: at none
    carry: Carry  # with leaves of None if all steps go on


def check_weights(
    kind: type[Weights],
    num_gates: int,
    weights: Weights,
    xs: ArrayLike,
    xs_axes: str,
    more_shapes: Callable[[int, int], dict[str, tuple[int, ...]]] = lambda *_: {},
) -> tuple[int, int]:
    """Checks the class, shapes and dtypes of weights against xs [..., D]; returns (D, H)."""
    if not isinstance(weights, kind):
        raise TypeError(f"weights must be {kind.__name__}, got {type(weights).__name__}")
    named = {name: value for name, value in weights._asdict().items() if value is not None}
    rank = len(xs_axes.split())
    inputs = "xs" if rank == 3 else "x"  # an argument of a step function
    check_floating(**{inputs: xs}, **named)
    if jnp.ndim(xs) != rank:
        raise ValueError(f"{inputs} must have {rank} axes [{xs_axes}], got shape {jnp.shape(xs)}")
    shape = jnp.shape(weights.recurrent)
    if len(shape) != 2:
        raise ValueError(f"recurrent must have 2 axes [H, {num_gates}H], got shape {shape}")
    features, hidden = jnp.shape(xs)[-1], shape[0]
    kernel = jnp.shape(weights.input)
    # If the kernel fits in all but D, the message names the inputs instead of the kernel.
    if len(kernel) == 2 and kernel[1] == num_gates * hidden and kernel[0] != features:
        raise width_error(inputs, xs, kernel[0], "weights.input")
    shapes = {
        "recurrent": (hidden, num_gates * hidden),
        "input": (features, num_gates * hidden),
        "bias": (num_gates * hidden,),
        "recurrent_bias": (hidden,),
        **more_shapes(features, hidden),
    }
    for name, value in named.items():
        of = f"for inputs of width {features} and hidden width {hidden}"
        check_that(
            jnp.shape(value) == shapes[name], f"{name} must have shape {shapes[name]} {of}", value
        )
    return features, hidden


def check_recurrent_bias(bias: Array | None, reset_after: bool) -> None:
    """Raises ValueError if a recurrent bias is given (not None) without reset_after."""
    fits = bias is None or reset_after
    check_that(fits, "recurrent_bias must be None unless reset_after=True", bias)


def check_state(name: str, value: ArrayLike, shape: tuple[int, ...]) -> None:
    """Raises unless value is a floating array of the given shape."""
    if isinstance(value, tuple | list):  # such as the carry of another cell
        raise TypeError(f"{name} must be an array, got {type(value).__name__}")
    check_floating(**{name: value})
    check_shape(shape, **{name: value})


def dropout_mask(dropout: Array | None, shape: tuple[int, ...], wide: Dtype) -> Array | None:
    """Checks the mask m of recurrent dropout, and returns it in `wide`, the dtype of the carry."""
    if dropout is None:
        return None
    check_state("recurrent_dropout_mask", dropout, shape)
    return jnp.asarray(dropout, wide)


def spread(rows: Array, like: Array) -> Array:
    """Appends axes of size 1 to `rows` up to the rank of `like`."""
    return jnp.expand_dims(rows, tuple(range(rows.ndim, like.ndim)))


def real_alone(tree: Tree, mask: Array | None) -> Tree:
    """Returns the tree of arrays [B, T, ...] with zeros where the mask [B, T] is False."""
    if mask is None:
        return tree
    return jax.tree.map(lambda x: jnp.where(spread(mask, x), x, jnp.zeros((), x.dtype)), tree)


def check_resets(resets: ArrayLike, shape: tuple[int, ...]) -> None:
    """Raises unless `resets` is a bool of the given shape."""
    check_dtype(jnp.bool_, "bool", {"resets": resets})
    check_shape(shape, resets=resets)


def restarts(
    resets: ArrayLike, reset_to: Carry, initial: Carry, mask: Array | None, reverse: bool
) -> Restarts:
    """Returns the `Restarts` of rows that consist of several segments, without checks."""
    resets = jnp.asarray(resets)
    goes_on = run_core(_goes_on, (reverse,), (resets, mask), (resets,))
    if reset_to is None:
        return Restarts(goes_on, initial)
    fresh = jax.tree.map(lambda new, like: jnp.asarray(new, like.dtype), reset_to, initial)
    return Restarts(goes_on, fresh)


def _goes_on(reverse: bool, resets: Array, mask: Array | None) -> Array:
    """Returns bool [B, T], False at the real steps that start with a new carry, True elsewhere."""
    real = jnp.ones_like(resets) if mask is None else mask
    starts = resets & real
    # Backwards, the carry is replaced after the first step of a segment has run. The step that
    # starts with a new carry is therefore the real step before it in the row.
    if reverse:
        # 2 * (next real step) + (1 if that step starts a segment), or `none` if there is none.
        none = jnp.iinfo(jnp.int32).max - 1
        step = 2 * lax.broadcasted_iota(jnp.int32, starts.shape, 1) + starts.astype(jnp.int32)
        step = lax.cummin(jnp.where(real, step, none), axis=1, reverse=True)
        behind = jnp.concatenate(
            [step, jnp.full_like(step, none, shape=(step.shape[0], 1))], axis=1
        )
        starts = real & (behind[:, 1:] % 2 == 1)
    return ~starts


def time_major(x: Tree) -> Tree:
    """Swaps the first two axes, [B, T, ...] <-> [T, B, ...]; None stays None."""
    return None if x is None else jnp.swapaxes(x, 0, 1)


def shift_states(states: Array, initial: Array, reverse: bool) -> Array:
    """Returns the state before each step, [T, B, H], for rows without restarts."""
    if reverse:
        return jnp.concatenate([states, initial[None]])[1:]
    return jnp.concatenate([initial[None], states])[:-1]


def as_outputs(states: Array, mask: Array | None, dtype: Dtype) -> Array:
    """Returns states [B, T, H] in the given dtype, with 0 where the mask [B, T] is False."""
    return real_alone(states.astype(dtype), mask)


def matmul(a: Array, b: Array, dtype: Dtype) -> Array:
    """Returns a @ b, accumulated and returned in dtype, for any shapes of `jax.numpy.matmul`."""
    return jnp.matmul(a, b, preferred_element_type=dtype)


def matmul_t(a: Array, b: Array, dtype: Dtype) -> Array:
    """Returns a b^T, accumulated and returned in dtype."""
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=dtype)


def weight_gradient(inputs: Array, gates: Array, dtype: Dtype) -> Array:
    """Returns the gradient sum_t inputs_t^T gates_t of a kernel [K, N], as a single product."""
    return lax.dot_general(
        inputs, gates, (((0, 1), (0, 1)), ((), ())), preferred_element_type=dtype
    )
