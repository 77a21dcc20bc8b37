"""Where a run is evaluated, and which parameters it keeps, under optimizers that average."""

import dataclasses

import chex
import jax
import numpy as np
import optax
import pytest
from optax import contrib

from gatedjax.training import (
    CheckpointMismatch,
    eval_params,
    fit,
    make_parallel,
    params_ema,
    restore_params,
)
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
    chex.assert_trees_all_equal(
        restore_params(tmp_path / "evaluated", params)[0], result.best_params
    )
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
    other = lambda params, opt_state: jax.tree.map(lambda p: p / 3, params)  # noqa: E731
    for changed in (other, None):
        with pytest.raises(CheckpointMismatch, match="eval_params: saved 'program"):
            fit(Plane(), Data(), EVALUATION, CONFIG, tmp_path / "run", eval_params=changed)
    for wrong in (lambda params, state: {"w": params["w"]}, lambda params, state: state.ema):
        with pytest.raises((TypeError, ValueError), match="eval_params"):
            fit(Plane(), Data(), None, CONFIG, tmp_path / "no", eval_params=wrong)
    assert not (tmp_path / "no").exists()
