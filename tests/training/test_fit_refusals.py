"""What `fit` refuses at once, by name and before it writes anything; and optimizers of Optax."""

import re

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax.training import (
    CheckpointMismatch,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    eval_params,
    evaluate,
    fit,
    fit_lanes,
    params_ema,
)
from tests.training._tiny import Data, Tiny

EVALUATION = [Data()[1000]]


def config(**changes):
    settings = {"num_steps": 4, "log_every": 2, "eval_every": 4, "checkpoint_every": 4}
    return TrainConfig(
        **(
            settings
            | {"best_metric": "accuracy", "progress": False, "parallel": "single"}
            | changes
        )
    )


class Endless:
    def __getitem__(self, step):
        return EVALUATION[0]


class Short:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return EVALUATION[index]


class WithoutEvaluate:
    init, loss = Tiny.init, Tiny.loss


class BareMetrics(Tiny):
    def loss(self, params, batch, rngs):
        total, metrics = super().loss(params, batch, rngs)
        return total, {"loss": metrics["loss"].total}


class WithoutLoss(Tiny):
    def loss(self, params, batch, rngs):
        total, metrics = super().loss(params, batch, rngs)
        return total, {"nll": metrics["loss"]}


class LossPerRow(Tiny):
    def loss(self, params, batch, rngs):
        total, metrics = super().loss(params, batch, rngs)
        return total * batch["weight"], metrics


class MetricsPerRow(Tiny):
    def evaluate(self, params, batch):
        ones = jnp.ones_like(batch["weight"])
        return {"accuracy": Ratio(ones, ones)}, {}


class OnlyMetrics(Tiny):
    def evaluate(self, params, batch):
        return super().evaluate(params, batch)[0]


class BareEvaluation(Tiny):
    def evaluate(self, params, batch):
        return {"accuracy": jnp.float32(1)}, {}


def rows(count, **changes):
    return {name: value[:count] for name, value in Data()[0].items()} | changes


TASKS = {
    "no evaluate": (WithoutEvaluate(), "task must have a method 'evaluate'"),
    "a class": (Data(), "task must have a method 'init', got Data without"),
    "metrics that are no Ratio": (BareMetrics(), "metrics of the loss must be Ratio, got"),
    "no metric loss": (WithoutLoss(), r"metrics of the loss must have 'loss', got \['nll'\]"),
    "a loss per row": (LossPerRow(), r"loss must be a float scalar, .* got float32\[8\]"),
    "a metric per row": (MetricsPerRow(), r"metrics of evaluate must be scalars, got 'accuracy'"),
    "evaluate without predictions": (OnlyMetrics(), r"evaluate must return \(metrics, predictions"),
    "evaluate without a Ratio": (
        BareEvaluation(),
        "metrics of evaluate must be Ratio, got .* as 'accuracy'",
    ),
}

TRAINING_DATA = {
    "an empty list": ([], "at least num_steps = 4 batches, got 0"),
    "a short list": ([Data()[0]] * 3, "at least num_steps = 4 batches, got 3"),
    "a generator": (
        (b for b in EVALUATION),
        r"(each batch again .* got generator: .* repeatable=False|as data.step., got generator)",
    ),
    "one batch": (Data()[0], r"train_data\[0\] must be the batch of step 0, got KeyError"),
    "no dicts": ([1.0] * 4, r"train_data\[0\] must be a dict of arrays, got float"),
    "no rows": ([rows(0)] * 4, r"train_data\[0\] must have at least one row"),
    "a weight of all rows": ([rows(8, weight=1.0)] * 4, "got 'weight' of shape"),
    "no weight": ([{"x": np.ones(3)}] * 4, r"train_data\[0\] must have 'weight' .* got \['x'\]"),
}

EVALUATION_DATA = {
    "an empty list": ([], "eval_data must not be empty"),
    "a generator": ((b for b in EVALUATION), "eval_data must .* read again, got generator"),
    "one batch": (EVALUATION[0], "eval_data must be a list of batches, got one dict"),
    "a number": (3, "eval_data must be a list of batches, got int"),
    "data without an end": (Endless(), "eval_data must be a list .* Endless, which has no __len__"),
    "no rows": ([rows(0)], "first batch of eval_data must have at least one row"),
}


def refused(workdir, message, task=None, train=None, evaluation=EVALUATION, **changes):
    train = Data() if train is None else train
    with pytest.raises((TypeError, ValueError), match=message):
        fit(task or Tiny(), train, evaluation, config(**changes), workdir)
    assert not workdir.exists()
    with pytest.raises((TypeError, ValueError), match=message):
        fit_lanes(
            task or Tiny(), lambda seed: train, evaluation, config(seeds=2, **changes), workdir
        )
    assert not workdir.exists()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_that_cannot_work_is_refused_before_anything_is_written(name, tmp_path):
    task, message = TASKS[name]
    refused(tmp_path / "run", message, task)


