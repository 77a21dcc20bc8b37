"""The pure step, metrics, update rules and schedules, against NumPy."""

import dataclasses
from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.models import ga_reader_optimizer
from gatedjax.training import (
    OptimizerConfig,
    Ratio,
    eval_params,
    init_state,
    make_optimizer,
    make_train_step,
    merge,
    params_ema,
    step_rngs,
    to_floats,
)
from gatedjax.training.config import learning_rate_of
from gatedjax.training.step import trained
from tests.tolerances import F32
from tests.training._tiny import Data, Memory, Plane, Points, Rows, Tiny, assert_equal

KEY = jax.random.key(0)


class Line:
    """Half the squared error of w * x."""

    def init(self, key, batch):
        return {"w": jnp.array(2.0)}

    def loss(self, params, batch, rngs):
        each = 0.5 * (params["w"] * batch["x"] - batch["y"]) ** 2
        return {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        return {}, {}


BATCH = {
    "x": np.array([1.0, 2.0, 3.0, 9.0], np.float32),
    "y": np.array([0.0, 1.0, 2.0, 9.0], np.float32),
    "weight": np.array([1.0, 1.0, 1.0, 0.0], np.float32),
}


def steps(config, count, batch=BATCH, num_steps=10):
    tx = make_optimizer(config, num_steps)
    state = init_state(Line(), tx, KEY, batch)
    step = jax.jit(make_train_step(Line(), tx))
    found = []
    for _ in range(count):
        state, metrics = step(state, batch, KEY)
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


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 4])
def test_a_gradient_in_parts_is_the_gradient_of_the_batch(parts):
    tx = make_optimizer(OptimizerConfig(name="sgd", learning_rate=0.1), 10)
    state = init_state(Line(), tx, KEY, BATCH)
    whole, metrics = make_train_step(Line(), tx)(state, BATCH, KEY)
    split, parted = make_train_step(Line(), tx, accumulate=parts)(state, BATCH, KEY)
    np.testing.assert_allclose(split.params["w"], whole.params["w"], **F32)
    assert to_floats(parted) == pytest.approx(to_floats(metrics), rel=1e-6)


def test_gradients_see_what_was_carried():
    # one step of plain SGD by hand: dL/dw = 2 sum m (w m - y) / rows
    tx = make_optimizer(OptimizerConfig(name="sgd", learning_rate=0.1), 2)
    state = init_state(Memory(), tx, KEY, Rows()[0])
    step = jax.jit(make_train_step(Memory(), tx))
    w, memory = float(state.params["w"]), np.zeros(6)
    for number in range(2):
        batch = Rows()[number]
        memory = 0.9 * memory + batch["x"]
        w -= 0.1 * np.mean(2 * memory * (w * memory - batch["y"]))
        state, _ = step(state, batch, KEY)
    np.testing.assert_allclose(state.params["w"], w, **F32)


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


# -- updates that are skipped ----------------------------------------------------------------------


@pytest.mark.parametrize("field", ["x", "y"])
def test_a_non_finite_row_leaves_parameters_and_moments_alone(field):
    poisoned = BATCH | {field: np.array([np.inf, 1.0, 1.0, 0.0], np.float32)}
    before = init_state(Line(), make_optimizer(OptimizerConfig(), 10), KEY, poisoned)
    after, found = steps(OptimizerConfig(), 1, poisoned)
    assert found[0][1]["skipped"] == 1
    assert int(after.step) == 1
    assert_equal((after.params, after.opt_state), (before.params, before.opt_state))


class Half(Line):
    """Minimises half of its loss, and a constant that may be infinite."""

    def loss(self, params, batch, rngs):
        metrics = super().loss(params, batch, rngs)
        total, count = dataclasses.astuple(metrics["loss"])
        return metrics | {"objective": Ratio(total / 2 + batch["plus"], count)}


HALF = jax.jit(make_train_step(Half(), optax.sgd(0.1), reach=True))


