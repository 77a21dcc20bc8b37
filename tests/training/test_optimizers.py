"""Optimizers of Optax in `fit`: they get what they ask for; evaluations where they average."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from gatedjax.training import OptimizerConfig, eval_params, params_ema, restore_params
from tests.training._tiny import (
    HELD_OUT,
    Plane,
    assert_close,
    assert_equal,
    loop,
    mean_error,
    plane,
)

ASKING = {
    "reduce_on_plateau": (
        optax.chain(optax.sgd(0.05), contrib.reduce_on_plateau(patience=1, rtol=0.5)), ["value"]
    ),
    "polyak_sgd": (optax.polyak_sgd(), ["value"]),
    "lbfgs": (optax.lbfgs(), ["value", "grad", "value_fn"]),
    "momo": (contrib.momo(), ["value"]),
    "MultiSteps": (optax.MultiSteps(optax.adam(0.05), 2), []),
    "MultiSteps that asks": (optax.MultiSteps(optax.polyak_sgd(), 2), ["value"]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKING)
def test_an_optimizer_gets_what_it_asks_for(name):
    tx, given = ASKING[name]
    assert_close(plane(optimizer=tx).state.params, loop(tx, 4, given)[0])


class Asked(NamedTuple):
    value: Any
    grad: Any


def by_value_fn():
    """Gradient descent along the gradient of `value_fn`; keeps the rest of what it is given."""

    def update(grads, state, params, *, value, grad, value_fn):
        again, slope = jax.value_and_grad(value_fn)(params)
        return jax.tree.map(lambda g: -0.05 * g, slope), Asked(value - again, grad)

    def init(params):
        return Asked(jnp.ones(()), jax.tree.map(jnp.zeros_like, params))

    return optax.GradientTransformationExtraArgs(init, update)


DEVICES = [("pmap", 2), ("pmap", 1), ("sharding", 2), ("single", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "accumulate"), DEVICES)
def test_the_loss_as_a_function_is_that_of_the_batch_of_all_devices(kind, accumulate):
    options = {"parallel": kind, "accumulate": accumulate, "devices": 2, "num_steps": 2}
    result = plane(optimizer=by_value_fn(), **options)
    params, _ = loop(optax.sgd(0.05), 2)
    assert_close(result.state.params, params)
    state = result.state.opt_state
    np.testing.assert_allclose(state.value, 0, atol=1e-4)
    # the gradient before the second step
    before, _ = loop(optax.sgd(0.05), 1)
    assert_close(jax.tree.map(lambda p, g: p - 0.05 * g, before, state.grad), params)


@pytest.mark.slow
def test_the_loss_as_a_function_is_one_of_the_trained_parameters():
    result = plane(task=Plane(frozen=("b",)), num_steps=2, optimizer=by_value_fn())
    fixed = {"w": optax.sgd(0.05), "b": optax.set_to_zero()}
    assert_close(result.state.params, loop(optax.partition(fixed, {"w": "w", "b": "b"}), 2)[0])
    assert np.any(result.state.params["w"] != 1)


# -- where an optimizer is evaluated ---------------------------------------------------------------

FREE = contrib.schedule_free_sgd(0.05, warmup_steps=2)
SCHEDULE_FREE = {
    "alone": (FREE, {}),
    "in a chain": (optax.chain(optax.clip_by_global_norm(1.0), FREE), {}),
    "in MultiSteps": (optax.MultiSteps(FREE, 2), {}),
    "on devices": (FREE, {"parallel": "pmap", "devices": 2}),
    "in parts on devices": (FREE, {"parallel": "fsdp", "devices": 2}),
}


def free_point(opt_state, params):
    is_free = lambda x: isinstance(x, contrib.ScheduleFreeState)  # noqa: E731
    (state,) = filter(is_free, jax.tree.leaves(opt_state, is_leaf=is_free))
    return contrib.schedule_free_eval_params(state, params)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULE_FREE)
def test_a_schedule_free_optimizer_is_evaluated_and_kept_where_it_averages(name, tmp_path):
    tx, options = SCHEDULE_FREE[name]
    params, state = loop(tx, 4)
    point = free_point(state, params)
    result = plane(tmp_path, evaluation=HELD_OUT, eval_every=4, optimizer=tx, **options)
    assert result.history[-1]["loss"] == pytest.approx(mean_error(point), rel=1e-5)
    assert_close(result.state.params, params)
    assert_close(result.best_params, point)
    assert_equal(restore_params(tmp_path, params)[0], result.best_params)
    assert np.abs(np.asarray(point["w"]) - params["w"]).max() > 1e-3
    if not options:
        assert_close(plane(optimizer=tx).best_params, point)


@pytest.mark.slow
def test_parameters_outside_of_an_average_are_evaluated_as_they_are():
    tx = optax.partition({"f": FREE, "e": optax.chain(optax.sgd(0.1), params_ema(0.5))},
                         {"w": "f", "b": "e"})  # fmt: skip
    params, state = loop(tx, 3)
    found = jax.jit(eval_params)(params, state)
    free = state.inner_states["f"].inner_state
    assert_close(found["w"], (params["w"] - (1 - free.b1) * free.z["w"]) / free.b1)
    assert_close(found["b"], state.inner_states["e"].inner_state[1].ema["b"])
    assert float(np.abs(found["b"] - params["b"]).max()) > 1e-2


@pytest.mark.slow
def test_an_average_is_evaluated_with_what_is_frozen():
    own = optax.chain(optax.sgd(0.05), params_ema(0.5))
    configured = OptimizerConfig(name="sgd", learning_rate=0.05, ema_decay=0.5)
    task = Plane(frozen=("b",))
    results = [plane(task=task, evaluation=HELD_OUT, optimizer=tx) for tx in (own, configured)]
    assert_equal(results[0].best_params, results[1].best_params)
    best, state = results[0].best_params, results[0].state
    np.testing.assert_array_equal(best["b"], np.zeros(2))
    assert np.abs(best["w"] - state.params["w"]).max() > 1e-4
    assert results[0].history[-1]["loss"] == pytest.approx(mean_error(best), rel=1e-5)


@pytest.mark.slow
def test_the_parameters_to_evaluate_can_be_given():
    half = lambda params, opt_state: jax.tree.map(lambda p: p / 2, params)  # noqa: E731
    result = plane(evaluation=HELD_OUT, eval_params=half)
    wanted = mean_error(half(result.state.params, None))
    assert result.history[-1]["loss"] == pytest.approx(wanted, rel=1e-5)
