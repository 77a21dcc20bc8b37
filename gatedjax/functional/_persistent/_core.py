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
from gatedjax.functional._recurrence import Restarts, as_outputs, matmul, shift_states, time_major
from gatedjax.functional._types import Tree


class Static(NamedTuple):
    """The arguments of a recurrence that are known while tracing."""

    variant: Variant
    reverse: tuple[bool, ...]  # a bool for each direction, like all tuples below
    core: Callable[..., Tree]  # the scan of a direction, as in `Recurrence`
    forward: Callable[..., Tree]  # the same scan, which JAX differentiates in all modes
    scan_static: tuple[tuple[Any, ...], ...]  # the first arguments of both scans


class Masks(NamedTuple):
    """The arguments of a recurrence that have no derivatives."""

    real: jax.Array | None  # [B, T], True at real steps
    goes_on: tuple[jax.Array | None, ...]  # [B, T], False where a new carry starts


class Floats(NamedTuple):
    """The arguments of a recurrence that have derivatives."""

    xs: jax.Array  # [B, T, D], 0 at padding
    weights: tuple[Tree, ...]  # of each direction, like the fields below
    initial: tuple[Tree, ...]  # arrays [B, H]
    dropout: tuple[jax.Array | None, ...]  # [B, H]
    fresh: tuple[Tree, ...]  # the carry of a new segment, [B, H]; a tree of None without restarts


class _Saved(NamedTuple):
    """The results of the forward pass that the backward pass reads."""

    states: jax.Array  # after each step [B, T, directions, H]
    gates: jax.Array  # [B, T, directions, S] for S = `Kind.saved` H; the reset gate comes first
    cells: jax.Array  # before each step of an LSTM [B, T, directions, H]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def run_directions(static: Static, masks: Masks, floats: Floats) -> tuple[Tree, ...]:
    """Returns (final, outputs) for each direction: the final carry, and the outputs [B, T, H]."""
    return _on_platform(
        functools.partial(_run_kernel, static), functools.partial(_scan, static), masks, floats
    )


def _run_fwd(static: Static, masks: Masks, floats: Floats) -> Tree:
    results, saved = _run_saving(static, masks, floats)
    return results, (masks, floats, saved)


def _run_bwd(static: Static, residuals: Tree, cotangents: Tree) -> Tree:
    return None, _pull(static, *residuals, cotangents)


run_directions.defvjp(_run_fwd, _run_bwd)


def _on_platform(kernel: Callable[..., Tree], scan: Callable[..., Tree], *arguments: Tree) -> Tree:
    def aligned(function: Callable[..., Tree], arguments: Tree) -> Tree:
        return vary_together(function(*arguments), jax.tree.leaves(arguments))

    # Arrays of a process with a GPU may lie on its CPU, which is known only after tracing.
    branches = {_launch.PLATFORM: functools.partial(aligned, kernel)}
    return lax.platform_dependent(arguments, default=functools.partial(aligned, scan), **branches)


# The forward pass with saved values and the backward pass have derivatives of their own, because
# JAX differentiates both for second derivatives. The saved values count as constants there: the
# derivative runs through the arguments only.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _run_saving(static: Static, masks: Masks, floats: Floats) -> tuple[Tree, _Saved]:
    """Returns (final, outputs) of each direction, and the arrays that the backward pass reads."""

    def scan(masks: Masks, floats: Floats) -> tuple[Tree, _Saved]:
        shapes = jax.eval_shape(functools.partial(_run_kernel_saving, static), masks, floats)[1]
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return _scan(static, masks, floats), empty

    return _on_platform(functools.partial(_run_kernel_saving, static), scan, masks, floats)


@_run_saving.defjvp
def _saving_jvp(static: Static, primals: Tree, tangents: Tree) -> tuple[Tree, Tree]:
    masks, floats = primals
    results, saved = _run_saving(static, masks, floats)
    _, changes = jax.jvp(
        lambda floats: _scan(static, masks, floats, static.forward), (floats,), (tangents[1],)
    )
    return (results, saved), (changes, jax.tree.map(jnp.zeros_like, saved))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _pull(static: Static, masks: Masks, floats: Floats, saved: _Saved, cotangents: Tree) -> Floats:
    """Returns the gradients of `floats` from `cotangents`, the gradients of the results."""

    def scan(masks: Masks, floats: Floats, saved: _Saved, cotangents: Tree) -> Floats:
        del saved
        return _pull_scan(static, masks, floats, cotangents)

    return _on_platform(
        functools.partial(_pull_kernel, static), scan, masks, floats, saved, cotangents
    )