@pytest.mark.parametrize("name", TRAINING_DATA)
def test_training_data_that_cannot_work_is_refused_before_anything_is_written(name, tmp_path):
    data, message = TRAINING_DATA[name]
    refused(tmp_path / "run", message, train=data)


@pytest.mark.parametrize("name", EVALUATION_DATA)
def test_evaluation_data_that_cannot_work_is_refused_before_anything_is_written(name, tmp_path):
    data, message = EVALUATION_DATA[name]
    refused(tmp_path / "run", message, evaluation=data)


def test_evaluation_data_by_index_end_at_their_length(tmp_path):
    # Data returns a batch for every index, so that iteration by Python would never end.
    options, whole = config(num_steps=1), list(map(Data().__getitem__, range(len(Data()))))
    result = fit(Tiny(), Data(), Data(), options, tmp_path)
    assert result.history == fit(Tiny(), Data(), whole, options).history != []
    _, predictions = evaluate(Tiny(), result.best_params, Data())
    assert predictions["example_id"].tolist() == list(range(8 * len(whole)))
    seeds = config(num_steps=1, seeds=2)
    for data in (Data(), lambda seed: Data()):
        (first, _) = fit_lanes(Tiny(), lambda seed: Data(), data, seeds)
        assert first.history == result.history


def test_evaluation_data_that_end_before_their_length_are_named():
    with pytest.raises(ValueError, match=r"eval_data must have .* = 2 .* IndexError for .*\[1\]"):
        fit(Tiny(), Data(), Short(), config())
    with pytest.raises(
        TypeError, match="data must be a list of batches, got Endless, which has no"
    ):
        evaluate(Tiny(), {}, Endless())


def test_a_best_metric_that_the_task_does_not_give_is_refused_before_the_first_step(tmp_path):
    message = r"best_metric must be one of \['accuracy'\], .* got 'f1': give config=TrainConfig"
    refused(tmp_path / "run", message, best_metric="f1")


def test_a_task_without_evaluate_may_train_without_evaluations(tmp_path):
    assert fit(WithoutEvaluate(), Data(), None, config(best_metric="f1"), tmp_path).steps == 4


def test_an_empty_batch_in_the_middle_is_named_with_its_step(tmp_path):
    data = [Data()[0], Data()[1], rows(0), Data()[3]]
    with pytest.raises(ValueError, match="the batch of step 2 must have at least one row"):
        fit(Tiny(), data, None, config(), tmp_path / "train")
    with pytest.raises(ValueError, match="evaluation batch 1 must have at least one row"):
        fit(Tiny(), Data(), [*EVALUATION, rows(0)], config(), tmp_path / "evaluate")


@pytest.mark.parametrize("weight", [-1.0, -0.25, np.nan, np.inf])
def test_a_weight_that_no_row_can_have_is_refused_with_its_batch_and_row(weight, tmp_path):
    bad = rows(8, weight=np.array([1, 0, 0.5, weight, 1, 1, 1, 1], np.float32))
    message = rf"finite 'weight' of at least 0 in each row, got {re.escape(str(weight))} in row 3"
    whole, later = [bad] * 4, [Data()[0], bad, Data()[2], Data()[3]]
    for name, data in ((r"train_data\[0\]", whole), ("the batch of step 1", later)):
        with pytest.raises(ValueError, match=f"{name} must have a {message}"):
            fit(Tiny(), data, None, config(), tmp_path / "run")
    for name, data in (("the first batch of eval_data", [bad]), ("evaluation batch 1", later)):
        with pytest.raises(ValueError, match=f"{name} must have a {message}"):
            fit(Tiny(), Data(), data, config(), tmp_path / name.replace(" ", "-"))
    with pytest.raises(ValueError, match=f"evaluation batch 1 must have a {message}"):
        evaluate(Tiny(), {"w": np.zeros(4, np.float32)}, later)


@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
def test_a_negative_weight_in_any_lane_is_refused(own, tmp_path):
    bad = rows(8, weight=np.full(8, -1, np.float32))
    lanes = [[Data()[step] for step in range(4)] for _ in range(2)]
    evaluation = [*EVALUATION, bad]
    with pytest.raises(ValueError, match="evaluation batch 1 must have a finite 'weight'"):
        fit_lanes(
            Tiny(), lambda seed: lanes[seed], (lambda seed: evaluation) if own else evaluation,
            config(seeds=2), tmp_path / "evaluation",
        )  # fmt: skip
    lanes[1][2] = bad
    with pytest.raises(ValueError, match="the batch of step 2 must have a finite 'weight'"):
        fit_lanes(Tiny(), lambda seed: lanes[seed], None, config(seeds=2), tmp_path / "training")


class Mean(Tiny):
    """Gives the mean of its rows, which the step would divide by their number once more."""

    def __init__(self, of=lambda batch: batch["weight"].sum()):
        self.of = of

    def loss(self, params, batch, rngs):
        total, metrics = super().loss(params, batch, rngs)
        return total / self.of(batch), metrics


class Filled(Data):
    """A last batch that is not full: six examples and two rows of filler."""

    def __getitem__(self, step):
        batch = super().__getitem__(step)
        batch["weight"][6:] = 0
        return batch


