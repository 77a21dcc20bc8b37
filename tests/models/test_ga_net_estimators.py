"""Training GA-Net by any estimator: the old names, the exact gradient, what changes by the step."""

import dataclasses
import functools
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import gates
from gatedjax.gates._expectation import draw_noise_rows
from gatedjax.gates._registry import EstimatorName, create_estimator
from gatedjax.models import GANet, GANetTask
from gatedjax.training import TrainConfig, fit_lanes
from tests.models._losses import total_loss
from tests.models._passes import RNGS
from tests.models.test_ga_net_density import batch, drawn, make
from tests.tolerances import F32

PLAIN = {"embedding_dropout": 0.0, "pool_dropout": 0.0, "penalty": 0.0}


def program(task, params):
    return str(
        jax.make_jaxpr(jax.value_and_grad(lambda p: total_loss(task, p, batch(), RNGS)[0]))(params)
    )


@pytest.mark.slow
def test_an_estimator_that_is_given_is_that_of_its_name():
    named_one, given = make(estimator="reinmax"), make()
    params = drawn(given)
    other = GANetTask(given, estimator=gates.ReinMax())
    assert program(GANetTask(named_one), params) == program(other, params)


def test_every_name_makes_its_own_estimator():
    made = {
        name: create_estimator(name, temperature=0.7, draws=3) for name in get_args(EstimatorName)
    }
    kinds = [type(estimator) for estimator in made.values()]
    assert len(set(kinds)) == len(kinds)
    snake = lambda kind: kind.__name__.lower()  # noqa: E731
    assert all(snake(type(one)) == name.replace("_", "") for name, one in made.items())
    assert made["disarm"] == gates.DisARM()
    assert made["leave_one_out"] == gates.LeaveOneOut(3)
    assert made["rebar"] == gates.Rebar(tau=0.7)
    with pytest.raises(ValueError, match=r"estimator must be one of 'soft_gumbel', .*got 'relax'"):
        create_estimator("relax")


@functools.cache
def gradients(name, on="attention", keys=1, **more):
    """(Loss, gradient of the gates' bias) of the real rows, for every key; and the task."""
    model = make(estimator=name, gates_on=on, **PLAIN, **more)
    task, params = GANetTask(model), drawn(model)

    def one(key):
        cost = lambda p: total_loss(task, p, batch(), RNGS | {"gate": key})[0]  # noqa: E731
        value, slope = jax.value_and_grad(cost)(params)
        return value, slope["auxiliary"]["gate"]["bias"][0], slope["classifier"]["bias"]

    draws = jax.random.split(jax.random.key(3), keys)
    return [np.asarray(x, np.float64) for x in jax.jit(jax.vmap(one))(draws)], task, params


def by_patterns(task, params):
    """The expected loss over the gates of each text by a loop over patterns, and its slope."""
    model, rows = task.model, batch()
    logits = np.asarray(
        jax.jit(functools.partial(model.apply, method=GANet.encode))({"params": params}, rows)
        .gate_logits, np.float64
    )  # fmt: skip
    patterns = np.array([[(code >> t) & 1 for t in range(7)] for code in range(128)], np.float32)
    shown = np.broadcast_to(patterns[:, None], (128, 3, 7))
    call = jax.jit(functools.partial(model.apply, method=GANet.with_gates))
    scores = np.asarray(call({"params": params}, rows, shown).logits, np.float64)
    total = slope = 0.0
    for row, length in enumerate(rows["lengths"]):
        if not rows["weight"][row]:
            continue
        for code in range(2**length):
            p = 1 / (1 + np.exp(-logits[row, :length]))
            bits = patterns[code, :length]
            weight = np.prod(np.where(bits > 0, p, 1 - p))
            each = scores[code, row]
            loss = np.log(np.exp(each).sum()) - each[rows["label"][row]]
            total += weight * loss
            slope += weight * loss * (bits - p).sum()  # the bias moves every logit
    return total, slope


