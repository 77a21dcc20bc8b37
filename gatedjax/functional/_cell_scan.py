"""The scan of `lstm`, `gru` and `rau`: a cell is its equation, from which the gradient follows.

The forward scan stores the sums of the products with the state. The backward scan runs the equation
again with these sums in place of the products, so that JAX derives the gradient of a step without a
product of the forward pass. The gradients of the weights are products over all steps, after the
loop, where automatic differentiation would add to a weight-sized sum at each step.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._clip import clip_by
from gatedjax.functional._devices import compile_outside_jit
from gatedjax.functional._recurrence import (
    Restarts,
    as_outputs,
    matmul,
    matmul_t,
    spread,
    time_major,
    weight_gradient,
)
from gatedjax.functional._types import Carry, Dtype, Tree, Weights

Blocks = tuple[Array, ...]
"""Arrays [..., H], one for each block of columns."""


class Product(NamedTuple):
    """A product of a state with some blocks of U."""

    blocks: tuple[int, ...]
    has_input: bool = True  # x W + b of the blocks is added; otherwise the recurrent bias


class Cell(NamedTuple):
    """The equation of a cell: advance(options, terms, carry) returns the next carry."""

    advance: Callable[[Any, "Terms", Carry], Carry]
    options: Any
    num_blocks: int
    products: tuple[Product, ...]
    bound: float | None = None  # of the gradients of sums that pass `Terms.clip`
    weights: tuple[str, ...] = ()  # fields [H] that the equation reads as `Terms.weights`


class Terms(NamedTuple):
    """The terms of a step that an equation is made of."""

    sums: Callable[[int, Array], Blocks]  # x W + s U + b of a `Product` of the state s
    x: Sequence[Any]  # x W + b of the blocks that no product adds
    tanh: Callable[[Array], Array]
    dropout: Array | None
    bound: float | None
    weights: dict[str, Array]  # `Cell.weights`, [1, H]

    def sigmoid(self, x: Array) -> Array:
        """Returns 1 / (1 + exp(-x)), by a tanh, which XLA computes faster."""
        return 0.5 * self.tanh(0.5 * x) + 0.5

    def drop(self, hidden: Array) -> Array:
        """Returns m h, the hidden state after recurrent dropout."""
        return hidden if self.dropout is None else hidden * self.dropout

    def clip(self, sums: Array) -> Array:
        """Returns `sums`, with a bound of their gradient."""
        return sums if self.bound is None else clip_by(self.bound, sums)


def _split(x: Array, count: int) -> Blocks:
    return tuple(jnp.split(x, count, axis=-1))


def _kernels(cell: Cell, kernel: Array, dtype: Dtype) -> list[Array]:
    """Returns the columns of a kernel for each product."""
    # The columns are cut before the loop, because slices inside of it would copy the weights.
    blocks = _split(kernel.astype(dtype), cell.num_blocks)
    return [jnp.concatenate([blocks[k] for k in its.blocks], axis=-1) for its in cell.products]


def _project(cell: Cell, weights: Weights, xs: Array) -> Blocks:
    """Returns x W + b."""
    wide = wide_dtype(xs.dtype)
    bias = jnp.expand_dims(weights.bias.astype(wide), tuple(range(xs.ndim - 1)))
    # Each block is a separate array, because XLA does not vectorise a loop that slices the array of
    # all blocks, which takes 1.2 to 1.7 times as long forward.
    return _split(matmul(xs, weights.input.astype(xs.dtype), wide) + bias, cell.num_blocks)


def terms_of(cell: Cell, weights: Weights, x: Array, dropout: Array | None) -> Terms:
    """Returns the terms of a single step with inputs x [B, D]."""
    weights = jax.tree.map(jnp.asarray, weights)
    kernels = _kernels(cell, weights.recurrent, x.dtype)
    blocks = _project(cell, weights, x)
    sums = _summing(cell, weights, kernels, blocks, {})
    return Terms(sums, blocks, jnp.tanh, dropout, cell.bound, _other(cell, weights, x.dtype))


def _other(cell: Cell, weights: Weights, dtype: Dtype) -> dict[str, Array]:
    """Returns the weights [1, H] that the equation multiplies with features by itself."""
    wide = wide_dtype(dtype)
    return {name: getattr(weights, name).astype(wide)[None] for name in cell.weights}


def _summing(
    cell: Cell, weights: Weights, kernels: Sequence[Array], x: Blocks, saved: dict[int, Blocks]
) -> Callable[[int, Array], Blocks]:
    """Returns a function for `Terms.sums`, which stores its results in `saved`."""

    def sums(index: int, value: Array) -> Blocks:
        its = cell.products[index]
        product = matmul(value.astype(kernels[index].dtype), kernels[index], value.dtype)
        parts = _split(product, len(its.blocks))
        if its.has_input:
            parts = tuple(part + x[k] for part, k in zip(parts, its.blocks, strict=True))
        elif weights.recurrent_bias is not None:
            parts = (parts[0] + weights.recurrent_bias.astype(value.dtype)[None],)
        saved[index] = parts
        return parts

    return sums


def _select(rows: Array | None, new: Tree, old: Tree) -> Tree:
    """Returns `new` in the rows where `rows` [B] is True, and `old` elsewhere."""
    if rows is None:
        return new
    return jax.tree.map(lambda n, o: jnp.where(spread(rows, n), n, o), new, old)


def _free(cell: Cell) -> list[int]:
    """Returns the blocks of x W + b that no product adds."""
    added = {k for its in cell.products if its.has_input for k in its.blocks}
    return [k for k in range(cell.num_blocks) if k not in added]


def _fill(cell: Cell, free: Sequence[Array]) -> list[Any]:
    """Returns x W + b for each block, None where a product adds it."""
    x = dict(zip(_free(cell), free, strict=True))
    return [x.get(k) for k in range(cell.num_blocks)]


def _forward(
    cell: Cell,
    reverse: bool,
    unroll: int,
    weights: Weights,
    xs: Array,
    mask: Array | None,
    initial: Carry,
    dropout: Array | None,
    begins: Restarts,
) -> tuple[tuple[Carry, Array], Tree]:
    """Runs the scan and stores the arrays that the backward pass reads."""
    kernels, other = _kernels(cell, weights.recurrent, xs.dtype), _other(cell, weights, xs.dtype)
    inputs = _project(cell, weights, time_major(xs))

    def body(carry: Carry, step: Tree) -> Tree:
        """Computes a step: (carry, (x W + b, is real, goes on)) -> (carry, (new h, saved))."""
        x, real, goes_on = step
        carry = _select(goes_on, carry, begins.carry)
        saved: dict[int, Blocks] = {}
        activations: list[Array] = []

        def tanh(sums: Array) -> Array:
            activations.append(jnp.tanh(sums))
            return activations[-1]

        terms = Terms(_summing(cell, weights, kernels, x, saved), x, tanh, dropout, None, other)
        new = _select(real, cell.advance(cell.options, terms, carry), carry)
        saved_sums = [saved[k] for k in sorted(saved)]
        return new, (jax.tree.leaves(new)[0], (carry, saved_sums, activations))

    steps = inputs, time_major(mask), time_major(begins.goes_on)
    final, (states, saved) = lax.scan(body, initial, steps, reverse=reverse, unroll=unroll)
    outputs = as_outputs(time_major(states), mask, xs.dtype)
    return (final, outputs), (*saved, [inputs[k] for k in _free(cell)])


def run_forward(cell: Cell, reverse: bool, unroll: int, *arguments: Tree) -> tuple[Carry, Array]:
    """Returns (final carry, outputs) by a scan that JAX differentiates in all modes."""
    return _forward(cell, reverse, unroll, *arguments)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def run_cell(cell: Cell, reverse: bool, unroll: int, *arguments: Tree) -> tuple[Carry, Array]:
    """Returns (final carry, outputs) from weights, xs, mask, initial, dropout and `Restarts`."""
    return run_forward(cell, reverse, unroll, *arguments)


def _run_fwd(cell: Cell, reverse: bool, unroll: int, *arguments: Tree) -> Tree:
    result, saved = _forward(cell, reverse, unroll, *arguments)
    return result, (arguments, saved)


@jax.custom_vjp
def _recall(value: Array, kernel: Array, sums: Blocks) -> Blocks:
    """Returns `sums`, which the forward pass computed from value @ kernel."""
    del value, kernel
    return sums


def _recall_fwd(value: Array, kernel: Array, sums: Blocks) -> tuple[Blocks, Array]:
    del value
    return sums, kernel


def _recall_bwd(kernel: Array, change: Blocks) -> tuple[Array, None, Blocks]:
    joined = jnp.concatenate(change, axis=-1).astype(kernel.dtype)
    return matmul_t(joined, kernel, change[0].dtype), None, change


_recall.defvjp(_recall_fwd, _recall_bwd)


@jax.custom_vjp
def _recall_tanh(x: Array, y: Array) -> Array:
    """Returns y, which the forward pass computed as tanh(x)."""
    del x
    return y


def _recall_tanh_fwd(x: Array, y: Array) -> tuple[Array, Array]:
    del x
    return y, y


def _recall_tanh_bwd(y: Array, change: Array) -> tuple[Array, None]:
    return change * (1 - y * y), None


_recall_tanh.defvjp(_recall_tanh_fwd, _recall_tanh_bwd)


@compile_outside_jit(*range(3))
def _run_bwd(cell: Cell, reverse: bool, unroll: int, residuals: Tree, cotangents: Tree) -> Tree:
    """Returns the gradients of the `arguments` of `run_cell`, in their order."""
    (weights, xs, mask, _, dropout, begins), (before, saved, activations, free) = residuals
    final, outputs = cotangents
    dtype, wide = xs.dtype, wide_dtype(xs.dtype)
    kernels, other = _kernels(cell, weights.recurrent, dtype), _other(cell, weights, dtype)

    def body(carry: Tree, step: Tree) -> Tree:
        """Computes the gradients of a step."""
        changed, totals = carry
        d_output, real, goes_on, before, sums, free, activations = step

        def run_again(carry: Carry, sums: Tree, free: Tree, shared: Tree) -> Carry:
            dropout, other = shared
            recall = iter(activations)
            tanh = lambda x: _recall_tanh(x, next(recall))  # noqa: E731
            product = lambda k, value: _recall(value, kernels[k], sums[k])  # noqa: E731
            terms = Terms(product, _fill(cell, free), tanh, dropout, cell.bound, other)
            return cell.advance(cell.options, terms, carry)

        _, pull = jax.vjp(run_again, before, sums, free, (dropout, other))
        leaves, structure = jax.tree.flatten(changed)
        leaves[0] = leaves[0] + d_output.astype(wide)
        # Padding copies the carry: its gradient passes unchanged, and none enters the step.
        zeros = jax.tree.map(jnp.zeros_like, changed)
        into_step = _select(real, jax.tree.unflatten(structure, leaves), zeros)
        through, d_sums, d_free, d_shared = pull(into_step)
        if real is not None:
            through = jax.tree.map(jnp.add, through, _select(real, zeros, changed))
        fresh, d_total = totals
        if goes_on is not None:
            # Rows that restart pass the gradient to the carry of the segment.
            fresh = jax.tree.map(jnp.add, fresh, _select(goes_on, zeros, through))
            through = _select(goes_on, through, zeros)
        totals = fresh, jax.tree.map(jnp.add, d_total, d_shared)
        joined = [jnp.concatenate(its, axis=-1).astype(dtype) for its in d_sums]
        return (through, totals), (joined, [its.astype(dtype) for its in d_free])

    totals = jax.tree.map(jnp.zeros_like, (begins.carry, (dropout, other)))
    (d_initial, (d_fresh, (d_dropout, d_other))), (d_sums, d_free) = lax.scan(
        body,
        (final, totals),
        (*map(time_major, (outputs, mask, begins.goes_on)), before, saved, free, activations),
        reverse=not reverse,
        unroll=unroll,
    )

    def list_factors(carry: Carry, sums: Tree, free: Tree, activations: Tree) -> list[Array]:
        factors: dict[int, Array] = {}
        recall = iter(activations)

        def product(index: int, value: Array) -> Blocks:
            factors[index] = value.astype(dtype)
            return sums[index]

        terms = Terms(product, _fill(cell, free), lambda _: next(recall), dropout, None, other)
        cell.advance(cell.options, terms, carry)
        return [factors[k] for k in sorted(factors)]

    # The compiler removes all of the equation but the factors of the products.
    factors = jax.vmap(list_factors)(before, saved, free, activations)
    d_xs, d_weights = _gradients(cell, weights, time_major(xs), factors, d_sums, d_free)
    d_other = {name: its[0].astype(getattr(weights, name).dtype) for name, its in d_other.items()}
    d_weights = d_weights._replace(**d_other)
    return d_weights, d_xs, None, d_initial, d_dropout, Restarts(None, d_fresh)


def _gradients(
    cell: Cell, weights: Weights, xs: Array, factors: Tree, d_sums: Tree, d_free: Tree
) -> tuple[Array, Weights]:
    """Returns the gradients of xs and of the weights, from the gradients of all sums."""
    dtype, wide = xs.dtype, wide_dtype(xs.dtype)
    d_recurrent: dict[int, Array] = {}
    d_input: dict[int, Array] = {}
    d_bias: dict[int, Array] = {}
    named: dict[str, Array] = {}
    parts: list[tuple[tuple[int, ...], Array]] = []
    for its, factor, change in zip(cell.products, factors, d_sums, strict=True):
        split = _split(weight_gradient(factor, change, wide), len(its.blocks))
        d_recurrent |= dict(zip(its.blocks, split, strict=True))
        if its.has_input:
            parts.append((its.blocks, change))
        elif weights.recurrent_bias is not None:
            named["recurrent_bias"] = jnp.sum(change, axis=(0, 1), dtype=wide)
    parts += [((k,), change) for k, change in zip(_free(cell), d_free, strict=True)]
    kernels = _split(weights.input.astype(dtype), cell.num_blocks)
    d_xs: Any = 0.0
    for blocks, change in parts:
        kernel = jnp.concatenate([kernels[k] for k in blocks], axis=-1)
        d_xs = d_xs + matmul(change, kernel.T, wide)
        split = _split(weight_gradient(xs, change, wide), len(blocks))
        d_input |= dict(zip(blocks, split, strict=True))
        split = _split(jnp.sum(change, axis=(0, 1), dtype=wide), len(blocks))
        d_bias |= dict(zip(blocks, split, strict=True))
    for name, of_blocks in (("input", d_input), ("recurrent", d_recurrent), ("bias", d_bias)):
        ordered = [of_blocks[k] for k in range(cell.num_blocks)]
        named[name] = jnp.concatenate(ordered, axis=-1)
    cast = {name: value.astype(getattr(weights, name).dtype) for name, value in named.items()}
    return time_major(d_xs).astype(dtype), weights._replace(**cast)


run_cell.defvjp(_run_fwd, _run_bwd)
