"""`expectation`: gradients of logits and of other arguments, keys, shards and modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from gatedjax import functional, gates
from gatedjax.gates._expectation import draw_noise_rows
from tests._modes import mesh_of
from tests.gates import _oracles
from tests.gates._cases import ESTIMATORS, LOGITS, WEIGHTS, cut_row, keys, name, smooth, solved
from tests.tolerances import F32, F64

SOME = [gates.DisARM(), gates.Rebar()]


def hard_only(g, weights):
    """No derivative in the gates, one in the weights, linear in them."""
    return jnp.round(g) @ weights


@pytest.mark.parametrize(
    "estimator", [one for one in ESTIMATORS if not one.needs_gradient], ids=name
)
def test_other_arguments_get_the_ordinary_gradient_at_the_gates_that_were_drawn(estimator, x64):
    value, (_, weights) = solved(hard_only, estimator, LOGITS, keys(), (WEIGHTS,))
    # linear in the weights: value = gradient . weights, and the gradient is a mean of patterns
    np.testing.assert_allclose(value, weights @ WEIGHTS, **F64)
    if name(estimator) == "Enumerate":
        np.testing.assert_allclose(weights, [_oracles.sigmoid(LOGITS)] * 6, **F64)
    else:
        draws = {"LeaveOneOut": 3, "ARM": 2, "DisARM": 2}.get(name(estimator), 1)
        np.testing.assert_allclose(weights * draws, np.round(weights * draws), **F64)


@pytest.mark.parametrize("estimator", [one for one in ESTIMATORS if one.needs_gradient], ids=name)
def test_so_do_those_of_estimators_by_derivatives(estimator, x64):
    value, (_, weights) = solved(smooth, estimator, LOGITS, keys(2), (WEIGHTS,))
    for i in range(4):
        step = 1e-6 * np.eye(4)[i]
        up, down = (
            solved(smooth, estimator, LOGITS, keys(2), (WEIGHTS + sign * step,))[0]
            for sign in (1, -1)
        )
        np.testing.assert_allclose(weights[:, i], (up - down) / 2e-6, rtol=1e-6, atol=1e-8)
    assert len(np.unique(value)) == (1 if name(estimator) == "MeanField" else 2)


@pytest.mark.slow
def test_one_row_of_noise_is_that_of_sample_gates_and_of_gumbel_sigmoid(x64):
    for key in keys(3):
        noise = functional.logistic_noise(key, (4,))
        hard = functional.sample_gates(LOGITS, key=key)
        soft = functional.gumbel_sigmoid(LOGITS, noise, temperature=0.5)
        for estimator, drawn in [
            (gates.STGumbel(), hard), (gates.SoftGumbel(), soft), (gates.Reinforce(), hard)
        ]:  # fmt: skip
            value, _ = solved(cut_row, estimator, LOGITS, key[None], (WEIGHTS,))
            np.testing.assert_allclose(value, [np.tanh(drawn @ WEIGHTS)], **F64)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", SOME, ids=name)
def test_a_sharded_batch_has_the_gradients_of_the_rows_one_by_one(estimator, np_rng):
    logits = np_rng.normal(size=(8, 4)).astype(np.float32)
    weights, rows = WEIGHTS.astype(np.float32), keys(8)
    expected = gates.expectation(smooth, estimator)

    def cost(logits, keys, weights):
        return jnp.sum(jax.vmap(expected, in_axes=(0, 0, None))(logits, keys, weights))

    def shard(logits, keys, weights):
        return jax.grad(cost)(logits, keys, weights)

    mesh = mesh_of(8, jax.sharding.AxisType.Auto)
    mapped = jax.shard_map(shard, mesh=mesh, in_specs=(P("d"), P("d"), P()), out_specs=P("d"))
    np.testing.assert_allclose(
        jax.jit(mapped)(logits, rows, weights), jax.jit(shard)(logits, rows, weights), **F32
    )


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_rows_that_are_run_together_have_the_estimates_of_each_alone(estimator, np_rng, x64):
    logits, weights = np_rng.normal(size=(3, 4)), np_rng.normal(size=(3, 4))
    mask = np.arange(4) < np.array([[4], [0], [2]])
    alone = gates.expectation(cut_row, estimator)

    rows = keys(3)

    def together(logits, weights):
        values = lambda g, w: (jax.vmap(jax.vmap(cut_row, (0, None)))(g, w), g[:, 0])  # noqa: E731
        found, first = gates.train(estimator, logits, rows, values, mask, rows=(weights,))
        return jnp.sum(jnp.sin(found)), (found, first)

    def one_by_one(logits, weights):
        row = lambda a, key, w, m: alone(a, key, w, mask=m)  # noqa: E731
        found = jax.vmap(row)(logits, rows, weights, mask)
        return jnp.sum(jnp.sin(found)), found

    @jax.jit
    def run(logits, weights):
        both = (together, one_by_one)
        noise = jax.vmap(lambda key: draw_noise_rows(key, max(estimator.rows, 1), 4)[0])(rows)
        found = [jax.value_and_grad(f, (0, 1), has_aux=True)(logits, weights) for f in both]
        return *found, noise, gates.draw(estimator, logits, noise, mask).values

    found_together, found_alone, noise, drawn = jax.tree.map(np.asarray, run(logits, weights))
    (value, (found, first)), slopes = found_together
    (want, alone_found), alone_slopes = found_alone
    np.testing.assert_allclose(found, alone_found, **F64)
    np.testing.assert_allclose(value, want, **F64)
    for got, wanted in zip(slopes, alone_slopes, strict=True):
        np.testing.assert_allclose(got, wanted, **F64)
    np.testing.assert_allclose(drawn, first, **F64)
    if isinstance(estimator, gates.Pathwise) and not estimator.hard:
        np.testing.assert_array_equal(first[~mask], 0)
    else:
        np.testing.assert_array_equal(first, (logits + noise > 0) & mask)


@pytest.mark.parametrize("estimator", SOME, ids=name)
def test_forward_mode_is_the_same_estimate(estimator, x64):
    expected = gates.expectation(smooth, estimator)

    @jax.jit
    def both(logits, direction, key):
        _, forward = jax.jvp(lambda a: expected(a, key, WEIGHTS), (logits,), (direction,))
        return forward, jax.grad(expected)(logits, key, WEIGHTS) @ direction

    forward, backward = both(LOGITS, np.array([1.0, 2.0, -1.0, 0.5]), jax.random.key(0))
    np.testing.assert_allclose(forward, backward, **F64)


def test_a_loss_that_cannot_be_differentiated_twice_will_do(x64):
    @jax.custom_vjp
    def once(x):
        return jnp.tanh(x)

    def forward(x):
        return jnp.tanh(x), x

    def backward(x, cotangent):
        # no derivative of its own, as a kernel
        slope = jax.pure_callback(lambda x: 1 - np.tanh(x) ** 2, x, x, vmap_method="sequential")
        return (cotangent * slope,)

    once.defvjp(forward, backward)
    found, want = (
        solved(lambda g, w, f=f: f(jnp.sum(g * w)), gates.Rebar(), LOGITS, keys(2), (WEIGHTS,))
        for f in (once, jnp.tanh)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F64), found, want)


@pytest.mark.slow
def test_the_temperature_and_the_baseline_may_be_traced(x64):
    @jax.jit
    def run(tau, baseline, key):
        soft = jax.grad(gates.expectation(smooth, gates.STGumbel(tau)))
        score = jax.grad(gates.expectation(smooth, gates.Reinforce(baseline)))
        return soft(LOGITS, key, WEIGHTS), score(LOGITS, key, WEIGHTS)

    key = jax.random.key(4)
    soft, score = run(0.8, 0.3, key)
    noise = np.asarray(functional.logistic_noise(key, (4,)), np.float64)[None]
    f = lambda g: _oracles.smooth(g, WEIGHTS)  # noqa: E731
    np.testing.assert_allclose(soft, _oracles.st_gumbel(f, LOGITS, noise, 0.8)[1], **F64)
    np.testing.assert_allclose(score, _oracles.reinforce(f, LOGITS, noise, 0.3)[1], **F64)