@_pull.defjvp
def _pull_jvp(static: Static, primals: Tree, tangents: Tree) -> tuple[Tree, Tree]:
    """Returns the gradients of `_pull`, and their tangents by the backward pass of the scan."""
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
    """Returns the results of `run_directions` by `scan`, a function like `static.core`."""
    scan = static.core if scan is None else scan
    return tuple(
        scan(*first, weights, floats.xs, masks.real, initial, dropout, Restarts(goes_on, fresh))
        for first, weights, initial, dropout, fresh, goes_on in zip(
            static.scan_static, *floats[1:], masks.goes_on, strict=True
        )
    )


def _pull_scan(static: Static, masks: Masks, floats: Floats, cotangents: Tree) -> Floats:
    _, pull = jax.vjp(functools.partial(_scan, static, masks), floats)
    return pull(cotangents)[0]


def _stack(parts: Any) -> jax.Array:
    return jnp.stack([jnp.asarray(part, jnp.float32) for part in parts])


def _carries(carries: tuple[Tree, ...]) -> tuple[jax.Array, jax.Array]:
    leaves = [jax.tree.leaves(carry) for carry in carries]
    if not leaves[0]:
        return unused(), unused()
    hidden = _stack(parts[0] for parts in leaves)
    return hidden, _stack(parts[1] for parts in leaves) if len(leaves[0]) > 1 else unused()


def _shared_operands(
    static: Static, masks: Masks, floats: Floats
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns the operands `reversed`, `recurrent`, `flags` and `dropout` of `recurrence.cu`."""
    dtype = floats.xs.dtype
    recurrent = _stack(weights.recurrent.astype(dtype) for weights in floats.weights)
    shape = floats.xs.shape[:2]
    flags = jnp.stack([flags_of(masks.real, goes_on, shape) for goes_on in masks.goes_on])
    dropout = _stack(floats.dropout) if static.variant.has_dropout else unused()
    return jnp.array(static.reverse, jnp.uint8), recurrent, flags, dropout


def _start(kernel: str, static: Static, masks: Masks, floats: Floats) -> list[jax.Array]:
    """Launches the kernel "forward" or "saving"; returns its results in the order of `axes_of`."""
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
    """Returns (final, outputs) of each direction from the results of a kernel."""
    # A carry of an LSTM has two arrays, of other recurrences one, and the kernel returns both.
    results = []
    for d, initial in enumerate(floats.initial):
        leaves = [part[d] for part in (hidden, cell)[: len(jax.tree.leaves(initial))]]
        final = jax.tree.unflatten(jax.tree.structure(initial), leaves)
        results.append((final, as_outputs(states[:, :, d], masks.real, floats.xs.dtype)))
    return tuple(results)


def _run_kernel(static: Static, masks: Masks, floats: Floats) -> tuple[Tree, ...]:
    return _results(masks, floats, *_start("forward", static, masks, floats))


def _run_kernel_saving(
    static: Static, masks: Masks, floats: Floats
) -> tuple[tuple[Tree, ...], _Saved]:
    states, hidden, cell, gates, cells = _start("saving", static, masks, floats)
    return _results(masks, floats, states, hidden, cell), _Saved(states, gates, cells)


def _states_before(static: Static, masks: Masks, floats: Floats, states: jax.Array) -> jax.Array:
    """Returns the hidden state before each step [B, T, directions, H]."""
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
    """Returns the gradients of `floats` by the kernel "backward"."""
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
    """Returns the gradients of inputs, weights and dropout; `before` is not masked by dropout."""
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
    return lax.dot_general(
        inputs, sums, (((0, 1), (0, 1)), ((), ())), preferred_element_type=jnp.float32
    )
