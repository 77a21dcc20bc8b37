"""A run of any network: from data to trained parameters and a record of the results."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from experiments.core.config import with_changes
from experiments.core.curves import finish, outcome, results_on_test, software
from experiments.core.kinds import Array, Batches, Config, Json, Params, Records, Task
from experiments.core.records import Record, class_facts, read_json, saved_record, write_json
from experiments.core.text import correct_string, digest_of_test
from gatedjax import analysis
from gatedjax import training as gtraining
from gatedjax.training import (
    CheckpointStore,
    FitResult,
    Parallel,
    TrainConfig,
    eval_params,
    fit,
    fit_lanes,
    lanes_of,
)
from gatedjax.training.distributed import is_main
from gatedjax.training.lanes import Lane
from gatedjax.training.workdir import mark_run

Predictions = dict[str, np.ndarray]
"""Columns of the test predictions."""


def count_parameters(params: Params) -> dict[str, int]:
    """Counts the trained numbers: of the network, and without the word vectors."""
    sizes = {name: sum(x.size for x in jax.tree.leaves(part)) for name, part in params.items()}
    total = sum(sizes.values())
    return {"parameters": total, "parameters_without_embeddings": total - sizes.get("embed", 0)}


def best(result: FitResult, workdir: Path) -> tuple[Params, Json]:
    """Chooses the parameters of the best validation result. No entry of the record names this
    choice."""
    return result.best_params, {}


def last(result: FitResult, workdir: Path) -> tuple[Params, Json]:
    """Chooses the parameters after the last step, or their moving average. This choice is for runs
    that validation misjudges. The parameters come from the result of `fit`, because a checkpoint
    has the parameters of all seeds of a program, and because only the first of several processes
    can read it."""
    return eval_params(result.state.params, result.state.opt_state), {"chosen": "last"}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """A run that is ready to be trained."""

    task: Task
    """A `gatedjax.training.Task`."""
    train: Callable[[int], Batches]
    """Returns the batches by step for a seed; at each step the batches of all seeds have the same
    shape."""
    validation: Batches
    """An ordered pass, or a function from a seed to a pass if seeds have different texts."""
    test: Batches
    """The test pass, in the form of `validation`."""
    facts: Json
    """Entries of the record about data and network: data, system, train_n, vocabulary_size, ..."""
    for_export: Json = dataclasses.field(default_factory=dict)
    """Entries below "config" in config.json that the record and the comparison with a checkpoint
    leave out: values that only readers of the trained model need."""
    vocabulary: str | None = None
    """Digest of the vocabulary, which determines the ids of tokens; None without tokens."""
    labels: Array = None
    """Classes [n] of the training examples; None if the task does not assign a class to each
    example."""
    substitute: str | None = None
    """The differences from the paper's data; None without a difference."""
    training: TrainConfig | None = None
    """Training options, if they depend on the data; None takes those of the configuration."""
    count: Callable[[Params], dict[str, int]] = count_parameters
    """Returns the numbers of trained parameters."""
    logged: Callable[[Records], Json] = lambda metrics: {}
    """Returns entries of the record from the lines of metrics.jsonl, in addition to the curves."""
    before: Callable[[Path], None] | None = None
    """Writes files of the run to its work folder before the training begins."""
    choose: Callable[[FitResult, Path], tuple[Params, Json]] = best
    """Returns the parameters to test, and entries of the record about that choice, from the result
    of `fit` and the work folder."""
    score: Callable[[Predictions], Json] = lambda predictions: {}
    """Returns entries of the record from the test predictions, in addition to the metrics."""
    measure: Callable[[Params], Json] = lambda params: {}
    """Returns entries of the record that need the tested parameters and more than a batch, such as
    BLEU."""
    tested: Callable[[FitResult, Path], Json | None] | None = None
    """Tests in another way than a pass over `test` and returns entries of the record; None if a
    signal has stopped the run."""


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """The result of a run."""

    fit: FitResult
    """The result of the training."""
    task: Task
    """The task that was trained."""
    record: Record
    """The JSON record: configuration, metrics, correctness of each example, hardware."""


