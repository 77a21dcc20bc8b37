"""The recurrent attention unit over time: a masked scan with a custom backward pass."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gatedjax.functional._devices import compile_outside_jit, run_core
from gatedjax.functional._directions import Recurrence, kind_of, register, run_recurrences
from gatedjax.functional._masked_scan import scan_steps
from gatedjax.functional._persistent._backend import RecurrenceImplementation
from gatedjax.functional._rau_step import (
    AnyRAUWeights,
    RAUAttention,
    RAUOptions,
    RAUTimeState,
    RAUWeights,
    advance,
    advance_and_attend,
    check_carry,
    check_options,
    check_rau_weights,
    hidden_of,
    initial_state,
)
from gatedjax.functional._recurrence import (
    Form,
    GateSums,
    Restarts,
    apply_dropout,
    as_outputs,
    dropout_mask,
    form_for,
    matmul,
    real_alone,
    real_steps,
    restarts,
    state_before,
    time_major,
    weight_gradient,
    wide_of,
)
from gatedjax.functional._types import ArrayLike, Carry, Tree, Weights


def rau(
    weights: AnyRAUWeights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    initial: Float[Array, "B H"] | RAUTimeState | None = None,
    resets: Bool[Array, "B T"] | None = None,
    reset_to: Float[Array, "B H"] | RAUTimeState | None = None,
    reverse: bool = False,
    attention: RAUAttention = "feature_proj",
    rescale: bool = False,
    reset_after: bool = False,
    recurrent_dropout_mask: Float[Array, "B H"] | None = None,
    implementation: RecurrenceImplementation = "auto",
) -> tuple[Float[Array, "B H"] | RAUTimeState, Float[Array, "B T H"]]:
    """Runs a recurrent attention unit over time: `rau_step` at each step of a batch of rows.

    The carry stays unchanged where the mask is False, which may be at any step. Padding therefore
    changes no result, and the final carry is the state after the last real step of each row.

        >>> weights = RAUWeights(jnp.ones((3, 20)), jnp.ones((4, 20)), jnp.zeros(20))
        >>> final, outputs = rau(weights, jnp.ones((2, 5, 3)), lengths=jnp.array([5, 2]))
        >>> final.shape, outputs.shape
        ((2, 4), (2, 5, 4))

    Args:
      weights: the parameters, see `rau_step`, of any floating dtype.
      xs, mask, lengths, resets, reset_to, reverse: as in `lstm`; the softmax is in float32, too.
      initial: the carry before the first step: a hidden state [B, H] of H units, or a
        `RAUTimeState` for time_causal; None means zeros (for time_causal: no step yet).
      attention: the form of the attention: "feature_proj", "sigmoid", "concat", "matrix",
        "time_causal" or "additive_relu", with the equations of `rau_step`. matrix keeps
        [B, H, D + H] per step and is meant for small sizes.
      rescale: True gives the attention weights of a step the mean 1 instead of the sum 1.
      reset_after: apply the reset gate after the recurrent product, see `gru_step`.
      recurrent_dropout_mask: multiplies the hidden state that enters the products and the
        attention, the same at every step (variational dropout), with 1 / keep already in it.
      implementation: "scan", a loop of XLA; "persistent", one launch for all steps on an NVIDIA
        GPU, for feature_proj with `RAUWeights` and without reset_after; or "auto", the faster of
        both.

    Returns:
      The final carry (float32 or float64) and the hidden state of every step in the dtype of xs,
      0 where the mask is False. A row without a real step returns its initial carry.

    Derivatives: `jax.grad` of any order, and forward over reverse. feature_proj and sigmoid have a
    custom backward pass with `RAUWeights`, so `jax.jvp` and `jax.jacfwd` fail there. If you need
    them, scan `rau_step`.

    Reference and deviations: as `rau_step`; recurrent dropout of Gal and Ghahramani 2016.
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
        attention=attention,
        rescale=rescale,
        reset_after=reset_after,
        recurrent_dropout_mask=recurrent_dropout_mask,
    )
    return run_recurrences((call,), implementation)[0]


