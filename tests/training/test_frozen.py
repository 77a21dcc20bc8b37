"""Parameters that are not trained, and an Adam that forgets its moments where its rate falls."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.models import ga_reader_optimizer
from gatedjax.training import (
    OptimizerConfig,
    Ratio,
    TrainConfig,
    eval_params,
    fit,
    init_state,
    make_optimizer,
    make_train_step,
    params_ema,
)
from tests.tolerances import F32


class Fixed:
    """y = w (x + c), c fixed."""

    frozen = ("word/c",)

    def init(self, key, batch):
        return {"w": jax.random.normal(key, (3,)), "word": {"c": jnp.arange(3.0)}}

    def loss(self, params, batch, rngs):
        each = ((batch["x"] + params["word"]["c"][None]) @ params["w"] - batch["y"]) ** 2
        return jnp.sum(each * batch["weight"]), {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        return self.loss(params, batch, {})[1], {}


class Data:
    def __getitem__(self, step):
        rng = np.random.default_rng(step)
        x = rng.normal(size=(8, 3)).astype(np.float32)
        ids = np.arange(8, dtype=np.int32)
        return {"x": x, "y": x.sum(-1), "example_id": ids, "weight": np.ones(8, np.float32)}


def trained(optimizer, count, frozen=Fixed.frozen):
    tx = make_optimizer(optimizer, 10, frozen=frozen)
    state = init_state(Fixed(), tx, jax.random.key(0), Data()[0])
    step = jax.jit(make_train_step(Fixed(), tx))
    for number in range(count):
        state, _ = step(state, Data()[number], jax.random.key(0))
    return state


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_frozen_parameter_stays_without_optimiser_state(name):
    optimizer = OptimizerConfig(name=name, learning_rate=0.1, clip_norm=1.0, ema_decay=0.5)
    state = trained(optimizer, 3)
    np.testing.assert_array_equal(state.params["word"]["c"], np.arange(3.0))
    assert not np.array_equal(state.params["w"], trained(optimizer, 0).params["w"])
    average = 2 * 3  # of both parameters: it is what is evaluated
    moments = 2 * 3 if name == "adam" else 0
    floats = [x for x in jax.tree.leaves(state.opt_state) if x.dtype == jnp.float32]
    assert sum(x.size for x in floats) == average + moments
    # without frozen names it moves, so the test above can fail
    moved = trained(optimizer, 3, ()).params["word"]["c"]
    assert not np.array_equal(moved, np.arange(3.0))


def test_a_frozen_name_that_is_no_parameter_is_refused():
    with pytest.raises(ValueError, match=r"frozen must be among \['w', 'word/c'\], got \['c'\]"):
        trained(OptimizerConfig(), 0, ("c", "w"))


def test_fit_freezes_what_the_task_names_and_resumes_with_the_same_bits(tmp_path):
    config = TrainConfig(
        num_steps=6, eval_every=3, checkpoint_every=3, best_metric="loss", best_mode="min",
        progress=False, parallel="single", optimizer=OptimizerConfig(learning_rate=0.1),
    )  # fmt: skip
    whole = fit(Fixed(), Data(), [Data()[99]], config, tmp_path / "whole")
    half = dataclasses.replace(config, num_steps=3)
    fit(Fixed(), Data(), [Data()[99]], half, tmp_path / "halves")
    both = fit(Fixed(), Data(), [Data()[99]], config, tmp_path / "halves")
    np.testing.assert_array_equal(whole.state.params["word"]["c"], np.arange(3.0))
    chex.assert_trees_all_equal(whole.state, both.state)
    sizes = [x.size for x in jax.tree.leaves(whole.state.opt_state) if x.dtype == np.float32]
    assert sizes == [3, 3]


def test_an_average_of_an_optimizer_of_ones_own_is_evaluated_with_what_is_frozen(tmp_path):
    config = TrainConfig(
        num_steps=3, best_metric="loss", best_mode="min", progress=False, parallel="single"
    )
    own = optax.chain(optax.sgd(0.01), params_ema(0.5))
    result = fit(Fixed(), Data(), [Data()[99]], config, tmp_path, optimizer=own)
    np.testing.assert_array_equal(result.best_params["word"]["c"], np.arange(3.0))
    # the same as of the configured one, which averages the frozen parameters too
    wanted = trained(OptimizerConfig(name="sgd", learning_rate=0.01, ema_decay=0.5), 3)
    average = eval_params(wanted.params, wanted.opt_state)
    np.testing.assert_allclose(result.best_params["w"], average["w"], **F32)
    assert np.abs(average["w"] - wanted.params["w"]).max() > 1e-4


@pytest.mark.parametrize(
    ("halve_after", "rates"),
    [(3, [5, 5, 5, 2.5, 1.25, 0.625]), (2, [5, 5, 2.5, 1.25, 0.625, 0.3125])],
    ids=["program", "paper"],
)
def test_the_reader_halves_its_rate_epoch_by_epoch(halve_after, rates):
    """Adam of a constant gradient moves by the learning rate."""
    optimizer = ga_reader_optimizer(2, halve_after=halve_after, clip_norm=None)
    tx = make_optimizer(optimizer, 12)
    params = jnp.array(1.0)
    state, update = tx.init(params), jax.jit(tx.update)
    moved = []
    for _ in range(12):
        change, state = update(jnp.array(3.0), state, params)
        moved.append(-float(change))
    np.testing.assert_allclose(moved, np.repeat(rates, 2) * 1e-4, rtol=1e-4)


def test_moments_are_forgotten_exactly_where_the_rate_falls():
    optimizer = OptimizerConfig(
        learning_rate=0.1, schedule="staircase", decay_begin=2, decay_every=3, warmup_steps=1
    )
    gradients = np.array([1.0, -3.0, 0.5, 2.0, -1.0, 4.0, 1.0, 0.1])
    runs = {}
    for reset in (False, True):
        tx = make_optimizer(dataclasses.replace(optimizer, reset_moments=reset), 10)
        state, update = tx.init(jnp.array(1.0)), jax.jit(tx.update)
        runs[reset] = []
        for gradient in gradients:
            change, state = update(jnp.array(gradient, jnp.float32), state, jnp.array(1.0))
            runs[reset].append(float(change))
    # the rate: 0 in the warm-up step, then 2 steps, then half every 3 steps
    rates = [0.0, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025]
    m = v = t = 0.0
    want = []
    for number, (gradient, rate) in enumerate(zip(gradients, rates, strict=True)):
        if number in (3, 6):
            m = v = t = 0.0
        t += 1
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        want.append(-rate * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-8))
    np.testing.assert_allclose(runs[True], want, **F32)
    np.testing.assert_allclose(runs[False][:3], want[:3], **F32)
    assert abs(runs[False][3] - want[3]) > 1e-3


@pytest.mark.parametrize(
    "optimizer",
    [
        OptimizerConfig(reset_moments=True),
        OptimizerConfig(name="sgd", schedule="staircase", reset_moments=True),
    ],
)
def test_moments_need_a_rule_that_has_them_and_a_rate_that_falls(optimizer):
    with pytest.raises(ValueError, match="reset_moments must be False unless"):
        make_optimizer(optimizer, 10)