class Clock:
    """The seconds of a run: in this process, and in earlier processes up to their last checkpoint.

    The steps that a killed process made after its last checkpoint are repeated, so their time is
    not counted twice. Without a checkpoint, or without seconds.json next to it in the work folder,
    the clock starts at 0.
    """

    def __init__(self, workdir: Path) -> None:
        self._file = workdir / "seconds.json"
        has_checkpoint = CheckpointStore(workdir / "checkpoints").latest() is not None
        has_seconds = has_checkpoint and self._file.exists()
        earlier = read_json(self._file, "seconds")["seconds"] if has_seconds else 0.0
        self._began = time.perf_counter() - earlier

    @property
    def seconds(self) -> float:
        """The seconds of the run until now."""
        return time.perf_counter() - self._began

    def hook(self, event: str, *args: object) -> None:
        """Writes the seconds to the work folder if an event of `fit` is a saved checkpoint."""
        if event == "saved":
            write_json(self._file, {"seconds": round(self.seconds, 3)})


@dataclasses.dataclass(frozen=True)
class Place:
    """The work folder of a run, and the configuration in its record."""

    workdir: Path
    settings: Json


def _prepare(experiment: Experiment, workdir: Path) -> None:
    if experiment.before is not None:
        workdir.mkdir(parents=True, exist_ok=True)
        if is_main():
            # `before` writes files before `fit` locks the folder. The mark refuses a folder with
            # foreign files of the same names, and a later call recognises the files by it.
            mark_run(workdir)
        experiment.before(workdir)


def _of_seed(batches: Batches, seed: int) -> Batches:
    """Returns the ordered pass of a seed; most experiments have the same pass for all seeds."""
    return batches(seed) if callable(batches) else batches


def _identity(experiment: Experiment, config: Json) -> Json:
    """Returns the arguments `settings` and `metadata` of `fit` for a run. A checkpoint only
    continues under equal settings. The training options in them are those of the configuration,
    although the options in use may follow from the number of examples, because the digests of the
    data also change with that number."""
    words = {} if experiment.vocabulary is None else {"vocabulary": experiment.vocabulary}
    settings = {name: value for name, value in config.items() if name != "train"}
    return {
        "settings": {"config": settings, "train": config["train"], **words},
        "metadata": {"config": config | experiment.for_export, **words},
    }


def _start_record(experiment: Experiment, settings: Json, result: FitResult) -> Record:
    """Returns the entries of a record that are known before the test. settings is the configuration
    of the run, as in its record, and result is the result of `fit`."""
    return {
        "substitute": experiment.substitute,
        "seed": settings["train"]["seed"],
        "config": settings,
        **experiment.facts,
        **experiment.count(result.best_params),
    }


def _test_record(
    experiment: Experiment, seed: int, result: FitResult, workdir: Path, parallel: Parallel
) -> Record:
    """Runs the test and returns the entries that it adds to the record."""
    params, how = experiment.choose(result, workdir)
    test = _of_seed(experiment.test, seed)
    metrics, predictions = results_on_test(experiment.task, result, test, parallel, params)
    record = {
        **how,
        **metrics,
        "test_n": max(map(len, predictions.values()), default=0),
        **experiment.score(predictions),
        **experiment.measure(params),
    }
    if experiment.labels is not None:
        record |= class_facts(experiment.labels, predictions["predicted"])
        record["test_digest"] = digest_of_test(predictions)
    if "correct" in predictions:
        record["correct"] = correct_string(predictions)
    return record


def run(
    build: Callable[[Config], Experiment], config: Config, place: Place, *, test: bool = True
) -> Run:
    """Trains a configuration, and evaluates the best and the last parameters on the test split.
    `results.json` in the work folder has the record, without "exit_code" and "signal". A run that
    was stopped by a signal has no test results and writes no record. A search for settings passes
    `test=False`, because it must not evaluate on the test split."""
    clock = Clock(place.workdir)
    software()  # cached before the run, because the working tree may change
    experiment = build(config)
    training = experiment.training or config.train
    parallel = gtraining.make_parallel(training.parallel, accumulate=training.accumulate)
    _prepare(experiment, place.workdir)
    result = fit(
        experiment.task,
        experiment.train(training.seed),
        _of_seed(experiment.validation, training.seed),
        training,
        place.workdir,
        **_identity(experiment, place.settings),
        parallel=parallel,
        hook=clock.hook,
    )
    # Only the first of several processes reads the log, because it may have written it to a local
    # disk; it also writes the record.
    metrics = analysis.read_metrics(place.workdir / "metrics.jsonl") if is_main() else []
    record = (
        _start_record(experiment, place.settings, result)
        | outcome(result, metrics)
        | experiment.logged(metrics)
    )
    # A run that a signal stopped continues later, so its test would be repeated.
    test = test and result.stopped != "signal"
    if test and experiment.tested is not None:
        measured = experiment.tested(result, place.workdir)
        test = measured is not None
        # A test that a signal stopped is repeated when the run continues.
        record |= {"stopped": "signal"} if measured is None else measured
    elif test:
        record |= _test_record(experiment, training.seed, result, place.workdir, parallel)
    finish(record, clock.seconds, place.workdir)
    # The first of several processes writes the record.
    if test and record["stopped"] != "signal" and is_main():
        write_json(place.workdir / "results.json", saved_record(record))
    return Run(result, experiment.task, record)