def _prepare(
    weights: AnyRAUWeights,
    xs: ArrayLike,
    mask: ArrayLike = None,
    *,
    lengths: ArrayLike = None,
    initial: Carry = None,
    resets: ArrayLike = None,
    reset_to: Carry = None,
    reverse: bool = False,
    attention: RAUAttention = "feature_proj",
    rescale: bool = False,
    reset_after: bool = False,
    recurrent_dropout_mask: Array | None = None,
) -> Recurrence:
    """Checks the arguments of `rau`; returns a `Recurrence` with inputs of 0 at padding."""
    options = check_options(attention, rescale, reset_after)
    _, size = check_rau_weights(weights, xs, "B T D", options)
    xs, mask = real_steps(xs, mask, lengths)
    shape, wide = (xs.shape[0], size), wide_of(xs.dtype)
    if initial is None:
        initial = initial_state(attention, *shape, wide)
    check_carry("initial", initial, shape, options)
    initial = jax.tree.map(lambda value: jnp.asarray(value, wide), initial)
    check = functools.partial(check_carry, shape=shape, options=options)
    begins = restarts(resets, reset_to, initial, mask, xs.shape[:2], reverse, check)
    dropout = dropout_mask(recurrent_dropout_mask, shape, wide)
    weights = jax.tree.map(jnp.asarray, weights)
    arguments = (weights, xs, mask, initial, dropout, begins)
    kind, name = kind_of("rau", reset_after=reset_after, attention=attention)
    # Only these two forms have a custom backward pass. JAX differentiates the loop of all other
    # forms.
    if attention in ("feature_proj", "sigmoid") and isinstance(weights, RAUWeights):
        static = form_for(*shape, steps=xs.shape[1]), reverse, options
        scale = float(size) if rescale else 1.0
        return Recurrence(kind, name, reverse, _rau, _run_forward, static, arguments, scale=scale)
    name = f"rau with attention={attention!r} and {type(weights).__name__}"
    return Recurrence(None, name, reverse, _plain, _plain, (reverse, options), arguments)


register(rau, _prepare)


def rau_attention(
    weights: AnyRAUWeights,
    xs: Float[Array, "B T D"],
    mask: Bool[Array, "B T"] | None = None,
    *,
    lengths: Int[Array, " B"] | None = None,
    resets: Bool[Array, "B T"] | None = None,
    attention: RAUAttention = "feature_proj",
    rescale: bool = False,
    reset_after: bool = False,
) -> Float[Array, "B T ..."]:
    """Returns the attention weights p of each step of `rau` from a zero state, for analysis.

        >>> weights = RAUWeights(jnp.ones((3, 20)), jnp.ones((4, 20)), jnp.zeros(20))
        >>> rau_attention(weights, jnp.ones((2, 5, 3))).shape
        (2, 5, 4)

    Args:
      weights: the parameters, of the class that the attention needs (see `rau_step`).
      xs, mask, lengths, resets, attention, rescale, reset_after: as in `rau`. The weights are
        returned with the mean 1 if `rescale` is True; the state is zero at a reset.

    Returns:
      The attention weights in float32 (float64 for float64 inputs), 0 where the mask is False:
      [B, T, H], a weight for each of H features; concat [B, T, D + H]; matrix [B, T, H, D + H];
      time_causal [B, T, 1].
    """
    options = check_options(attention, rescale, reset_after)
    _, size = check_rau_weights(weights, xs, "B T D", options)
    xs, mask = real_steps(xs, mask, lengths)
    initial = initial_state(attention, xs.shape[0], size, wide_of(xs.dtype))
    check = functools.partial(check_carry, shape=(xs.shape[0], size), options=options)
    begins = restarts(resets, None, initial, mask, xs.shape[:2], False, check)
    weights = jax.tree.map(jnp.asarray, weights)
    return run_core(_attention, (options,), (weights, xs, mask, initial, begins), (xs,))


