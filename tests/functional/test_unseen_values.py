"""Values that no check can see, because they are masked or traced, have a stated meaning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests.conftest import ROOT


def test_masked_gates_and_traced_gates_below_zero_count_as_closed():
    scores = np.zeros((2, 3), np.float32)
    gates = np.where(np.arange(3) < 2, 1, -1).astype(np.float32) * np.ones((2, 1), np.float32)
    want, mask = [[0.5, 0.5, 0]] * 2, np.broadcast_to(np.arange(3) < 2, (2, 3))
    np.testing.assert_array_equal(F.gated_softmax(scores, gates, mask), want)
    np.testing.assert_array_equal(jax.jit(F.gated_softmax)(scores, gates), want)


def test_a_traced_logarithm_above_zero_is_that_of_a_gate_above_one():
    scores, gates = np.zeros((2, 3), np.float32), np.float32([[1, 0, 0.5]] * 2)
    mask = np.array([[False, True, False]] * 2)
    np.testing.assert_array_equal(F.relaxed_gated_softmax(scores, gates, mask), mask)
    want = np.exp(gates) / np.exp(gates).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(jax.jit(F.relaxed_gated_softmax)(scores, gates), want, rtol=1e-6)
    for one, other in {
        "gated_softmax": "relaxed_gated_softmax",
        "selective_attention": "relaxed_selective_attention",
    }.items():
        assert f"`{other}`" in getattr(F, one).__doc__
        assert f"`{one}`" in getattr(F, other).__doc__


def test_a_masked_target_may_be_any_integer():
    h, kernel, bias, _ = cross_entropy_arguments()
    targets, mask = np.full((2, 3), 2**32 + 1), np.arange(6).reshape(2, 3) > 0
    targets[mask] = 1

    @jax.jit
    def both():
        zeroed = np.where(mask, targets, 0)
        return [
            F.linear_cross_entropy(h, kernel, t, bias=bias, mask=mask) for t in (targets, zeroed)
        ]

    np.testing.assert_array_equal(*both())


def test_masked_and_traced_gates_may_be_soft_where_hard_ones_are_wanted():
    scores, soft = np.zeros((2, 3), np.float32), np.float32([[0.0, 1.0, 0.25]])
    mask, want = np.array([[True, True, False]]), np.float32([[0, 1, 0]] * 2)
    np.testing.assert_allclose(F.selective_weights(scores, soft, mask, hard=True), want, rtol=2e-6)
    found = jax.jit(lambda gates: F.selective_weights(scores, gates, mask, hard=True))(soft)
    np.testing.assert_allclose(found, want, rtol=2e-6)


def cross_entropy_arguments():
    rng = np.random.default_rng(0)
    h, kernel = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5))
    targets = np.array([[1, -100, 4], [0, 2, -100]], np.int32)
    return h.astype(np.float32), kernel.astype(np.float32), np.zeros(5, np.float32), targets


def test_positions_that_do_not_count_cost_nothing_whatever_their_target():
    h, kernel, bias, targets = cross_entropy_arguments()
    counts = targets >= 0

    def cost(h, kernel):
        nll = F.linear_cross_entropy(h, kernel, targets, bias=bias, mask=counts)
        return jnp.sum(nll), nll

    spoiled = np.where(counts[..., None], h, np.nan)
    step = jax.jit(jax.value_and_grad(cost, (0, 1), has_aux=True))
    (_, nll), (d_h, d_kernel) = step(spoiled, kernel)
    logits = h @ kernel
    log_probs = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    each = np.take_along_axis(log_probs, np.where(counts, targets, 0)[..., None], -1)[..., 0]
    np.testing.assert_allclose(nll, np.where(counts, -each, 0), rtol=1e-5)
    np.testing.assert_array_equal(d_h[~counts], 0)
    assert np.isfinite(d_kernel).all()


RELAXATIONS = {
    "gumbel_sigmoid": ("noise", [0, 1, 0, 0]),
    "log_gumbel_sigmoid": ("noise", [-np.inf, 0, -np.inf, -np.inf]),
    "gumbel_softmax": ("noise", [0, 1, 0, 0]),
    "uniform_sigmoid": ("uniform", [0, 1, 0, 0]),
}


@pytest.mark.parametrize("name", RELAXATIONS)
def test_a_traced_temperature_of_zero_gives_the_hard_draw_without_a_gradient(name):
    drawn, want = RELAXATIONS[name]
    logits = np.array([-1, 2, 0, -30], np.float32)
    noise = np.full(4, 0.5 if drawn == "uniform" else 0, np.float32)
    relax = getattr(F, name)

    def value(logits, tau):
        found = relax(logits, noise, temperature=tau)
        return jnp.sum(jnp.where(jnp.isfinite(found), found, 0)), found

    step = jax.jit(jax.value_and_grad(value, (0, 1), has_aux=True))
    for tau in (0.0, -1.0, 1e-30):
        (_, found), changes = step(logits, np.float32(tau))
        np.testing.assert_array_equal(found, np.array(want, np.float32))
        jax.tree.map(lambda change: np.testing.assert_array_equal(change, 0), changes)
    (_, found), changes = step(logits, np.float32(0.5))
    known_now = relax(logits, noise, temperature=0.5)
    np.testing.assert_allclose(found, known_now, rtol=1e-5, atol=1e-6)
    assert np.abs(changes[0]).max() > 0
    assert np.isnan(step(logits, np.float32(np.nan))[0][1]).all()


FORMULAS = {
    "gumbel_sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "log_gumbel_sigmoid": lambda x: -np.log1p(np.exp(-x)),
    "gumbel_softmax": lambda x: np.exp(x) / np.sum(np.exp(x)),
    "uniform_sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("name", RELAXATIONS)
def test_an_infinite_logit_has_no_part_in_the_derivative_by_a_traced_temperature(name):
    drawn, _ = RELAXATIONS[name]
    # as at padding; open for ever, too, where a gate is no share of a sum
    ends = [-np.inf, -np.inf if name == "gumbel_softmax" else np.inf]
    logits = np.array([ends[0], 0.3, -1.0, ends[1], 2.0], np.float32)
    noise = np.array([0.4, 0.2, 0.7, 0.5, 0.1], np.float32)
    relax, taus = getattr(F, name), np.array([0.5, 2.0], np.float32)

    @jax.jit
    def run(logits, noise, weights):
        def value(logits, tau):
            found = relax(logits, noise, temperature=tau)
            return jnp.sum(jnp.where(jnp.isneginf(found), 0, found) * weights), found

        def both(tau):
            forward = jax.jvp(lambda t: value(logits, t)[0], (tau,), (jnp.ones_like(tau),))[1]
            return jax.value_and_grad(value, (0, 1), has_aux=True)(logits, tau), forward

        return jax.vmap(both)(taus)

    real, weights = np.isfinite(logits), np.arange(1, 6, dtype=np.float32)
    cut = [array[real] for array in (logits, noise, weights)]
    results = [jax.tree.map(np.asarray, run(*given)) for given in ((logits, noise, weights), cut)]
    ((_, found), (slopes, by_tau)), forward = results[0]
    ((_, want), (want_slopes, want_by_tau)), _ = results[1]
    np.testing.assert_array_equal(found[:, real], want)
    np.testing.assert_array_equal(slopes[:, real], want_slopes)
    assert np.isfinite(slopes).all()
    for got in (by_tau, forward):
        np.testing.assert_allclose(got, want_by_tau, rtol=1e-5)
    assert np.abs(want_by_tau).min() > 0.01
    noise = np.log(noise) - np.log1p(-noise) if drawn == "uniform" else noise
    rule, x = FORMULAS[name], (logits + noise)[real].astype(float)
    slope = [np.sum(rule(x / (tau + 1e-30j)) * weights[real]).imag * 1e30 for tau in taus]
    np.testing.assert_allclose(by_tau, slope, rtol=1e-4)


def test_padding_has_no_part_in_the_derivative_of_relaxed_attention_by_the_temperature():
    logits, scores = np.array([[0.3, -1.0, -np.inf], [2.0, -np.inf, -np.inf]]), np.ones((2, 3))
    mask, weights = np.isfinite(logits), np.arange(6.0).reshape(2, 3)

    def cost(tau, logits, scores, mask, weights):
        log_gates = F.log_gumbel_sigmoid(logits, jnp.full_like(logits, 0.1), temperature=tau)
        return jnp.sum(F.relaxed_gated_softmax(scores, log_gates, mask) * weights)

    step = jax.jit(jax.grad(cost, (0, 1, 2)))
    found = jax.tree.map(np.asarray, step(0.5, logits, scores, mask, weights))
    by_tau, by_logits, by_scores = found
    # of the second row, whose one weight is 1, nothing depends on tau
    cut = [array[:1, :2] for array in (logits, scores, mask, weights)]
    want_by_tau, want_by_logits, _ = step(0.5, *cut)
    np.testing.assert_allclose(by_tau, want_by_tau, rtol=1e-5)
    np.testing.assert_allclose(by_logits[:1, :2], want_by_logits, rtol=1e-5)
    np.testing.assert_array_equal(by_logits[~mask], 0)
    assert np.isfinite(by_scores).all()
    assert np.abs(want_by_tau) > 0.01


TUPLES = {
    name: kind
    for name, kind in vars(F).items()
    if isinstance(kind, type) and issubclass(kind, tuple)
}


def test_every_tuple_can_be_written_by_jax_export():
    """One program that takes and returns all of them."""
    given = {
        name: kind(*np.arange(len(kind._fields), dtype=np.float32)) for name, kind in TUPLES.items()
    }
    given["GRUWeights"] = given["GRUWeights"]._replace(recurrent_bias=None)
    written = jax.export.export(jax.jit(lambda x: jax.tree.map(lambda y: y + 1, x)))(given)
    found = jax.export.deserialize(written.serialize()).call(given)
    assert {name: type(value) for name, value in found.items()} == TUPLES
    assert len(TUPLES) == 11
    np.testing.assert_array_equal(found["LSTMState"].cell, 2)


def test_a_module_that_is_imported_again_registers_nothing_twice():
    from gatedjax.functional._export import exportable

    assert exportable(F.GRUWeights) is F.GRUWeights


@pytest.mark.slow
def test_one_module_names_the_tracer_of_jax():
    named = [
        path.name
        for folder in ("gatedjax", "experiments")
        for path in (ROOT / folder).rglob("*.py")
        if "core.Tracer" in path.read_text(encoding="utf-8")
    ]
    assert named == ["tracing.py"]