@pytest.mark.slow
@pytest.mark.parametrize("on", ["attention", "input"])
def test_enumeration_trains_by_the_exact_gradient(on):
    (values, slopes, _), task, params = gradients("enumerate", on)
    total, slope = by_patterns(task, params)
    np.testing.assert_allclose(values[0], total, rtol=2e-6)
    np.testing.assert_allclose(slopes[0], slope, rtol=2e-3, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "on"), [("disarm", "attention"), ("leave_one_out", "input"), ("rebar", "attention")]
)
def test_unbiased_estimators_train_by_the_exact_gradient_in_the_mean(name, on):
    (values, slopes, others), _, _ = gradients(name, on, keys=600)
    (total, slope, other), _, _ = gradients("enumerate", on)
    assert np.std(slopes) > 0
    exact = [(values, total[0]), (slopes, slope[0]), *zip(others.T, other[0], strict=True)]
    for drawn_values, truth in exact:
        error = drawn_values.std(ddof=1) / np.sqrt(len(drawn_values))
        assert abs(drawn_values.mean() - truth) < 4.5 * error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["leave_one_out", "rebar"])
def test_metrics_are_of_the_first_draw_that_the_loss_has(name):
    model = make(estimator=name, **PLAIN)
    task, params = GANetTask(model), drawn(model)
    start = functools.partial(model.apply, method=GANet.to_estimate)

    @jax.jit
    def run(params):
        encoded, keys = start({"params": params}, batch(), rngs=RNGS)
        noise = jax.vmap(lambda key: draw_noise_rows(key, 2, 7)[0])(keys)
        return encoded.gate_logits + noise > 0, task.loss(params, batch(), RNGS)["density"]

    opened, density = run(params)
    rows = batch()
    lengths, weight = rows["lengths"], rows["weight"]
    shares = (opened & (np.arange(7) < lengths[:, None])).sum(1) / np.maximum(lengths, 1)
    np.testing.assert_allclose(density.total, (shares * weight).sum(), rtol=1e-6)


@pytest.mark.slow
def test_the_penalty_of_an_estimate_by_values_is_its_expectation():
    strength = 0.3
    tasks = [
        GANetTask(make(estimator="reinforce", **PLAIN | {"penalty": x})) for x in (0.0, strength)
    ]
    params = drawn(tasks[0].model)
    totals = [
        float(jax.jit(lambda p, t=t: total_loss(t, p, batch(), RNGS)[0])(params)) for t in tasks
    ]
    encode = jax.jit(functools.partial(tasks[0].model.apply, method=GANet.encode))
    logits = encode({"params": params}, batch()).gate_logits
    p = 1 / (1 + np.exp(-np.asarray(logits, np.float64)))
    expected = sum(p[row].sum() / batch()["lengths"][row] for row in (0, 1))
    np.testing.assert_allclose(totals[1] - totals[0], strength * expected, rtol=1e-5)


