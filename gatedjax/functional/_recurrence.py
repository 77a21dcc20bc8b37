"""What the recurrences share: the choice of form, argument checks, layout and both directions."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float


class Form(NamedTuple):
    """How a fast scan is laid out; every choice gives the same numbers up to rounding.

    feature_major: states and gates are [H, B] inside the loop instead of [B, H].
    hoist_input: form `x W` of all steps in one product before the loop instead of in its body,
      where the batch-major form takes it and `h U` in one product of [x, h].
    unroll: steps per iteration of the loop.
    """

    feature_major: bool
    hoist_input: bool
    unroll: int

    @property
    def axis(self) -> int:
        """The axis of features inside the loop."""
        return 0 if self.feature_major else 1

    def turn(self, x: Any) -> Any:
        """Turns the last two axes between [B, N] outside and the layout inside; None stays None."""
        return x if x is None or not self.feature_major else jnp.swapaxes(x, -1, -2)

    def spread(self, x: Array) -> Array:
        """Returns x [N] with an axis for the rows of a batch."""
        return jnp.expand_dims(x, 1 - self.axis)

    def part(self, x: Array, start: int, stop: int) -> Array:
        """Returns features start to stop of gates, or columns start to stop of a turned kernel."""
        return lax.slice_in_dim(x, start, stop, axis=self.axis)

    def join(self, parts: Sequence[Array]) -> Array:
        """Returns parts side by side in their features."""
        return jnp.concatenate(parts, axis=self.axis)

    def product(self, kernel: Array, x: Array, dtype: Any) -> Array:
        """Returns x times a turned kernel, accumulated and returned in dtype."""
        return matmul(kernel, x, dtype) if self.feature_major else matmul(x, kernel, dtype)

    def held(self, mask: Array | None, new: Array, old: Array | float) -> Array:
        """Returns new where mask [B] is True and old elsewhere."""
        if mask is None:
            return new
        return jnp.where(jnp.expand_dims(mask, self.axis), new, old)


# The one place where a backend gets its form. Measured with prototypes of each form on 2 shared
# cores of an AMD EPYC, jax 0.10.2, float32: one run per size, medians of 7 or 9 turns in one
# process. Repeats of a ratio differ by about 0.1, so only the larger differences mean anything.
# Rows from different runs are not comparable to the last digit. GRU forms were not compared.
#
# Two bidirectional LSTM layers with lengths, time / flax's OptimizedLSTMCell, forward and
# forward + backward:
#                                                         (32,231,100)   (32,100,128)
#   plain scan of the step, autodiff                       1.11  1.20
#   batch-major state [B,H], x W in the body               1.01  0.73     0.97  0.56
#   batch-major, one product of [x, h]                     0.95  0.70     1.04  0.57
#   feature-major state [H,B], x W in the body  (chosen)   0.87  0.69     0.81  0.55
#   ... + tanh(c) stored as well                           0.90  0.77     0.82  0.58
#   ... + gates stored as one block                        0.85  0.82     0.80  0.60
#   ... + dW and dU in one product of [x, h]               0.84  0.77     0.80  0.56
#   ... + x W hoisted                                      1.1-1.2  0.80-0.84
# One direction, D 200, H 100, forward with residuals, ms: x W in the body 28.7, hoisted 25 (but
# 33 against 27 at D 100), in chunks of 8 / 16 / 32 steps 29-33, unrolled by 2 / 4: 31 / 36.
#
# Feature-major wins there because the products [4H,K] [K,B] run faster in XLA's CPU backend than
# [B,K] [K,4H], and because a gate is a contiguous block of rows. It loses where B is not below H.
# Time / feature-major with x W in the body, one layer in one direction with lengths, D = H, forward
# and forward + backward, medians (fastest turns), contestants in turns in one process while the
# project's other jobs on the two cores were paused; 65 turns at (128,28,128), else 20:
#                        (128,28,128)            (256,28,128)            (128,28,64)
#   LSTM, [x, h]         .72 (.63)  .76 (.76)    .92 (.91) 1.02 (.91)   1.06 (.99)  .80 (.92)
#   LSTM, x W hoisted    .86 (.81)  .81 (.81)
#   GRU, [x, h]          .89 (.87)  .80 (.81)    .68 (.68)  .85 (.76)    .89 (.93)  .81 (.82)
#   GRU, x W hoisted     .82 (.77)  .74 (.77)    .82 (.84)  .87 (.85)    .84 (.85)  .72 (.73)
#   reset after, [x, h]  .98 (.90)  .83 (.78)
#   reset after, hoisted 1.26 (1.09) .73 (.71)
#   RAU, [x, h]          .77 (.71)  .80 (.78)                            .97 (1.06) .91 (.95)
#   RAU, x W hoisted     .97 (.98)  .84 (.84)
#                        (64,28,128)             (128,28,256)
#   LSTM, [x, h]        1.09 (1.18) .86 (.82)    .83 (.89) 1.00 (.99)
#   GRU, [x, h]         1.38 (1.34) .97 (1.06)   .92 (.83)  .95 (.96)
#   RAU, [x, h]         1.07 (1.07) 1.01 (.94)
# [x, h] at other widths of x and at (128,231,100), 20 turns:
#                        (128,28,128), D 28      (128,28,128), D 300     (128,231,100), D 100
#   LSTM                 .76 (.89)  .85 (.74)    .87 (.77)  .89 (.92)    .97 (.91)  .86 (1.01)
#   GRU                  .85 (.89)  .74 (.59)   1.00 (1.01) .95 (.76)
# At (64,28,128) its forward pass loses, so it is taken from B = H on. The GRU's hoisted form is no
# safer: better at three sizes, worse at (256,28,128) and forward with the reset after.
# With gradients, the GRU that resets after the product is better off batch-major with x W hoisted:
# time / feature-major with x W in the body, forward + backward, medians of 9 turns of CPU time on
# one thread, one direction, D last:
#   (32,64,128) 256   .90    (4,64,128) 256   .75    (32,64,64) 64     .84    (32,32,128) 100   .93
#   (32,64,256) 512   .96    (32,231,100) 100 .92    (20,35,650) 650  1.15
# and .85 for the training step of a GA Reader of three hops, B 32, N 128, H 128. The forward pass
# alone is not: 1.7 at (32,128,128) D 100, 1.1 at D 256; it keeps its own form.
_FEATURE_MAJOR = Form(feature_major=True, hoist_input=False, unroll=1)
_BATCH_MAJOR = Form(feature_major=False, hoist_input=False, unroll=1)
_BATCH_MAJOR_HOISTED = Form(feature_major=False, hoist_input=True, unroll=1)
# Not measured on an accelerator: one large product is the safe choice where launches cost.
_OTHER = Form(feature_major=True, hoist_input=True, unroll=1)


def form_for(
    batch: int, hidden: int, backend: str | None = None, *, reset_after_gradient: bool = False
) -> Form:
    """Returns the form of the fast scans for B, H and a backend (default: the one JAX runs on).

    reset_after_gradient: of the pass with gradients of a GRU that resets after the product.
    """
    if (backend or jax.default_backend()) != "cpu":
        return _OTHER
    if reset_after_gradient and hidden <= 256:
        return _BATCH_MAJOR_HOISTED
    # jax.export may leave the batch open: one program then serves every size
    known = isinstance(batch, int)
    return _BATCH_MAJOR if known and batch >= hidden else _FEATURE_MAJOR


def wide_of(dtype: Any) -> Any:
    """Returns the dtype of carries and gates: float32, or float64 for float64 inputs."""
    return jnp.promote_types(dtype, jnp.float32)


def check_weights(
    kind: type[Any],
    num_gates: int,
    weights: Any,
    xs: Any,
    xs_axes: str,
    others: Callable[[int, int], dict[str, tuple[int, ...]]] = lambda *_: {},
) -> tuple[int, int]:
    """Checks the kind, shapes and dtypes of weights against xs [..., D]; returns (D, H).

    others gives the shapes of the fields that only one recurrence has, from D and H.
    """
    if not isinstance(weights, kind):
        raise TypeError(f"weights must be {kind.__name__}, got {type(weights).__name__}")
    named = {name: value for name, value in weights._asdict().items() if value is not None}
    for name, value in {"xs": xs, **named}.items():
        if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
            raise TypeError(f"{name} must be floating point, got dtype {jnp.result_type(value)}")
    rank = len(xs_axes.split())
    if jnp.ndim(xs) != rank:
        raise ValueError(f"xs must have {rank} axes [{xs_axes}], got shape {jnp.shape(xs)}")
    if jnp.ndim(weights.recurrent) != 2:
        raise ValueError(
            f"recurrent must have 2 axes [H, {num_gates}H], got shape "
            f"{jnp.shape(weights.recurrent)}"
        )
    features, hidden = jnp.shape(xs)[-1], jnp.shape(weights.recurrent)[0]
    wanted = {
        "recurrent": (hidden, num_gates * hidden),
        "input": (features, num_gates * hidden),
        "bias": (num_gates * hidden,),
        "recurrent_bias": (hidden,),
        **others(features, hidden),
    }
    for name, value in named.items():
        if jnp.shape(value) != wanted[name]:
            raise ValueError(
                f"{name} must have shape {wanted[name]} for inputs of width {features} and "
                f"hidden width {hidden}, got {jnp.shape(value)}"
            )
    return features, hidden


def check_state(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raises unless value is a floating array of the given shape."""
    if isinstance(value, tuple | list):  # the carry of another cell
        raise TypeError(f"{name} must be an array, got {type(value).__name__}")
    if not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        raise TypeError(f"{name} must be floating point, got dtype {jnp.result_type(value)}")
    if jnp.shape(value) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {jnp.shape(value)}")