def _attention(
    options: RAUOptions,
    weights: Weights,
    xs: Array,
    mask: Array | None,
    initial: Carry,
    begins: Restarts,
) -> Array:
    """Returns the attention weights p of all steps [B, T, ...], 0 at padding."""

    def step(carry: Carry, x: Array) -> tuple[Carry, Array]:
        return advance_and_attend(options, weights, carry, x, None)

    _, p = scan_steps(step, initial, xs, mask, begins)
    return real_alone(p, mask)


def _plain(
    reverse: bool,
    options: RAUOptions,
    weights: Weights,
    xs: Array,
    mask: Array | None,
    initial: Carry,
    dropout: Array | None,
    begins: Restarts,
) -> tuple[Tree, Array]:
    """Runs `rau` as a scan of the step, where there is no custom derivative."""

    def step(carry: Carry, x: Array) -> tuple[Carry, Array]:
        new = advance(options, weights, carry, x, dropout)
        return new, hidden_of(new)

    carry, states = scan_steps(step, initial, xs, mask, begins, reverse)
    return carry, as_outputs(states, mask, xs.dtype)


# Below, the state is [H, B] or [B, H] inside the loops (see `form_for`), [B, H] outside. The blocks
# that act on h (r, z, a and u) form one array and the candidate's block another, in both
# directions: this takes 1.67 times a GRU of the same width; a joint array that is sliced after the
# loop takes 1.90.
# Figures: docs/recurrence_measurements.md, "How the forms were chosen".


def _split_blocks(blocks: Array, size: int) -> tuple[Array, Array]:
    # Of the blocks r, z, c, a, u the candidate c is late, because it needs r first.
    early = jnp.concatenate([blocks[..., : 2 * size], blocks[..., 3 * size :]], axis=-1)
    return early, blocks[..., 2 * size : 3 * size]


def _join_blocks(early: Array, late: Array) -> Array:
    size = late.shape[-1]
    return jnp.concatenate([early[..., : 2 * size], late, early[..., 2 * size :]], axis=-1)


def _gate_sums(
    form: Form, options: RAUOptions, weights: RAUWeights, dtype: jnp.dtype, wide: jnp.dtype
) -> tuple[GateSums, Array]:
    """Returns the `GateSums` of r, z, a, u (early columns) and c (late), and the bias of h U_c."""
    size = weights.recurrent.shape[0]
    # sigmoid(a) = (1 + tanh(a / 2)) / 2, with the halves in the columns.
    logit = 0.5 if options.attention == "sigmoid" else 1.0
    half = jnp.repeat(jnp.array([0.5, 0.5, 1.0, logit, 1.0], wide), size)

    def halve(kernel: Array) -> Array:
        return (kernel.astype(wide) * half[None]).astype(dtype)

    kernel, recurrent, bias = (
        jnp.concatenate(_split_blocks(value, size), axis=-1)
        for value in (
            halve(weights.input),
            halve(weights.recurrent),
            weights.bias.astype(wide) * half,
        )
    )
    sums = GateSums(form, kernel, recurrent, bias, cut=4 * size)
    extra = weights.recurrent_bias
    return sums, jnp.zeros((), wide) if extra is None else form.spread(extra.astype(wide))


