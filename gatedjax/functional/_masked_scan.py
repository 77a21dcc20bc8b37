"""A masked scan of any step function, for recurrences without a custom backward pass."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from gatedjax.functional._attention import step_mask
from gatedjax.functional._checks import check_that
from gatedjax.functional._devices import has_manual_axes, rows_like, run_core, vary_together
from gatedjax.functional._recurrence import (
    Restarts,
    check_resets,
    real_alone,
    restarts,
    spread,
    time_major,
)
from gatedjax.functional._types import Carry, Tree


def masked_scan(
    step: Callable[[Carry, Tree], tuple[Carry, Tree]],
    initial: Carry,
    xs: Tree,
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    resets: Bool[Array, "B T"] | None = None,
    reset_to: Carry | None = None,
    reverse: bool = False,
) -> tuple[Carry, Tree]:
    """Scans a user-defined recurrence over a batch of rows with different lengths.

        (c_t, y_t) = step(c_{t-1}, x_t)   where step t of the row is real
        (c_t, y_t) = (c_{t-1}, 0)         elsewhere

    The positions and values of padding, NaN included, change no output, final carry or gradient.
    JAX differentiates the loop, in forward and reverse mode; `lstm`, `gru` and `rau` have custom
    backward passes and are faster.

        >>> def cumulative_sum(carry, x):
        ...     return carry + x, carry + x
        >>> xs = jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 9.0]])
        >>> final, sums = masked_scan(cumulative_sum, jnp.zeros(2), xs, lengths=jnp.array([3, 2]))
        >>> print(final, sums)
        [6. 3.] [[1. 3. 6.]
         [1. 3. 0.]]

    Args:
      step: maps (carry [B, ...], x [B, ...]) to (carry, y [B, ...]), for all rows at once; it may
        close over weights. At padding it runs on the carry and the input of the first real step of
        the row, or of another row if the row has none, so that it adds no NaN. In a batch without a
        real step, it runs there on initial and on x = 1, 1/2, 1/3, ... (0 in integers), where
        values and derivatives must be finite. Padding is replaced in xs only, not in inputs from
        which xs were computed.
      initial: the carry before the first step: a tree of arrays [B, ...].
      xs: inputs: a tree of arrays [B, T, ...], for T steps of B rows.
      mask, lengths, resets, reset_to, reverse: as in `lstm`.

    Returns:
      The final carry, and the outputs of every step [B, T, ...], 0 where the mask is False. A row
      without a real step returns its initial carry.

    Raises:
      ValueError: if xs are empty or their leading axes differ, a carry has other shapes than
        initial, or an output has not as many rows.
      TypeError: if the step returns no pair, or a carry of another structure or dtype.
    """
    if not callable(step):
        raise TypeError(f"step must be a function (carry, x) -> (carry, output), got {step!r}")
    shape = _leading(xs)
    initial = jax.tree.map(jnp.asarray, initial)
    for leaf in jax.tree.leaves(initial):
        check_that(jnp.shape(leaf)[:1] == shape[:1], f"initial must have {shape[0]} rows", leaf)
    mask = step_mask(shape, mask, lengths)
    xs = jax.tree.map(jnp.asarray, xs)
    sharded = jax.tree.leaves((xs, mask, resets, initial))
    initial, xs, mask, resets, reset_to = rows_like((initial, xs, mask, resets, reset_to), *sharded)

    if reset_to is not None:
        _check_like(initial, jax.tree.map(jnp.asarray, reset_to), "reset_to")
    begins = Restarts(None, None)
    if resets is not None:
        check_resets(resets, shape)
        begins = restarts(resets, reset_to, initial, mask, reverse)
    padding: Carry = None
    if mask is not None and 0 not in shape:
        # Clearing only the outputs at padding would leave 0 * NaN in the derivative of the step,
        # and clearing the inputs 0 * inf, such as that of a norm.
        like = jax.tree.leaves((xs, initial))
        x, padding = run_core(_first_real, (reverse,), (xs, mask, initial, begins), like)
        real = mask
        xs = jax.tree.map(lambda x, one: jnp.where(spread(real, x), x, one[:, None]), xs, x)
    reached: Carry = ()
    if has_manual_axes() and shape[1]:  # the step may close over arrays with further axes
        # The step is traced once to learn over which manual axes its carry varies. With T = 0 there
        # is no step to trace.
        first = jax.tree.map(lambda x: x[:, 0], xs)
        reached = jax.eval_shape(lambda carry, x: step(carry, x)[0], initial, first)
    initial, xs, mask, begins = vary_together((initial, xs, mask, begins), reached)
    carry, ys = scan_steps(step, initial, xs, mask, begins, reverse, padding)
    return carry, real_alone(ys, mask)


def _first_real(
    reverse: bool, xs: Tree, mask: Array, initial: Carry, begins: Restarts
) -> tuple[Tree, Carry]:
    """Returns the input and the carry of the first real step of each row, as constants."""
    ahead = mask[:, ::-1] if reverse else mask
    place, has_real = jnp.argmax(ahead, axis=1), jnp.any(mask, axis=1)
    place = mask.shape[1] - 1 - place if reverse else place
    rows = jnp.where(has_real, jnp.arange(mask.shape[0]), jnp.argmax(has_real))
    at = rows, place[rows]

    def first(x: Array) -> Array:
        real = x[at]
        other = jnp.zeros(real[0].size)
        if jnp.issubdtype(x.dtype, jnp.inexact):
            other = jnp.reciprocal(1 + jnp.arange(real[0].size, dtype=jnp.float32))
        return jnp.where(jnp.any(has_real), real, other.astype(x.dtype).reshape(real[:1].shape))

    carry = jax.tree.map(lambda leaf: leaf[rows], initial)
    if begins.goes_on is not None:
        fresh = jax.tree.map(lambda leaf: leaf[rows], begins.carry)
        carry = _select_rows(begins.goes_on[at], carry, fresh)
    return lax.stop_gradient((jax.tree.map(first, xs), carry))


def scan_steps(
    step: Callable[[Carry, Tree], tuple[Carry, Tree]],
    initial: Carry,
    xs: Tree,
    mask: Array | None,
    begins: Restarts,
    reverse: bool = False,
    padding: Carry = None,
) -> tuple[Carry, Tree]:
    """Runs `masked_scan` without checks of its inputs; its outputs at padding are not set to 0."""

    def body(carry: Carry, inputs: Tree) -> tuple[Carry, Tree]:
        """Computes a step: (carry, (x, is real, goes on)) -> (carry, output), for all rows."""
        x, real, goes_on = inputs
        if goes_on is not None:
            carry = _select_rows(goes_on, carry, begins.carry)
        result = step(carry if padding is None else _select_rows(real, carry, padding), x)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise TypeError(f"step must return (carry, output), got {type(result).__name__}")
        new, y = result
        # `lax.scan` needs a carry of constant shape and dtype.
        _check_like(carry, new, "the carry that step returns")
        rows = jax.tree.leaves(x)[0].shape[0]  # not an int if `jax.export` leaves it open
        for leaf in jax.tree.leaves(y):
            fits = jnp.shape(leaf)[:1] == (rows,)
            check_that(fits, f"the output that step returns must have {rows} rows", leaf)
        return (new if real is None else _select_rows(real, new, carry)), y

    steps = (jax.tree.map(time_major, xs), time_major(mask), time_major(begins.goes_on))
    carry, ys = lax.scan(body, initial, steps, reverse=reverse)
    return carry, jax.tree.map(time_major, ys)


def _select_rows(rows: Array, new: Carry, old: Carry) -> Carry:
    return jax.tree.map(lambda n, o: jnp.where(spread(rows, n), n, o), new, old)


def _leading(xs: Tree) -> tuple[int, int]:
    """Returns (B, T) for `xs`, a tree of arrays [B, T, ...]."""
    leaves = jax.tree.leaves(xs)
    if not leaves:
        raise ValueError(f"xs must have at least one array [B, T, ...], got {xs!r}")
    for leaf in leaves:
        check_that(jnp.ndim(leaf) > 1, "xs must have axes [B, T, ...]", leaf)
        same = jnp.shape(leaf)[:2] == jnp.shape(leaves[0])[:2]
        check_that(same, f"xs must agree in [B, T] = {jnp.shape(leaves[0])[:2]}", leaf)
    batch, steps = jnp.shape(leaves[0])[:2]
    return batch, steps


def _check_like(expected: Carry, carry: Carry, name: str) -> None:
    """Raises unless a carry has the structure, the shapes and the dtypes of `expected`."""
    structure: Any = jax.tree.structure(expected)
    if (got := jax.tree.structure(carry)) != structure:
        raise TypeError(f"{name} must have the structure {structure}, got {got}")
    for old, new in zip(jax.tree.leaves(expected), jax.tree.leaves(carry), strict=True):
        check_that(jnp.shape(new) == old.shape, f"{name} must have shape {old.shape}", new)
        if jnp.result_type(new) != old.dtype:
            dtype = jnp.result_type(new)
            requirement = f"dtype {old.dtype}, the dtype of initial"
            raise TypeError(f"{name} must have {requirement}, got {dtype}")