def real_steps(xs: Any, mask: Any) -> Array:
    """Returns xs [B, T, D] with zeros where mask [B, T] is False; None means all are real.

    So what stands at padding, NaN included, has no part in values and gradients.
    """
    xs = jnp.asarray(xs)
    if mask is None:
        return xs
    if jnp.result_type(mask) != jnp.bool_:
        raise TypeError(f"mask must be bool (True = real), got dtype {jnp.result_type(mask)}")
    if jnp.shape(mask) != xs.shape[:2]:
        raise ValueError(
            f"mask must have shape {xs.shape[:2]}, the first axes of xs, got {jnp.shape(mask)}"
        )
    return jnp.where(jnp.asarray(mask)[..., None], xs, jnp.zeros((), xs.dtype))


def time_major(x: Any) -> Any:
    """Swaps the first two axes, [B, T, ...] <-> [T, B, ...]; None stays None."""
    return None if x is None else jnp.swapaxes(x, 0, 1)


def shifted(states: Array, initial: Array, reverse: bool) -> Array:
    """Returns the state before each step from the states [T, B, H] after each."""
    if reverse:
        return jnp.concatenate([states, initial[None]])[1:]
    return jnp.concatenate([initial[None], states])[:-1]


def as_outputs(states: Array, mask: Array | None, dtype: Any) -> Array:
    """Returns the states [T, B, H] after each step as [B, T, H] in dtype, 0 at padding."""
    outputs = time_major(states).astype(dtype)
    return outputs if mask is None else jnp.where(mask[..., None], outputs, 0)


