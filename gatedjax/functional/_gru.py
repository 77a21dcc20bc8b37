"""The gated recurrent unit: a step, and a masked scan with a custom backward pass."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._checks import check_positive
from gatedjax.functional._clip import clip_gradient
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
    check_recurrent_bias,
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
from gatedjax.functional._types import ArrayLike, Tree


@exportable
class GRUWeights(NamedTuple):
    """Weights of a GRU; kernels multiply from the right, in blocks of H columns.

    The blocks are, in this order, the reset gate r, the update gate z and the candidate c. D is the
    width of the inputs and H that of the hidden state.

    Attributes:
      input: the kernel W of the inputs [D, 3H].
      recurrent: the kernel U of the hidden state [H, 3H].
      bias: the biases b of the blocks [3H].
      recurrent_bias: a second bias of c [H], for reset_after only; None means zeros.
    """

    input: Float[Array, "D 3H"]
    recurrent: Float[Array, "H 3H"]
    bias: Float[Array, "3H"]
    recurrent_bias: Float[Array, " H"] | None = None


def gru_step(
    weights: GRUWeights,
    hidden: Float[Array, "B H"],
    x: Float[Array, "B D"],
    *,
    reset_after: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
    gradient_clip: float | None = None,
) -> tuple[Float[Array, "B H"], Float[Array, "B H"]]:
    """Computes a step of a gated recurrent unit.

    r = sigmoid(x W_r + (m h) U_r + b_r);  z = sigmoid(x W_z + (m h) U_z + b_z)
    c = tanh(x W_c + (r m h) U_c + b_c);   h' = (1 - z) h + z c

    With reset_after the reset gate acts on the product instead, as in cuDNN:
    c = tanh(x W_c + b_c + r ((m h) U_c + recurrent_bias)).

        >>> weights = GRUWeights(jnp.ones((3, 12)), jnp.ones((4, 12)), jnp.zeros(12))
        >>> carry, output = gru_step(weights, jnp.zeros((2, 4)), jnp.ones((2, 3)))
        >>> carry.shape, output.shape
        ((2, 4), (2, 4))

    Args:
      weights: W, U and b; `recurrent_bias` (None means zeros) only with reset_after.
      hidden: h, the hidden state before the step; B is the number of rows of the batch and H the
        hidden width.
      x: inputs of width D; the products are formed in its dtype.
      reset_after: apply the reset gate after the recurrent product.
      recurrent_dropout_mask: m, a multiplicative mask of h, 0 or 1 / keep; None means all ones.
      gradient_clip: clip the gradients of the sums inside r, z and c elementwise to
        [-gradient_clip, gradient_clip], before they reach x, h and the weights; None means no
        clipping.

    Returns:
      (carry, output): h' in float32, or in float64 for float64 inputs; and h' in the dtype of x,
      in the order of `jax.lax.scan`.

    Raises:
      ValueError: also if recurrent_bias is given without reset_after.

    Reference: Cho et al. 2014.
    Deviation: z multiplies the candidate; in some texts it multiplies the old state.
    """
    _, size = _check_weights(weights, x, "B D", reset_after)
    check_state("hidden", hidden, (jnp.shape(x)[0], size))
    if recurrent_dropout_mask is not None:
        check_state("recurrent_dropout_mask", recurrent_dropout_mask, jnp.shape(hidden))
    if gradient_clip is not None:
        check_positive(gradient_clip=gradient_clip)
    x = jnp.asarray(x)
    wide = wide_of(x.dtype)
    h = jnp.asarray(hidden, wide)
    fed = apply_dropout(h, recurrent_dropout_mask)
    z, candidate = gru_gates(weights, fed, x, reset_after, gradient_clip)
    new = (1 - z) * h + z * candidate
    return new, new.astype(x.dtype)


def gru_gates(
    weights: GRUWeights, fed: Array, x: Array, reset_after: bool, gradient_clip: float | None = None
) -> tuple[Array, Array]:
    """Returns z and the candidate of `gru_step` [B, H]; `fed` is the state after dropout, m h."""

    def clip(sums: Array) -> Array:
        return sums if gradient_clip is None else clip_gradient(sums, gradient_clip)

    size, wide = fed.shape[1], wide_of(x.dtype)
    recurrent = jnp.asarray(weights.recurrent, x.dtype)
    projected = (
        matmul(x, jnp.asarray(weights.input, x.dtype), wide) + jnp.asarray(weights.bias, wide)[None]
    )
    both = projected[:, : 2 * size] + matmul(fed.astype(x.dtype), recurrent[:, : 2 * size], wide)
    r, z = jnp.split(jax.nn.sigmoid(clip(both)), 2, axis=-1)
    if reset_after:
        product = matmul(fed.astype(x.dtype), recurrent[:, 2 * size :], wide)
        if weights.recurrent_bias is not None:
            product = product + jnp.asarray(weights.recurrent_bias, wide)[None]
        product = r * product
    else:
        product = matmul((r * fed).astype(x.dtype), recurrent[:, 2 * size :], wide)
    candidate = jnp.tanh(clip(projected[:, 2 * size :] + product))
    return z, candidate


def gru(
    weights: GRUWeights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    initial: Float[Array, "B H"] | None = None,
    resets: Bool[Array, "B T"] | None = None,
    reset_to: Float[Array, "B H"] | None = None,
    reverse: bool = False,
    reset_after: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
    gradient_clip: float | None = None,
    implementation: RecurrenceImplementation = "auto",
) -> tuple[Float[Array, "B H"], Float[Array, "B T H"]]:
    """Runs `gru_step` over time, with a custom backward pass.

    The carry stays unchanged where the mask is False, which may be at any step. Padding therefore
    changes no result, and the final carry is the state after the last real step of each row.

        >>> weights = GRUWeights(jnp.ones((3, 12)), jnp.ones((4, 12)), jnp.zeros(12))
        >>> final, outputs = gru(weights, jnp.ones((2, 5, 3)), lengths=jnp.array([5, 2]))
        >>> final.shape, outputs.shape
        ((2, 4), (2, 5, 4))

    Args:
      weights, xs, mask, lengths, initial, resets, reset_to, reverse, implementation: as in `lstm`;
        the carry is the hidden state h.
      reset_after: apply the reset gate after the recurrent product, see `gru_step`.
      recurrent_dropout_mask: multiplies the hidden state that enters the recurrent products, the
        same at every step (variational dropout), with the scale 1 / keep already in it.
      gradient_clip: bounds the gradients of the sums inside the gates of every step, see
        `gru_step`; None does not clip.

    Returns:
      The final carry (float32 or float64) and the hidden state of every step in the dtype of xs,
      0 where the mask is False. A row without a real step returns its initial carry.

    Reverse-mode derivatives of any order are supported, and forward over reverse; forward mode
    alone (`jax.jvp`, `jax.jacfwd`) is not: scan `gru_step` for it.

    Reference: as `gru_step`; recurrent dropout of Gal and Ghahramani 2016.
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
        reset_after=reset_after,
        recurrent_dropout_mask=recurrent_dropout_mask,
        gradient_clip=gradient_clip,
    )
    return run_recurrences((call,), implementation)[0]


