"""How the steps of a batch lie in memory while a recurrence runs, and the loops over them."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from gatedjax.functional._devices import vary_together
from gatedjax.functional._recurrence import (
    Form,
    matmul,
    shifted,
    time_major,
    weight_gradient,
)
from gatedjax.functional._types import Dtype, Tree

# Of one product after the loop: large enough for its speed, small enough to skip what is empty.
_CHUNK = 512


class TimeMajor:
    """[T, B, ...]: every row at every step, in the order of the batch."""

    def __init__(self, form: Form) -> None:
        self.form = form

    def sort(self, rows: Tree) -> Tree:
        """Returns arrays [B, ...] with the rows in the order in which they are stored."""
        return rows

    def unsort(self, rows: Tree) -> Tree:
        """Undoes `sort`."""
        return rows

    def pack(self, x: Tree) -> Tree:
        """Returns x [B, T, ...] as it is stored; None stays None."""
        return time_major(x)

    def unpack(self, x: Array) -> Array:
        """Undoes `pack`, with zeros for what is not stored."""
        return time_major(x)

    def spread(self, rows: Array) -> Array:
        """Returns sorted rows [B, H] as what multiplies stored [.., H]."""
        return rows[None]

    def before(
        self,
        states: Array,
        initial: Array,
        reverse: bool,
        goes_on: Array | None,
        fresh: Array | None,
    ) -> Array:
        """Returns the state each step began with, from the stored states after each.

        initial and fresh are sorted; goes_on [B, T] is not, see `Restarts`.
        """
        before = self.previous(states, initial, reverse)
        if goes_on is None or fresh is None:
            return before
        return jnp.where(self.pack(goes_on)[..., None], before, self.spread(fresh))

    def previous(self, states: Array, initial: Array, reverse: bool) -> Array:
        """Returns `before` where no step restarts."""
        return shifted(states, initial, reverse)

    def scan(
        self,
        body: Callable[[Tree, Tree, Tree], tuple[Tree, Tree]],
        rows: Tree,
        carry: Tree,
        steps: tuple[Tree, ...],
        reverse: bool,
        gates: tuple[Tree, ...] = (),
    ) -> tuple[Tree, Tree]:
        """Runs body(rows, carry, (*steps, *gates)) -> (carry, results) over time.

        Args:
          body: does the same for every number of rows.
          rows: sorted, in the layout of the form; what a step reads of every row.
          carry: as rows.
          steps: stored, of [B, N] at every step.
          reverse: from the last step to the first.
          gates: stored, of the layout of the form at every step: results of another scan.

        Returns:
          The last carry and the stored results.
        """
        run = functools.partial(body, rows)
        return lax.scan(run, carry, (*steps, *gates), reverse=reverse, unroll=self.form.unroll)

    def product(self, x: Array, kernel: Array, dtype: Dtype) -> Array:
        """Returns stored x times a kernel, accumulated and returned in dtype."""
        return matmul(x, kernel, dtype)

    def weight_gradient(self, inputs: Array, gates: Array, dtype: Dtype) -> Array:
        """Returns sum_t inputs_t^T gates_t of stored arrays, [K, N]."""
        return weight_gradient(inputs, gates, dtype)

    def total(self, x: Array, dtype: Dtype) -> Array:
        """Returns the sum over rows and steps, [N]."""
        return jnp.sum(x, axis=(0, 1), dtype=dtype)

    def row_total(self, x: Array) -> Array:
        """Returns the sum over the steps, [B, N] in the order of the batch."""
        return jnp.sum(x, axis=0)


class _Run(NamedTuple):
    """The steps from start to before stop, which run `width` rows and store from `place` on."""

    width: int
    start: int | Array
    stop: int | Array
    place: int | Array

    @property
    def steps(self) -> int | Array:
        return self.stop - self.start


class Packed(TimeMajor):
    """[S, ...]: at step t the w_t rows that go on longest, one step after another.

    Rows are sorted by the index after their last real step, the longest first. n_t rows are not
    over at step t; w_t is the least of a few static widths that is not below n_t, for a loop has a
    static shape. The steps of one width are one loop, of a length that only the data says:

        for w in widths, the largest first:  for t in start_w, ..., stop_w - 1:  rows 0, ..., w - 1

    with stop_w the length of the first row outside the next width. Steps at which no row is left
    are not run. S = B T rounded up, of which the first sum_t w_t are in use and the others 0.

    Where the form is `whole`, every row is run at every step and nothing depends on the mask: under
    a `vmap` over masks a loop would run as often as the longest of all asks for.
    """

    def __init__(self, form: Form, mask: Array) -> None:
        super().__init__(form)
        batch, steps = self.shape = mask.shape
        self.mask = mask
        self.chunk = min(_CHUNK, batch * steps)
        self.size = -(-batch * steps // self.chunk) * self.chunk
        self.order = jnp.arange(batch)
        stops: list[int | Array] = [steps]
        if not form.whole:
            after = jnp.where(mask, jnp.arange(1, steps + 1)[None], 0)
            lengths = jnp.max(after, axis=1).astype(jnp.int32)
            self.order = jnp.argsort(-lengths, stable=True)
            lengths = lengths[self.order]
            stops = [*(lengths[width] for width in form.widths[1:]), lengths[0]]
        self.rank = jnp.argsort(self.order)
        self.runs: list[_Run] = []
        start: int | Array = 0
        self.used: int | Array = 0
        for width, stop in zip(form.widths, stops, strict=True):
            self.runs.append(_Run(width, start, stop, self.used))
            start, self.used = stop, self.used + (stop - start) * width
        self._find_places()

    def _find_places(self) -> None:
        """The step and the sorted row of every place, the first place and the rows of a step."""
        places, times = jnp.arange(self.size), jnp.arange(self.shape[1])
        self.step = self.row = jnp.zeros_like(places)
        self.first = self.rows = jnp.zeros_like(times)
        for width, start, stop, place in self.runs:
            inside, own = places - place, places >= place
            self.step = jnp.where(own, start + inside // width, self.step)
            self.row = jnp.where(own, inside % width, self.row)
            own = (times >= start) & (times < stop)
            self.first = jnp.where(own, place + (times - start) * width, self.first)
            self.rows = jnp.where(own, width, self.rows)

    def _zeros(self, shape: tuple[int, ...], dtype: Dtype) -> Array:
        return vary_together((jnp.zeros(shape, dtype), self.mask))[0]

    def sort(self, rows: Tree) -> Tree:
        return jax.tree.map(lambda x: x[self.order], rows)

    def unsort(self, rows: Tree) -> Tree:
        return jax.tree.map(lambda x: x[self.rank], rows)

    def pack(self, x: Tree) -> Tree:
        if x is None:
            return None
        flat = x.reshape(-1, *x.shape[2:])
        return jnp.take(flat, self.order[self.row] * x.shape[1] + self.step, axis=0, mode="clip")

    def unpack(self, x: Array) -> Array:
        rank = self.rank[:, None]
        found = jnp.take(x, self.first[None] + rank, axis=0, mode="clip")
        return jnp.where((rank < self.rows[None])[..., None], found, jnp.zeros((), x.dtype))

    def spread(self, rows: Array) -> Array:
        return rows[self.row]

    def previous(self, states: Array, initial: Array, reverse: bool) -> Array:
        step = self.step + (1 if reverse else -1)
        at = jnp.clip(step, 0, self.shape[1] - 1)
        there = (step == at) & (self.row < self.rows[at])
        before = jnp.take(states, self.first[at] + self.row, axis=0, mode="clip")
        return jnp.where(there[:, None], before, self.spread(initial))

    def scan(
        self,
        body: Callable[[Tree, Tree, Tree], tuple[Tree, Tree]],
        rows: Tree,
        carry: Tree,
        steps: tuple[Tree, ...],
        reverse: bool,
        gates: tuple[Tree, ...] = (),
    ) -> tuple[Tree, Tree]:
        form = self.form
        axis = 1 - form.axis

        def cut(tree: Tree, width: int) -> Tree:
            return jax.tree.map(lambda x: lax.slice_in_dim(x, 0, width, axis=axis), tree)

        def read(width: int, place: int | Array) -> Tree:
            def block(x: Array) -> Array:
                return lax.dynamic_slice_in_dim(x, place, width)

            def turned(x: Array) -> Array:
                return block(x).reshape(-1, width) if form.feature_major else block(x)

            return (*jax.tree.map(block, steps), *jax.tree.map(turned, gates))

        def one(run: _Run, k: Array, state: Tree) -> Tree:
            place = run.place + (run.steps - 1 - k if reverse else k) * run.width

            def write(x: Array, y: Array) -> Array:
                return lax.dynamic_update_slice_in_dim(x, y.reshape(run.width, -1), place, 0)

            carry, results = body(cut(rows, run.width), state[0], read(run.width, place))
            return carry, jax.tree.map(write, state[1], results)

        least = form.widths[-1]
        first = jax.eval_shape(body, cut(rows, least), cut(carry, least), read(least, 0))[1]
        stored = jax.tree.map(lambda y: self._zeros((self.size, y.size // least), y.dtype), first)
        for run in self.runs[:: -1 if reverse else 1]:
            state = cut(carry, run.width), stored
            part, stored = lax.fori_loop(0, run.steps, functools.partial(one, run), state)
            write = functools.partial(lax.dynamic_update_slice_in_dim, start_index=0, axis=axis)
            carry = jax.tree.map(write, carry, part)
        return carry, stored

    def _chunks(
        self, run: Callable[[Callable[[Array], Array], Array, Array], Array], out: Array
    ) -> Array:
        def one(k: Array, out: Array) -> Array:
            place = k * self.chunk
            return run(lambda x: lax.dynamic_slice_in_dim(x, place, self.chunk), place, out)

        return lax.fori_loop(0, -(-self.used // self.chunk), one, out)

    def product(self, x: Array, kernel: Array, dtype: Dtype) -> Array:
        def run(block: Callable[[Array], Array], place: Array, out: Array) -> Array:
            return lax.dynamic_update_slice_in_dim(out, matmul(block(x), kernel, dtype), place, 0)

        return self._chunks(run, self._zeros((self.size, kernel.shape[1]), dtype))

    def weight_gradient(self, inputs: Array, gates: Array, dtype: Dtype) -> Array:
        def run(block: Callable[[Array], Array], place: Array, out: Array) -> Array:
            del place
            return out + weight_gradient(block(inputs)[None], block(gates)[None], dtype)

        return self._chunks(run, self._zeros((inputs.shape[1], gates.shape[1]), dtype))

    def total(self, x: Array, dtype: Dtype) -> Array:
        return jnp.sum(x, axis=0, dtype=dtype)

    def row_total(self, x: Array) -> Array:
        return jnp.sum(self.unpack(x), axis=1)


def steps_of(form: Form, mask: Array | None) -> TimeMajor:
    """Returns how a form stores the steps of a batch."""
    return Packed(form, mask) if form.widths and mask is not None else TimeMajor(form)
