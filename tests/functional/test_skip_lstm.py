"""The LSTM whose state moves by the share of a gate, against loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests.functional.rau_oracle import sigmoid

B, T, D, H = 4, 5, 3, 2
LENGTHS = np.array([5, 3, 1, 0])
REAL = np.arange(T) < LENGTHS[:, None]
START = F.LSTMState(*np.random.default_rng(1).normal(size=(2, B, H)))
DROP = np.array([[0, 2], [2, 0], [2, 2], [1, 1]])


@pytest.fixture
def arrays(np_rng):
    weights = F.LSTMWeights(
        *(np_rng.normal(size=shape) for shape in ((D, 4 * H), (H, 4 * H), (4 * H,)))
    )
    return weights, np_rng.normal(size=(B, T, D)), np_rng.random((B, T))


def loop(weights, xs, gates, lengths, reverse):
    """(final hidden states, outputs) of one row after another."""
    hiddens, outputs = np.zeros((len(xs), H)), np.zeros((len(xs), T, H))
    for row, length in enumerate(lengths):
        h, c = (part[row] for part in START)
        for t in reversed(range(length)) if reverse else range(length):
            i, f, g, o = np.split(
                xs[row, t] @ weights.input + (DROP[row] * h) @ weights.recurrent + weights.bias, 4
            )
            new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            new_h = outputs[row, t] = sigmoid(o) * np.tanh(new_c)
            share = gates[row, t]
            h, c = share * new_h + (1 - share) * h, share * new_c + (1 - share) * c
        hiddens[row] = h
    return hiddens, outputs


@functools.partial(jax.jit, static_argnames="reverse")
def run(weights, xs, gates, **options):
    options |= {"initial": START, "recurrent_dropout_mask": DROP.astype(float)}
    (final, _), ys = F.skip_lstm(weights, xs, gates, **options)
    return final, ys


@pytest.mark.parametrize("reverse", [False, True])
def test_states_and_outputs_are_those_of_a_loop_and_padding_is_not_read(reverse, arrays, x64):
    weights, xs, gates = arrays
    dirty = np.where(REAL[..., None], xs, np.nan), np.where(REAL, gates, np.nan)
    real = {"mask": REAL} if reverse else {"lengths": LENGTHS}
    got = run(weights, *dirty, reverse=reverse, **real)
    for value, expected in zip(got, loop(weights, xs, gates, LENGTHS, reverse), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_closed_steps_are_skipped_and_open_ones_are_those_of_lstm(arrays, x64):
    weights, xs, gates = arrays
    hard = (gates > 0.5).astype(float)
    final, ys = run(weights, xs, hard)
    for row in range(B):
        kept, one = np.flatnonzero(hard[row]), slice(row, row + 1)
        options = {"initial": F.LSTMState(*(part[one] for part in START))}
        options["recurrent_dropout_mask"] = DROP[one].astype(float)
        state, outputs = F.lstm(weights, xs[one, kept], **options)
        np.testing.assert_allclose(final[row], state.hidden[0], rtol=1e-12)
        np.testing.assert_allclose(ys[row, kept], outputs[0], rtol=1e-12)


def test_the_derivative_by_a_closed_gate_is_that_of_finite_differences(arrays, x64):
    weights, xs, gates = arrays
    hard = (gates > 0.5).astype(float)

    def total(weights, gates):
        final, ys = run(weights, xs, gates, lengths=LENGTHS)
        return jnp.sum(final**2) + jnp.sum(jnp.sin(ys))

    slopes = jax.jit(jax.grad(total, argnums=1))(weights, hard)
    for row, t in np.ndindex(B, T):
        ends = []
        for step in (1e-6, -1e-6):
            moved = hard.copy()
            moved[row, t] += step
            hiddens, outputs = loop(weights, xs, moved, LENGTHS, reverse=False)
            ends.append((hiddens**2).sum() + np.sin(outputs).sum())
        np.testing.assert_allclose(slopes[row, t], (ends[0] - ends[1]) / 2e-6, atol=1e-8)


@pytest.mark.slow
def test_half_precision_and_wrong_gates(arrays):
    weights, xs, gates = arrays
    weights = F.LSTMWeights(*(jnp.asarray(w, jnp.float32) for w in weights))
    low = jnp.asarray(xs, jnp.bfloat16)
    final, ys = F.skip_lstm(weights, low, jnp.asarray(gates))
    assert (final.cell.dtype, ys.dtype) == (jnp.float32, jnp.bfloat16)
    with pytest.raises(ValueError, match=r"gates must have shape \(4, 5\)"):
        F.skip_lstm(weights, low, jnp.ones((4, 6)))