def _prepare(
    weights: GRUWeights,
    xs: ArrayLike,
    mask: ArrayLike = None,
    *,
    lengths: ArrayLike = None,
    initial: Array | None = None,
    resets: ArrayLike = None,
    reset_to: Array | None = None,
    reverse: bool = False,
    reset_after: bool = False,
    recurrent_dropout_mask: Array | None = None,
    gradient_clip: float | None = None,
) -> Recurrence:
    """Checks the arguments of `gru`; returns a `Recurrence` with inputs of 0 at padding."""
    _, size = _check_weights(weights, xs, "B T D", reset_after)
    if gradient_clip is not None:
        check_positive(gradient_clip=gradient_clip)
        # The bound is part of the static arguments, which must be hashable.
        gradient_clip = float(gradient_clip)
    xs, mask = real_steps(xs, mask, lengths)
    shape, wide = (xs.shape[0], size), wide_of(xs.dtype)
    if initial is None:
        initial = jnp.zeros(shape, wide)
    check_state("initial", initial, shape)
    dropout = dropout_mask(recurrent_dropout_mask, shape, wide)
    weights = jax.tree.map(jnp.asarray, weights)
    initial = jnp.asarray(initial, wide)
    check = functools.partial(check_state, shape=shape)
    begins = restarts(resets, reset_to, initial, mask, xs.shape[:2], reverse, check)
    kind = _Kind(reverse, reset_after, gradient_clip)
    form = functools.partial(form_for, *shape, steps=xs.shape[1], reset_before=not reset_after)
    # The first form serves calls without a gradient. The second serves both passes of a gradient.
    forms = form(), form(reset_after_gradient=reset_after)
    arguments = (weights, xs, mask, initial, dropout, begins)
    named = kind_of("gru", reset_after=reset_after)
    return Recurrence(*named, reverse, _gru, _run_forward, (forms, kind), arguments, gradient_clip)


register(gru, _prepare)


