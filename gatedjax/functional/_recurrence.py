"""Shared parts of the recurrences: memory layout, argument checks, restarts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from gatedjax.functional._checks import (
    check_floating,
    check_integers,
    check_not_both,
    check_shape,
    check_that,
    dtype_of,
    wide_dtype,
)
from gatedjax.functional._devices import run_core
from gatedjax.functional._export import target_platform
from gatedjax.functional._softmax import length_mask
from gatedjax.functional._types import ArrayLike, Carry, Dtype, Tree, Weights


class Form(NamedTuple):
    """The layout of a fast scan; all layouts give the same numbers up to rounding."""

    feature_major: bool  # states and gates are [H, B] inside the loop, else [B, H]
    hoist_input: bool  # x W is formed for all steps before the loop
    unroll: int  # steps per iteration of the loop

    @property
    def axis(self) -> int:
        """Returns the axis of the H features inside the loop: 0 for [H, B], 1 for [B, H]."""
        return 0 if self.feature_major else 1

    def turn(self, x: Tree) -> Tree:
        """Converts x [..., B, N] to the layout of the loop, or back: swaps the last two axes."""
        return x if x is None or not self.feature_major else jnp.swapaxes(x, -1, -2)

    def spread(self, x: Array) -> Array:
        """Returns a vector x [N] of N features with an axis of size 1 for the rows of a batch."""
        return jnp.expand_dims(x, 1 - self.axis)

    def part(self, x: Array, start: int, stop: int) -> Array:
        """Returns the features start .. stop - 1 of gates, or these columns of a turned kernel."""
        return lax.slice_in_dim(x, start, stop, axis=self.axis)

    def join(self, parts: Sequence[Array]) -> Array:
        """Concatenates `parts`, arrays [N, B] or [B, N] in the layout of the loop, along N."""
        return jnp.concatenate(parts, axis=self.axis)

    def product(self, kernel: Array, x: Array, dtype: Dtype) -> Array:
        """Returns x times a turned kernel, in the layout of the loop, accumulated in dtype."""
        return matmul(kernel, x, dtype) if self.feature_major else matmul(x, kernel, dtype)

    def select(self, mask: Array | None, new: Array, old: Array | float) -> Array:
        """Returns `new` in the rows where mask [B] is True, and `old` elsewhere."""
        if mask is None:
            return new
        return jnp.where(jnp.expand_dims(mask, self.axis), new, old)

    def split(self, goes_on: Array | None, change: Array, total: Tree) -> tuple[Array, Tree]:
        """Divides the gradient of the state before a step: rows that go on pass it to the state
        before, rows that restart add it to `total`, the gradient of their carry.
        """
        if goes_on is None:
            return change, total
        zero = jnp.zeros_like(change)
        return self.select(goes_on, change, zero), total + self.select(goes_on, zero, change)


class Restarts(NamedTuple):
    """The steps at which a recurrence starts a segment of a row with a new carry."""

    goes_on: Array | None  # [B, T], False at real steps that start with `carry`; None: at none
    carry: Carry  # with leaves of None if all steps go on


# The layout per backend. On a CPU feature-major is faster below B = H, because XLA computes
# [4H, K] [K, B] faster than [B, K] [K, 4H] and a gate is a block of rows; from B = H on batch-major
# is faster. x W is hoisted for wide states, because their W does not stay in the cache between
# steps, for a batch-major GRU that resets before the product, and for the gradients of a GRU that
# resets after it.
# On a GPU the time is that of the launches. Hoisting and unrolling reduce their number; batch-major
# is the layout of inputs and outputs. A TPU, where nothing was measured, uses the same layout.
# Figures: docs/recurrence_measurements.md, "On a GPU" and "How the forms were chosen".
_FEATURE_MAJOR = Form(feature_major=True, hoist_input=False, unroll=1)
_BATCH_MAJOR = Form(feature_major=False, hoist_input=False, unroll=1)
_BATCH_MAJOR_HOISTED = Form(feature_major=False, hoist_input=True, unroll=1)
_WIDE = 512
_OTHER = Form(feature_major=False, hoist_input=True, unroll=4)


def form_for(
    batch: int,
    hidden: int,
    backend: str | None = None,
    *,
    steps: int = 1,
    reset_before: bool = False,
    reset_after_gradient: bool = False,
) -> Form:
    """Returns the fastest layout of a recurrent scan for a size and a backend."""
    if (backend or target_platform()) != "cpu":
        # JAX cannot unroll a loop of a number of steps that `jax.export` leaves open.
        return _OTHER if isinstance(steps, int) else _OTHER._replace(unroll=1)
    # Sizes that `jax.export` leaves open are no ints; the program must then serve all sizes.
    is_number = isinstance(batch, int) and isinstance(hidden, int)
    width = hidden if isinstance(hidden, int) else _WIDE
    if reset_after_gradient and width <= 256:
        return _BATCH_MAJOR_HOISTED
    form = _BATCH_MAJOR if is_number and batch >= hidden else _FEATURE_MAJOR
    hoisted = width > _WIDE or (reset_before and not form.feature_major)
    return form._replace(hoist_input=hoisted)


def wide_of(dtype: Dtype) -> np.dtype:
    """Returns the dtype of carries and gates for inputs of a dtype."""
    return wide_dtype(dtype)


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
    if len(kernel) == 2 and kernel[1] == num_gates * hidden:
        check_width(kernel[0], "weights.input", **{inputs: xs})
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


def check_width(width: int, source: str, **inputs: ArrayLike) -> None:
    """Raises ValueError unless inputs [..., D] have the width of the weights."""
    for name, array in inputs.items():
        if (got := jnp.shape(array))[-1] != width:
            raise ValueError(
                f"{name} must have width D = {width}, the rows of {source}, got width {got[-1]} in "
                f"shape {got}"
            )


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


def dropout_mask(dropout: Array | None, shape: tuple[int, ...], wide: np.dtype) -> Array | None:
    """Checks the mask m of recurrent dropout, and returns it in `wide`, the dtype of the carry."""
    if dropout is None:
        return None
    check_state("recurrent_dropout_mask", dropout, shape)
    return jnp.asarray(dropout, wide)


def step_mask(shape: tuple[int, ...], mask: ArrayLike, lengths: ArrayLike) -> Array | None:
    """Returns the mask [B, T] from `mask` or `lengths`; at most one of them may be given."""
    if lengths is not None:
        check_not_both(mask=mask, lengths=lengths)
        check_integers(lengths=lengths)
        check_shape(shape[:1], lengths=lengths)
        return length_mask(lengths, shape[-1])
    if mask is None:
        return None
    if (dtype := dtype_of("mask", mask, "bool")) != jnp.bool_:
        raise TypeError(f"mask must be bool (True = real), got dtype {dtype}")
    check_shape(shape, mask=mask)
    return jnp.asarray(mask)


def spread(rows: Array, like: Array) -> Array:
    """Appends axes of size 1 to `rows` up to the rank of `like`."""
    return jnp.expand_dims(rows, tuple(range(rows.ndim, like.ndim)))


def real_alone(tree: Tree, mask: Array | None) -> Tree:
    """Returns the tree of arrays [B, T, ...] with zeros where the mask [B, T] is False."""
    if mask is None:
        return tree
    return jax.tree.map(lambda x: jnp.where(spread(mask, x), x, jnp.zeros((), x.dtype)), tree)


def real_steps(
    xs: ArrayLike, mask: ArrayLike, lengths: ArrayLike = None
) -> tuple[Array, Array | None]:
    """Returns xs [B, T, D] with zeros at padding, and the mask [B, T], or None if all is real."""
    xs = jnp.asarray(xs)
    mask = step_mask(xs.shape[:2], mask, lengths)
    return real_alone(xs, mask), mask


def restarts(
    resets: ArrayLike,
    reset_to: Carry,
    initial: Carry,
    mask: Array | None,
    shape: tuple[int, ...],
    reverse: bool,
    check: Callable[[str, Carry], None],
) -> Restarts:
    """Returns the `Restarts` of rows that consist of several segments."""
    if reset_to is not None:
        check("reset_to", reset_to)
    if resets is None:  # a single segment, which starts with initial
        return Restarts(None, jax.tree.map(lambda _: None, initial))
    if (dtype := dtype_of("resets", resets, "bool")) != jnp.bool_:
        raise TypeError(f"resets must be bool, got dtype {dtype}")
    check_shape(shape, resets=resets)
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


def state_before(
    states: Array, initial: Array, reverse: bool, goes_on: Array | None, fresh: Array | None
) -> Array:
    """Returns the state [T, B, H] before each step, from the states [T, B, H] after each step."""
    before = shift_states(states, initial, reverse)
    if goes_on is None or fresh is None:
        return before
    return jnp.where(time_major(goes_on)[..., None], before, fresh[None])


def as_outputs(states: Array, mask: Array | None, dtype: Dtype) -> Array:
    """Returns states [B, T, H] in the given dtype, with 0 where the mask [B, T] is False."""
    return real_alone(states.astype(dtype), mask)


def matmul(a: Array, b: Array, dtype: Dtype) -> Array:
    """Returns a @ b, accumulated and returned in dtype, for any shapes of `jax.numpy.matmul`."""
    return jnp.matmul(a, b, preferred_element_type=dtype)


def matmul_t(a: Array, b: Array, dtype: Dtype) -> Array:
    """Returns a b^T, accumulated and returned in dtype."""
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=dtype)


class GateSums:
    """The sums x W + s U + b inside a loop, with the columns before `cut` (early) and behind
    (late). They are cut in advance, because slices inside the loop would copy the weights.
    """

    def __init__(
        self, form: Form, kernel: Array, recurrent: Array, bias: Array, cut: int | None = None
    ) -> None:
        columns = bias.shape[0]
        cut = columns if cut is None else cut
        self.form, self.wide, self.kernel = form, bias.dtype, form.turn(kernel)
        self.bias = form.spread(bias)
        self.spans = (0, cut), (cut, columns)
        self.is_joint = not (form.feature_major or form.hoist_input)
        self.kernels, self.biases = self._cut(kernel), self._cut(bias)
        self.recurrents = self._cut(recurrent)
        self.joints = self._cut(jnp.concatenate([kernel, recurrent])) if self.is_joint else ()

    def _cut(self, columns: Array) -> tuple[Array, ...]:
        turned = self.form.spread(columns) if columns.ndim == 1 else self.form.turn(columns)
        return tuple(self.form.part(turned, start, stop) for start, stop in self.spans)

    def steps(self, inputs: Array) -> Array:
        """Returns the array to scan: x W [T, B, N] if the layout hoists it, else the inputs."""
        if self.form.hoist_input:
            return matmul(inputs, self.form.turn(self.kernel), self.wide)
        return inputs

    def prepare(self, step: Array) -> Array:
        """Returns x W + b of a step, or x where x W and s U are one product."""
        if self.is_joint:
            return step
        if self.form.hoist_input:
            return self.form.turn(step) + self.bias
        return matmul_t(self.kernel, step, self.wide) + self.bias

    def of_input(self, x: Array, *, late: bool = False) -> Array:
        """Returns x W + b for the early or the late columns, in the layout of the loop."""
        if self.is_joint:
            return self.form.product(self.kernels[late], x, self.wide) + self.biases[late]
        return self.form.part(x, *self.spans[late])

    def of_state(self, state: Array, *, late: bool = False) -> Array:
        """Returns s U for the early or late columns, from a state s in the layout of the loop."""
        return self.form.product(self.recurrents[late], state, self.wide)

    def of_both(self, x: Array, state: Array, *, late: bool = False) -> Array:
        """Returns x W + s U + b for the early or the late columns, in the layout of the loop."""
        if self.is_joint:
            fed = self.form.join([x, state])
            return self.form.product(self.joints[late], fed, self.wide) + self.biases[late]
        return self.of_input(x, late=late) + self.of_state(state, late=late)


def weight_gradient(inputs: Array, gates: Array, dtype: Dtype) -> Array:
    """Returns the gradient sum_t inputs_t^T gates_t of a kernel [K, N], as a single product."""
    return lax.dot_general(
        inputs, gates, (((0, 1), (0, 1)), ((), ())), preferred_element_type=dtype
    )


def apply_dropout(hidden: Array, dropout: Array | None) -> Array:
    """Returns the hidden state times the dropout mask, the input of the recurrent product."""
    return hidden if dropout is None else hidden * jnp.asarray(dropout, hidden.dtype)
