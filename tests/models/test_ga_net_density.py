"""A density that is held: the Lagrangian's gradients; gates that are given; no stream of gates."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax import functional as F
from gatedjax.models import GANet, GANetConfig, GANetTask
from gatedjax.models._classification import constraint
from tests._drawn import drawn as any_drawn
from tests._grouped import grouped
from tests.functional.rau_oracle import sigmoid
from tests.models._passes import apply, forced, in_numpy, loss
from tests.tolerances import F32, F64

SMALL = {"embedding_dim": 5, "hidden": 4, "aux_hidden": 3, "num_layers": 1, "test_samples": 2}
LENGTHS = np.array([4, 7, 1], np.int32)


def make(**config):
    return GANet(grouped(GANetConfig, **SMALL | config), vocab_size=12, num_classes=3)


@functools.cache
def batch():
    rng = np.random.default_rng(0)
    tokens = rng.integers(2, 12, (3, 7)) * (np.arange(7) < LENGTHS[:, None])
    return {
        "tokens": tokens.astype(np.int32),
        "lengths": LENGTHS,
        "label": np.array([0, 2, 1], np.int32),
        "example_id": np.array([6, 0, 4], np.int32),
        "weight": np.array([1, 1, 0], np.float32),
    }


def drawn(model):
    params = any_drawn(GANetTask(model).init, batch())
    params["auxiliary"]["gate"]["kernel"] *= 6  # so that some gates open and some close
    return params


@pytest.mark.parametrize("raw", [-0.3, 0.0, 0.4])
def test_the_gradients_are_those_of_descent_and_ascent(raw, x64):
    rng = np.random.default_rng(0)
    logits, target = rng.normal(size=(3, 7)), 0.3
    mask = np.arange(7) < LENGTHS[:, None]
    padded = np.where(mask, logits, -np.inf)

    def total(raw, a):
        a = jax.numpy.where(mask, a, -np.inf)
        terms, multiplier = constraint(raw, F.gate_penalty(jax.nn.sigmoid(a), mask), target)
        return terms.sum(), (terms, multiplier)

    with jax.enable_x64(True):
        call = jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))
        (_, (terms, multiplier)), (of_raw, of_logits) = call(np.float64(raw), logits)
    wanted, slopes, gaps = np.zeros(3), np.zeros((3, 7)), np.zeros(3)
    for row, length in enumerate(LENGTHS):
        a = padded[row, :length]
        p, strength = sigmoid(a).mean(), raw
        np.testing.assert_allclose(multiplier[row], strength, **F64)
        gaps[row] = off = p - target
        wanted[row] = strength * off + off**2
        slopes[row, :length] = (strength + 2 * off) * sigmoid(a) * (1 - sigmoid(a)) / length
    np.testing.assert_allclose(terms, wanted, **F64)
    np.testing.assert_allclose(of_logits, slopes, **F64)
    # descent on this is ascent on raw (p - target)
    np.testing.assert_allclose(of_raw, -gaps.sum(), **F64)


def test_the_density_is_reached_and_stays():
    """Gates whose opening pays, under Adam; a multiplier that is too fast swings for ever."""
    optimiser, mask = optax.adam(4e-3), np.ones((4, 5), bool)

    def cost(params):
        p = jax.nn.sigmoid(params["logits"])
        terms, _ = constraint(params["multiplier"], F.gate_penalty(p, mask), 0.3)
        return terms.mean() - 0.2 * p.mean()

    def step(carry, _):
        params, state = carry
        updates, state = optimiser.update(jax.grad(cost)(params), state)
        params = optax.apply_updates(params, updates)
        return (params, state), jax.nn.sigmoid(params["logits"]).mean()

    start = {"logits": jnp.zeros((4, 5)), "multiplier": jnp.zeros(())}
    run = jax.jit(lambda start: jax.lax.scan(step, (start, optimiser.init(start)), length=4000)[1])
    settled = np.asarray(run(start))[2000:]
    assert abs(settled - 0.3).max() < 0.1
    assert abs(settled.mean() - 0.3) < 0.01


@pytest.mark.slow
def test_the_loss_is_cross_entropy_and_the_constraint_of_real_rows():
    model = make(density=0.3, embedding_dropout=0.0, pool_dropout=0.0)
    params = drawn(model)
    (total, metrics), grads = loss(GANetTask(model), params, batch())
    plain = GANetTask(make(penalty=0.0, embedding_dropout=0.0, pool_dropout=0.0))
    without = {name: value for name, value in params.items() if name != "multiplier"}
    (likelihood, _), others = loss(plain, without, batch())
    logits = in_numpy(lambda m, p: m.apply({"params": p}, batch()).gate_logits)(model, params)
    term, gap = 0.0, 0.0
    for row in (0, 1):  # the last row has no weight
        a = logits[row, : LENGTHS[row]].astype(np.float64)
        off = sigmoid(a).mean() - 0.3
        term, gap = term + (float(params["multiplier"]) + off) * off, gap + off
    np.testing.assert_allclose(total, likelihood + term, rtol=1e-5)
    np.testing.assert_allclose(grads["multiplier"], -gap, rtol=1e-5)
    np.testing.assert_allclose(metrics["cross_entropy"].total, likelihood, rtol=1e-5)
    # the constraint reaches the gates alone
    np.testing.assert_allclose(grads["score"]["Dense_0"]["kernel"],
                               others["score"]["Dense_0"]["kernel"], **F32)  # fmt: skip


def test_without_a_density_there_is_no_multiplier():
    assert "multiplier" not in drawn(make())
    assert drawn(make(density=0.5))["multiplier"].shape == ()


@pytest.mark.parametrize("empty", ["max_gate", "soft", "zeros"])
def test_gates_that_are_given_are_used_as_in_calls_with_each(empty):
    model = make(empty=empty)
    params = drawn(model)
    mask = np.arange(7) < LENGTHS[:, None]
    patterns = np.random.default_rng(2).integers(0, 2, (4, 3, 7)) * mask
    patterns[3] = 0  # all gates are closed
    patterns[2] = mask
    found = forced(model, params, batch(), patterns.astype(np.float32))
    assert found.logits.shape == (4, 3, 3)
    for one, pattern in enumerate(patterns):
        single = forced(model, params, batch(), np.stack([pattern.astype(np.float32)] * 4))
        np.testing.assert_allclose(found.logits[one], single.logits[1], **F32)
        np.testing.assert_allclose(found.attention[one], single.attention[1], **F32)
    shut = ~patterns.any(axis=-1)
    np.testing.assert_array_equal(found.closed, shut)
    wanted = patterns.astype(np.float32)
    if empty == "max_gate":
        likeliest = np.argmax(np.where(mask, found.gate_logits, -np.inf), axis=-1)
        wanted[shut, np.broadcast_to(likeliest, shut.shape)[shut]] = 1
    np.testing.assert_array_equal(found.gates, wanted)
    # attention is that of the scores where gates are open
    scores = np.exp(found.scores.astype(np.float64))
    used = np.broadcast_to(mask, wanted.shape) if empty == "soft" else wanted
    weights = scores * np.where(shut[..., None], used, patterns)
    total = weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found.attention, weights / np.where(total, total, 1), **F32)


@in_numpy
def soft_gates(model, params, gates):
    return model.apply({"params": params}, batch(), gates, soft=True, method=GANet.with_gates)


@pytest.mark.slow
def test_soft_gates_that_are_given_weigh_attention():
    model = make()
    params = drawn(model)
    mask = np.arange(7) < LENGTHS[:, None]
    gates = (np.random.default_rng(3).uniform(size=(4, 3, 7)) * mask).astype(np.float32)
    likely = sigmoid(apply(model, params, batch()).gate_logits.astype(np.float64))
    gates[0], gates[1] = likely, 0
    found = soft_gates(model, params, gates)
    weights = np.exp(found.scores.astype(np.float64)) * gates
    total = weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found.attention, weights / np.where(total, total, 1), **F32)
    np.testing.assert_array_equal(found.gates, gates)
    expected = expected_gates(model, params)
    np.testing.assert_allclose(found.logits[0], expected.logits[0], **F32)


@in_numpy
def expected_gates(model, params):
    rngs = {"gate": jax.random.key(0)}
    modes = model.apply({"params": params}, batch(), rngs=rngs, method=GANet.gate_modes)
    return modes["expected"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sample", "multi_sample"])
def test_without_the_stream_of_gates_they_are_thresholded(mode):
    model = make(test_gate=mode)
    params = drawn(model)
    wanted = apply(make(test_gate="threshold"), params, batch())
    found = apply(model, params, batch())
    for name in ("logits", "attention", "gates", "gate_logits", "scores", "closed"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    sampled = apply(model, params, batch(), {"gate": jax.random.key(3)})
    assert not np.array_equal(sampled.gates, wanted.gates)
    # a threshold does not depend on the stream
    again = apply(make(test_gate="threshold"), params, batch(), {"gate": jax.random.key(3)})
    np.testing.assert_array_equal(again.gates, wanted.gates)
