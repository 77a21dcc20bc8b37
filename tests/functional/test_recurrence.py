"""The fast recurrences against a NumPy loop (values) and against their scanned step (gradients)."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gatedjax.functional import RAUWeights, _gru, _lstm, _rau, _recurrence, rau, rau_step
from gatedjax.functional._gru import GRUWeights, gru, gru_step
from gatedjax.functional._lstm import LSTMState, LSTMWeights, lstm, lstm_step
from gatedjax.functional._recurrence import bidirectional
from tests.functional.rau_oracle import numpy_rau_step

B, T, D, H = 3, 6, 4, 5
F32 = {"rtol": 1e-5, "atol": 1e-6}
F64 = {"rtol": 1e-10, "atol": 1e-12}
BF16 = {"rtol": 2e-2, "atol": 2e-2}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def numpy_lstm(weights, carry, x, drop):
    h, c = carry
    i, f, g, o = np.split(x @ weights[0] + (drop * h) @ weights[1] + weights[2], 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def numpy_gru(weights, carry, x, drop, reset_after=False):
    (h,) = carry
    w, u, b = weights[:3]
    a = [x @ w[:, k * H : (k + 1) * H] + b[k * H : (k + 1) * H] for k in range(3)]
    r = sigmoid(a[0] + (drop * h) @ u[:, :H])
    z = sigmoid(a[1] + (drop * h) @ u[:, H : 2 * H])
    if reset_after:
        c = np.tanh(a[2] + r * ((drop * h) @ u[:, 2 * H :] + weights[3]))
    else:
        c = np.tanh(a[2] + (r * drop * h) @ u[:, 2 * H :])
    return ((1 - z) * h + z * c,)


def numpy_rau(weights, carry, x, drop, **options):
    return (numpy_rau_step(RAUWeights(*weights), *carry, x, drop, **options),)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One recurrence in all its forms; a carry is a tuple of [B, H] arrays in `numpy_step`."""

    unroll: Callable[..., Any]
    step: Callable[..., Any]
    numpy_step: Callable[..., Any]
    num_gates: int
    num_states: int
    make: Callable[..., Any]

    def weights(self, rng, dtype=jnp.float32, features=D):
        n = self.num_gates * H
        shapes = [(features, n), (H, n), (n,), (H,)]
        return self.make(*(jnp.asarray(rng.normal(size=s) * 0.6, dtype) for s in shapes))

    def carry(self, rng, dtype=jnp.float32, rows=B):
        parts = [jnp.asarray(rng.normal(size=(rows, H)), dtype) for _ in range(self.num_states)]
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


def rau_cell(**options: Any) -> Cell:
    with_bias = options.get("reset_after", False)
    return Cell(
        functools.partial(rau, **options),
        functools.partial(rau_step, **options),
        functools.partial(numpy_rau, **options),
        5,
        1,
        lambda w, u, b, e: RAUWeights(w, u, b, e if with_bias else None),
    )


CELLS |= {
    "rau": rau_cell(),
    "rau_reset_after": rau_cell(reset_after=True, rescale=True),
    "rau_sigmoid": rau_cell(attention="sigmoid"),
}
MASK = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]], bool)


@pytest.fixture(params=CELLS)
def cell(request) -> Cell:
    return CELLS[request.param]


def use_form(monkeypatch, feature_major: bool, hoist_input: bool) -> None:
    """Makes all recurrences take one form, whatever the sizes."""
    chosen = _recurrence.Form(feature_major, hoist_input, unroll=1)
    for module in (_lstm, _gru, _rau):
        monkeypatch.setattr(module, "form_for", lambda batch, hidden, **_: chosen)


@pytest.fixture(params=itertools.product([True, False], [False, True]), ids=str)
def form(request, monkeypatch) -> None:
    """Both layouts, and both places where the input product can be formed."""
    use_form(monkeypatch, *request.param)


@pytest.fixture(params=[True, False], ids=["feature_major", "batch_major"])
def layout(request, monkeypatch) -> None:
    """Two of the forms that the CPU chooses from."""
    use_form(monkeypatch, request.param, False)


@pytest.mark.parametrize(
    ("batch", "backend", "want"),
    [
        (4, "cpu", (True, False)),
        (5, "cpu", (False, False)),
        (4, "gpu", (True, True)),
        (5, "tpu", (True, True)),
    ],
)
def test_the_form_is_batch_major_on_cpu_from_as_many_rows_as_units(batch, backend, want):
    assert _recurrence.form_for(batch, 5, backend)[:2] == want