@pytest.mark.parametrize(
    ("plus", "real", "moved"), [(0.0, True, True), (np.inf, False, False), (0.0, False, False)]
)
def test_the_objective_is_minimised_while_it_is_finite(plus, real, moved):
    batch = BATCH | {"plus": np.float32(plus), "weight": BATCH["weight"] * real}
    state = init_state(Half(), optax.sgd(0.1), KEY, batch)
    new, metrics = HALF(state, batch, KEY)
    np.testing.assert_allclose(new.params["w"], 2.0 - 0.05 * slope(2.0) * moved, **F32)
    assert metrics.keys() == {"loss", "grad_norm", "skipped", "reached"}
    # a gradient of a skipped step is no 0
    assert (metrics["skipped"].total, metrics["reached"].total) == (plus > 0, real or plus > 0)
    assert metrics["grad_norm"].count == np.isfinite(plus)


class Steep(Tiny):
    """Finite gradients, whose squares overflow."""

    def loss(self, params, batch, rngs):
        total, count = dataclasses.astuple(super().loss(params, batch, rngs)["loss"])
        total = total * 1e-6 + 1e30 * params["w"].sum()
        return {"loss": Ratio(total, count)}


def test_an_update_is_skipped_where_the_norm_of_the_gradient_is_not_finite():
    tx, task = optax.sgd(1e-31), Steep()
    state = init_state(task, tx, KEY, Data()[0])
    new, metrics = jax.jit(make_train_step(task, tx))(state, Data()[0], KEY)
    assert (metrics["skipped"].total, new.step) == (1, 1)
    np.testing.assert_array_equal(new.params["w"], state.params["w"])


# -- metrics ---------------------------------------------------------------------------------------


def test_ratios_merge_as_sums_and_counts():
    one = Ratio.of(jnp.array([1.0, jnp.nan]), jnp.array([1.0, 0.0]))
    two = Ratio.of(jnp.array([0.0, 0.0]), jnp.array([1.0, 1.0]))
    merged = merge({"a": one}, {"a": two, "b": two})
    assert merged["a"].value() == pytest.approx(1 / 3)
    assert merged["b"].value() == 0.0
    assert np.isnan(Ratio.of(jnp.zeros(1), jnp.zeros(1)).value())


def test_a_scalar_value_and_values_per_token_are_means_by_weight():
    weight = np.array([[1, 1, 0], [1, 0, 0]], np.float32)
    values = np.array([[1, 2, np.nan], [6, np.nan, 7]], np.float32)
    assert Ratio.of(jnp.float32(2.5), weight).value() == 2.5
    assert Ratio.of(values, weight).value() == 3.0


@pytest.mark.parametrize(("dtype", "wide"), [("bfloat16", "float32"), ("float64", "float64")])
def test_sums_and_counts_have_32_bits_or_64(dtype, wide, x64):
    ratio = Ratio.of(jnp.ones(301, dtype), jnp.ones(301, bool))
    assert (ratio.total, ratio.total.dtype, ratio.count.dtype) == (301, wide, wide)


def test_a_perplexity_is_a_finite_number_where_there_are_tokens():
    nats = [Ratio(jnp.float32(total), jnp.float32(n)) for total, n in ((4, 2), (1e6, 1), (0, 0))]
    found = [to_floats({"perplexity": one})["perplexity"] for one in nats]
    assert found == pytest.approx([np.exp(2), np.exp(700), np.nan], nan_ok=True)


# -- update rules ----------------------------------------------------------------------------------