def _forward(
    form: Form,
    reverse: bool,
    options: RAUOptions,
    weights: RAUWeights,
    xs: Array,
    mask: Array | None,
    initial: Array,
    dropout: Array | None,
    begins: Restarts,
) -> tuple[tuple[Array, Array], tuple[Array, Tree]]:
    """Runs the scan of `rau` and stores the arrays that its backward pass needs."""
    size, dtype = weights.recurrent.shape[0], xs.dtype
    scale = size if options.rescale else 1
    sums, extra = _gate_sums(form, options, weights, dtype, initial.dtype)
    drop, fresh = map(form.turn, (dropout, begins.carry))

    def body(h: Array, step: Tree) -> Tree:
        """Computes a step: (h, (input, is real, goes on)) -> (new h, (new h, saved))."""
        x, keep, h = sums.prepare(step[0]), step[1], form.select(step[2], h, fresh)
        fed = apply_dropout(h, drop)
        early = sums.of_both(x, fed.astype(dtype))
        both = 0.5 * jnp.tanh(form.part(early, 0, 2 * size)) + 0.5
        r, z = form.part(both, 0, size), form.part(both, size, 2 * size)
        if options.reset_after:
            inner = sums.of_state(fed.astype(dtype), late=True) + extra
            candidate = jnp.tanh(sums.of_input(x, late=True) + r * inner)
        else:
            inner = (r * fed).astype(dtype)
            candidate = jnp.tanh(sums.of_both(x, inner, late=True))
        logits = form.part(early, 2 * size, 3 * size)
        value = form.part(early, 3 * size, 4 * size)
        if options.attention == "sigmoid":
            p = 0.5 * jnp.tanh(logits) + 0.5
        else:
            # The shift by the maximum cancels in the quotient, and no exponential overflows.
            p = jnp.exp(logits - jnp.max(logits, axis=form.axis, keepdims=True))
            p = p * (scale / jnp.sum(p, axis=form.axis, keepdims=True))
        second = jnp.tanh(p * value)
        new = form.select(keep, h + z * (0.5 * (candidate + second) - h), h)
        stored = inner if options.reset_after else form.turn(inner)
        return new, (form.turn(new), (r, z, candidate, p, value, stored))

    h, (states, saved) = lax.scan(
        body,
        form.turn(initial),
        (sums.steps(time_major(xs)), time_major(mask), time_major(begins.goes_on)),
        reverse=reverse,
        unroll=form.unroll,
    )
    return (form.turn(h), as_outputs(time_major(states), mask, dtype)), (states, saved)


def _run_forward(
    form: Form, reverse: bool, options: RAUOptions, *arguments: Tree
) -> tuple[Array, Array]:
    return _forward(form, reverse, options, *arguments)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _rau(form: Form, reverse: bool, options: RAUOptions, *arguments: Tree) -> tuple[Array, Array]:
    return _run_forward(form, reverse, options, *arguments)


def _rau_fwd(form: Form, reverse: bool, options: RAUOptions, *arguments: Tree) -> Tree:
    result, saved = _forward(form, reverse, options, *arguments)
    return result, (arguments, saved)