@pytest.mark.parametrize(
    ("hidden", "backend", "want"),
    [
        (256, "cpu", (False, True)),
        (257, "cpu", (True, False)),
        (256, "gpu", (True, True)),
    ],
)
def test_a_gru_with_gradients_has_a_form_of_its_own_on_cpu(hidden, backend, want):
    assert _recurrence.form_for(32, hidden, backend, reset_after_gradient=True)[:2] == want


def leaves(carry) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(carry)]


def oracle(cell, weights, xs, mask, carry, reverse, drop):
    """The recurrence one row and one step at a time, in NumPy."""
    weights = [np.asarray(w) for w in weights if w is not None]
    xs = np.asarray(xs)
    final = [leaf.copy() for leaf in leaves(carry)]
    outputs = np.zeros((*xs.shape[:2], H), xs.dtype)
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
        new = cell.step(weights, carry, x, recurrent_dropout_mask=recurrent_dropout_mask)
        new = jax.tree.map(lambda n, o: jnp.where(keep[:, None], n, o), new, carry)
        return new, jnp.where(keep[:, None], jax.tree.leaves(new)[0], 0)

    steps = (jnp.swapaxes(xs, 0, 1), jnp.swapaxes(mask, 0, 1))
    carry, outputs = lax.scan(body, initial, steps, reverse=reverse)
    return carry, jnp.swapaxes(outputs, 0, 1)


def arguments(cell, rng, dtype):
    """Weights, inputs, initial carry and dropout mask."""
    xs = jnp.asarray(rng.normal(size=(B, T, D)), dtype)
    drop = jnp.asarray(rng.integers(0, 2, size=(B, H)) * 1.5, dtype)
    return cell.weights(rng, dtype), xs, cell.carry(rng, dtype), drop


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.usefixtures("x64", "form")
def test_values_equal_a_numpy_loop(cell, reverse, np_rng):
    weights, xs, initial, drop = arguments(cell, np_rng, jnp.float64)
    unroll = jax.jit(functools.partial(cell.unroll, reverse=reverse))
    final, outputs = unroll(
        weights, xs, jnp.asarray(MASK), initial=initial, recurrent_dropout_mask=drop
    )
    want_final, want = oracle(cell, weights, xs, MASK, initial, reverse, np.asarray(drop))
    np.testing.assert_allclose(outputs, want, **F64)
    for got, expected in zip(leaves(final), want_final, strict=True):
        np.testing.assert_allclose(got, expected, **F64)


@pytest.mark.usefixtures("x64")
def test_defaults_are_zeros_all_real_and_no_dropout(cell, np_rng):
    weights, xs, initial, _ = arguments(cell, np_rng, jnp.float64)
    zeros = jax.tree.map(jnp.zeros_like, initial)
    final, outputs = cell.unroll(weights, xs)
    want_final, want = oracle(
        cell, weights, xs, np.ones((B, T), bool), zeros, False, np.ones((B, H))
    )
    np.testing.assert_allclose(outputs, want, **F64)
    for got, expected in zip(leaves(final), want_final, strict=True):
        np.testing.assert_allclose(got, expected, **F64)


def weighted_loss(unroll, weights, xs, mask, initial, drop, **options):
    """A loss in which every output and every final state has its own weight."""
    final, outputs = unroll(
        weights, xs, mask, initial=initial, recurrent_dropout_mask=drop, **options
    )
    total = 0.0
    for k, leaf in enumerate([outputs, *jax.tree.leaves(final)]):
        factors = jnp.sin(jnp.arange(leaf.size, dtype=leaf.dtype) + k).reshape(leaf.shape)
        total = total + jnp.sum(factors * leaf) + 0.1 * jnp.sum(leaf**2)
    return total


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.usefixtures("x64", "form")
def test_all_gradients_equal_those_of_the_scanned_step(cell, reverse, np_rng):
    weights, xs, initial, drop = arguments(cell, np_rng, jnp.float64)

    def gradient(unroll):
        loss = functools.partial(weighted_loss, unroll, mask=jnp.asarray(MASK), reverse=reverse)
        return jax.jit(jax.grad(lambda w, x, h, d: loss(w, x, initial=h, drop=d), (0, 1, 2, 3)))(
            weights, xs, initial, drop
        )

    got, want = gradient(cell.unroll), gradient(functools.partial(scanned, cell))
    for value, expected in zip(leaves(got), leaves(want), strict=True):
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(value, expected, **F64)