def matmul(a: Array, b: Array, dtype: Any) -> Array:
    """Returns a @ b, accumulated and returned in dtype."""
    return jnp.matmul(a, b, preferred_element_type=dtype)


def matmul_t(a: Array, b: Array, dtype: Any) -> Array:
    """Returns a @ b^T, [N, K] and [B, K] to [N, B], accumulated and returned in dtype."""
    return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=dtype)


class GateSums:
    """x W + s U + b inside a loop, in the layout of a form; columns can be asked for apart.

    kernel [D, N] and recurrent [H, N] are of the dtype of the products, bias [N] of that of sums.
    """

    def __init__(self, form: Form, kernel: Array, recurrent: Array, bias: Array) -> None:
        self.form, self.wide, self.bias = form, bias.dtype, form.spread(bias)
        self.kernel, self.recurrent = form.turn(kernel), form.turn(recurrent)
        self.joint = None
        if not (form.feature_major or form.hoist_input):
            self.joint = jnp.concatenate([kernel, recurrent])

    def steps(self, xs: Array) -> Array:
        """Returns what the loop runs over, from xs [B, T, D]."""
        inputs = time_major(xs)
        if self.form.hoist_input:
            return matmul(inputs, self.form.turn(self.kernel), self.wide)
        return inputs

    def read(self, step: Array) -> Array:
        """Returns what the other methods take of one step."""
        if self.joint is not None:
            return step
        if self.form.hoist_input:
            return self.form.turn(step) + self.bias
        return matmul_t(self.kernel, step, self.wide) + self.bias

    def of_input(self, x: Array, start: int, stop: int) -> Array:
        """Returns x W + b in columns start to stop."""
        if self.joint is None:
            return self.form.part(x, start, stop)
        product = self.form.product(self.form.part(self.kernel, start, stop), x, self.wide)
        return product + self.form.part(self.bias, start, stop)

    def of_state(self, state: Array, start: int, stop: int) -> Array:
        """Returns s U in columns start to stop."""
        return self.form.product(self.form.part(self.recurrent, start, stop), state, self.wide)

    def of_both(self, x: Array, state: Array, start: int, stop: int) -> Array:
        """Returns x W + s U + b in columns start to stop."""
        if self.joint is None:
            return self.form.part(x, start, stop) + self.of_state(state, start, stop)
        fed = self.form.join([x, state])
        product = self.form.product(self.form.part(self.joint, start, stop), fed, self.wide)
        return product + self.form.part(self.bias, start, stop)


def weight_gradient(inputs: Array, gates: Array, dtype: Any) -> Array:
    """Returns sum_t inputs_t^T gates_t, [T,B,K] and [T,B,N] to [K,N], as one product."""
    return lax.dot_general(
        inputs, gates, (((0, 1), (0, 1)), ((), ())), preferred_element_type=dtype
    )


def apply_dropout(hidden: Array, dropout: Array | None) -> Array:
    """Returns hidden as the recurrent product sees it."""
    return hidden if dropout is None else hidden * dropout


def bidirectional(
    unroll: Callable[..., Any],
    forward: Any,
    backward: Any,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
) -> tuple[tuple[Any, Any], Float[Array, "B T 2H"]]:
    """Runs a recurrence in both directions over the same inputs.

    Args:
      unroll: `lstm`, `gru`, `rau`, or a `functools.partial` of one.
      forward: weights of the direction from the first step to the last.
      backward: weights of the direction from the last step to the first.
      xs: inputs.
      mask: True at real steps; both directions hold their carry elsewhere, so that the backward
        one starts at the last real step of its row.

    Returns:
      The final carries (forward, backward) and the outputs, forward then backward features.
    """
    forward_carry, forward_out = unroll(forward, xs, mask)
    backward_carry, backward_out = unroll(backward, xs, mask, reverse=True)
    outputs = jnp.concatenate([forward_out, backward_out], axis=-1)
    return (forward_carry, backward_carry), outputs
