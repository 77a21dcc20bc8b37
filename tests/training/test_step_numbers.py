"""The pure step, the optimisers and the batch padding against NumPy."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.training import (
    OptimizerConfig,
    Ratio,
    Task,
    eval_params,
    init_state,
    make_optimizer,
    make_train_step,
    step_rngs,
    to_floats,
)
from gatedjax.training.parallel import pad_rows
from tests.tolerances import F32


class Line:
    """Half the squared error of w * x."""

    def init(self, key, batch):
        return {"w": jnp.array(2.0)}

    def loss(self, params, batch, rngs):
        each = 0.5 * (params["w"] * batch["x"] - batch["y"]) ** 2
        return jnp.sum(jnp.where(batch["weight"] > 0, each, 0)), {
            "loss": Ratio.of(each, batch["weight"])
        }

    def evaluate(self, params, batch):
        return {}, {}


BATCH = {
    "x": np.array([1.0, 2.0, 3.0, 9.0], np.float32),
    "y": np.array([0.0, 1.0, 2.0, 9.0], np.float32),
    "weight": np.array([1.0, 1.0, 1.0, 0.0], np.float32),
}


def steps(config, count, batch=BATCH, num_steps=10):
    tx = make_optimizer(config, num_steps)
    state = init_state(Line(), tx, jax.random.key(0), batch)
    step = jax.jit(make_train_step(Line(), tx))
    found = []
    for _ in range(count):
        state, metrics = step(state, batch, jax.random.key(0))
        found.append((float(state.params["w"]), to_floats(metrics)))
    return state, found


def slope(w):
    x, y = BATCH["x"][:3].astype(np.float64), BATCH["y"][:3].astype(np.float64)
    return np.mean((w * x - y) * x)


def test_the_step_follows_the_gradient_of_the_mean_over_real_rows():
    _, found = steps(OptimizerConfig(name="sgd", learning_rate=0.1), 3)
    w = 2.0
    for got, metrics in found:
        x, y = BATCH["x"][:3], BATCH["y"][:3]
        np.testing.assert_allclose(metrics["loss"], np.mean(0.5 * (w * x - y) ** 2), **F32)
        np.testing.assert_allclose(metrics["grad_norm"], abs(slope(w)), **F32)
        assert metrics["skipped"] == 0
        w -= 0.1 * slope(w)
        np.testing.assert_allclose(got, w, **F32)


def test_the_gradient_is_clipped_as_a_whole_before_the_rule_and_the_rate():
    tx = make_optimizer(OptimizerConfig(name="sgd", learning_rate=0.5, clip_norm=1.0), 10)
    state = tx.init({"w": np.zeros(2, np.float32)})
    for gradient, wanted in (([30, -40], [-0.3, 0.4]), ([0.3, 0.4], [-0.15, -0.2])):
        update, state = tx.update({"w": np.array(gradient, np.float32)}, state)
        np.testing.assert_allclose(update["w"], wanted, **F32)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("rsqrt", [0.0, 0.05] + [0.1 * (2 / (2 + t)) ** 0.5 for t in range(4)]),
        ("constant", [0.0, 0.05, 0.1, 0.1, 0.1, 0.1]),
        ("linear", [0.0, 0.05, 0.1, 0.075, 0.05, 0.025]),
        ("cosine", [0.0, 0.05] + [0.05 * (1 + np.cos(np.pi * t / 4)) for t in range(4)]),
    ],
)
def test_schedules_warm_up_and_fall_as_stated(schedule, rates):
    config = OptimizerConfig(name="sgd", learning_rate=0.1, schedule=schedule, warmup_steps=2)
    _, found = steps(config, 6, num_steps=6)
    w = 2.0
    for rate, (got, _) in zip(rates, found, strict=True):
        w -= rate * slope(w)
        np.testing.assert_allclose(got, w, **F32)


def test_adam_and_adamw_differ_by_the_decoupled_decay():
    _, plain = steps(OptimizerConfig(name="adam", learning_rate=0.1), 1)
    decay = OptimizerConfig(name="adamw", learning_rate=0.1, weight_decay=0.3)
    _, decayed = steps(decay, 1)
    # the first step of Adam is the learning rate times the sign of the gradient
    np.testing.assert_allclose(plain[0][0], 2.0 - 0.1, rtol=1e-5)
    np.testing.assert_allclose(decayed[0][0], 2.0 - 0.1 - 0.1 * 0.3 * 2.0, rtol=1e-5)


def test_weight_decay_of_adadelta_is_part_of_the_gradient():
    rate, rho, epsilon, decay = 0.5, 0.95, 1e-2, 0.3
    config = OptimizerConfig(
        name="adadelta", learning_rate=rate, rho=rho, epsilon=epsilon, weight_decay=decay
    )
    _, found = steps(config, 3)
    w, squares, updates = 2.0, 0.0, 0.0
    for got, _ in found:
        gradient = slope(w) + decay * w
        squares = rho * squares + (1 - rho) * gradient**2
        update = np.sqrt(updates + epsilon) / np.sqrt(squares + epsilon) * gradient
        updates = rho * updates + (1 - rho) * update**2
        w -= rate * update
        np.testing.assert_allclose(got, w, rtol=1e-5)


@pytest.mark.parametrize("option", [{"beta2": 0.5}, {"epsilon": 0.1}])
def test_an_adam_that_forgets_its_moments_keeps_its_other_settings(option):
    forgetful = {"schedule": "staircase", "decay_begin": 10, "reset_moments": True}
    _, plain = steps(OptimizerConfig(learning_rate=0.1, **option), 3)
    _, found = steps(OptimizerConfig(learning_rate=0.1, **option, **forgetful), 3)
    _, default = steps(OptimizerConfig(learning_rate=0.1), 3)
    np.testing.assert_allclose([w for w, _ in found], [w for w, _ in plain], rtol=1e-6)
    assert abs(plain[2][0] - default[2][0]) > 1e-5


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (OptimizerConfig(learning_rate=0.0), "learning_rate"),
        (OptimizerConfig(weight_decay=0.1), "weight_decay"),
        (OptimizerConfig(name="adamw", weight_decay=-0.1), "weight_decay"),
        (OptimizerConfig(clip_norm=-1.0), "clip_norm"),
        (OptimizerConfig(warmup_steps=11), "warmup_steps"),
    ],
)
def test_impossible_optimisers_are_refused_by_name(config, name):
    with pytest.raises(ValueError, match=name):
        make_optimizer(config, 10)


@pytest.mark.parametrize("field", ["x", "y"])
def test_a_non_finite_row_leaves_parameters_and_moments_alone(field):
    poisoned = BATCH | {field: np.array([np.inf, 1.0, 1.0, 0.0], np.float32)}
    tx = make_optimizer(OptimizerConfig(), 10)
    before = init_state(Line(), tx, jax.random.key(0), poisoned)
    after, found = steps(OptimizerConfig(), 1, poisoned)
    assert found[0][1]["skipped"] == 1
    assert int(after.step) == 1
    chex.assert_trees_all_equal(after.params, before.params)
    chex.assert_trees_all_equal(after.opt_state, before.opt_state)


def test_streams_are_a_function_of_seed_and_step_and_differ():
    key = jax.random.key(3)
    data = [
        jax.random.key_data(value).tolist()
        for step in range(3)
        for value in step_rngs(key, jnp.int32(step)).values()
    ]
    assert len({tuple(d) for d in data}) == 6
    again = step_rngs(jax.random.key(3), 2)
    assert jax.random.key_data(again["gate"]).tolist() == data[-1]


def test_filler_rows_are_marked_and_real_rows_unchanged():
    batch = {
        "tokens": np.arange(1, 11, dtype=np.int32).reshape(5, 2),
        "lengths": np.full(5, 2, np.int32),
        "example_id": np.arange(5, dtype=np.int32),
        "weight": np.ones(5, np.float32),
    }
    padded = pad_rows(batch, 4)
    for name, array in batch.items():
        assert padded[name].dtype == array.dtype
        np.testing.assert_array_equal(padded[name][:5], array)
    assert padded["example_id"][5:].tolist() == [-1] * 3
    for name in ("tokens", "lengths", "weight"):
        assert not padded[name][5:].any()
    assert pad_rows(batch, 5) is batch
    with pytest.raises(ValueError, match="weight"):
        pad_rows({"tokens": batch["tokens"]}, 4)


def test_a_task_is_recognised_by_its_three_methods():
    assert isinstance(Line(), Task)
    assert not isinstance(object(), Task)


@pytest.mark.parametrize("decay", [0.15, 0.9])  # soon the decay itself, and never
def test_the_moving_average_follows_its_recurrence_and_is_what_is_evaluated(decay):
    state, found = steps(OptimizerConfig(name="sgd", learning_rate=0.1, ema_decay=decay), 6)
    average = 2.0
    for t, (w, _) in enumerate(found):
        d = min(decay, (1 + t) / (10 + t))
        average = d * average + (1 - d) * w
    np.testing.assert_allclose(eval_params(state.params, state.opt_state)["w"], average, **F32)
    plain, _ = steps(OptimizerConfig(name="sgd", learning_rate=0.1), 6)
    assert float(plain.params["w"]) == found[-1][0]
    assert eval_params(plain.params, plain.opt_state) is plain.params


@pytest.mark.parametrize("parts", [2, 4])
def test_a_gradient_in_parts_is_the_gradient_of_the_batch(parts):
    tx = make_optimizer(OptimizerConfig(name="sgd", learning_rate=0.1), 10)
    state = init_state(Line(), tx, jax.random.key(0), BATCH)
    whole, metrics = make_train_step(Line(), tx)(state, BATCH, jax.random.key(0))
    split, parted = make_train_step(Line(), tx, accumulate=parts)(state, BATCH, jax.random.key(0))
    np.testing.assert_allclose(split.params["w"], whole.params["w"], **F32)
    assert to_floats(parted) == pytest.approx(to_floats(metrics), rel=1e-6)


def test_parts_must_divide_the_batch():
    tx = make_optimizer(OptimizerConfig(), 10)
    state = init_state(Line(), tx, jax.random.key(0), BATCH)
    with pytest.raises(ValueError, match="accumulate must divide the rows of a batch, got 3 for 4"):
        make_train_step(Line(), tx, accumulate=3)(state, BATCH, jax.random.key(0))


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_outside_its_range_is_refused(decay):
    with pytest.raises(ValueError, match="ema_decay must be in"):
        make_optimizer(OptimizerConfig(ema_decay=decay), 10)