def _loop_back(
    form: Form,
    reverse: bool,
    options: RAUOptions,
    residuals: Tree,
    cotangents: Tree,
    blocks: tuple[Array, Array],
) -> tuple[Array, tuple[Array, Tree], tuple[Array, Array]]:
    """Returns the states before the steps, and the gradients of both carries and of the sums."""
    (_, xs, mask, initial, dropout, begins), (states, (*stored, inner)) = residuals
    final, outputs = cotangents
    dtype, wide = xs.dtype, initial.dtype
    scale = initial.shape[1] if options.rescale else 1
    early_kernel, late_kernel = (form.turn(block.T) for block in blocks)
    fresh, drop = begins.carry, form.turn(dropout)
    before = state_before(states, initial, reverse, begins.goes_on, fresh)

    def body(carry: tuple[Array, Tree], step: Tree) -> Tree:
        """Computes the gradients of a step."""
        dh, total = carry
        dy, keep, goes_on, h, (r, z, candidate, p, value), inner = step
        h = form.turn(h)
        second = jnp.tanh(p * value)
        # Padding copies the state, so no gradient enters the gates there.
        new = form.select(keep, dh + form.turn(dy).astype(wide), 0.0)
        dz = new * (0.5 * (candidate + second) - h) * z * (1 - z)
        share = 0.5 * new * z
        dc = share * (1 - candidate * candidate)
        dv = share * (1 - second * second) * p
        da = dv * value
        if options.attention == "sigmoid":
            da = da * (1 - p)
        else:
            # With dp the gradient of p, p dp = dv value. For p = scale softmax(a) the gradient of a
            # is p dp - p sum(p dp) / scale.
            da = da - p * (jnp.sum(da, axis=form.axis, keepdims=True) / scale)
        if options.reset_after:
            dr = dc * inner * r * (1 - r)
            through = form.product(late_kernel, (dc * r).astype(dtype), wide)
        else:
            reset = form.product(late_kernel, dc.astype(dtype), wide)
            dr = reset * apply_dropout(h, drop) * r * (1 - r)
            through = reset * r
        gates = form.join([dr, dz, da, dv]).astype(dtype)
        through = through + form.product(early_kernel, gates, wide)
        through = apply_dropout(through, drop) + new * (1 - z)
        if keep is not None:
            through = through + form.select(keep, jnp.zeros_like(dh), dh)
        carry = form.split(goes_on, through, total)
        return carry, (form.turn(gates), form.turn(dc).astype(dtype))

    # `inner` is stored for the reset gate's gradient, or for that of U_c, which is formed below.
    scanned = time_major(outputs), time_major(mask), time_major(begins.goes_on), before
    saved = tuple(stored), inner if options.reset_after else None
    start = form.turn(final), form.turn(jax.tree.map(jnp.zeros_like, fresh))
    changes, gates = lax.scan(
        body, start, (*scanned, *saved), reverse=not reverse, unroll=form.unroll
    )
    return before, changes, gates


@compile_outside_jit(*range(3))
def _rau_bwd(
    form: Form, reverse: bool, options: RAUOptions, residuals: Tree, cotangents: Tree
) -> Tree:
    """Returns the gradients of the `arguments` of `_rau`, in their order."""
    (weights, xs, _, initial, dropout, _), (_, (r, *_, inner)) = residuals
    size, dtype, wide = weights.recurrent.shape[0], xs.dtype, initial.dtype
    early, late = _split_blocks(weights.recurrent.astype(dtype), size)
    before, changes, gates = _loop_back(
        form, reverse, options, residuals, cotangents, (early, late)
    )
    fed = before if dropout is None else before * dropout[None]
    reset, last = form.turn(r), gates[1]
    if options.reset_after:
        inner, last = fed.astype(dtype), (last.astype(wide) * reset).astype(dtype)
    d_input = [weight_gradient(time_major(xs), part, wide) for part in gates]
    d_recurrent = (
        weight_gradient(fed.astype(dtype), gates[0], wide),
        weight_gradient(inner, last, wide),
    )
    d_bias = [jnp.sum(part, axis=(0, 1), dtype=wide) for part in gates]
    d_extra = weights.recurrent_bias
    if d_extra is not None:
        d_extra = jnp.sum(last, axis=(0, 1), dtype=wide).astype(d_extra.dtype)
    d_weights = RAUWeights(
        _join_blocks(*d_input).astype(weights.input.dtype),
        _join_blocks(*d_recurrent).astype(weights.recurrent.dtype),
        _join_blocks(*d_bias).astype(weights.bias.dtype),
        d_extra,
    )
    kernels = _split_blocks(weights.input.astype(dtype), size)
    d_steps = [matmul(part, kernel.T, wide) for part, kernel in zip(gates, kernels, strict=True)]
    d_dropout = None
    if dropout is not None:  # unused, as in training, it is removed by the compiler
        through = matmul(last, late.T, wide)
        through = through if options.reset_after else through * reset
        through = through + matmul(gates[0], early.T, wide)
        d_dropout = jnp.sum(before * through, axis=0)
    d_xs = time_major(jnp.asarray(sum(d_steps))).astype(dtype)
    d_initial, d_fresh = map(form.turn, changes)
    return d_weights, d_xs, None, d_initial, d_dropout, Restarts(None, d_fresh)


_rau.defvjp(_rau_fwd, _rau_bwd)
