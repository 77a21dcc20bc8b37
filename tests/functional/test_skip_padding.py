"""Recurrences that skip padding: the plain ones, a NumPy loop, and what is run at all.

Compilation is what these tests cost: a program is made with two widths where four show no more.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from gatedjax import nn as gnn
from gatedjax.functional import _skip_padding
from gatedjax.functional._recurrence import Form
from gatedjax.functional._skip_padding import widths_of
from gatedjax.functional._steps import Packed
from tests._modes import MODES, assert_same
from tests._modes import run as run_mode
from tests._slow import slow_but
from tests.functional.passes import close, draw_like
from tests.functional.test_recurrence import CELLS, D, H, leaves, oracle, use_form
from tests.tolerances import BF16, F32, F64

B, T = 6, 5
# full, holes, nothing, one step, padding first, padding last
MASK = np.zeros((B, T), bool)
MASK[0] = MASK[1, [0, 3]] = MASK[3, 0] = MASK[4, 3:] = MASK[5, :2] = True
RESETS = np.zeros((B, T), bool)
RESETS[[0, 4, 5], [2, 4, 1]] = True
# form and direction, with resets or with a dropout mask
TURNS = [(True, False, True, False), (True, True, False, False), (False, True, True, True)]


def draw(cell, rng, dtype=np.float64):
    xs = rng.normal(size=(B, T, D)).astype(dtype)
    carries = [cell.carry(rng, dtype, rows=B) for _ in range(2)]
    drop = (rng.integers(0, 2, size=(B, H)) * 1.5).astype(dtype)
    arguments = (cell.weights(rng, dtype), xs, *carries, drop)
    return arguments, draw_like((carries[0], np.zeros((B, T, H), dtype)), rng)


def passes(cell, arguments, mask, cotangents, turn, skip_padding):
    """Results without gradients and with them, and the gradients."""
    feature_major, reverse, with_resets, with_drop = turn

    def call(weights, xs, initial, fresh, drop):
        resets = {"resets": RESETS, "reset_to": fresh} if with_resets else {}
        if with_drop:
            resets |= {"recurrent_dropout_mask": drop}
        more = {"reverse": reverse, "skip_padding": skip_padding}
        return cell.unroll(weights, xs, mask, initial=initial, **resets, **more)

    with use_form(feature_major, False):
        found, pull = jax.vjp(call, *arguments)
        return call(*arguments), found, pull(cotangents)


@functools.cache
def solved(name):
    """Arguments, and by turn the passes that skip padding and those that do not."""
    cell = CELLS[name]
    arguments, cotangents = draw(cell, np.random.default_rng(0))

    @jax.jit
    def run(arguments, mask, cotangents):
        return {
            turn: [passes(cell, arguments, mask, cotangents, turn, skip) for skip in (True, False)]
            for turn in TURNS
        }

    with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
        patch.setattr(_skip_padding, "_WIDTHS", 2)
        found = jax.tree.map(np.asarray, run(arguments, MASK, cotangents))
    return arguments, found


@pytest.fixture
def two_widths(monkeypatch):
    monkeypatch.setattr(_skip_padding, "_WIDTHS", 2)


each_cell = pytest.mark.parametrize("name", slow_but(CELLS, "gru"))


@each_cell
@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_values_and_gradients_are_those_with_padding(name, turn):
    skipped, plain = solved(name)[1][turn]
    close(skipped, plain, **F64)
    for leaf in leaves(skipped[2][:2]):
        assert np.abs(leaf).max() > 0
    np.testing.assert_array_equal(skipped[1][1][~MASK], 0.0)
    np.testing.assert_array_equal(skipped[2][1][~MASK], 0.0)


@each_cell
def test_values_equal_a_numpy_loop(name):
    (weights, xs, initial, _, _), found = solved(name)
    want = oracle(CELLS[name], weights, xs, MASK, initial, True, np.ones((B, H)))
    close(found[TURNS[1]][0][1], want, **F64)


def steps_run(mask, widths):
    """The rows that are computed, counted one step at a time."""
    lengths = [max(np.flatnonzero(row) + 1, default=0) for row in mask]
    rows = 0
    for t in range(mask.shape[1]):
        left = sum(length > t for length in lengths)
        rows += min((w for w in widths if w >= left), default=0) if left else 0
    return rows


@pytest.mark.parametrize("batch", [1, 8])
def test_only_rows_that_are_not_over_are_stored(batch, np_rng):
    lengths = np_rng.integers(0, 8, size=batch)
    mask = np.arange(9) < lengths[:, None]
    mask[0, 2:4] = False
    widths = widths_of(mask.shape)

    @jax.jit
    def run(mask, x):
        packed = Packed(Form(True, False, 1, widths), mask)
        return packed.used, packed.unpack(packed.pack(x)), packed.unsort(packed.sort(x))

    x = np_rng.normal(size=(*mask.shape, 3)).astype(np.float32)
    used, again, rows = map(np.asarray, run(mask, x))
    assert used == steps_run(mask, widths)
    np.testing.assert_array_equal(again[mask], x[mask])
    np.testing.assert_array_equal(rows, x)


@pytest.mark.parametrize(
    ("shape", "want"),
    [
        ((32, 9), (32, 24, 16, 8)),
        ((5, 9), (5, 4, 3, 2)),
        ((1, 9), (1,)),
        ((0, 9), ()),
        ((4, 0), ()),
    ],
)
def test_widths_are_quarters_of_the_batch(shape, want):
    assert widths_of(shape) == want


@pytest.mark.parametrize("name", ["lstm", "gru", "rau"])
def test_without_a_mask_or_a_size_the_program_is_the_plain_one(name, np_rng):
    cell = CELLS[name]
    weights, xs = cell.weights(np_rng), np.ones((B, T, D), np.float32)
    runs = [functools.partial(cell.unroll, skip_padding=skip) for skip in (True, False)]
    skipped, plain = (jax.jit(run).lower(weights, xs).as_text() for run in runs)
    assert skipped == plain
    (batch,) = export.symbolic_shape("b")
    shape = jax.ShapeDtypeStruct((batch, T, D), np.float32)
    sizes = jax.ShapeDtypeStruct((batch,), np.int32)

    def exported(skip):
        run = functools.partial(cell.unroll, weights, skip_padding=skip)
        return str(jax.make_jaxpr(lambda x, n: run(x, lengths=n))(shape, sizes))

    assert exported(True) == exported(False)


def loss(cell, weights, xs, mask, skip_padding):
    carry, outputs = cell.unroll(weights, xs, mask, skip_padding=skip_padding)
    return jnp.sum(outputs.astype(jnp.float32) ** 2) + sum(map(jnp.sum, jax.tree.leaves(carry)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "gru", "rau"])
@pytest.mark.usefixtures("two_widths")
def test_derivatives_of_higher_order_and_lanes_are_those_with_padding(name):
    (weights, xs, *_), _ = solved(name)
    cell, masks = CELLS[name], np.stack([MASK, ~MASK])

    @jax.jit
    def run(weights, xs, masks):
        found = []
        for skip in (True, False):
            first = jax.grad(functools.partial(loss, cell, skip_padding=skip), argnums=(0, 1))
            gradient = functools.partial(first, mask=masks[0])
            second = jax.jvp(gradient, (weights, xs), (weights, xs))[1]
            back = jax.vjp(gradient, weights, xs)[1]((weights, xs))
            by_mask = jax.vmap(first, in_axes=(None, None, 0))(weights, xs, masks)
            lanes = jax.vmap(first, in_axes=(0, 0, None))
            many = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), (weights, xs))
            nested = jax.vmap(lanes, in_axes=(None, None, 0))(*many, masks)
            found.append((second, back, by_mask, lanes(*many, masks[0]), nested))
        return found

    with jax.enable_x64(True):
        close(*run(weights, xs, masks), **F64)


@pytest.mark.usefixtures("two_widths")
def test_bfloat16_and_float32_are_close_to_the_plain_ones():
    cell = CELLS["gru"]
    (weights, xs, *_), _ = draw(cell, np.random.default_rng(1), np.float32)

    @jax.jit
    def run(weights, xs, low):
        return [
            (cell.unroll(weights, x, MASK, skip_padding=skip), jax.grad(
                functools.partial(loss, cell), argnums=(0, 1)
            )(weights, x, MASK, skip))
            for x in (xs, low) for skip in (True, False)
        ]  # fmt: skip

    skipped, plain, low, plain_low = run(weights, xs, xs.astype(jnp.bfloat16))
    close(skipped, plain, **F32)
    assert [x.dtype for x in jax.tree.leaves(low)] == [x.dtype for x in jax.tree.leaves(plain_low)]
    wide = functools.partial(jax.tree.map, lambda x: np.asarray(x, np.float32))
    close(wide(low), wide(plain_low), **BF16)


@pytest.mark.usefixtures("two_widths")
@pytest.mark.parametrize("mode", slow_but(MODES, "shard_map"))
def test_devices_with_half_of_the_rows_each_give_the_same(mode):
    cell = CELLS["gru"]
    weights, xs = cell.weights(np.random.default_rng(2)), np.ones((B, T, D), np.float32)

    def lanes(weights, xs, mask, skip):
        """Under a `vmap` over masks too, where every row is run at every step."""
        run = functools.partial(loss, cell, weights, xs, skip_padding=skip)
        return jnp.sum(jax.vmap(lambda m: run(mask=m))(jnp.stack([mask, mask])))

    def function(skip, weights, rows, total):
        xs, mask = rows
        found = []
        for cost in (functools.partial(loss, cell), lanes):
            run = jax.value_and_grad(cost, argnums=(0, 1))
            value, (d_weights, d_xs) = run(weights, xs, mask, skip)
            found.append((total(value), d_weights, d_xs))
        return [part[:2] for part in found], [part[2] for part in found]

    for rows in ((xs, MASK), (xs[:2], MASK[:2])):  # the second with one row a device
        want = run_mode("one", functools.partial(function, False), weights, rows)
        assert_same(run_mode(mode, functools.partial(function, True), weights, rows), want)


def test_attentions_without_a_pass_of_their_own_are_refused():
    layer = gnn.RAU(H, attention="concat", skip_padding=True)
    with pytest.raises(ValueError, match=r"skip_padding needs .* got 'concat' with RAUConcatW"):
        jax.eval_shape(layer.init, jax.random.key(0), np.ones((B, T, D), np.float32), MASK)


@pytest.mark.slow
@pytest.mark.usefixtures("two_widths")
@pytest.mark.parametrize("kind", [gnn.LSTM, gnn.GRU, gnn.RAU])
def test_modules_give_the_same_in_both_directions(kind):
    options = {"num_layers": 2, "bidirectional": True}
    layers = [kind(H, **options, skip_padding=skip) for skip in (True, False)]
    xs = np.random.default_rng(3).normal(size=(B, T, D)).astype(np.float32)
    params = jax.jit(layers[0].init)(jax.random.key(0), xs, MASK)
    found = jax.jit(lambda params: [layer.apply(params, xs, MASK) for layer in layers])(params)
    close(*found, **F32)