def test_the_gradient_is_clipped_as_a_whole_before_the_rule_and_the_rate():
    tx = make_optimizer(OptimizerConfig(name="sgd", learning_rate=0.5, clip_norm=1.0), 10)
    state = tx.init({"w": np.zeros(2, np.float32)})
    for gradient, wanted in (([30, -40], [-0.3, 0.4]), ([0.3, 0.4], [-0.15, -0.2])):
        update, state = tx.update({"w": np.array(gradient, np.float32)}, state)
        np.testing.assert_allclose(update["w"], wanted, **F32)


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({"schedule": "rsqrt"}, [0.0, 0.05] + [0.1 * (2 / (2 + t)) ** 0.5 for t in range(4)]),
        ({"schedule": "constant"}, [0.0, 0.05, 0.1, 0.1, 0.1, 0.1]),
        ({"schedule": "linear"}, [0.0, 0.05, 0.1, 0.075, 0.05, 0.025]),
        ({"schedule": "cosine"},
         [0.0, 0.05] + [0.05 * (1 + np.cos(np.pi * t / 4)) for t in range(4)]),
        ({"schedule": "staircase", "decay_begin": 1, "decay_every": 2},
         [0.0, 0.05, 0.1, 0.05, 0.05, 0.025]),
        ({"schedule": "rsqrt", "warmup_steps": 0}, [0.1 * (1 / (1 + t)) ** 0.5 for t in range(6)]),
        ({"schedule": "cosine", "warmup_steps": 6}, [0.1 * t / 6 for t in range(6)]),
    ],
)  # fmt: skip
def test_schedules_warm_up_and_fall_as_stated(options, rates):
    config = OptimizerConfig(name="sgd", learning_rate=0.1, **{"warmup_steps": 2} | options)
    _, found = steps(config, 6, num_steps=6)
    w = 2.0
    for rate, (got, _) in zip(rates, found, strict=True):
        w -= rate * slope(w)
        np.testing.assert_allclose(got, w, **F32)


@pytest.mark.parametrize("name", get_args(get_type_hints(OptimizerConfig)["schedule"]))
def test_the_schedules_that_end_at_0_are_those_that_know_the_number_of_steps(name):
    config = OptimizerConfig(schedule=name, warmup_steps=2)
    programs = {
        str(jax.make_jaxpr(learning_rate_of(config, n, None))(jnp.int32(3))) for n in (10, 20)
    }
    assert len(programs) == (2 if name in ("cosine", "linear") else 1)


@pytest.mark.parametrize("given", [{"epsilon": 1e-2}, {}])
def test_weight_decay_of_adadelta_is_part_of_the_gradient(given):
    rate, rho, epsilon, decay = 0.5, 0.95, given.get("epsilon", 1e-6), 0.3
    config = OptimizerConfig(
        name="adadelta", learning_rate=rate, rho=rho, weight_decay=decay, **given
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


def changes(optimizer, gradients, num_steps=12):
    """The updates that a parameter of 1 gets for some gradients."""
    tx = make_optimizer(optimizer, num_steps)
    state, update, found = tx.init(jnp.array(1.0)), jax.jit(tx.update), []
    for gradient in gradients:
        change, state = update(jnp.array(gradient, jnp.float32), state, jnp.array(1.0))
        found.append(float(change))
    return found


def adam(gradients, rates, beta2=0.999, epsilon=1e-8, forget=()):
    """The updates of Adam by its definition; its moments are forgotten before some steps."""
    m = v = t = 0.0
    for number, (gradient, rate) in enumerate(zip(gradients, rates, strict=True)):
        m, v, t = (0.0, 0.0, 0) if number in forget else (m, v, t)
        t += 1
        m, v = 0.9 * m + 0.1 * gradient, beta2 * v + (1 - beta2) * gradient**2
        yield -rate * (m / (1 - 0.9**t)) / ((v / (1 - beta2**t)) ** 0.5 + epsilon)


@pytest.mark.parametrize(
    "option", [{}, {"beta2": 0.98, "epsilon": 1e-9}, {"beta2": 0.5}, {"epsilon": 1e-2}]
)
@pytest.mark.parametrize("forgets", [False, True])
def test_adam_and_an_adam_that_forgets_its_moments_where_the_rate_falls(forgets, option):
    # the rate: 0 in the warm-up step, then 2 steps, then half every 3 steps
    decay = 0.3 if option else 0.0  # apart from the gradient
    optimizer = OptimizerConfig(
        learning_rate=0.1, schedule="staircase", decay_begin=2, decay_every=3, warmup_steps=1,
        reset_moments=forgets, name="adamw" if decay else "adam", weight_decay=decay, **option,
    )  # fmt: skip
    gradients, rates = [1, -3, 0.5, 2, -1, 4, 1, 1e-3], [0, 0.1, 0.1] + [0.05] * 3 + [0.025] * 2
    wanted = np.array([*adam(gradients, rates, **option, forget=(3, 6) if forgets else ())])
    wanted -= decay * np.array(rates)
    np.testing.assert_allclose(changes(optimizer, gradients), wanted, rtol=1e-4)


def test_adagrad_divides_by_the_root_of_all_squares():
    gradients = np.array([1.0, -3.0, 0.5])
    optimizer = OptimizerConfig(name="adagrad", learning_rate=0.5, epsilon=1e-2)
    wanted = -0.5 * gradients / np.sqrt(0.1 + np.cumsum(gradients**2) + 1e-2)
    np.testing.assert_allclose(changes(optimizer, gradients), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("halve_after", "rates"),
    [(3, [5, 5, 5, 2.5, 1.25, 0.625]), (2, [5, 5, 2.5, 1.25, 0.625, 0.3125])],
    ids=["program", "paper"],
)
def test_the_reader_halves_its_rate_epoch_by_epoch(halve_after, rates):
    """Adam of a constant gradient moves by the learning rate."""
    found = changes(ga_reader_optimizer(2, halve_after=halve_after, clip_norm=None), [3.0] * 12)
    np.testing.assert_allclose(found, np.repeat(rates, 2) * -1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("adam", "staircase"), ("adamw", "cosine"), ("adadelta", "linear"), ("adagrad", "rsqrt")],
)
def test_strict_promotion_changes_no_update(name, schedule):
    config = OptimizerConfig(
        name=name, schedule=schedule, warmup_steps=2, decay_begin=1, decay_every=2,
        clip_norm=0.5, ema_decay=0.9, reset_moments=schedule == "staircase",
    )  # fmt: skip
    with jax.numpy_dtype_promotion("strict"):
        strict = changes(config, [1.0, -2.0, 0.5])
    assert changes(config, [1.0, -2.0, 0.5]) == strict


