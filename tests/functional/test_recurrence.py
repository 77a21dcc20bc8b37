"""The fast recurrences against a NumPy loop: values, and gradients by complex steps.

Second derivatives are compared with those of the scanned step.

Compilation is what these tests cost, and one program of many passes costs little more than one of
a single pass: so each recurrence has a few programs, and the tests look at their parts.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gatedjax.functional import RAUWeights, _cell_scan, _directions, rau, rau_step
from gatedjax.functional._directions import bidirectional
from gatedjax.functional._gru import GRUWeights, gru, gru_step
from gatedjax.functional._lstm import LSTMState, LSTMWeights, lstm, lstm_step
from gatedjax.functional._recurrence import Restarts
from tests._slow import slow_but
from tests.functional.passes import check_gradients, close, draw_like, passes
from tests.functional.rau_oracle import numpy_rau_step, sigmoid
from tests.tolerances import BF16, F64

B, T, D, H = 3, 6, 4, 5


def numpy_lstm(weights, carry, x, drop):
    h, c = carry
    i, f, g, o = np.split(x @ weights[0] + (drop * h) @ weights[1] + weights[2], 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def numpy_gru(weights, carry, x, drop, reset_after=False):
    (h,) = carry
    w, u, b = weights[:3]
    n = len(h)
    a = np.split(x @ w + b, 3)
    r, z = (sigmoid(a[k] + (drop * h) @ u[:, k * n : (k + 1) * n]) for k in range(2))
    if reset_after:
        c = np.tanh(a[2] + r * ((drop * h) @ u[:, 2 * n :] + weights[3]))
    else:
        c = np.tanh(a[2] + (r * drop * h) @ u[:, 2 * n :])
    return ((1 - z) * h + z * c,)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One recurrence in all its forms; a carry is a tuple of [B, H] arrays in `numpy_step`."""

    unroll: Callable[..., Any]
    step: Callable[..., Any]
    numpy_step: Callable[..., Any]
    num_gates: int
    num_states: int
    make: Callable[..., Any]

    def weights(self, rng, dtype=np.float32, features=D):
        n = self.num_gates * H
        shapes = [(features, n), (H, n), (n,), (H,)]
        return self.make(*((rng.normal(size=s) * 0.6).astype(dtype) for s in shapes))

    def carry(self, rng, dtype=np.float32, rows=B):
        parts = [rng.normal(size=(rows, H)).astype(dtype) for _ in range(self.num_states)]
        return LSTMState(*parts) if self.num_states == 2 else parts[0]


CELLS = {
    "lstm": Cell(lstm, lstm_step, numpy_lstm, 4, 2, lambda w, u, b, _: LSTMWeights(w, u, b)),
    "gru": Cell(gru, gru_step, numpy_gru, 3, 1, lambda w, u, b, _: GRUWeights(w, u, b)),
    "gru_reset_after": Cell(
        functools.partial(gru, reset_after=True),
        functools.partial(gru_step, reset_after=True),
        functools.partial(numpy_gru, reset_after=True),
        3,
        1,
        GRUWeights,
    ),
}


# test_rau has the other forms and options of its cell
CELLS["rau"] = Cell(
    functools.partial(rau, rescale=True),
    functools.partial(rau_step, rescale=True),
    lambda weights, carry, x, drop: (
        numpy_rau_step(RAUWeights(*weights), *carry, x, drop, rescale=True),
    ),
    5,
    1,
    lambda w, u, b, _: RAUWeights(w, u, b, None),
)
MASK = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]], bool)


def test_every_recurrence_of_the_library_is_compared_with_loops():
    unrolls = {getattr(one.unroll, "func", one.unroll) for one in CELLS.values()}
    assert unrolls == set(_directions._PREPARE)


@pytest.fixture(params=slow_but(CELLS, "lstm", "gru", "rau"))
def cell(request) -> Cell:
    return CELLS[request.param]


