"""The long short-term memory: a step, and a masked scan with a custom backward pass."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._devices import compile_outside_jit
from gatedjax.functional._directions import Recurrence, kind_of, register, run_recurrences
from gatedjax.functional._export import exportable
from gatedjax.functional._persistent._backend import RecurrenceImplementation
from gatedjax.functional._recurrence import (
    Form,
    GateSums,
    Restarts,
    apply_dropout,
    as_outputs,
    check_state,
    check_weights,
    dropout_mask,
    form_for,
    matmul,
    real_steps,
    restarts,
    state_before,
    time_major,
    weight_gradient,
    wide_of,
)
from gatedjax.functional._types import ArrayLike, Carry, Tree


@exportable
class LSTMWeights(NamedTuple):
    """Weights of an LSTM; kernels multiply from the right, in blocks of H columns.

    The blocks are, in this order, the input gate i, the forget gate f, the candidate g and the
    output gate o. D is the width of the inputs and H that of the hidden state.

    Attributes:
      input: the kernel W of the inputs [D, 4H].
      recurrent: the kernel U of the hidden state [H, 4H].
      bias: the biases b of the blocks [4H].
    """

    input: Float[Array, "D 4H"]
    recurrent: Float[Array, "H 4H"]
    bias: Float[Array, "4H"]


@exportable
class LSTMState(NamedTuple):
    """The carry of an LSTM, for B rows and H hidden units.

    Attributes:
      hidden: the hidden state h [B, H], which is also the output of a step.
      cell: the cell state c [B, H].
    """

    hidden: Float[Array, "B H"]
    cell: Float[Array, "B H"]


def lstm_step(
    weights: LSTMWeights,
    carry: LSTMState,
    x: Float[Array, "B D"],
    *,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
) -> tuple[LSTMState, Float[Array, "B H"]]:
    """Computes a step of a long short-term memory.

    [i, f, g, o] = x W + (m h) U + b
    c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = sigmoid(o) tanh(c')

        >>> weights = LSTMWeights(jnp.ones((3, 16)), jnp.ones((4, 16)), jnp.zeros(16))
        >>> carry = LSTMState(jnp.zeros((2, 4)), jnp.zeros((2, 4)))
        >>> carry, output = lstm_step(weights, carry, jnp.ones((2, 3)))
        >>> carry.cell.shape, output.shape
        ((2, 4), (2, 4))

    Args:
      weights: W, U and b, each for the four blocks side by side.
      carry: h and c before the step; B is the number of rows of the batch and H the hidden width.
      x: inputs of width D; the products are formed in its dtype.
      recurrent_dropout_mask: m, a multiplicative mask of h, 0 or 1 / keep; None means all ones.

    Returns:
      (carry, output): h' and c' in float32, or in float64 for float64 inputs; and h' in the dtype
      of x, in the order of `jax.lax.scan`.

    Reference: Hochreiter and Schmidhuber 1997; forget gate of Gers et al. 2000, no peepholes.
    """
    _, hidden = check_weights(LSTMWeights, 4, weights, x, "B D")
    shape = (jnp.shape(x)[0], hidden)
    _check_carry("carry", carry, shape)
    if recurrent_dropout_mask is not None:
        check_state("recurrent_dropout_mask", recurrent_dropout_mask, shape)
    x = jnp.asarray(x)
    wide = wide_of(x.dtype)
    h, c = (jnp.asarray(value, wide) for value in carry)
    fed = apply_dropout(h, recurrent_dropout_mask).astype(x.dtype)
    gates = (
        matmul(x, jnp.asarray(weights.input, x.dtype), wide)
        + matmul(fed, jnp.asarray(weights.recurrent, x.dtype), wide)
        + jnp.asarray(weights.bias, wide)[None]
    )
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    new = LSTMState(jax.nn.sigmoid(o) * jnp.tanh(c), c)
    return new, new.hidden.astype(x.dtype)


def _check_carry(name: str, carry: Carry, shape: tuple[int, int]) -> None:
    if not isinstance(carry, LSTMState):
        raise TypeError(f"{name} must be an LSTMState, got {type(carry).__name__}")
    check_state(f"{name}.hidden", carry.hidden, shape)
    check_state(f"{name}.cell", carry.cell, shape)


def lstm(
    weights: LSTMWeights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    initial: LSTMState | None = None,
    resets: Bool[Array, "B T"] | None = None,
    reset_to: LSTMState | None = None,
    reverse: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
    implementation: RecurrenceImplementation = "auto",
) -> tuple[LSTMState, Float[Array, "B T H"]]:
    """Runs an LSTM over time, `lstm_step` at each step of a batch of rows.

    The carry stays unchanged where the mask is False, which may be at any step. Padding therefore
    changes no result, and the final carry is the state after the last real step of each row.

        >>> weights = LSTMWeights(jnp.ones((3, 16)), jnp.ones((4, 16)), jnp.zeros(16))
        >>> final, outputs = lstm(weights, jnp.ones((2, 5, 3)), lengths=jnp.array([5, 2]))
        >>> final.hidden.shape, outputs.shape
        ((2, 4), (2, 5, 4))

    Args:
      weights: the parameters, of any floating dtype; their gradients have the same dtype.
      xs: inputs, a vector of width D at each of T steps of B rows; the products are formed in their
        dtype (bfloat16 saves time on accelerators), carries and gates in float32 (float64 for
        float64 inputs).
      mask: True at real steps; None means all.
      lengths: instead of mask, the number of real steps of each row (see `length_mask`).
      initial: the carry before the first step; None means zeros.
      resets: True at the first step of each segment of a row, see below; None means one segment.
      reset_to: the carry at the start of a segment; None means initial. Pass zeros if initial is
        the final carry of the chunk before. Unused without resets.
      reverse: run from the last step to the first; outputs stay in the order of xs.
      recurrent_dropout_mask: multiplies the hidden state that enters the recurrent product, the
        same at every step (variational dropout), with the scale 1 / keep already in it.
      implementation: "scan", a loop of XLA; "persistent", one launch for all steps on an NVIDIA
        GPU; or "auto", the faster of both (see `recurrence_backend`).

    Returns:
      The final carry (float32 or float64) and the hidden state of every step in the dtype of xs,
      0 where the mask is False. A row without a real step returns its initial carry.

    Resets separate the segments of a row. At a step with resets=True the carry is replaced by
    reset_to before the step; with reverse=True after the step, before the last step of the previous
    segment. Each segment of a packed row then has the outputs and gradients of a run from reset_to,
    in both directions. Only the segment that runs first (with reverse=True the last of the row)
    starts from initial. The final carry belongs to the segment that runs last. A reset at a padded
    step has no effect.

    Reverse-mode derivatives of any order are supported, and forward over reverse; forward mode
    alone (`jax.jvp`, `jax.jacfwd`) is not: scan `lstm_step` for it.

    Reference: as `lstm_step`; recurrent dropout of Gal and Ghahramani 2016.
    """
    call = _prepare(
        weights,
        xs,
        mask,
        lengths=lengths,
        initial=initial,
        resets=resets,
        reset_to=reset_to,
        reverse=reverse,
        recurrent_dropout_mask=recurrent_dropout_mask,
    )
    return run_recurrences((call,), implementation)[0]


def _prepare(
    weights: LSTMWeights,
    xs: ArrayLike,
    mask: ArrayLike = None,
    *,
    lengths: ArrayLike = None,
    initial: LSTMState | None = None,
    resets: ArrayLike = None,
    reset_to: LSTMState | None = None,
    reverse: bool = False,
    recurrent_dropout_mask: Array | None = None,
) -> Recurrence:
    """Checks the arguments of `lstm`; returns a `Recurrence` with inputs of 0 at padding."""
    _, hidden = check_weights(LSTMWeights, 4, weights, xs, "B T D")
    xs, mask = real_steps(xs, mask, lengths)
    shape, wide = (xs.shape[0], hidden), wide_of(xs.dtype)
    if initial is None:
        initial = LSTMState(jnp.zeros(shape, wide), jnp.zeros(shape, wide))
    _check_carry("initial", initial, shape)
    initial = LSTMState(*(jnp.asarray(value, wide) for value in initial))
    check = functools.partial(_check_carry, shape=shape)
    begins = restarts(resets, reset_to, initial, mask, xs.shape[:2], reverse, check)
    dropout = dropout_mask(recurrent_dropout_mask, shape, wide)
    weights = LSTMWeights(*map(jnp.asarray, weights))
    arguments = (weights, xs, mask, initial, dropout, begins)
    static = form_for(*shape, steps=xs.shape[1]), reverse
    return Recurrence(*kind_of("lstm"), reverse, _lstm, _run_forward, static, arguments)


register(lstm, _prepare)


# The state is [H, B] or [B, H] inside the loops (see `form_for`), [B, H] outside.


def _forward(
    form: Form,
    reverse: bool,
    weights: LSTMWeights,
    xs: Array,
    mask: Array | None,
    initial: LSTMState,
    dropout: Array | None,
    begins: Restarts,
) -> tuple[tuple[LSTMState, Array], tuple[Array, Tree]]:
    """Runs the scan of `lstm` and stores the arrays that its backward pass needs."""
    size, dtype, wide = weights.recurrent.shape[0], xs.dtype, initial.hidden.dtype
    # sigmoid(a) = (1 + tanh(a / 2)) / 2: with halved columns one tanh serves all four gates.
    half = jnp.repeat(jnp.array([0.5, 0.5, 1.0, 0.5], wide), size)
    kernel, recurrent = (
        (value.astype(wide) * half[None]).astype(dtype)
        for value in (weights.input, weights.recurrent)
    )
    sums = GateSums(form, kernel, recurrent, weights.bias.astype(wide) * half)
    drop, fresh_h, fresh_c = map(form.turn, (dropout, *begins.carry))

    def body(carry: tuple[Array, Array], step: Tree) -> Tree:
        """Computes a step: ((h, c), (input, is real, goes on)) -> (carry, (new h, saved))."""
        x, keep, goes_on = step
        h, c = form.select(goes_on, carry[0], fresh_h), form.select(goes_on, carry[1], fresh_c)
        fed = apply_dropout(h, drop).astype(dtype)
        t = jnp.tanh(sums.of_both(sums.prepare(x), fed))
        i, f, o = (0.5 * form.part(t, k * size, (k + 1) * size) + 0.5 for k in (0, 1, 3))
        g = form.part(t, 2 * size, 3 * size)
        new_c = f * c + i * g
        new_h = o * jnp.tanh(new_c)
        new_h, new_c = form.select(keep, new_h, h), form.select(keep, new_c, c)
        return (new_h, new_c), (form.turn(new_h), (c, i, f, g, o))

    (h, c), (states, saved) = lax.scan(
        body,
        (form.turn(initial.hidden), form.turn(initial.cell)),
        (sums.steps(time_major(xs)), time_major(mask), time_major(begins.goes_on)),
        reverse=reverse,
        unroll=form.unroll,
    )
    final = LSTMState(form.turn(h), form.turn(c))
    return (final, as_outputs(time_major(states), mask, dtype)), (states, saved)


def _run_forward(form: Form, reverse: bool, *arguments: Tree) -> tuple[LSTMState, Array]:
    return _forward(form, reverse, *arguments)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _lstm(form: Form, reverse: bool, *arguments: Tree) -> tuple[LSTMState, Array]:
    return _run_forward(form, reverse, *arguments)


def _lstm_fwd(form: Form, reverse: bool, *arguments: Tree) -> Tree:
    result, saved = _forward(form, reverse, *arguments)
    return result, (arguments, saved)


@compile_outside_jit(*range(2))
def _lstm_bwd(form: Form, reverse: bool, residuals: Tree, cotangents: Tree) -> Tree:
    """Returns the gradients of the `arguments` of `_lstm`, in their order."""
    (weights, xs, mask, initial, dropout, begins), (states, saved) = residuals
    final, outputs = cotangents
    dtype, wide = xs.dtype, initial.hidden.dtype
    recurrent = weights.recurrent.astype(dtype)
    fresh = begins.carry
    kernel, drop = form.turn(recurrent.T), form.turn(dropout)

    def body(carry: tuple[Tree, Tree], step: Tree) -> Tree:
        """Computes the gradients of a step."""
        (dh, dc), (total_h, total_c) = carry
        dy, keep, goes_on, (c, i, f, g, o) = step
        # c_t is computed again from the gates, instead of being stored for all steps.
        tanh_c = jnp.tanh(f * c + i * g)
        # Padding copies the carry, so no gradient enters the gates there.
        dh_new = form.select(keep, dh + form.turn(dy).astype(wide), 0.0)
        dc_new = form.select(keep, dc, 0.0) + dh_new * o * (1 - tanh_c * tanh_c)
        blocks = (
            dc_new * g * i * (1 - i),
            dc_new * c * f * (1 - f),
            dc_new * i * (1 - g * g),
            dh_new * tanh_c * o * (1 - o),
        )
        gates = form.join(blocks).astype(dtype)
        through = apply_dropout(form.product(kernel, gates, wide), drop)
        if keep is not None:
            # A copied carry passes its gradient on unchanged.
            through = through + form.select(keep, jnp.zeros_like(dh), dh)
        dh, total_h = form.split(goes_on, through, total_h)
        dc, total_c = form.split(goes_on, form.select(keep, dc_new * f, dc), total_c)
        return ((dh, dc), (total_h, total_c)), form.turn(gates)

    totals = jax.tree.map(jnp.zeros_like, fresh)
    turned = jax.tree.map(form.turn, ((final.hidden, final.cell), tuple(totals)))
    (d_initial, d_fresh), gates = lax.scan(
        body,
        turned,
        (time_major(outputs), time_major(mask), time_major(begins.goes_on), saved),
        reverse=not reverse,
        unroll=form.unroll,
    )
    before = state_before(states, initial.hidden, reverse, begins.goes_on, fresh.hidden)
    fed = before if dropout is None else before * dropout[None]
    # A weight gradient sums over all steps and rows, so it is a single large product after the loop
    # and not a small product in each step.
    d_weights = LSTMWeights(
        weight_gradient(time_major(xs), gates, wide).astype(weights.input.dtype),
        weight_gradient(fed.astype(dtype), gates, wide).astype(weights.recurrent.dtype),
        jnp.sum(gates, axis=(0, 1), dtype=wide).astype(weights.bias.dtype),
    )
    d_xs = matmul(gates, weights.input.astype(dtype).T, wide)
    d_xs = time_major(d_xs).astype(dtype)
    d_dropout = None
    if dropout is not None:  # unused, as in training, it is removed by the compiler
        d_dropout = jnp.sum(before * matmul(gates, recurrent.T, wide), axis=0)
    d_initial, d_fresh = (LSTMState(*map(form.turn, parts)) for parts in (d_initial, d_fresh))
    return d_weights, d_xs, None, d_initial, d_dropout, Restarts(None, d_fresh)


_lstm.defvjp(_lstm_fwd, _lstm_bwd)
