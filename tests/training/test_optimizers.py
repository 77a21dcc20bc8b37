"""Optimizers of Optax in `fit`: what they ask for, and where they are evaluated."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from gatedjax.training import eval_params, fit, load_params, make_parallel, params_ema
from tests._slow import slow_but
from tests.training._plane import (
    CONFIG,
    EVALUATION,
    Data,
    Plane,
    assert_close,
    loop,
    mean_error,
)
from tests.training._tiny import same


class FixedOffset(Plane):
    frozen = ("b",)


ASKING = {
    "reduce_on_plateau": (
        optax.chain(optax.sgd(0.05), contrib.reduce_on_plateau(patience=1, rtol=0.5)), ["value"]
    ),
    "polyak_sgd": (optax.polyak_sgd(), ["value"]),
    "lbfgs": (optax.lbfgs(), ["value", "grad", "value_fn"]),
    "momo": (contrib.momo(), ["value"]),
    "sam": (contrib.sam(optax.sgd(0.05), contrib.normalize()), []),
    "MultiSteps": (optax.MultiSteps(optax.adam(0.05), 2), []),
    "MultiSteps that asks": (optax.MultiSteps(optax.polyak_sgd(), 2), ["value"]),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(ASKING, "reduce_on_plateau", "momo", "MultiSteps"))
def test_an_optimizer_gets_what_it_asks_for(name, tmp_path):
    tx, given = ASKING[name]
    result = fit(Plane(), Data(), None, CONFIG, tmp_path, optimizer=tx)
    assert_close(result.state.params, loop(tx, 4, given)[0])


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


DEVICES = slow_but(
    [("pmap", 2), ("pmap", 1), ("sharding", 2), ("single", 2)], ("pmap", 2), ("single", 2)
)


@pytest.mark.parametrize(("kind", "accumulate"), DEVICES)
def test_the_loss_as_a_function_is_that_of_the_batch_of_all_devices(kind, accumulate, tmp_path):
    config = dataclasses.replace(CONFIG, parallel=kind, accumulate=accumulate, num_steps=2)
    parallel = make_parallel(kind, jax.devices()[:2], accumulate=accumulate)
    tx = by_value_fn()
    result = fit(Plane(), Data(), None, config, tmp_path, optimizer=tx, parallel=parallel)
    params, _ = loop(optax.sgd(0.05), 2)
    assert_close(result.state.params, params)
    state = result.state.opt_state
    np.testing.assert_allclose(state.value, 0, atol=1e-4)
    # the gradient before the second step
    before, _ = loop(optax.sgd(0.05), 1)
    assert_close(jax.tree.map(lambda p, g: p - 0.05 * g, before, state.grad), params)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pmap", "sharding"])
def test_a_line_search_runs_on_several_devices(kind, tmp_path):
    config = dataclasses.replace(CONFIG, parallel=kind)
    parallel = make_parallel(kind, jax.devices()[:2])
    tx = optax.lbfgs()
    result = fit(Plane(), Data(), None, config, tmp_path, optimizer=tx, parallel=parallel)
    assert_close(result.state.params, loop(tx, 4, ["value", "grad", "value_fn"])[0], rtol=1e-3)


def test_what_an_optimizer_cannot_get_is_refused_before_anything_is_written(tmp_path):
    for task, tx, message in (
        (Plane(), contrib.sophia(0.1), "optimizer cannot update .*value_fn=.*obj_fn"),
        (FixedOffset(), optax.lbfgs(), "optimizer cannot update"),
    ):
        with pytest.raises(TypeError, match=message):
            fit(task, Data(), None, CONFIG, tmp_path / "run", optimizer=tx)
    assert not (tmp_path / "run").exists()


FREE = contrib.schedule_free_sgd(0.05, warmup_steps=2)
SCHEDULE_FREE = {
    "alone": FREE,
    "in a chain": optax.chain(optax.clip_by_global_norm(1.0), FREE),
    "in MultiSteps": optax.MultiSteps(FREE, 2),
}


def free_point(opt_state, params):
    is_free = lambda x: isinstance(x, contrib.ScheduleFreeState)  # noqa: E731
    (state,) = filter(is_free, jax.tree.leaves(opt_state, is_leaf=is_free))
    return contrib.schedule_free_eval_params(state, params)


@pytest.mark.parametrize("name", slow_but(SCHEDULE_FREE, "in a chain"))
def test_a_schedule_free_optimizer_is_evaluated_and_kept_where_it_averages(name, tmp_path):
    tx = SCHEDULE_FREE[name]
    params, state = loop(tx, 4)
    point = free_point(state, params)
    result = fit(Plane(), Data(), EVALUATION, CONFIG, tmp_path / "evaluated", optimizer=tx)
    assert result.history[-1]["loss"] == pytest.approx(mean_error(point), rel=1e-5)
    assert_close(result.state.params, params)
    if result.best_step == 4:
        assert_close(result.best_params, point)
    same(load_params(tmp_path / "evaluated", params)[0], result.best_params)
    plain = fit(Plane(), Data(), None, CONFIG, tmp_path / "plain", optimizer=tx)
    assert_close(plain.best_params, point)
    assert np.abs(np.asarray(point["w"]) - params["w"]).max() > 1e-3


def test_an_optimizer_that_steps_aside_is_evaluated_where_it_returns(tmp_path):
    tx = contrib.sam(optax.sgd(0.05), optax.sgd(0.5), sync_period=2)
    config = dataclasses.replace(CONFIG, num_steps=3, eval_every=1)
    result = fit(Plane(), Data(), EVALUATION, config, tmp_path, optimizer=tx)
    # the parameters before, and after the one update of the outer optimizer
    points = [loop(tx, steps)[0] for steps in (0, 2, 2)]
    assert [line["loss"] for line in result.history] == pytest.approx(
        [mean_error(params) for params in points], rel=1e-5
    )


@pytest.mark.parametrize("kind", slow_but(["pmap", "sharding"], "pmap"))
def test_devices_find_the_same_point(kind, tmp_path):
    config = dataclasses.replace(CONFIG, parallel=kind, num_steps=2)
    parallel = make_parallel(kind, jax.devices()[:2])
    result = fit(
        Plane(), Data(), EVALUATION, config, tmp_path, optimizer=FREE, parallel=parallel
    )  # fmt: skip
    params, state = loop(FREE, 2)
    assert_close(result.best_params, free_point(state, params))


def test_parameters_outside_of_an_average_are_evaluated_as_they_are():
    tx = optax.partition({"f": FREE, "e": optax.chain(optax.sgd(0.1), params_ema(0.5))},
                         {"w": "f", "b": "e"})  # fmt: skip
    params, state = loop(tx, 3)
    found = jax.jit(eval_params)(params, state)
    free = state.inner_states["f"].inner_state
    assert_close(found["w"], (params["w"] - (1 - free.b1) * free.z["w"]) / free.b1)
    assert_close(found["b"], state.inner_states["e"].inner_state[1].ema["b"])
    assert float(np.abs(found["b"] - params["b"]).max()) > 1e-2


def test_the_parameters_to_evaluate_can_be_given(tmp_path):
    half = lambda params, opt_state: jax.tree.map(lambda p: p / 2, params)  # noqa: E731
    result = fit(Plane(), Data(), EVALUATION, CONFIG, tmp_path / "run", eval_params=half)
    wanted = mean_error(half(result.state.params, None))
    assert result.history[-1]["loss"] == pytest.approx(wanted, rel=1e-5)
    for wrong in (lambda params, state: {"w": params["w"]}, lambda params, state: state.ema):
        with pytest.raises((TypeError, ValueError), match="eval_params"):
            fit(Plane(), Data(), None, CONFIG, tmp_path / "no", eval_params=wrong)
    assert not (tmp_path / "no").exists()