@pytest.mark.parametrize("kind", ["single", "sharding", "pmap"])
@pytest.mark.parametrize("of", ["examples", "rows"])
def test_a_loss_that_is_a_mean_is_refused_after_the_first_step(kind, of, tmp_path):
    task = Mean() if of == "examples" else Mean(lambda batch: len(batch["weight"]))
    data = Filled() if kind == "single" else Data(rows=16)
    with pytest.raises(ValueError, match=r"loss must be the sum over the rows .* got their mean"):
        fit(task, data, None, config(parallel=kind), tmp_path)
    assert not (tmp_path / "checkpoints").exists()


def test_lanes_and_parts_of_a_batch_refuse_a_mean_too(tmp_path):
    with pytest.raises(ValueError, match="got their mean"):
        fit_lanes(Mean(), lambda seed: Data(), None, config(seeds=2), tmp_path / "lanes")
    with pytest.raises(ValueError, match="got their mean"):
        fit(Mean(), Data(), None, config(accumulate=2), tmp_path / "parts")


def test_a_penalty_beside_the_sum_is_no_mean(tmp_path):
    class Penalised(Tiny):
        def loss(self, params, batch, rngs):
            total, metrics = super().loss(params, batch, rngs)
            return total + 0.1 * jnp.sum(params["w"] ** 2), metrics

    assert fit(Penalised(), Data(), None, config(), tmp_path).steps == 4


# -- optimizers ------------------------------------------------------------------------------------


def test_what_is_no_configuration_is_refused_by_name(tmp_path):
    with pytest.raises(TypeError, match="config must be a TrainConfig, got OptimizerConfig"):
        fit(Tiny(), Data(), None, OptimizerConfig(), tmp_path / "run")
    with pytest.raises(TypeError, match=r"optimizer must be an OptimizerConfig, got Gradient.*fit"):
        TrainConfig(optimizer=optax.adam(0.1))
    with pytest.raises(
        TypeError, match=r"optimizer must be an optax.GradientTransformation, got O"
    ):
        fit(Tiny(), Data(), None, config(), tmp_path / "run", optimizer=OptimizerConfig())
    both = config(optimizer=OptimizerConfig(name="sgd"))
    with pytest.raises(ValueError, match=r"optimizer must be None with config\.optimizer"):
        fit(Tiny(), Data(), None, both, tmp_path / "run", optimizer=optax.adam(0.1))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_any_optax_transformation_trains_and_a_checkpoint_knows_it_by_its_program(tmp_path):
    def go(name, optimizer, num_steps=4, **options):
        settings = config(num_steps=num_steps)
        return fit(Tiny(), Data(), EVALUATION, settings, tmp_path / name, optimizer=optimizer,
                   **options)  # fmt: skip

    ours = config(optimizer=OptimizerConfig(learning_rate=0.05))
    expected = fit(Tiny(), Data(), EVALUATION, ours, tmp_path / "ours").state.params["w"]
    np.testing.assert_array_equal(go("run", optax.adam(0.05)).state.params["w"], expected)
    with pytest.raises(CheckpointMismatch, match=r"optimizer: saved 'optax program .*, now 'optax"):
        go("run", optax.adam(0.06), 6)
    with pytest.raises(CheckpointMismatch, match=r"optimizer: saved 'optax program .*, now 'noth"):
        go("run", None, 6)
    assert go("run", optax.adam(0.05), 6).steps == 6
    named = {"settings": {"optimizer": "mine"}}
    go("named", optax.adam(0.05), **named)
    assert go("named", optax.adam(0.06), 6, **named).steps == 6


def test_frozen_parameters_stay_with_an_optax_transformation(tmp_path):
    class Fixed(Tiny):
        frozen = ("scale",)

        def init(self, key, batch):
            return super().init(key, batch) | {"scale": jnp.ones(())}

        def loss(self, params, batch, rngs):
            return super().loss({"w": params["w"] * params["scale"]}, batch, rngs)

    result = fit(Fixed(), Data(), None, config(), tmp_path, optimizer=optax.sgd(0.1))
    assert result.state.params["scale"] == 1


def test_averages_of_gradients_are_not_taken_for_parameters():
    params = {"w": jnp.ones(3)}
    tx = optax.chain(optax.ema(0.9), optax.sgd(0.1))
    assert eval_params(params, tx.init(params)) is params
    ours = optax.chain(tx, params_ema(0.9))
    last = {"w": np.zeros(3, np.float32)}
    np.testing.assert_array_equal(eval_params(last, ours.init(params))["w"], params["w"])


@pytest.mark.parametrize("steps", ["10", 2.5, True])
def test_steps_is_an_integer(steps):
    with pytest.raises(TypeError, match="steps must be an integer, got"):
        fit(Tiny(), Data(), steps=steps)


def test_empty_path_is_no_workdir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="workdir must be the path of a folder, got ''"):
        fit(Tiny(), Data(), None, config(), "")
    assert not list(tmp_path.iterdir())
