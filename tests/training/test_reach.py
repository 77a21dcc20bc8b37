"""Parameters that no gradient reaches are refused at the first line, unless that is meant."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import Ratio, TrainConfig, fit, fit_lanes, init_state
from gatedjax.training._reach import unreached_parameters
from tests.training._tiny import Data

CONFIG = TrainConfig(num_steps=4, log_every=2, progress=False, parallel="single")


class Line:
    """A line whose parameters are used as `use` says."""

    def __init__(self, use=lambda params, x: x @ params["w"], **more):
        self.use, self.more = use, more

    def init(self, key, batch):
        return {"w": jnp.ones(4)} | self.more

    def loss(self, params, batch, rngs):
        error = (self.use(params, batch["x"]) - batch["label"]) ** 2
        metrics = {"loss": Ratio.of(error, batch["weight"])}
        return metrics["loss"].total, metrics

    def evaluate(self, params, batch):
        return self.loss(params, batch, {})[1], {}


class Frozen(Line):
    frozen = ("encoder",)


class Statistics(Line):
    """BatchNorm whose statistics are among the parameters, and are lost."""

    norm = nn.BatchNorm(use_running_average=False)

    def init(self, key, batch):
        return {"w": jnp.ones(4), "norm": self.norm.init(key, batch["x"])}

    def loss(self, params, batch, rngs):
        x, _ = self.norm.apply(params["norm"], batch["x"], mutable=["batch_stats"])
        return super().loss(params, batch | {"x": x}, rngs)


def read_encoder(params, x):
    return x @ (params["w"] * jax.lax.stop_gradient(params["encoder"]["a"]))


ENCODER = {"encoder": {"a": np.ones(4, np.float32)}}
ENCODER_STAYS = optax.partition(
    {"t": optax.sgd(0.1), "f": optax.set_to_zero()}, {"w": "t", "encoder": "f"}
)
OUTSIDE = {"w": True, "encoder": False}


def test_parameters_without_a_gradient_are_refused_at_the_first_line(tmp_path):
    lost = r"'norm/batch_stats/mean', 'norm/batch_stats/var'"
    with pytest.raises(ValueError, match=rf"no gradient reaches .* of Statistics: {lost}\. "):
        fit(Statistics(), Data(), None, CONFIG, tmp_path)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1


def test_seeds_side_by_side_refuse_them_too(tmp_path):
    config = TrainConfig(num_steps=1, seeds=2, progress=False)
    with pytest.raises(ValueError, match=r"no gradient reaches .* 'extra'"):
        fit_lanes(Line(extra=jnp.ones(2)), lambda seed: Data(), None, config, tmp_path)


def hard(params, x):
    return jnp.where(params["extra"] > 0, 1.0, 0.0) * (x @ params["w"])


def looped(params, x):
    def body(carry, row):
        return carry + row @ params["w"], jnp.sum(params["extra"])

    total, _ = jax.lax.scan(body, 0.0, x)
    return jnp.broadcast_to(total, len(x))


USES = {
    "unused": lambda params, x: x @ params["w"],
    "cut": lambda params, x: x @ params["w"] + jax.lax.stop_gradient(params["extra"]),
    "a threshold": hard,
    "times zero": lambda params, x: x @ params["w"] + 0.0 * params["extra"],
    "in a program": jax.jit(lambda params, x: x @ (params["w"] + 0 * params["extra"])),
    "computed again": jax.checkpoint(lambda params, x: x @ params["w"] + params["extra"] // 1),
    "in a loop": looped,
    "in every branch": lambda params, x: (
        jax.lax.cond(x[0, 0] > 0, lambda p: p["w"] + 1, lambda p: p["w"], params) @ x.T
    ),
}


def unreached(task):
    state = jax.eval_shape(lambda: init_state(task, optax.sgd(0.1), jax.random.key(0), Data()[0]))
    return unreached_parameters(task, state, Data()[0])


@pytest.mark.parametrize("use", USES)
def test_every_way_without_a_gradient_is_found(use):
    assert unreached(Line(USES[use], extra=jnp.ones(()))) == {"extra"}


REACHED = {
    "a constant gradient": lambda params, x: x @ params["w"] + params["extra"],
    "a start of zero": lambda params, x: x @ params["w"] + params["extra"] * params["zero"],
    "one branch": lambda params, x: jax.lax.cond(
        x[0, 0] > 1e9, lambda p: x @ p["w"] * p["extra"], lambda p: x @ p["w"], params
    ),
    "a closed gate": lambda params, x: x @ params["w"] + jax.nn.relu(-jnp.abs(params["extra"])),
    "a loop": lambda params, x: jax.lax.scan(
        lambda c, row: (c * params["extra"], row @ params["w"] * c), 1.0, x
    )[1],
}


@pytest.mark.parametrize("use", REACHED)
def test_a_gradient_that_is_zero_by_its_numbers_is_none_of_them(use):
    task = Line(REACHED[use], extra=jnp.ones(()), zero=jnp.zeros(()))
    assert "extra" not in unreached(task)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        (Frozen(read_encoder, **ENCODER), {}),
        (Line(read_encoder, **ENCODER), {"optimizer": ENCODER_STAYS}),
        (
            Line(read_encoder, **ENCODER),
            {"optimizer": optax.masked(optax.chain(optax.adam(0.1)), OUTSIDE)},
        ),
        (Line(empty=jnp.zeros((0, 3))), {}),
    ],
    ids=["frozen", "set_to_zero", "masked", "empty"],
)
def test_what_is_set_aside_trains(task, options, tmp_path):
    result = fit(task, Data(), None, CONFIG, tmp_path, **options)
    assert result.steps == 4
    assert not np.array_equal(result.state.params["w"], np.ones(4))


class TwoTasks(Line):
    """Batches with "other" train another parameter."""

    def loss(self, params, batch, rngs):
        task = Line(lambda params, x: x @ params["other" if "other" in batch else "w"])
        return task.loss(params, batch, rngs)


class Turns(Data):
    def __getitem__(self, step):
        batch = super().__getitem__(step)
        return batch | ({"other": np.ones(8, np.float32)} if step % 2 else {})


def test_batches_of_another_shape_count_until_the_first_line(tmp_path):
    task = TwoTasks(other=jnp.zeros(4))
    assert fit(task, Turns(), None, CONFIG, tmp_path / "both").steps == 4
    with pytest.raises(ValueError, match=r"no gradient reaches .* 'other'"):
        fit(task, Data(), None, CONFIG, tmp_path / "one")
