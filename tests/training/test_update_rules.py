"""Rules of one update that no whole run shows: how an average begins, and a norm that overflows."""

import chex
import jax
import numpy as np
import optax
import pytest

from gatedjax.training import OptimizerConfig, make_optimizer, params_ema
from gatedjax.training._rates import LearningRates
from gatedjax.training.step import init_state, make_train_step
from tests.training._tiny import Data, Tiny


def test_a_moving_average_forgets_the_first_parameters_soon():
    decay, params, average = 0.9, np.float64(0), np.float64(0)
    tx = params_ema(decay)
    state = tx.init({"w": np.float32(0)})
    for t in range(100):
        updates, state = tx.update({"w": np.float32(1)}, state, {"w": np.float32(params)})
        assert updates["w"] == 1
        params += 1
        d = min(decay, (1 + t) / (10 + t))
        average = d * average + (1 - d) * params
        np.testing.assert_allclose(state.ema["w"], average, rtol=1e-5)
    assert state.steps == 100


class Steep(Tiny):
    """Finite gradients, whose squares overflow."""

    def loss(self, params, batch, rngs):
        total, metrics = super().loss(params, batch, rngs)
        return total * 1e-6 + 1e30 * params["w"].sum(), metrics


def test_an_update_is_skipped_where_the_norm_of_a_finite_gradient_overflows():
    batch, tx = Data()[0], optax.sgd(1e-31)
    state = init_state(Steep(), tx, jax.random.key(0), batch)
    new, metrics = jax.jit(make_train_step(Steep(), tx))(state, batch, jax.random.key(1))
    assert metrics["skipped"].total == 1
    assert new.step == 1
    np.testing.assert_array_equal(new.params["w"], state.params["w"])


SCHEDULES = [
    (name, schedule)
    for name in ("adam", "adamw", "adadelta", "adagrad", "sgd")
    for schedule in ("constant", "cosine", "linear", "rsqrt", "staircase")
]


@pytest.mark.parametrize(("name", "schedule"), SCHEDULES)
def test_strict_promotion_changes_no_update_and_no_rate(name, schedule):
    config = OptimizerConfig(
        name=name, schedule=schedule, warmup_steps=2, decay_begin=1, decay_every=2,
        clip_norm=0.5, ema_decay=0.9,
        reset_moments=schedule == "staircase" and name in ("adam", "adamw"),
    )  # fmt: skip
    params = {"w": np.arange(3, dtype=np.float32)}

    def updates(promotion):
        with jax.numpy_dtype_promotion(promotion):
            tx, found = make_optimizer(config, 6), []
            update, state = jax.jit(tx.update), tx.init(params)
            rates = LearningRates(tx, config, 6)
            for _ in range(6):
                change, state = update(params, state, params)
                found.append((change, rates.read(state)))
        return found

    chex.assert_trees_all_equal(updates("strict"), updates("standard"))