@contextlib.contextmanager
def use_form(unroll: int) -> Iterator[None]:
    """Makes all recurrences run so many steps in an iteration of their loops."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_directions, "target_platform", lambda: {1: "cpu", 4: "gpu"}[unroll])
        yield


# The loops of a CPU and of an accelerator.
FORMS = [1, 4]
each_form = pytest.mark.parametrize("form", FORMS)
TURNS = [(1, False), (1, True), (4, True)]
each_turn = pytest.mark.parametrize(("form", "reverse"), TURNS)


@pytest.mark.parametrize(("backend", "want"), [("cpu", 1), ("gpu", 4), ("tpu", 4)])
def test_an_accelerator_runs_several_steps_in_an_iteration(backend, want, monkeypatch):
    monkeypatch.setattr(_directions, "target_platform", lambda: backend)
    weights = GRUWeights(np.ones((2, 3), "f"), np.ones((1, 3), "f"), np.ones(3, "f"))
    trace = jax.make_jaxpr(lambda xs: gru(weights, xs)[1])
    for steps, unroll in ((7, want), (jax.export.symbolic_shape("t")[0], 1)):
        xs = jax.ShapeDtypeStruct((2, steps, 2), np.float32)
        assert f"unroll={unroll}" in str(trace(xs))


def leaves(carry) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(carry)]


def oracle(cell, weights, xs, mask, carry, reverse, drop):
    """The recurrence one row and one step at a time, in NumPy; analytic."""
    weights = [np.asarray(w) for w in weights if w is not None]
    kind = np.result_type(*weights, xs, drop, *leaves(carry))
    final = [leaf.astype(kind) for leaf in leaves(carry)]
    outputs = np.zeros((*xs.shape[:2], H), kind)
    for row in range(xs.shape[0]):
        state = tuple(leaf[row] for leaf in final)
        for t in range(xs.shape[1])[:: -1 if reverse else 1]:
            if mask[row, t]:
                state = cell.numpy_step(weights, state, xs[row, t], drop[row])
                outputs[row, t] = state[0]
        for leaf, value in zip(final, state, strict=True):
            leaf[row] = value
    return final, outputs


def scanned(cell, weights, xs, mask, *, initial, reverse=False, recurrent_dropout_mask=None):
    """The step under a plain scan, differentiated by JAX."""

    def body(carry, step):
        x, keep = step
        new, y = cell.step(weights, carry, x, recurrent_dropout_mask=recurrent_dropout_mask)
        new = jax.tree.map(lambda n, o: jnp.where(keep[:, None], n, o), new, carry)
        return new, jnp.where(keep[:, None], y, 0)

    steps = (jnp.swapaxes(xs, 0, 1), jnp.swapaxes(mask, 0, 1))
    carry, outputs = lax.scan(body, initial, steps, reverse=reverse)
    return carry, jnp.swapaxes(outputs, 0, 1)


def draw(cell, rng, dtype=np.float64):
    """Weights, inputs, initial carry and dropout mask; and cotangents of all results."""
    xs = rng.normal(size=(B, T, D)).astype(dtype)
    drop = (rng.integers(0, 2, size=(B, H)) * 1.5).astype(dtype)
    arguments = (cell.weights(rng, dtype), xs, cell.carry(rng, dtype), drop)
    return arguments, draw_like((arguments[2], np.zeros((B, T, H), dtype)), rng)


@functools.cache
def everything(cell):
    """The passes in the forms and directions of `TURNS`, in one program.

    Masked passes by (form, reverse); by form, results and gradients with neither mask nor dropout.
    """

    @jax.jit
    def run(arguments, mask, cotangents):
        masked, unmasked = {}, {}
        for form, reverse in TURNS:
            with use_form(form):
                unroll = functools.partial(cell.unroll, reverse=reverse)
                masked[form, reverse] = passes(unroll, arguments, mask, cotangents)
        for form in FORMS:
            with use_form(form):
                found, pull = jax.vjp(lambda w, x, i: cell.unroll(w, x, initial=i), *arguments[:3])
                unmasked[form] = found, pull(cotangents)
        return masked, unmasked

    return run


def solve(cell, arguments, mask, cotangents):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, everything(cell)(arguments, mask, cotangents))


@functools.cache
def solved(cell):
    arguments, cotangents = draw(cell, np.random.default_rng(0))
    return arguments, cotangents, *solve(cell, arguments, MASK, cotangents)


@functools.cache
def derived(cell):
    """Products with the second derivative of a loss in the bias.

    By way (forward over reverse, and for one cell reverse over reverse, the dearest of all passes
    to compile), and that of the scanned step.
    """
    arguments, cotangents, *_ = solved(cell)
    direction = np.random.default_rng(1).normal(size=arguments[0].bias.shape)

    @jax.jit
    def run(arguments, mask, cotangents, direction):
        weights, xs, initial, drop = arguments

        def gradient(unroll):
            def loss(bias):
                options = {"initial": initial, "recurrent_dropout_mask": drop}
                found = unroll(weights._replace(bias=bias), xs[:, :3], mask[:, :3], **options)
                factors = (cotangents[0], cotangents[1][:, :3])
                parts = zip(*map(jax.tree.leaves, (found, factors)), strict=True)
                return sum(jnp.sum(c * x + 0.1 * x**2) for x, c in parts)

            return jax.grad(loss)

        def forward(unroll):
            return jax.jvp(gradient(unroll), (weights.bias,), (direction,))[1]

        second = {"forward": forward(cell.unroll)}
        if cell is CELLS["lstm"]:
            pull = jax.vjp(gradient(cell.unroll), weights.bias)[1]
            second["reverse"] = pull(direction)[0]
        return second, forward(functools.partial(scanned, cell))

    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, run(arguments, MASK, cotangents, direction))


@pytest.mark.slow
@each_turn
def test_values_equal_a_numpy_loop(cell, form, reverse):
    (weights, xs, initial, drop), _, masked, _ = solved(cell)
    want = oracle(cell, weights, xs, MASK, initial, reverse, drop)
    for got in masked[form, reverse][:2]:
        close(got, want, **F64)


@each_turn
def test_all_gradients_equal_complex_steps(cell, form, reverse, np_rng):
    arguments, cotangents, masked, _ = solved(cell)
    run = lambda w, x, i, d: oracle(cell, w, x, MASK, i, reverse, d)  # noqa: E731
    gradients = masked[form, reverse][2]
    assert min(np.abs(leaf).max() for leaf in leaves(gradients)) > 0
    check_gradients(gradients, run, arguments, cotangents, np_rng, **F64)


@each_form
def test_gradients_without_mask_or_dropout_equal_complex_steps(cell, form, np_rng):
    arguments, cotangents, _, unmasked = solved(cell)
    found, gradients = unmasked[form]

    def run(weights, xs, initial):
        full, ones = np.ones((B, T), bool), np.ones((B, H))
        return oracle(cell, weights, xs, full, initial, False, ones)

    close(found, run(*arguments[:3]), **F64)
    check_gradients(gradients, run, arguments[:3], cotangents, np_rng, **F64)


class PeepholeWeights(NamedTuple):
    input: Any
    recurrent: Any
    bias: Any
    peephole: Any


def advance_with_peephole(_, terms, carry):
    i, f, g, o = terms.sums(0, terms.drop(carry.hidden))
    seen = terms.weights["peephole"] * carry.cell
    c = terms.sigmoid(f + seen) * carry.cell + terms.sigmoid(i + seen) * terms.tanh(g)
    return LSTMState(terms.sigmoid(o) * jnp.tanh(c), c)


@pytest.mark.slow
def test_an_equation_with_weights_of_its_own_has_the_gradients_of_a_plain_scan(np_rng, x64):
    products = (_cell_scan.Product((0, 1, 2, 3)),)
    cell = _cell_scan.Cell(advance_with_peephole, None, 4, products, weights=("peephole",))
    weights = PeepholeWeights(*(np_rng.normal(size=s) for s in ((D, 4 * H), (H, 4 * H), 4 * H, H)))
    xs, (h, c, fresh), drop = (np_rng.normal(size=s) for s in ((B, T, D), (3, B, H), (B, H)))
    begins = Restarts(jnp.asarray(np_rng.random((B, T)) < 0.7), LSTMState(fresh, -fresh))
    arguments = jax.tree.map(jnp.asarray, (weights, xs, MASK, LSTMState(h, c), drop, begins))

    def gradients(run):
        def loss(weights, xs, initial, drop):
            final, outputs = run(cell, False, 1, weights, xs, MASK, initial, drop, begins)
            return jnp.sum(outputs**2) + jnp.sum(final.hidden * final.cell)

        weights, xs, _, initial, drop, _ = arguments
        return jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(weights, xs, initial, drop)

    got = gradients(_cell_scan.run_cell)
    assert np.abs(got[0].peephole).min() > 1e-3
    close(got, gradients(_cell_scan.run_forward), **F64)


def test_second_derivatives_equal_those_of_the_scanned_step(cell):
    second, want = derived(cell)
    assert np.abs(want).max() > 0
    for found in second.values():
        np.testing.assert_allclose(found, want, **F64)


@functools.cache
def of_length(cell, length):
    arguments, cotangents, *_ = solved(cell)
    mask = np.broadcast_to(np.arange(T) < length, (B, T))
    return solve(cell, arguments, mask, cotangents)[0]


def test_empty_rows_return_their_initial_carry_with_finite_gradients(cell):
    initial, cotangents = solved(cell)[0][2], solved(cell)[1]
    for *both, gradients in of_length(cell, 0).values():
        for final, outputs in both:
            for got, want in zip(leaves(final), leaves(initial), strict=True):
                np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(outputs, 0.0)
        for leaf in leaves((gradients[:2], gradients[3])):
            np.testing.assert_array_equal(leaf, 0.0)
        close(gradients[2], cotangents[0], **F64)


SMALL = [(0, 3), (2, 0), (2, 1)]


@functools.cache
def others(cell):
    """Defaults, two chunks, both directions and small shapes, in one program; its arguments."""
    rng = np.random.default_rng(2)
    (weights, xs, initial, _), _ = draw(cell, rng)
    second = cell.weights(rng, np.float64)
    small = {shape: rng.normal(size=(*shape, D)) for shape in SMALL}

    @jax.jit
    def run(weights, second, xs, mask, initial, small):
        middle, first = cell.unroll(weights, xs[:, :2], initial=initial)
        last, rest = cell.unroll(weights, xs[:, 2:], initial=middle)
        shapes = {}
        for shape, x in small.items():
            full = jnp.ones(shape, bool)
            outputs, pull = jax.vjp(lambda w, x: cell.unroll(w, x, full)[1], weights, x)  # noqa: B023
            shapes[shape] = outputs, pull(jnp.ones_like(outputs))
        return {
            "defaults": cell.unroll(weights, xs),
            "chunks": (last, jnp.concatenate([first, rest], 1)),
            "both": bidirectional(cell.unroll, weights, second, xs, mask),
            "small": shapes,
        }

    with jax.enable_x64(True):
        found = jax.tree.map(np.asarray, run(weights, second, xs, MASK, initial, small))
    return weights, second, xs, initial, small, found


def unmasked_oracle(cell, weights, xs, initial):
    rows, steps = xs.shape[:2]
    full, ones = np.ones((rows, steps), bool), np.ones((rows, H))
    return oracle(cell, weights, xs, full, initial, False, ones)


def zero_carry(cell, rows):
    return jax.tree.map(np.zeros_like, cell.carry(np.random.default_rng(0), np.float64, rows))


@pytest.mark.slow
def test_defaults_are_zeros_all_real_and_no_dropout(cell):
    weights, _, xs, _, _, found = others(cell)
    close(found["defaults"], unmasked_oracle(cell, weights, xs, zero_carry(cell, B)), **F64)


@pytest.mark.parametrize("name", ["lstm", "gru", "rau"])
def test_lengths_are_the_mask_of_that_many_steps(name, np_rng):
    cell, lengths = CELLS[name], np.array([6, 2, 0])
    mask = np.arange(T) < lengths[:, None]
    weights, xs = cell.weights(np_rng), np_rng.normal(size=(B, T, D)).astype(np.float32)
    same = functools.partial(jax.tree.map, np.testing.assert_array_equal)
    same(cell.unroll(weights, xs, lengths=lengths), cell.unroll(weights, xs, mask))
    if name == "lstm":  # one rule for all
        both = functools.partial(bidirectional, cell.unroll, weights, weights, xs)
        same(both(lengths=lengths), both(mask))


@pytest.mark.parametrize(("rows", "steps"), SMALL)
def test_no_rows_no_steps_and_one_step_are_legal(cell, rows, steps, np_rng):
    weights, _, _, _, small, found = others(cell)
    xs, (outputs, gradients) = small[rows, steps], found["small"][rows, steps]

    def run(weights, xs):
        return unmasked_oracle(cell, weights, xs, zero_carry(cell, rows))[1]

    np.testing.assert_allclose(outputs, run(weights, xs), **F64)
    ones = np.ones((rows, steps, H))
    if outputs.size:
        check_gradients(gradients, lambda *a: (run(*a),), (weights, xs), (ones,), np_rng, **F64)
    else:
        for leaf, like in zip(leaves(gradients), leaves((weights, xs)), strict=True):
            np.testing.assert_array_equal(leaf, np.zeros_like(like))


def test_two_chunks_with_the_carried_state_equal_one(cell):
    weights, _, xs, initial, _, found = others(cell)
    close(found["chunks"], unmasked_oracle(cell, weights, xs, initial), **F64)


def test_bidirectional_reads_both_ways_and_stacks_the_features(cell):
    first, second, xs, _, _, found = others(cell)
    carries, outputs = found["both"]
    zeros, ones = zero_carry(cell, B), np.ones((B, H))
    ahead, ahead_out = oracle(cell, first, xs, MASK, zeros, False, ones)
    # Reading backward is reading the flipped sequence and flipping the outputs.
    back, back_out = oracle(cell, second, xs[:, ::-1], MASK[:, ::-1], zeros, False, ones)
    np.testing.assert_allclose(outputs, np.concatenate([ahead_out, back_out[:, ::-1]], -1), **F64)
    close(carries, (ahead, back), **F64)


@functools.cache
def narrow(cell):
    """The passes of bfloat16 inputs and those of float32, in one program."""

    @jax.jit
    def run(arguments, low, mask, cotangents):
        weights, _, *rest = arguments
        final, outputs = cotangents
        change = (final, outputs.astype(jnp.bfloat16))
        found = passes(cell.unroll, (weights, low, *rest), mask, change)
        return found, passes(cell.unroll, arguments, mask, cotangents)

    return run


@functools.cache
def narrow_and_wide(cell):
    """Results of bfloat16 inputs and of float32 ones, and what float64 gives for the first."""
    (weights, xs, *rest), cotangents = draw(cell, np.random.default_rng(3), np.float32)
    low = xs.astype(jnp.bfloat16)
    cotangents = (cotangents[0], cotangents[1].astype(jnp.bfloat16).astype(np.float32))
    found = narrow(cell)((weights, xs, *rest), low, MASK, cotangents)
    wide = jax.tree.map(lambda x: x.astype(np.float64), ((weights, low, *rest), cotangents))
    return *found, solve(cell, wide[0], MASK, wide[1])[0]


@pytest.mark.slow
def test_bfloat16_inputs_stay_close_with_float32_carries_and_gradients(cell):
    found, _, wide = narrow_and_wide(cell)
    want, _, want_gradients = wide[1, False]
    *both, gradients = found
    for final, outputs in both:
        assert outputs.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.asarray(outputs, np.float32), want[1], **BF16)
        for got, expected in zip(leaves(final), leaves(want[0]), strict=True):
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, expected, **BF16)
    assert gradients[0].input.dtype == jnp.float32
    assert gradients[1].dtype == jnp.bfloat16
    for got, expected in zip(leaves(gradients), leaves(want_gradients), strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got.astype(np.float32) / scale, expected / scale, **BF16)


@pytest.mark.parametrize("name", ["lstm", "gru", "rau"])
def test_carries_have_the_digits_of_float32_under_bfloat16_inputs(name, np_rng):
    cell, x = CELLS[name], jnp.zeros((B, D), jnp.bfloat16)
    weights, start = cell.weights(np_rng), cell.carry(np_rng)
    carry, output = jax.jit(cell.step)(weights, start, x)
    assert output.dtype == x.dtype
    # a carry that is given may have fewer digits
    low = jax.tree.map(lambda leaf: leaf.astype(x.dtype), start)
    starts = {"initial": low, "resets": MASK, "reset_to": low}

    def both(weights):
        run = functools.partial(cell.unroll, xs=jnp.zeros((B, T, D)), **starts)
        final, pull = jax.vjp(lambda weights: run(weights)[0], weights)
        return final, pull(final)

    for leaf in jax.tree.leaves(jax.eval_shape(both, weights)):
        assert leaf.dtype == np.float32
    for leaf in leaves(carry):
        assert leaf.dtype == np.float32
        assert (leaf != leaf.astype(x.dtype).astype(np.float32)).any()


def test_extreme_inputs_have_finite_values_and_gradients(cell, np_rng):
    (weights, xs, *rest), cotangents = draw(cell, np_rng, np.float32)
    xs = xs * np.float32(1e6)
    *both, gradients = narrow(cell)(
        (weights, xs, *rest), xs.astype(jnp.bfloat16), MASK, cotangents
    )[1]
    for leaf in leaves((both, gradients[:3])):
        assert leaf.dtype == np.float32
        assert np.isfinite(leaf).all()
