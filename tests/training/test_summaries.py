"""Metrics of the host, which `task.summarise` computes from the predictions of a whole pass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import evaluate, fit, fit_lanes, make_parallel
from tests.training._plane import CONFIG, Data, Plane
from tests.training._tiny import lines

SGD = optax.sgd(0.05)


def part(step, real):
    """A batch of evaluation with filler rows after its first rows."""
    batch = Data()[step]
    return batch | {"weight": (np.arange(8) < real).astype(np.float32)}


EVALUATION = [part(1000, 8), part(1001, 5)]


class Median(Plane):
    """Its metric is the median of the absolute errors, which is no mean over rows."""

    def evaluate(self, params, batch):
        metrics, _ = super().evaluate(params, batch)
        predicted = batch["x"] @ params["w"] + params["b"][None]
        error = jnp.abs(predicted - batch["y"]).max(-1)
        return metrics, {"error": error, "example_id": batch["example_id"]}

    def summarise(self, predictions):
        assert all(isinstance(array, np.ndarray) for array in predictions.values())
        assert predictions["example_id"].tolist() == [*range(8000, 8008), *range(8008, 8013)]
        return {"median_error": np.median(predictions["error"])}


def median_error(params):
    rows = [(b["x"] @ params["w"] + params["b"] - b["y"])[b["weight"] > 0] for b in EVALUATION]
    return np.median(abs(np.concatenate(rows)).max(-1))


CONFIG = dataclasses.replace(CONFIG, best_metric="median_error", best_mode="auto", eval_every=1)


@pytest.mark.parametrize("kind", ["single", "sharding", "pmap"])
def test_a_summary_is_of_all_real_rows_and_chooses_the_best_parameters(kind, tmp_path):
    config = dataclasses.replace(CONFIG, parallel=kind, num_steps=2)
    parallel = make_parallel(kind, jax.devices()[:2])
    result = fit(Median(), Data(), EVALUATION, config, tmp_path, optimizer=SGD, parallel=parallel)
    expected = pytest.approx(median_error(result.best_params), rel=1e-4)
    assert result.best_metrics["median_error"] == expected
    assert sorted(result.best_metrics) == ["loss", "median_error"]
    assert [line["median_error"] for line in lines(tmp_path, "eval")] == [
        entry["median_error"] for entry in result.history
    ]
    metrics, predictions = evaluate(Median(), result.best_params, EVALUATION, parallel)
    assert metrics["median_error"] == expected
    assert len(predictions["error"]) == 13


def test_early_stopping_follows_a_summary(tmp_path):
    class Worse(Median):
        calls = 0

        def summarise(self, predictions):
            self.calls += 1
            return {"median_error": self.calls}

    config = dataclasses.replace(CONFIG, early_stop_patience=2)
    result = fit(Worse(), Data(), EVALUATION, config, tmp_path)
    assert (result.stopped, result.steps, result.best_step) == ("early", 3, 1)
    # A finished run is returned without another evaluation.
    assert fit(Worse(), Data(), EVALUATION, config, tmp_path).steps == 3


def test_lanes_have_a_summary_each():
    config = dataclasses.replace(CONFIG, num_steps=2, seeds=2)
    for evaluation in (EVALUATION, lambda seed: EVALUATION):
        results = fit_lanes(Median(), lambda seed: Shifted(seed), evaluation, config, optimizer=SGD)
        values = [result.best_metrics["median_error"] for result in results]
        expected = [median_error(result.best_params) for result in results]
        np.testing.assert_allclose(values, expected, rtol=1e-4)
        assert values[0] != values[1]


class Shifted(Data):
    def __init__(self, seed):
        self.seed = seed

    def __getitem__(self, step):
        return super().__getitem__(step + 10 * self.seed)


RESULTS = {
    "no dict": (0.5, "summarise must return a dict of floats by name, got float"),
    "no number": ({"median_error": "high"}, "must return numbers, 'median_error' is 'high'"),
    "an array": ({"median_error": np.ones(2)}, "must return numbers, 'median_error' is array"),
    "the name of a metric": ({"loss": 1.0}, "other names than evaluate .* got 'loss': rename it"),
    "no best metric": ({"auc": 1.0}, r"best_metric must be one of \['auc', 'loss'\], got 'median"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_summary_of_another_form_is_refused(name):
    value, message = RESULTS[name]

    class Wrong(Median):
        def summarise(self, predictions):
            return value

    with pytest.raises((TypeError, ValueError), match=message):
        fit(Wrong(), Data(), EVALUATION, CONFIG)


def test_predictions_of_several_shapes_are_refused_by_name():
    class Ragged(Median):
        def evaluate(self, params, batch):
            metrics, predictions = super().evaluate(params, batch)
            return metrics, predictions | {"tokens": batch["tokens"]}

    ragged = [b | {"tokens": np.zeros((8, 3 + i))} for i, b in enumerate(EVALUATION)]
    with pytest.raises(ValueError, match=r"predictions 'tokens' must have the same shape .* pad"):
        fit(Ragged(), Data(), ragged, CONFIG)