def run_lanes(
    build: Callable[[Config], Experiment],
    config: Config,
    place: Place,
    settings: Callable[[Config], Json],
    *,
    seeds: int | None = None,
) -> list[Run]:
    """Trains several seeds (and a sweep) in one program; tests each lane as `run` does.

    `settings` returns the entry "config" of a record for the configuration of a single run. The
    record of a lane is that of the single run, with "lanes", the number of runs in the program;
    "seconds" is the share of the lane. Runs that were stopped by a signal have no test results and
    write no records.
    """
    clock = Clock(place.workdir)
    software()  # cached before the run, because the working tree may change
    experiment = build(config)
    training = experiment.training or config.train
    if seeds is not None:
        training = dataclasses.replace(training, seeds=seeds)
    recorded = dict(place.settings)
    # A checkpoint has the arrays of all seeds, so their number belongs to the settings that are
    # compared.
    recorded["train"] = recorded["train"] | {"seeds": training.seeds}
    _prepare(experiment, place.workdir)
    results = fit_lanes(
        experiment.task,
        experiment.train,
        experiment.validation,
        training,
        place.workdir,
        **_identity(experiment, recorded),
        hook=clock.hook,
    )
    parallel = gtraining.make_parallel("sharding")
    metrics = analysis.read_metrics(place.workdir / "metrics.jsonl")
    runs = []
    for single, alone, lane, result in _lanes(experiment, config, training, results):
        # Lines of a sweep are not used, because they do not name the value of their lane.
        lines = [] if training.sweep else [m for m in metrics if m.get("seed") == lane.seed]
        record = _start_record(single, settings(alone), result) | {"lanes": len(results)}
        record |= outcome(result, lines) | single.logged(lines)
        if result.stopped != "signal":
            record |= _test_record(single, lane.seed, result, place.workdir, parallel)
        runs.append(Run(result, single.task, record))
    # Each run has an equal share of the time, so that records of lanes and single runs compare.
    seconds = clock.seconds / len(runs)
    for one_run in runs:
        finish(one_run.record, seconds, place.workdir)
    # The lanes share a program, so a signal stops all of them.
    if all(one_run.fit.stopped != "signal" for one_run in runs):
        records = [saved_record(one_run.record) for one_run in runs]
        write_json(place.workdir / "results.json", {"lanes": records})
    return runs


def _lanes(
    experiment: Experiment, config: Config, training: TrainConfig, results: list[FitResult]
) -> Iterator[tuple[Experiment, Config, Lane, FitResult]]:
    """Yields (experiment, configuration, lane, result) for each lane. Experiment and configuration
    are those of a single run that equals the lane."""
    tasks: dict[float | None, Task] = {}
    for lane, result in zip(lanes_of(training), results, strict=True):
        train = lane.config
        if experiment.training is not None:
            # The record has the options of the command, like that of a single run, and not the
            # options that the data determined.
            solo = {"seed": lane.seed, "seeds": 1, "sweep": (), "sweep_over": train.sweep_over}
            rate = {"optimizer.learning_rate": train.optimizer.learning_rate}
            train = with_changes(config.train, solo | rate)
        alone = dataclasses.replace(config, train=train)
        if lane.value is None or training.sweep_over not in getattr(
            experiment.task, "sweepable", ()
        ):
            yield experiment, alone, lane, result
            continue
        # Lanes of the same value share a task, so that its evaluation is compiled once.
        if lane.value not in tasks:
            tasks[lane.value] = experiment.task.with_value(training.sweep_over, lane.value)
        task = tasks[lane.value]
        alone = dataclasses.replace(alone, model=task.model.config)
        yield dataclasses.replace(experiment, task=task), alone, lane, result
