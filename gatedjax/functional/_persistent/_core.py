"""Recurrences by the kernels, with derivatives: one launch for the directions of a layer."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gatedjax.functional._devices import vary_together
from gatedjax.functional._persistent import _launch
from gatedjax.functional._persistent._launch import Variant, flags_of, launch, unused
from gatedjax.functional._recurrence import (
    Restarts,
    as_outputs,
    matmul,
    shift_states,
    time_major,
)
from gatedjax.functional._types import Tree


class Static(NamedTuple):
    """The arguments of a recurrence that are known while tracing.

    B is the number of rows, T that of steps, D the width of the inputs, and H the hidden width.

    Attributes:
      variant: the properties that the kernels are compiled for, such as the kind of recurrence.
      reverse: for each direction, True if it runs from the last step to the first.
      core: the scan of a direction d with its backward pass. It maps (*scan_static[d], weights, xs,
        mask, initial, dropout, begins) to (final, outputs), the final carry and the outputs
        [B, T, H]. The arguments are the weights; the inputs [B, T, D]; the mask [B, T] of real
        steps or None; the first carry; the mask of recurrent dropout [B, H] or None; and the
        `Restarts`, which are the steps that start a segment, and the carry that they start with.
      forward: the same scan, which JAX can differentiate in all modes.
      scan_static: for each direction, the first arguments of `core` and `forward`, hashable values
        that are known while tracing.
    """

    variant: Variant
    reverse: tuple[bool, ...]
    core: Callable[..., Tree]
    forward: Callable[..., Tree]
    scan_static: tuple[tuple[Any, ...], ...]


class Masks(NamedTuple):
    """The arguments of a recurrence that have no derivatives.

    B is the number of rows, and T that of steps.

    Attributes:
      real: bool [B, T], True at real steps; None means all.
      goes_on: for each direction a bool [B, T], False at the steps that start with a new carry, or
        None if no step does.
    """

    real: jax.Array | None
    goes_on: tuple[jax.Array | None, ...]


class Floats(NamedTuple):
    """The arguments of a recurrence that have derivatives.

    B is the number of rows, T that of steps, D the width of the inputs, and H the hidden width.

    Attributes:
      xs: inputs [B, T, D], 0 at padding.
      weights: for each direction the weights, such as `LSTMWeights`.
      initial: for each direction the carry before the first step, with arrays [B, H].
      dropout: for each direction the mask of recurrent dropout [B, H], or None.
      fresh: for each direction the carry at the start of a segment, with arrays [B, H], or a tree
        of None if no row has several segments.
    """

    xs: jax.Array
    weights: tuple[Tree, ...]
    initial: tuple[Tree, ...]
    dropout: tuple[jax.Array | None, ...]
    fresh: tuple[Tree, ...]


class _Saved(NamedTuple):
    """The results of the forward pass that the backward pass reads.

    B is the number of rows, T that of steps, and H the hidden width.

    Attributes:
      states: the hidden state after each step [B, T, directions, H].
      gates: the values of each step that the kernel "saving" of `recurrence.cu` stores, such as
        gates and candidates, [B, T, directions, S]. S is `Kind.saved` times H, such as 4 H for an
        LSTM: each value is stored for all H units.
      cells: the cell state before each step of an LSTM [B, T, directions, H]; unused otherwise.
    """

    states: jax.Array
    gates: jax.Array
    cells: jax.Array


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run_directions(static: Static, masks: Masks, floats: Floats) -> tuple[Tree, ...]:
    """Returns (final, outputs) for each direction: the final carry, and the outputs [B, T, H].

    B is the number of rows, T that of the steps, and H the hidden width. `static` has the options
    that are known while tracing, such as the kind of recurrence, `masks` the real steps and the
    restarts, and `floats` the inputs, weights and carries.

    Outputs are 0 at padding. Reverse-mode derivatives of any order are supported, and forward over
    reverse. The scan computes the second derivatives.
    """
    return _on_platform(
        functools.partial(_run_kernel, static), functools.partial(_scan, static), masks, floats
    )


def _run_fwd(static: Static, masks: Masks, floats: Floats) -> Tree:
    """Returns ((final carry, outputs) of each direction, residuals) for `_run_bwd`.

    The final carry has arrays [B, H], and the outputs are [B, T, H], for B rows, T steps and H
    hidden units. The residuals are (masks, floats, saved): the arguments, and as `_Saved` the
    states and gates of all steps. `static` has the options that are known while tracing, `masks`
    the real steps and the restarts, and `floats` the inputs, weights and carries.
    """
    results, saved = _run_saving(static, masks, floats)
    return results, (masks, floats, saved)


def _run_bwd(static: Static, residuals: Tree, cotangents: Tree) -> Tree:
    """Returns (None, gradients of `floats`) from `cotangents`, the gradients of the results.

    `residuals` are (masks, floats, saved): the real steps and the restarts; the inputs, weights and
    carries; and the states and gates that the forward pass saved. `cotangents` has the gradients of
    (final carry [B, H], outputs [B, T, H]) for each direction, for B rows, T steps and H hidden
    units. None stands for the masks, which have no gradient. `static` has the options that are
    known while tracing, such as the kind of recurrence.
    """
    return None, _pull(static, *residuals, cotangents)


run_directions.defvjp(_run_fwd, _run_bwd)


def _on_platform(kernel: Callable[..., Tree], scan: Callable[..., Tree], *arguments: Tree) -> Tree:
    """Calls `kernel` in programs for the GPU and `scan` in programs for other platforms.

    Both are functions of `arguments`, trees of arrays, with results of equal structure. Returns the
    result of the function that is called.

    Arrays of a process with a GPU may lie on its CPU, which is known only after tracing.
    """

    def aligned(function: Callable[..., Tree], arguments: Tree) -> Tree:
        """Returns function(*arguments), cast to vary over the manual mesh axes of the arguments."""
        return vary_together(function(*arguments), jax.tree.leaves(arguments))

    branches = {_launch.PLATFORM: functools.partial(aligned, kernel)}
    return lax.platform_dependent(arguments, default=functools.partial(aligned, scan), **branches)


# The forward pass with saved values and the backward pass have derivatives of their own, because
# JAX differentiates both for second derivatives. The saved values count as constants there: the
# derivative runs through the arguments only.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _run_saving(static: Static, masks: Masks, floats: Floats) -> tuple[Tree, _Saved]:
    """Returns (final, outputs) of each direction, and the arrays that the backward pass reads.

    final is the final carry with arrays [B, H], and the outputs are [B, T, H], for B rows, T steps
    and H hidden units. The scan of other platforms saves no arrays, so that they are 0 there.
    `static` has the options that are known while tracing, `masks` the real steps and the restarts,
    and `floats` the inputs, weights and carries.
    """

    def scan(masks: Masks, floats: Floats) -> tuple[Tree, _Saved]:
        """Returns (final, outputs) of each direction by the scan, and zeros as saved arrays.

        The final carry has arrays [B, H], and the outputs are [B, T, H], for B rows, T steps and H
        hidden units. `masks` has the real steps and the restarts, and `floats` the inputs, weights
        and carries.
        """
        shapes = jax.eval_shape(functools.partial(_run_kernel_saving, static), masks, floats)[1]
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return _scan(static, masks, floats), empty

    return _on_platform(functools.partial(_run_kernel_saving, static), scan, masks, floats)


@_run_saving.defjvp
def _saving_jvp(static: Static, primals: Tree, tangents: Tree) -> tuple[Tree, Tree]:
    """Returns the results of `_run_saving` and their tangents, for `jax.custom_jvp`.

    Both have the form ((final carry, outputs) of each direction, the saved arrays). The scan
    computes the tangents; the saved arrays have the tangent 0. `primals` are (masks, floats): the
    real steps and restarts, and the inputs, weights and carries. `tangents` has a tangent for each.
    `static` has the options that are known while tracing, such as the kind of recurrence.
    """
    masks, floats = primals
    results, saved = _run_saving(static, masks, floats)
    _, changes = jax.jvp(
        lambda floats: _scan(static, masks, floats, static.forward), (floats,), (tangents[1],)
    )
    return (results, saved), (changes, jax.tree.map(jnp.zeros_like, saved))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _pull(static: Static, masks: Masks, floats: Floats, saved: _Saved, cotangents: Tree) -> Floats:
    """Returns the gradients of `floats` from `cotangents`, the gradients of the results.

    `saved` are the states and gates of the forward pass, and `cotangents` has the gradients of
    (final carry [B, H], outputs [B, T, H]) for each direction, for B rows, T steps and H hidden
    units. The gradients are a `Floats` of the same shapes. `static` has the options that are known
    while tracing, `masks` the real steps and the restarts, and `floats` the inputs, weights and
    carries.
    """

    def scan(masks: Masks, floats: Floats, saved: _Saved, cotangents: Tree) -> Floats:
        """Returns the gradients of `floats` by the scan, which needs no saved arrays.

        `masks` has the real steps and the restarts, and `floats` the inputs, weights and carries.
        `cotangents` has the gradients of (final carry [B, H], outputs [B, T, H]) for each
        direction, for B rows, T steps and H hidden units; `saved` is not used.
        """
        del saved
        return _pull_scan(static, masks, floats, cotangents)

    return _on_platform(
        functools.partial(_pull_kernel, static), scan, masks, floats, saved, cotangents
    )


@_pull.defjvp
def _pull_jvp(static: Static, primals: Tree, tangents: Tree) -> tuple[Tree, Tree]:
    """Returns the gradients that `_pull` computes, and their tangents, for `jax.custom_jvp`.

    Args:
      static: the options that are known while tracing, such as the kind of recurrence.
      primals: (masks, floats, saved, cotangents), the arguments of `_pull`: the real steps and
        restarts; the inputs, weights and carries; the arrays of the forward pass; and the gradients
        of (final carry [B, H], outputs [B, T, H]) for each direction, for B rows, T steps and H
        hidden units.
      tangents: the tangents of the primals. Only the tangents of `floats` and of `cotangents` are
        used.

    Returns:
      (gradients, changes): a `Floats` with the gradients of `floats`, and a `Floats` with their
      tangents. The tangents are the derivative of the backward pass of `static.core`, the scan of
      other platforms, because the kernels have no second derivative.
    """
    masks, floats, _, cotangents = primals
    gradients = _pull(static, *primals)
    _, changes = jax.jvp(
        functools.partial(_pull_scan, static, masks),
        (floats, cotangents),
        (tangents[1], tangents[3]),
    )
    return gradients, changes


def _scan(
    static: Static, masks: Masks, floats: Floats, scan: Callable[..., Tree] | None = None
) -> tuple[Tree, ...]:
    """Returns the results of `run_directions` by `scan`, a function like `static.core`.

    `static` has the options that are known while tracing, such as `core`, a scan of one direction
    with a custom backward pass; None as `scan` means `static.core`. The results are (final,
    outputs) for each direction: the final carry, and the outputs [B, T, H] for B rows, T steps and
    H hidden units. `masks` has the real steps and the restarts, and `floats` the inputs, weights
    and carries.
    """
    scan = static.core if scan is None else scan
    return tuple(
        scan(*first, weights, floats.xs, masks.real, initial, dropout, Restarts(goes_on, fresh))
        for first, weights, initial, dropout, fresh, goes_on in zip(
            static.scan_static, *floats[1:], masks.goes_on, strict=True
        )
    )


def _pull_scan(static: Static, masks: Masks, floats: Floats, cotangents: Tree) -> Floats:
    """Returns the gradients of `floats`, of the same shapes, by the backward pass of the scan.

    `cotangents` are the gradients of the results of `run_directions`, (final carry [B, H], outputs
    [B, T, H]) for each direction, for B rows, T steps and H hidden units. `static` has the options
    that are known while tracing, `masks` the real steps and the restarts, and `floats` the inputs,
    weights and carries.
    """
    _, pull = jax.vjp(functools.partial(_scan, static, masks), floats)
    return pull(cotangents)[0]


def _stack(parts: Any) -> jax.Array:
    """Stacks `parts`, an array for each direction, along a new first axis, in float32."""
    return jnp.stack([jnp.asarray(part, jnp.float32) for part in parts])


def _carries(carries: tuple[Tree, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns (hidden states, cell states) of all directions, [directions, B, H] each.

    `carries` has the carry of each direction, an array or an `LSTMState`. A state that the
    recurrence does not have is `unused()`, zeros of the shape (1,). B is the number of rows, and H
    the hidden width.
    """
    leaves = [jax.tree.leaves(carry) for carry in carries]
    if not leaves[0]:
        return unused(), unused()
    hidden = _stack(parts[0] for parts in leaves)
    return hidden, _stack(parts[1] for parts in leaves) if len(leaves[0]) > 1 else unused()