class _Kind(NamedTuple):
    """The options of `gru` that are known while tracing."""

    reverse: bool
    reset_after: bool
    gradient_clip: float | None


def _check_weights(
    weights: GRUWeights, xs: Any, xs_axes: str, reset_after: bool
) -> tuple[int, int]:
    sizes = check_weights(GRUWeights, 3, weights, xs, xs_axes)
    check_recurrent_bias(weights.recurrent_bias, reset_after)
    return sizes


# The state is [H, B] or [B, H] inside the loops (see `form_for`), [B, H] outside.


def _forward(
    form: Form,
    kind: _Kind,
    weights: GRUWeights,
    xs: Array,
    mask: Array | None,
    initial: Array,
    dropout: Array | None,
    begins: Restarts,
) -> tuple[tuple[Array, Array], tuple[Array, Tree]]:
    """Runs the scan of `gru` and stores the arrays that its backward pass needs."""
    size, dtype, wide = weights.recurrent.shape[0], xs.dtype, initial.dtype
    # sigmoid(a) = (1 + tanh(a / 2)) / 2, with the halves in the columns.
    half = jnp.repeat(jnp.array([0.5, 0.5, 1.0], wide), size)
    kernel, recurrent = (
        (value.astype(wide) * half[None]).astype(dtype)
        for value in (weights.input, weights.recurrent)
    )
    bias = weights.bias.astype(wide) * half
    sums = GateSums(form, kernel, recurrent, bias, cut=2 * size)
    extra = weights.recurrent_bias
    extra = jnp.zeros((), wide) if extra is None else form.spread(extra.astype(wide))
    drop, fresh = map(form.turn, (dropout, begins.carry))

    def body(h: Array, step: Tree) -> Tree:
        """Computes a step: (h, (input, is real, goes on)) -> (new h, (new h, saved))."""
        x, keep, h = sums.prepare(step[0]), step[1], form.select(step[2], h, fresh)
        fed = apply_dropout(h, drop)
        both = sums.of_both(x, fed.astype(dtype))
        both = 0.5 * jnp.tanh(both) + 0.5
        r, z = form.part(both, 0, size), form.part(both, size, 2 * size)
        if kind.reset_after:
            inner = sums.of_state(fed.astype(dtype), late=True) + extra
            candidate = jnp.tanh(sums.of_input(x, late=True) + r * inner)
        else:
            inner = (r * fed).astype(dtype)
            candidate = jnp.tanh(sums.of_both(x, inner, late=True))
        # Equal to (1 - z) h + z c, with one product less.
        new = form.select(keep, h + z * (candidate - h), h)
        # With reset_after the backward loop reads `inner`, in the layout of the loop. Otherwise
        # only the weight gradient reads it, after the loop, as [B, H].
        stored = inner if kind.reset_after else form.turn(inner)
        return new, (form.turn(new), (r, z, candidate, stored))

    h, (states, saved) = lax.scan(
        body,
        form.turn(initial),
        (sums.steps(time_major(xs)), time_major(mask), time_major(begins.goes_on)),
        reverse=kind.reverse,
        unroll=form.unroll,
    )
    return (form.turn(h), as_outputs(time_major(states), mask, dtype)), (states, saved)


def _run_forward(forms: tuple[Form, Form], kind: _Kind, *arguments: Tree) -> tuple[Array, Array]:
    return _forward(forms[0], kind, *arguments)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _gru(forms: tuple[Form, Form], kind: _Kind, *arguments: Tree) -> tuple[Array, Array]:
    return _run_forward(forms, kind, *arguments)


def _gru_fwd(forms: tuple[Form, Form], kind: _Kind, *arguments: Tree) -> Tree:
    result, saved = _forward(forms[1], kind, *arguments)
    return result, (arguments, saved)