# -- averages and frozen parameters ----------------------------------------------------------------


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


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_average_of_half_precision_moves_by_small_steps(dtype):
    tx = params_ema(0.999)
    number = lambda value: {"w": np.full(1, value, dtype)}  # noqa: E731
    zero, here, there = number(0), number(1), number(1.25)

    @jax.jit
    def move(state, params, steps):
        return jax.lax.fori_loop(0, steps, lambda t, s: tx.update(zero, s, params)[1], state)

    state = move(move(jax.jit(tx.init)(here), here, 9000), there, 1000)
    wanted = 1.25 - 0.25 * 0.999**1000
    assert state.ema["w"].dtype == jnp.float32
    np.testing.assert_allclose(state.ema["w"], wanted, rtol=1e-3)
    found = eval_params(there, state)["w"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.asarray(state.ema["w"]).astype(dtype))


def test_averages_of_gradients_are_not_taken_for_parameters():
    params = {"w": jnp.ones(3)}
    tx = optax.chain(optax.ema(0.9), optax.sgd(0.1))
    assert eval_params(params, tx.init(params)) is params
    ours = optax.chain(tx, params_ema(0.9))
    last = {"w": np.zeros(3, np.float32)}
    np.testing.assert_array_equal(eval_params(last, ours.init(params))["w"], params["w"])


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_frozen_parameter_stays_without_optimiser_state(name):
    optimizer = OptimizerConfig(name=name, learning_rate=0.1, clip_norm=1.0, ema_decay=0.5)

    def state_after(count, frozen):
        task, tx = Plane(frozen=frozen), make_optimizer(optimizer, 10)
        state = init_state(task, tx, KEY, Points()[0])
        step = jax.jit(make_train_step(task, tx))
        for number in range(count):
            state, _ = step(state, Points()[number], KEY)
        return state

    state = state_after(3, ("b",))
    np.testing.assert_array_equal(state.params["b"], np.zeros(2))
    assert np.all(state.params["w"] != 1)
    average, moments = 6, 2 * 6 if name == "adam" else 0
    floats = [x for x in jax.tree.leaves(state.opt_state) if x.dtype == jnp.float32]
    assert sum(x.size for x in floats) == average + moments
    params = {"b": 1, "bias": 2, "a": {"b": 3}}
    assert trained(Plane(frozen=("b",)), params) == params | {"b": None}
    # without frozen names it moves, so the test above can fail
    assert np.all(state_after(3, ()).params["b"] != 0)
