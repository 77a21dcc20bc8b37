"""Updates that would make parameters infinite: skipped, counted and reported, in every kind."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import NonFiniteError, OptimizerConfig, TrainConfig, fit, fit_lanes
from tests.training._tiny import Data, Tiny, lines

# the gradient of this loss is about one: finite; a step of this length is not
FAR = OptimizerConfig(name="sgd", learning_rate=3e38)


class Large(Data):
    def __getitem__(self, step):
        batch = super().__getitem__(step)
        return batch | {"x": 10 * batch["x"], "label": 1 - batch["label"]}


def config(**changes):
    settings = {"num_steps": 4, "log_every": 2, "checkpoint_every": 2, "progress": False}
    return TrainConfig(**(settings | {"optimizer": FAR} | changes))


@pytest.mark.parametrize("kind", ["single", "sharding", "pmap", "lanes"])
def test_an_update_to_infinite_parameters_is_skipped_and_reported(kind, tmp_path):
    if kind == "lanes":
        settings = config(seeds=2, parallel="single")
        result = fit_lanes(Tiny(), lambda seed: Large(), None, settings, tmp_path)[0]
    else:
        result = fit(Tiny(), Large(), None, config(parallel=kind), tmp_path)
    start = Tiny().init(jax.random.key(0), Large()[0])["w"]
    np.testing.assert_array_equal(result.state.params["w"], start)
    skipped = [line for line in lines(tmp_path, "skipped") if line.get("seed", 0) == 0]
    assert [line["step"] for line in skipped] == [1, 2, 3, 4]
    assert skipped[1]["example_id"] == Large()[1]["example_id"].tolist()
    assert {line["skipped"] for line in lines(tmp_path, "train")} == {1.0}


def test_too_many_of_them_stop_the_run_and_say_what_was_not_finite(tmp_path):
    with pytest.raises(NonFiniteError, match="a loss, gradient or updated parameters that are not"):
        fit(Tiny(), Large(), None, config(max_skipped=1), tmp_path)


class Root(Tiny):
    """Has the derivative infinity where its loss is finite."""

    def init(self, key, batch):
        return jax.tree.map(jnp.zeros_like, super().init(key, batch))

    def loss(self, params, batch, rngs):
        total, metrics = super().loss(params, batch, rngs)
        return total + jnp.sqrt(jnp.sum(params["w"])), metrics


def test_an_infinite_gradient_is_skipped_though_its_sign_would_make_a_finite_update(tmp_path):
    result = fit(
        Root(), Data(), None, config(optimizer=OptimizerConfig()), tmp_path,
        optimizer=optax.sign_sgd(0.1),
    )  # fmt: skip
    np.testing.assert_array_equal(result.state.params["w"], 0.0)
    assert [line["step"] for line in lines(tmp_path, "skipped")] == [1, 2, 3, 4]