def _loop_back(
    form: Form,
    kind: _Kind,
    residuals: Tree,
    cotangents: Tree,
    recurrent: Array,
) -> tuple[Array, tuple[Array, Tree], Array]:
    """Returns the states before the steps, and the gradients of both carries and of the sums."""
    (_, xs, mask, initial, dropout, begins), (states, (r, z, candidate, inner)) = residuals
    final, outputs = cotangents
    size, dtype, wide = initial.shape[1], xs.dtype, initial.dtype
    fresh = begins.carry
    kernel, drop = form.turn(recurrent.T), form.turn(dropout)
    early, late = (form.turn(part.T) for part in jnp.split(recurrent, [2 * size], axis=1))
    bound = kind.gradient_clip

    def clip(change: Array) -> Array:
        return change if bound is None else jnp.clip(change, -bound, bound)

    before = state_before(states, initial, kind.reverse, begins.goes_on, fresh)

    def body(carry: tuple[Array, Tree], step: Tree) -> Tree:
        """Computes the gradients of a step."""
        dh, total = carry
        dy, keep, goes_on, h, r, z, candidate, inner = step
        h = form.turn(h)
        # Padding copies the state, so no gradient enters the gates there.
        new = form.select(keep, dh + form.turn(dy).astype(wide), 0.0)
        dz = clip(new * (candidate - h) * z * (1 - z))
        dc = clip(new * z * (1 - candidate * candidate))
        if kind.reset_after:
            dr = clip(dc * inner * r * (1 - r))
            # x W_c enters the candidate directly, h U_c is multiplied with r first. Their sums
            # therefore have the gradients dc and dc r.
            gates = form.join([dr, dz, dc]).astype(dtype)
            second = form.join([dr, dz, dc * r]).astype(dtype)
            through = form.product(kernel, second, wide)
        else:
            reset = form.product(late, dc.astype(dtype), wide)
            dr = clip(reset * apply_dropout(h, drop) * r * (1 - r))
            both = form.join([dr, dz]).astype(dtype)
            gates = form.join([both, dc.astype(dtype)])
            through = reset * r + form.product(early, both, wide)
        through = apply_dropout(through, drop) + new * (1 - z)
        if keep is not None:
            # A copied state passes its gradient on unchanged.
            through = through + form.select(keep, jnp.zeros_like(dh), dh)
        return form.split(goes_on, through, total), form.turn(gates)

    # `inner` is stored for the reset gate's gradient, or for that of U_c, which is formed below.
    start = form.turn(final), form.turn(jax.tree.map(jnp.zeros_like, fresh))
    scanned = time_major(outputs), time_major(mask), time_major(begins.goes_on), before
    saved = r, z, candidate, inner if kind.reset_after else None
    changes, gates = lax.scan(
        body, start, (*scanned, *saved), reverse=not kind.reverse, unroll=form.unroll
    )
    return before, changes, gates


@compile_outside_jit(*range(2))
def _gru_bwd(forms: tuple[Form, Form], kind: _Kind, residuals: Tree, cotangents: Tree) -> Tree:
    """Returns the gradients of the `arguments` of `_gru`, in their order."""
    form = forms[1]
    (weights, xs, _, initial, dropout, _), (_, (r, *_, inner)) = residuals
    size, dtype, wide = weights.recurrent.shape[0], xs.dtype, initial.dtype
    recurrent = weights.recurrent.astype(dtype)
    before, changes, gates = _loop_back(form, kind, residuals, cotangents, recurrent)
    fed = before if dropout is None else before * dropout[None]
    both, last = gates[..., : 2 * size], gates[..., 2 * size :]
    reset = form.turn(r)
    if kind.reset_after:
        # The reset gate multiplies U_c h and its bias, so their gradient is dc r.
        last = (last.astype(wide) * reset).astype(dtype)
        both = jnp.concatenate([both, last], axis=-1)
        d_recurrent = weight_gradient(fed.astype(dtype), both, wide)
    else:
        blocks = [(fed.astype(dtype), both), (inner, last)]
        d_recurrent = jnp.concatenate([weight_gradient(*pair, wide) for pair in blocks], axis=-1)
    d_extra = weights.recurrent_bias
    if d_extra is not None:
        d_extra = jnp.sum(last, axis=(0, 1), dtype=wide).astype(d_extra.dtype)
    d_weights = GRUWeights(
        weight_gradient(time_major(xs), gates, wide).astype(weights.input.dtype),
        d_recurrent.astype(weights.recurrent.dtype),
        jnp.sum(gates, axis=(0, 1), dtype=wide).astype(weights.bias.dtype),
        d_extra,
    )
    d_xs = matmul(gates, weights.input.astype(dtype).T, wide)
    d_xs = time_major(d_xs).astype(dtype)
    d_dropout = None
    if dropout is not None:  # unused, as in training, it is removed by the compiler
        if kind.reset_after:
            through = matmul(both, recurrent.T, wide)
        else:
            through = matmul(both, recurrent[:, : 2 * size].T, wide)
            late = matmul(last, recurrent[:, 2 * size :].T, wide)
            through = through + reset * late
        d_dropout = jnp.sum(before * through, axis=0)
    d_initial, d_fresh = map(form.turn, changes)
    return d_weights, d_xs, None, d_initial, d_dropout, Restarts(None, d_fresh)


_gru.defvjp(_gru_fwd, _gru_bwd)
