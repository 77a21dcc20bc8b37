"""The matrix products of a recurrence without its gates, a lower bound for the time of any cell."""

import operator
from functools import reduce
from typing import Any

import jax.numpy as jnp

from experiments.core.kinds import Array
from gatedjax.functional._cell_scan import Cell, Product, Terms, run_cell
from gatedjax.functional._devices import target_platform
from gatedjax.functional._recurrence import Restarts


def linear_recurrence(
    weights: Any, xs: Array, mask: Array, *, reverse: bool = False
) -> tuple[Array, Array]:
    """Runs h_t = sum_k (x_t W + h_{t-1} U + b)_k over the blocks k of H columns, step by step. The
    products are those of a cell with as many blocks, forwards and backwards. Only the sum remains
    of the rest of the cell. Returns the last state [B, H] and all states [B, T, H]. The mask is
    unused, because padding is computed."""
    del mask
    hidden, columns = weights.recurrent.shape
    count = columns // hidden
    cell = Cell(_add_blocks, None, count, (Product(tuple(range(count))),))
    start = jnp.zeros((xs.shape[0], hidden), xs.dtype)
    carries = None, start, None, Restarts(None, None)
    # as in `functional._directions.run_recurrences`
    unroll = 1 if target_platform() == "cpu" else 4
    return run_cell(cell, reverse, unroll, weights, xs, *carries)


def _add_blocks(_: None, terms: Terms, hidden: Array) -> Array:
    return reduce(operator.add, terms.sums(0, hidden))
