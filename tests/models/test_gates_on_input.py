"""GA-Net whose gates act before the encoder: what is closed is not read."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax.gates import Gates
from gatedjax.models import GANet, GANetConfig
from tests.functional.rau_oracle import sigmoid
from tests.models._passes import apply, forced, in_numpy, make_batch
from tests.models.test_ga_net import (
    QUIET,
    _bilstm_loop,
    draw,
    make_task,
    rngs,
    sharpened,
    train,
)

LENGTHS = (4, 7, 1, 8)
modes = in_numpy(
    lambda model, params, batch: model.apply(
        {"params": params}, batch, rngs=rngs(), method=GANet.gate_modes
    )
)


def loops(params, xs, gates):
    """(class scores, attention) of word vectors under gates of attention."""
    states = _bilstm_loop(params["backbone"], 0, xs)
    w = np.asarray(params["score"]["Dense_0"]["kernel"], np.float64)[:, 0]
    weights = np.array([g * np.exp(np.tanh(h) @ w) for g, h in zip(gates, states, strict=True)])
    weights /= weights.sum()
    pooled = np.tanh(weights @ states)
    out = params["classifier"]
    return pooled @ np.asarray(out["kernel"], np.float64) + np.asarray(out["bias"]), weights


def vectors(params, batch, row, length):
    return np.asarray(params["embed"]["embedding"], np.float64)[batch["tokens"][row, :length]]


def patterns(rng, batch, draws=5):
    """Hard gates [S, B, T], one row of them all closed."""
    gates = (rng.random((draws, *batch["tokens"].shape)) < 0.5).astype(np.float32)
    gates *= np.arange(batch["tokens"].shape[1]) < batch["lengths"][:, None]
    gates[0, 1] = 0
    return gates


def deleted(batch, gates):
    """The batch without the words behind closed gates, and open gates for the rest."""
    tokens, rest = np.zeros_like(batch["tokens"]), np.zeros_like(gates)
    for row, (words, mask) in enumerate(zip(batch["tokens"], gates > 0, strict=True)):
        left = words[mask]
        tokens[row, : len(left)], rest[row, : len(left)] = left, 1
    lengths = (gates > 0).sum(-1).astype(np.int32)
    return batch | {"tokens": tokens, "lengths": lengths}, rest


@pytest.mark.slow
def test_hard_gates_read_the_open_words_alone_and_soft_ones_scale_what_is_read(np_rng):
    task = make_task(gates_on="input", test_gate="threshold", **QUIET)
    batch = make_batch(np_rng, LENGTHS)
    params = sharpened(draw(task, gate_bias=0.0), 20.0)
    hard = apply(task.model, params, batch)
    _, _, soft, grads = train(task, params, batch, rngs())
    expected = modes(task.model, params, batch)["expected"]
    assert 0 < hard.gates.sum() < sum(LENGTHS)
    for row, length in enumerate(LENGTHS):
        xs, is_open = vectors(params, batch, row, length), hard.gates[row, :length] > 0
        logits, weights = loops(params, xs[is_open], np.ones(is_open.sum()))
        np.testing.assert_allclose(hard.logits[row], logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(hard.attention[row, :length][is_open], weights, rtol=1e-4)
        np.testing.assert_array_equal(hard.attention[row, :length][~is_open], 0)
        open_probability = sigmoid(np.asarray(soft.gate_logits[row, :length], np.float64))
        np.testing.assert_allclose(expected.gates[0, row, :length], open_probability, rtol=1e-4)
        for output, gates in ((soft, soft.gates[row]), (expected, expected.gates[0, row])):
            gates = np.asarray(gates[:length], np.float64)
            logits, weights = loops(params, gates[:, None] * xs, gates)
            found = output.logits.reshape(-1, *soft.logits.shape)[0, row]
            np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)
    assert np.abs(grads["auxiliary"]["gate"]["kernel"]).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("empty", ["max_gate", "zeros"])
def test_without_the_closed_words_the_text_says_the_same_to_the_last_bit(empty, np_rng, x64):
    batch = make_batch(np_rng, LENGTHS)
    gates = patterns(np_rng, batch)
    leaks = {}
    for where in ("attention", "input"):
        task = make_task(gates_on=where, empty=empty, dtype="float64", num_layers=2)
        params = jax.tree.map(np.float64, draw(task))
        whole = forced(task.model, params, batch, gates.astype(float))
        assert whole.logits.dtype == np.float64
        # a word that is opened after all is among those that are kept
        rest = [deleted(batch, one) for one in whole.gates]
        again = [forced(task.model, params, b, np.stack([g] * len(gates))) for b, g in rest]
        leaks[where] = [
            np.abs(w - r.logits[0]).max() for w, r in zip(whole.logits, again, strict=True)
        ]
    assert max(leaks["input"]) == 0
    assert min(leaks["attention"]) > 1e-6


@pytest.mark.slow
def test_a_closed_word_has_no_gradient_and_an_open_one_has(np_rng):
    task = make_task(gates_on="input")
    batch = make_batch(np_rng, (8, 8))
    batch["tokens"] = np.arange(2, 18, dtype=np.int32).reshape(2, 8)
    gates = patterns(np_rng, batch, 1)
    gates[0, :, 0] = 1

    @functools.partial(in_numpy)
    def slope(model, params):
        def total(p):
            output = model.apply({"params": p}, batch, gates, method=GANet.with_gates)
            return jnp.sum(output.logits**2)

        return jax.grad(total)(params)["embed"]["embedding"]

    moved = np.abs(slope(task.model, draw(task))).max(-1)[2:18].reshape(2, 8)
    np.testing.assert_array_equal(moved > 0, gates[0] > 0)


def skipping_loss(params, xs, gates, label):
    """Cross-entropy of a text whose gates may lie between 0 and 1."""
    states = _bilstm_loop(params["backbone"], 0, xs, gates)
    w = np.asarray(params["score"]["Dense_0"]["kernel"], np.float64)[:, 0]
    weights = gates * np.exp(np.tanh(states) @ w)
    out = params["classifier"]
    pooled = np.tanh(weights / weights.sum() @ states)
    logits = pooled @ np.asarray(out["kernel"], np.float64) + np.asarray(out["bias"])
    return np.log(np.exp(logits).sum()) - logits[label]


@pytest.mark.slow
def test_straight_through_reads_the_open_words_alone_and_has_the_slope_of_soft_gates(np_rng, x64):
    tau = 0.7
    options = {"estimator": "st_gumbel", "penalty": 0.0, "temperature": tau}
    task = make_task(gates_on="input", dtype="float64", **options, **QUIET)
    batch = make_batch(np_rng, LENGTHS)
    params = jax.tree.map(np.float64, sharpened(draw(task, gate_bias=0.0), 3.0))
    total, _, output, grads = train(task, params, batch, rngs())
    assert 0 < output.gates.sum() < sum(LENGTHS)
    hard = forced(task.model, params, batch, output.gates[None])
    np.testing.assert_allclose(output.logits, hard.logits[0], rtol=1e-12)
    np.testing.assert_allclose(output.attention, hard.attention[0], rtol=1e-12)
    loss = slope = 0.0
    for row, length in enumerate(LENGTHS):
        xs, label = vectors(params, batch, row, length), batch["label"][row]
        gates = np.asarray(output.gates[row, :length], np.float64)
        logits = np.asarray(output.gate_logits[row, :length], np.float64)
        loss += skipping_loss(params, xs, gates, label)
        noise = noises(batch)[row, :length]
        soft = sigmoid((logits + noise) / tau)
        if not (logits + noise > 0).any():
            continue  # a gate that is opened by the rule has no derivative
        for t, step in enumerate(1e-6 * np.eye(length)):
            ends = [skipping_loss(params, xs, gates + s * step, label) for s in (1, -1)]
            slope += (ends[0] - ends[1]) / 2e-6 * soft[t] * (1 - soft[t]) / tau
    np.testing.assert_allclose(total, loss, rtol=1e-10)
    np.testing.assert_allclose(grads["auxiliary"]["gate"]["bias"], [slope], rtol=1e-6)


def noises(batch):
    """The logistic noise of the gates in a pass with `rngs()`."""
    module = GANet(GANetConfig(), vocab_size=2, num_classes=2)
    keys = module.apply({}, batch, rngs=rngs(), method=lambda m, b: m.keys_of(b, "gate"))
    return np.asarray(F.example_noise(keys, batch["tokens"].shape[1]), np.float64)


@pytest.mark.slow
def test_straight_through_trains_two_layers_with_dropout_in_bfloat16(np_rng):
    options = {"estimator": "st_gumbel", "num_layers": 2, "recurrent_dropout": 0.2}
    task = make_task(gates_on="input", layer_dropout=0.2, dtype="bfloat16", **options)
    batch = make_batch(np_rng, LENGTHS)
    total, _, output, grads = train(task, draw(task), batch, rngs())
    assert np.isfinite(total)
    assert set(np.unique(output.gates)) <= {0.0, 1.0}
    slopes = jax.tree.map(lambda g: float(np.abs(np.asarray(g, np.float32)).max()), grads)
    assert min(jax.tree.leaves(slopes)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("empty", ["soft", "zeros"])
def test_a_row_without_an_open_gate_follows_the_empty_rule(empty, np_rng):
    task = make_task(gates_on="input", empty=empty)
    batch = make_batch(np_rng, LENGTHS)
    params = draw(task)
    gates = np.zeros((2, *batch["tokens"].shape), np.float32)
    gates[1] = 1
    output = forced(task.model, params, batch, gates)
    closed, every = zip(output.logits, output.attention, strict=True)
    if empty == "soft":
        for one, other in zip(closed, every, strict=True):
            np.testing.assert_array_equal(one, other)
        # training by a straight-through estimator reads the text whole, too
        attend = functools.partial(GANet.attend, has_slope=True)
        shut = Gates(gates[0], hard=True)
        again = in_numpy(
            lambda model, params: model.apply(
                {"params": params},
                model.apply({"params": params}, batch, method=GANet.encode),
                *(shut, batch),
                method=attend,
            )
        )(task.model, params)
        np.testing.assert_allclose(again.logits, closed[0], rtol=1e-5)
    else:
        bias = np.broadcast_to(params["classifier"]["bias"], closed[0].shape)
        np.testing.assert_array_equal(closed[0], bias)
        np.testing.assert_array_equal(closed[1], 0)