@pytest.mark.usefixtures("x64", "form")
def test_gradients_without_mask_or_dropout_equal_those_of_the_scanned_step(cell, np_rng):
    weights, xs, initial, _ = arguments(cell, np_rng, jnp.float64)
    got = jax.jit(jax.grad(lambda w: weighted_loss(cell.unroll, w, xs, None, initial, None)))(
        weights
    )
    full = jnp.ones((B, T), bool)
    plain = functools.partial(scanned, cell)
    want = jax.jit(jax.grad(lambda w: weighted_loss(plain, w, xs, full, initial, None)))(weights)
    for value, expected in zip(leaves(got), leaves(want), strict=True):
        np.testing.assert_allclose(value, expected, **F64)


@pytest.mark.parametrize("outer", [jax.jacrev, jax.jacfwd])
@pytest.mark.usefixtures("x64", "layout")
def test_second_derivatives_equal_those_of_the_scanned_step(cell, outer, np_rng):
    weights, xs, initial, drop = arguments(cell, np_rng, jnp.float64)
    xs, mask = xs[:, :3], jnp.asarray(MASK[:, :3])

    def hessian(unroll):
        def loss(bias):
            return weighted_loss(unroll, weights._replace(bias=bias), xs, mask, initial, drop)

        return jax.jit(outer(jax.grad(loss)))(weights.bias)

    np.testing.assert_allclose(
        hessian(cell.unroll), hessian(functools.partial(scanned, cell)), **F64
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_padding_changes_nothing(cell, reverse, np_rng):
    weights, xs, initial, _ = arguments(cell, np_rng, jnp.float32)
    mask = jnp.asarray(MASK)
    loss = functools.partial(weighted_loss, cell.unroll, drop=None, reverse=reverse)
    other = jnp.where(mask[..., None], xs, jnp.nan)
    run = functools.partial(cell.unroll, weights, mask=mask, initial=initial, reverse=reverse)
    for got, want in zip(leaves(run(other)), leaves(run(xs)), strict=True):
        np.testing.assert_array_equal(got, want)
    outputs = run(xs)[1]
    np.testing.assert_array_equal(outputs[~MASK], 0.0)
    gradients = jax.jit(jax.grad(lambda w, x: loss(w, x, mask, initial), (0, 1)))
    wanted = gradients(weights, xs)
    np.testing.assert_array_equal(wanted[1][~MASK], 0.0)
    assert np.abs(wanted[1][MASK]).min() > 0
    for got, want in zip(leaves(gradients(weights, other)), leaves(wanted), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_masked_equals_cut(cell, reverse, length, np_rng):
    weights, xs, initial, _ = arguments(cell, np_rng, jnp.float32)
    mask = jnp.broadcast_to(jnp.arange(T)[None] < length, (B, T))
    final, outputs = cell.unroll(weights, xs, mask, initial=initial, reverse=reverse)
    cut_final, cut = cell.unroll(weights, xs[:, :length], initial=initial, reverse=reverse)
    np.testing.assert_allclose(outputs[:, :length], cut, **F32)
    for got, want in zip(leaves(final), leaves(cut_final), strict=True):
        np.testing.assert_allclose(got, want, **F32)


def test_empty_rows_return_their_initial_carry_with_finite_gradients(cell, np_rng):
    weights, xs, initial, _ = arguments(cell, np_rng, jnp.float32)
    final, outputs = cell.unroll(weights, xs, jnp.zeros((B, T), bool), initial=initial)
    for got, want in zip(leaves(final), leaves(initial), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(outputs, 0.0)
    loss = functools.partial(weighted_loss, cell.unroll, drop=None)
    grads = jax.jit(jax.grad(lambda w: loss(w, xs, jnp.zeros((B, T), bool), initial)))(weights)
    for leaf in leaves(grads):
        np.testing.assert_array_equal(leaf, 0.0)


@pytest.mark.parametrize(("rows", "steps"), [(0, 3), (2, 0)])
def test_no_rows_or_no_steps_are_legal(cell, rows, steps, np_rng):
    weights, xs = cell.weights(np_rng), jnp.ones((rows, steps, D))
    loss = lambda w, x: jnp.sum(cell.unroll(w, x, jnp.ones((rows, steps), bool))[1])  # noqa: E731
    value, grads = jax.jit(jax.value_and_grad(loss, (0, 1)))(weights, xs)
    assert value == 0
    for leaf, like in zip(leaves(grads), leaves((weights, xs)), strict=True):
        np.testing.assert_array_equal(leaf, np.zeros_like(like))


def test_two_chunks_with_the_carried_state_equal_one(cell, np_rng):
    weights, xs, initial, _ = arguments(cell, np_rng, jnp.float32)
    final, outputs = cell.unroll(weights, xs, initial=initial)
    middle, first = cell.unroll(weights, xs[:, :2], initial=initial)
    last, second = cell.unroll(weights, xs[:, 2:], initial=middle)
    np.testing.assert_allclose(np.concatenate([first, second], 1), outputs, **F32)
    for got, want in zip(leaves(last), leaves(final), strict=True):
        np.testing.assert_allclose(got, want, **F32)


@pytest.mark.usefixtures("layout")
def test_bfloat16_inputs_stay_close_with_float32_carries_and_gradients(cell, np_rng):
    weights, xs, initial, drop = arguments(cell, np_rng, jnp.float32)
    mask, low = jnp.asarray(MASK), xs.astype(jnp.bfloat16)
    options = {"initial": initial, "recurrent_dropout_mask": drop}
    final, outputs = jax.jit(cell.unroll)(weights, low, mask, **options)
    want_final, want = cell.unroll(weights, xs, mask, **options)
    assert outputs.dtype == jnp.bfloat16
    np.testing.assert_allclose(outputs.astype(jnp.float32), want, **BF16)
    for got, expected in zip(leaves(final), leaves(want_final), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, **BF16)
    loss = lambda w, x: jnp.sum(cell.unroll(w, x, mask, **options)[1].astype(jnp.float32) ** 2)  # noqa: E731
    got_grads, want_grads = (jax.jit(jax.grad(loss, (0, 1)))(weights, x) for x in (low, xs))
    assert got_grads[0].input.dtype == jnp.float32
    assert got_grads[1].dtype == jnp.bfloat16
    for got, expected in zip(leaves(got_grads), leaves(want_grads), strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got.astype(np.float32) / scale, expected / scale, **BF16)


@pytest.mark.usefixtures("layout")
def test_vmap_over_everything_equals_a_loop(cell, np_rng):
    many = [arguments(cell, np_rng, jnp.float32) for _ in range(2)]
    weights, xs, initial, drop = jax.tree.map(lambda *a: jnp.stack(a), *many)
    masks = jnp.stack([jnp.asarray(MASK), jnp.asarray(~MASK)])
    loss = functools.partial(weighted_loss, cell.unroll)
    gradient = jax.jit(jax.value_and_grad(loss, (0, 1, 3, 4)))
    got = jax.jit(jax.vmap(gradient))(weights, xs, masks, initial, drop)
    for k, (w, x, h, d) in enumerate(many):
        want = gradient(w, x, masks[k], h, d)
        for value, expected in zip(leaves(got), leaves(want), strict=True):
            np.testing.assert_allclose(value[k], expected, rtol=1e-4, atol=1e-5)


def test_vmap_over_weights_alone_equals_a_loop(cell, np_rng):
    _, xs, initial, _ = arguments(cell, np_rng, jnp.float32)
    many = [cell.weights(np_rng) for _ in range(2)]
    loss = functools.partial(weighted_loss, cell.unroll, drop=None)
    gradient = jax.jit(jax.grad(lambda w: loss(w, xs, jnp.asarray(MASK), initial)))
    got = jax.vmap(gradient)(jax.tree.map(lambda *a: jnp.stack(a), *many))
    for k, weights in enumerate(many):
        for value, expected in zip(leaves(got), leaves(gradient(weights)), strict=True):
            np.testing.assert_allclose(value[k], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_extreme_inputs_have_finite_values_and_gradients(cell, scale, np_rng):
    weights, xs, initial, drop = arguments(cell, np_rng, jnp.float32)
    loss = functools.partial(weighted_loss, cell.unroll)
    value, grads = jax.jit(jax.value_and_grad(loss, (0, 1, 3)))(
        weights, xs * scale, jnp.asarray(MASK), initial, drop
    )
    assert np.isfinite(value)
    for leaf in leaves(grads):
        assert np.isfinite(leaf).all()


def test_bidirectional_reads_both_ways_and_stacks_the_features(cell, np_rng):
    first, second = cell.weights(np_rng), cell.weights(np_rng)
    xs, mask = jnp.asarray(np_rng.normal(size=(B, T, D)), jnp.float32), jnp.asarray(MASK)
    carries, outputs = bidirectional(cell.unroll, first, second, xs, mask)
    ahead, ahead_out = cell.unroll(first, xs, mask)
    # Reading backward is reading the flipped sequence and flipping the outputs.
    back, back_out = cell.unroll(second, xs[:, ::-1], mask[:, ::-1])
    np.testing.assert_allclose(outputs, np.concatenate([ahead_out, back_out[:, ::-1]], -1), **F32)
    for got, want in zip(leaves(carries), leaves((ahead, back)), strict=True):
        np.testing.assert_allclose(got, want, **F32)


def test_one_compilation_serves_every_mask(cell, np_rng):
    weights, xs, _, _ = arguments(cell, np_rng, jnp.float32)
    traces = 0

    @jax.jit
    def run(weights, xs, mask):
        nonlocal traces
        traces += 1
        return cell.unroll(weights, xs, mask)

    run(weights, xs, jnp.asarray(MASK))
    run(weights, xs, jnp.asarray(~MASK))
    assert traces == 1


def wrong(cell, case):
    """Arguments with one thing wrong."""
    weights, xs = cell.weights(np.random.default_rng(0)), jnp.ones((B, T, D))
    carry = cell.carry(np.random.default_rng(0), rows=B + 1)
    return {
        "xs rank": ((weights, xs[0]), {}),
        "xs width": ((weights, xs[..., 1:]), {}),
        "xs integer": ((weights, jnp.ones((B, T, D), jnp.int32)), {}),
        "recurrent": ((weights._replace(recurrent=jnp.ones((H, H))), xs), {}),
        "recurrent rank": ((weights._replace(recurrent=jnp.ones(H)), xs), {}),
        "bias": ((weights._replace(bias=jnp.ones(H + 1)), xs), {}),
        "mask dtype": ((weights, xs, jnp.ones((B, T))), {}),
        "mask shape": ((weights, xs, jnp.ones((T, B), bool)), {}),
        "initial": ((weights, xs), {"initial": carry}),
        "dropout": ((weights, xs), {"recurrent_dropout_mask": jnp.ones((B, T, H))}),
    }[case]


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        ("xs rank", ValueError, r"xs must have 3 axes \[B T D\], got shape \(6, 4\)"),
        ("xs width", ValueError, r"input must have shape \(3, \d+\) .* got \(4, \d+\)"),
        ("xs integer", TypeError, "xs must be floating point, got dtype int32"),
        ("recurrent", ValueError, r"recurrent must have shape \(5, \d+\) .* got \(5, 5\)"),
        ("recurrent rank", ValueError, r"recurrent must have 2 axes .* got shape \(5,\)"),
        ("bias", ValueError, r"bias must have shape \(\d+,\) .* got \(6,\)"),
        ("mask dtype", TypeError, r"mask must be bool .* got dtype float32"),
        ("mask shape", ValueError, r"mask must have shape \(3, 6\).* got \(6, 3\)"),
        ("initial", ValueError, r"initial.* must have shape \(3, 5\), got \(4, 5\)"),
        ("dropout", ValueError, r"recurrent_dropout_mask must have shape \(3, 5\), got \(3, 6"),
    ],
)
def test_bad_input_is_named_at_trace_time(cell, case, error, message):
    positional, named = wrong(cell, case)
    with pytest.raises(error, match=message):
        jax.eval_shape(cell.unroll, *positional, **named)


@pytest.mark.parametrize("name", ["gru", "rau"])
def test_recurrent_bias_needs_reset_after(name, np_rng):
    weights = CELLS[f"{name}_reset_after"].weights(np_rng)
    with pytest.raises(ValueError, match="recurrent_bias must be None unless reset_after=True"):
        CELLS[name].unroll(weights, jnp.ones((B, T, D)))


@pytest.mark.parametrize(
    ("name", "other", "message"),
    [
        ("lstm", "gru", "initial must be a LSTMState, got .*"),
        ("gru", "lstm", "initial must be an array, got LSTMState"),
        ("rau", "lstm", "initial must be an array, got LSTMState"),
    ],
)
def test_the_carry_of_another_cell_is_refused(name, other, message, np_rng):
    carry, xs = CELLS[other].carry(np_rng), jnp.ones((B, T, D))
    with pytest.raises(TypeError, match=message):
        CELLS[name].unroll(CELLS[name].weights(np_rng), xs, initial=carry)
    with pytest.raises(TypeError, match=message.removeprefix("initial")):
        CELLS[name].step(CELLS[name].weights(np_rng), carry, xs[:, 0])


@pytest.mark.parametrize(
    ("name", "state"), [("lstm", "hidden"), ("gru", "hidden"), ("rau", "carry")]
)
def test_step_names_the_carry_of_the_wrong_shape(name, state, np_rng):
    cell = CELLS[name]
    with pytest.raises(ValueError, match=rf"{state} must have shape \(3, 5\), got \(4, 5\)"):
        cell.step(cell.weights(np_rng), cell.carry(np_rng, rows=B + 1), jnp.ones((B, D)))