@pytest.mark.slow
def test_the_temperature_falls_with_the_steps():
    task = GANetTask(make(temperature=2.0, final_temperature=0.5, temperature_steps=10))
    params = drawn(task.model)
    fixed = jax.jit(lambda p, tau: task.model.apply(
        {"params": p}, batch(), train=True, temperature=tau, rngs=RNGS).gates)  # fmt: skip
    moving = jax.jit(lambda p, step: task.model.apply(
        {"params": p}, batch() | {"step": step}, train=True, rngs=RNGS).gates)  # fmt: skip
    for step, tau in ((0, 2.0), (5, 1.0), (10, 0.5), (99, 0.5)):
        at = moving(params, np.full(3, step, np.int32))
        np.testing.assert_allclose(at, fixed(params, tau), rtol=2e-6)
    with pytest.raises(ValueError, match="batch must have step"):
        jax.eval_shape(lambda p: total_loss(task, p, batch(), RNGS), params)
    # in evaluation the relaxed gates have the last one
    last = GANetTask(make(temperature=0.5))
    modes = [
        str(
            jax.make_jaxpr(functools.partial(one.model.apply, method=GANet.gate_modes))(
                {"params": params}, batch(), rngs=RNGS
            )
        )
        for one in (task, last)
    ]
    assert modes[0] == modes[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"final_temperature": 0.25, "temperature_steps": 10}, {"estimator": "rebar"}]
)
def test_a_temperature_that_is_swept_is_that_of_the_loss_or_where_its_schedule_starts(options):
    task, wanted = (GANetTask(make(temperature=tau, **options, **PLAIN)) for tau in (0.5, 1.5))
    params = drawn(task.model)

    def found(task, step):
        numbered = batch() | {"step": jnp.full(3, step)}
        evaluated, _ = task.evaluate(params, numbered)
        return total_loss(task, params, numbered, RNGS)[0], evaluated["loss_relaxed"].total

    swept = jax.jit(lambda tau, step: found(task.with_value("temperature", tau), step))
    alone = jax.jit(lambda step: found(wanted, step))
    for step in (0, 4, 99):
        np.testing.assert_allclose(swept(1.5, step), alone(step), rtol=2e-6)


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, ("penalty", "temperature")),
        ({"density": 0.3}, ("temperature",)),  # a multiplier is in the place of the penalty
        ({"system": "soft"}, ()),
        ({"estimator": "disarm"}, ("penalty",)),  # has no temperature
        ({"estimator": "rebar"}, ("penalty", "temperature")),
    ],
)
def test_what_can_be_swept_is_what_the_loss_has(options, numbers):
    task = GANetTask(make(**options))
    assert task.sweepable == numbers
    for name in sorted({"penalty", "temperature"} - set(numbers)):
        config = TrainConfig(sweep=(0.5,), sweep_over=name, progress=False)
        with pytest.raises(ValueError, match=f"sweep_over must be one of .*, got '{name}'"):
            fit_lanes(task, None, None, config, "never written")


@dataclasses.dataclass(frozen=True)
class TwoDraws:
    """`LeaveOneOut(2)` once more, by the protocol alone: (f(b) - f(c)) (b - c) / 2."""

    needs_gradient: bool = False
    unbiased = True
    rows = 2

    def evaluations(self, n):
        return 2

    def surrogate(self, objective, logits, noise):
        one, other = (logits[None] + noise > 0).astype(logits.dtype)
        values = objective(one), objective(other)
        gradient = (values[0] - values[1]) * (one - other) / 2
        return gates.attached((values[0] + values[1]) / 2, logits, gradient)


@pytest.mark.slow
def test_an_estimator_of_ones_own_trains():
    own = GANetTask(make(**PLAIN), estimator=TwoDraws())
    task = GANetTask(make(estimator="leave_one_out", **PLAIN))
    params = drawn(task.model)

    @functools.partial(jax.jit, static_argnums=0)
    def slopes(task, params):
        return jax.value_and_grad(lambda p: total_loss(task, p, batch(), RNGS), has_aux=True)(
            params
        )

    theirs, ours = slopes(task, params), slopes(own, params)
    assert np.any(np.asarray(ours[1]["auxiliary"]["gate"]["bias"]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F32), theirs, ours)
    assert own.sweepable == ("penalty",)
    swept = own.with_value("penalty", 0.5)
    assert swept.estimator == TwoDraws()
    assert swept.model.config.gates.penalty == 0.5


@pytest.mark.parametrize(
    ("estimator", "options", "words"),
    [
        (TwoDraws(), {"system": "soft"}, "estimator must be None for system='soft'"),
        (TwoDraws(), {"estimator": "arm"}, "estimator='arm', got TwoDraws"),
        (TwoDraws(True), {"gates_on": "input"}, "gates_on must be 'attention' for .*TwoDraws"),
        (
            TwoDraws,
            {},
            r"must be an instance, got the class TwoDraws: write TwoDraws\(\)",
        ),
        (
            "disarm",
            {},
            "members unbiased, .* of gates.Estimator, got 'disarm'",
        ),
    ],
)
def test_an_estimator_of_ones_own_that_cannot_train(estimator, options, words):
    with pytest.raises(ValueError, match=words):
        GANetTask(make(**options), estimator=estimator)