def _shared_operands(
    static: Static, masks: Masks, floats: Floats
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns the operands `reversed`, `recurrent`, `flags` and `dropout` of `recurrence.cu`.

    They are, for B rows, T steps and H hidden units: a number [directions] that is 1 for the
    backward direction; the recurrent kernels U [directions, H, G H], with G blocks of H columns,
    such as 4 for an LSTM; the flags of `flags_of` [directions, B, T], for real steps and starts of
    segments; and the mask of recurrent dropout [directions, B, H], or zeros (1,) without it.
    `static` has the options that are known while tracing, `masks` the real steps and the restarts,
    and `floats` the inputs, weights and carries.
    """
    dtype = floats.xs.dtype
    recurrent = _stack(weights.recurrent.astype(dtype) for weights in floats.weights)
    shape = floats.xs.shape[:2]
    flags = jnp.stack([flags_of(masks.real, goes_on, shape) for goes_on in masks.goes_on])
    dropout = _stack(floats.dropout) if static.variant.has_dropout else unused()
    return jnp.array(static.reverse, jnp.uint8), recurrent, flags, dropout


def _start(kernel: str, static: Static, masks: Masks, floats: Floats) -> list[jax.Array]:
    """Launches the kernel "forward" or "saving"; returns its results in the order of `axes_of`.

    They are, for B rows, T steps and H hidden units, the states after each step [B, T, directions,
    H], the final hidden and cell states [directions, B, H], and for "saving" the gates and cell
    states of `_Saved`. `static` has the options that are known while tracing, `masks` the real
    steps and the restarts, and `floats` the inputs, weights and carries.
    """
    xs, weights = floats.xs, floats.weights
    dtype, count = xs.dtype, len(weights)
    # The products with the inputs of all steps and directions are one product before the launch.
    wide = jnp.dtype(jnp.float32)
    kernels = jnp.concatenate([its.input.astype(dtype) for its in weights], axis=1)
    bias = jnp.concatenate([its.bias.astype(wide) for its in weights])
    sums = matmul(xs, kernels, wide) + bias[None, None]
    sums = sums.reshape(*xs.shape[:2], count, -1)
    extra = unused()
    if static.variant.kind.name == "gru_after":
        zeros = jnp.zeros(weights[0].recurrent.shape[0], wide)
        extra = _stack(
            zeros if its.recurrent_bias is None else its.recurrent_bias for its in weights
        )
    reverse, recurrent, flags, dropout = _shared_operands(static, masks, floats)
    carries = *_carries(floats.initial), extra, *_carries(floats.fresh)
    operands = (reverse, sums, recurrent, flags, *carries, dropout)
    return launch(static.variant, kernel, operands)


def _results(
    masks: Masks, floats: Floats, states: jax.Array, hidden: jax.Array, cell: jax.Array
) -> tuple[Tree, ...]:
    """Returns (final, outputs) of each direction from the results of a kernel.

    `states` are [B, T, directions, H] after each step, for B rows, T steps and H hidden units, and
    `hidden` and `cell` [directions, B, H] are the final states; the cell state is only used for an
    LSTM. The result has the final carry and the outputs [B, T, H], 0 at padding, for each
    direction. `masks` has the real steps and the restarts, and `floats` the inputs, weights and
    carries.
    """
    # A carry of an LSTM has two arrays, of other recurrences one, and the kernel returns both.
    results = []
    for d, initial in enumerate(floats.initial):
        leaves = [part[d] for part in (hidden, cell)[: len(jax.tree.leaves(initial))]]
        final = jax.tree.unflatten(jax.tree.structure(initial), leaves)
        results.append((final, as_outputs(states[:, :, d], masks.real, floats.xs.dtype)))
    return tuple(results)


def _run_kernel(static: Static, masks: Masks, floats: Floats) -> tuple[Tree, ...]:
    """Returns (final, outputs) of each direction, like `run_directions`, by the kernel "forward".

    The final carry has arrays [B, H], and the outputs are [B, T, H], for B rows, T steps and H
    hidden units. `static` has the options that are known while tracing, `masks` the real steps and
    the restarts, and `floats` the inputs, weights and carries.
    """
    return _results(masks, floats, *_start("forward", static, masks, floats))


def _run_kernel_saving(
    static: Static, masks: Masks, floats: Floats
) -> tuple[tuple[Tree, ...], _Saved]:
    """Returns (final, outputs) of each direction by the kernel "saving", and its saved arrays.

    The final carry has arrays [B, H], and the outputs are [B, T, H], for B rows, T steps and H
    hidden units. `static` has the options that are known while tracing, `masks` the real steps and
    the restarts, and `floats` the inputs, weights and carries.
    """
    states, hidden, cell, gates, cells = _start("saving", static, masks, floats)
    return _results(masks, floats, states, hidden, cell), _Saved(states, gates, cells)


def _states_before(static: Static, masks: Masks, floats: Floats, states: jax.Array) -> jax.Array:
    """Returns the hidden state before each step [B, T, directions, H].

    B is the number of rows, T that of steps, and H the hidden width. `states`, of the same shape,
    are the states after each step. `static` has the options that are known while tracing, `masks`
    the real steps and the restarts, and `floats` the inputs, weights and carries.
    """
    parts = []
    for d, (is_reverse, goes_on) in enumerate(zip(static.reverse, masks.goes_on, strict=True)):
        initial = jax.tree.leaves(floats.initial[d])[0]
        before = time_major(shift_states(time_major(states[:, :, d]), initial, is_reverse))
        if goes_on is not None:
            fresh = jax.tree.leaves(floats.fresh[d])[0]
            before = jnp.where(goes_on[..., None], before, fresh[:, None])
        parts.append(before)
    return jnp.stack(parts, axis=2)


def _pull_kernel(
    static: Static, masks: Masks, floats: Floats, saved: _Saved, cotangents: Tree
) -> Floats:
    """Returns the gradients of `floats` by the kernel "backward".

    `saved` are the states and gates that the kernel "saving" returned, and `cotangents` are the
    gradients of the results of `run_directions`, (final carry [B, H], outputs [B, T, H]) for each
    direction, for B rows, T steps and H hidden units. The result has the shapes of `floats`.
    `static` has the options that are known while tracing, `masks` the real steps and the restarts,
    and `floats` the inputs, weights and carries.
    """
    variant, wide, dtype = static.variant, jnp.dtype(jnp.float32), floats.xs.dtype
    # The states before the steps and the stacks are formed by XLA, which fuses them with the masks.
    reverse, recurrent, flags, dropout = _shared_operands(static, masks, floats)
    before = _states_before(static, masks, floats, saved.states)
    finals, outputs = zip(*cotangents, strict=True)
    d_states = jnp.stack(outputs, axis=2).astype(wide)
    is_lstm = variant.kind.name == "lstm"
    sums, d_hidden, d_cell, d_fresh, d_fresh_cell = launch(
        variant,
        "backward",
        (
            reverse,
            recurrent,
            flags,
            saved.gates,
            saved.cells if is_lstm else before,
            dropout,
            d_states,
            *_carries(finals),
        ),
    )
    directions = range(len(static.reverse))
    parts = [
        _gradients(
            variant.kind.name, masks.real, floats, saved.gates, before[:, :, d], sums[:, :, d], d
        )
        for d in directions
    ]
    d_xs = sum(part[0] for part in parts)

    def carry(like: Tree, d: int, *leaves: jax.Array) -> Tree:
        """Returns the gradients of direction `d` as a carry with the structure of `like`.

        `like` is the carry of this direction, an array [B, H] for B rows and H hidden units, an
        `LSTMState`, or a tree of None. `leaves` are the gradients of the hidden and of the cell
        state, [directions, B, H] each. Without cell states only the first is used.
        """
        count = len(jax.tree.leaves(like))
        return jax.tree.unflatten(jax.tree.structure(like), [leaf[d] for leaf in leaves[:count]])

    return Floats(
        jnp.asarray(d_xs).astype(dtype),
        tuple(part[1] for part in parts),
        tuple(carry(floats.initial[d], d, d_hidden, d_cell) for d in directions),
        tuple(part[2] for part in parts),
        tuple(carry(floats.fresh[d], d, d_fresh, d_fresh_cell) for d in directions),
    )


def _gradients(
    kind: str,
    real: jax.Array | None,
    floats: Floats,
    gates: jax.Array,
    before: jax.Array,
    sums: jax.Array,
    d: int,
) -> tuple[jax.Array, Tree, jax.Array | None]:
    """Returns the gradients of the inputs, the weights and the dropout mask of direction `d`.

    Each gradient of weights is a single product over all steps. B is the number of rows, T that of
    steps, D the width of the inputs, and H the hidden width.

    Args:
      kind: the name of a `Kind`, such as "lstm".
      real: bool [B, T], True at real steps; None means all.
      floats: the inputs, weights and carries. `floats.dropout[d]` is the mask of recurrent dropout
        [B, H], or None without dropout.
      gates: the values that the kernel "saving" stored, [B, T, directions, S], with S values of a
        step such as 4 H for an LSTM; the first H are the reset gate of a GRU or RAU.
      before: [B, T, H], the states before the steps, without the dropout mask, which is applied
        here.
      sums: [B, T, G H], the gradients of the sums inside the G blocks of gates.
      d: the direction, from 0.

    Returns:
      The gradient of the inputs, float32 [B, T, D]; the gradients of the weights, of the same type
      and shapes as `floats.weights[d]`; and the gradient of the dropout mask [B, H], or None
      without dropout.
    """
    weights, drop = floats.weights[d], floats.dropout[d]
    dtype, wide, size = floats.xs.dtype, jnp.dtype(jnp.float32), before.shape[-1]
    fed = before if drop is None else before * drop[:, None]
    # Products are in the dtype of the inputs, like in the scan, and sums are in float32.
    narrow = sums.astype(dtype)
    d_xs = matmul(narrow, weights.input.astype(dtype).T, wide)
    recurrent = weights.recurrent.astype(dtype)
    d_weights = {
        "input": _product(floats.xs, narrow),
        "bias": jnp.sum(narrow, axis=(0, 1), dtype=wide),
    }
    through = functools.partial(matmul, b=recurrent.T, dtype=wide)
    if kind == "lstm":
        d_weights["recurrent"] = _product(fed.astype(dtype), narrow)
        d_fed = through(narrow)
    else:
        # The kernel does not write the gates of padded steps, where the memory may contain NaN.
        reset = gates[:, :, d, :size]
        reset = reset if real is None else jnp.where(real[..., None], reset, 0)
        late = sums[..., 2 * size : 3 * size]
        if kind == "gru_after":
            # The reset gate multiplies the recurrent product and its bias.
            late = (late * reset).astype(dtype)
            second = jnp.concatenate([narrow[..., : 2 * size], late], axis=-1)
            d_weights["recurrent"] = _product(fed.astype(dtype), second)
            d_weights["recurrent_bias"] = jnp.sum(late, axis=(0, 1), dtype=wide)
            d_fed = through(second)
        else:
            late = late.astype(dtype)
            early = jnp.concatenate([narrow[..., : 2 * size], narrow[..., 3 * size :]], axis=-1)
            d_early = _product(fed.astype(dtype), early)
            d_late = _product((reset * fed).astype(dtype), late)
            d_weights["recurrent"] = jnp.concatenate(
                [d_early[:, : 2 * size], d_late, d_early[:, 2 * size :]], axis=-1
            )
            kernel = jnp.concatenate([recurrent[:, : 2 * size], recurrent[:, 3 * size :]], axis=-1)
            d_fed = matmul(early, kernel.T, wide) + reset * matmul(
                late, recurrent[:, 2 * size : 3 * size].T, wide
            )
    named = {
        name: None if value is None else d_weights[name].astype(value.dtype)
        for name, value in weights._asdict().items()
    }
    # The compiler removes the gradient of the dropout mask where it is not used, as in training.
    d_dropout = None if drop is None else jnp.sum(before * d_fed, axis=1)
    return d_xs, type(weights)(**named), d_dropout


def _product(inputs: jax.Array, sums: jax.Array) -> jax.Array:
    """Returns the gradient of a kernel [K, N] from its inputs [B, T, K] and sums [B, T, N].

    The kernel maps K features to N features, at each of T steps of B rows.

    `sums` are the gradients of the products of inputs and kernel. The result is float32.
    """
    return lax.dot_general(
        inputs, sums, (((0, 1), (0, 1)), ((), ())), preferred_element_type=jnp.float32
    )
