"""One run, whatever is trained: data in, trained parameters and a record of the results out."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from experiments.core.clock import Clock
from experiments.core.config import changed
from experiments.core.curves import finish, outcome, results_on_test, software
from experiments.core.kinds import Array, Batches, Config, Json, Params, Records, Task
from experiments.core.records import Record, class_facts, saved_record, write_json
from experiments.core.text import correct_string, digest_of_test
from gatedjax import analysis
from gatedjax import training as gtraining
from gatedjax.training import (
    FitResult,
    Parallel,
    TrainConfig,
    eval_params,
    fit,
    fit_lanes,
    lanes_of,
)
from gatedjax.training._run_files import mark_run
from gatedjax.training.distributed import is_main
from gatedjax.training.lanes import Lane

Predictions = dict[str, np.ndarray]


def count_parameters(params: Params) -> dict[str, int]:
    """How many numbers are trained: all of them, and those that are not word vectors."""
    sizes = {name: sum(x.size for x in jax.tree.leaves(part)) for name, part in params.items()}
    total = sum(sizes.values())
    return {"parameters": total, "parameters_without_embeddings": total - sizes.get("embed", 0)}


def best(result: FitResult, workdir: Path) -> tuple[Params, Json]:
    """The parameters that validation chose."""
    return result.best_params, {}


def last(result: FitResult, workdir: Path) -> tuple[Params, Json]:
    """Those after the last step, or their moving average, for runs that validation misjudges.

    Of the result and not of a checkpoint: that is one of all seeds side by side, and of several
    processes the first one alone has it.
    """
    return eval_params(result.state.params, result.state.opt_state), {"chosen": "last"}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """One run, ready to be trained."""

    task: Task
    """A `gatedjax.training.Task`."""
    train: Callable[[int], Batches]
    """From a seed to batches by step; those of two seeds have one shape at every step."""
    validation: Batches
    """One ordered pass; or from a seed to it, where seeds do not share their texts."""
    test: Batches
    """As of validation."""
    facts: Json
    """What the record says of data and network: data, system, train_n, vocabulary_size, ..."""
    vocabulary: str | None = None
    """Digest of what numbers the tokens; None without tokens."""
    labels: Array = None
    """[n] classes of the training examples; None if the task is not one class per example."""
    substitute: str | None = None
    """What differs from the paper's data; None if nothing does."""
    training: TrainConfig | None = None
    """How to train, where the data decide it; None takes the configuration's."""
    count: Callable[[Params], dict[str, int]] = count_parameters
    """Numbers of trained parameters."""
    logged: Callable[[Records], Json] = lambda metrics: {}
    """What the record has of the lines of metrics.jsonl, beside the usual curves."""
    before: Callable[[Path], None] | None = None
    """Writes into the work folder what belongs to the run, before it begins."""
    choose: Callable[[FitResult, Path], tuple[Params, Json]] = best
    """(what `fit` returned, work folder) -> the parameters that are tested, and what the record
    says of it."""
    score: Callable[[Predictions], Json] = lambda predictions: {}
    """What the record has of the test predictions, beside the metrics."""
    measure: Callable[[Params], Json] = lambda params: {}
    """What the record has of the tested parameters that no batch by itself tells, as BLEU."""
    tested: Callable[[FitResult, Path], Json | None] | None = None
    """Tests in another way than one pass over `test`; returns None where a signal forbids it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """What a run leaves behind."""

    fit: FitResult
    task: Task
    record: Record
    """The JSON record: configuration, metrics, per-example correctness, hardware."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a run is (metrics.jsonl, checkpoints, seconds.json, results.json), and what it is."""

    workdir: Path
    settings: Json


def _prepare(made: Experiment, workdir: Path) -> None:
    if made.before is not None:
        workdir.mkdir(parents=True, exist_ok=True)
        if is_main():
            mark_run(workdir)
        made.before(workdir)


def _of_seed(batches: Batches, seed: int) -> Batches:
    """One ordered pass: what all seeds share, or that of a seed."""
    return batches(seed) if callable(batches) else batches


def _identity(made: Experiment, config: Json) -> Json:
    """Returns the arguments of `fit` that say what a run is.

    The training options are those of the configuration. The options in use may follow from the
    number of examples, which the digests of the data know.
    """
    words = {} if made.vocabulary is None else {"vocabulary": made.vocabulary}
    rest = {name: value for name, value in config.items() if name != "train"}
    return {
        "settings": {"config": rest, "train": config["train"], **words},
        "metadata": {"config": config, **words},
    }


def _begun(made: Experiment, settings: Json, result: FitResult) -> Record:
    """What a record has before the test."""
    return {
        "substitute": made.substitute,
        "seed": settings["train"]["seed"],
        "config": settings,
        **made.facts,
        **made.count(result.best_params),
    }


def _tested(
    made: Experiment, seed: int, result: FitResult, workdir: Path, parallel: Parallel
) -> Record:
    """What the test adds."""
    chosen, how = made.choose(result, workdir)
    test = _of_seed(made.test, seed)
    metrics, predictions = results_on_test(made.task, result, test, parallel, chosen)
    record = {
        **how,
        **metrics,
        "test_n": max(map(len, predictions.values()), default=0),
        **made.score(predictions),
        **made.measure(chosen),
    }
    if made.labels is not None:
        record |= class_facts(made.labels, predictions["predicted"])
        record["test_digest"] = digest_of_test(predictions)
    if "correct" in predictions:
        record["correct"] = correct_string(predictions)
    return record


def run(
    build: Callable[[Config], Experiment], config: Config, place: Place, *, test: bool = True
) -> Run:
    """Trains, and evaluates the best parameters of the validation and the last ones on test.

    A search for settings must not evaluate on the test split: it says `test=False`.

    Returns:
      The run; `results.json` in the workdir holds its record, less "exit_code" and "signal". A run
      that was stopped by a signal has no test results and writes none.
    """
    clock = Clock(place.workdir)
    software()  # asked once, ahead of the run
    made = build(config)
    training = made.training or config.train
    parallel = gtraining.make_parallel(training.parallel, accumulate=training.accumulate)
    _prepare(made, place.workdir)
    result = fit(
        made.task,
        made.train(training.seed),
        _of_seed(made.validation, training.seed),
        training,
        place.workdir,
        **_identity(made, place.settings),
        parallel=parallel,
        on_event=clock.on_event,
    )
    # the first of several processes writes it, perhaps on a disk of its own; the record is its, too
    metrics = analysis.read_metrics(place.workdir / "metrics.jsonl") if is_main() else []
    record = _begun(made, place.settings, result) | outcome(result, metrics) | made.logged(metrics)
    test = test and result.stopped != "signal"
    if test and made.tested is not None:
        measured = made.tested(result, place.workdir)
        test = measured is not None
        record |= {"stopped": "signal"} if measured is None else measured
    elif test:
        record |= _tested(made, training.seed, result, place.workdir, parallel)
    finish(record, clock.seconds)
    # of several processes the first one writes
    if test and record["stopped"] != "signal" and is_main():
        write_json(place.workdir / "results.json", saved_record(record))
    return Run(result, made.task, record)


def run_lanes(
    build: Callable[[Config], Experiment],
    config: Config,
    place: Place,
    settings: Callable[[Config], Json],
    *,
    seeds: int | None = None,
) -> list[Run]:
    """Trains several seeds (and a sweep) in one program; tests each as `run` does.

    `settings` makes of the configuration of a single run what its record has as "config"; without
    `seeds` their number is that of the configuration.

    Returns:
      A run per lane. Its record is that of the single run, with "lanes", how many were trained
      together; "seconds" are its share. `results.json` in the workdir lists the records; runs that
      were stopped by a signal have no test results and write none.
    """
    clock = Clock(place.workdir)
    software()  # asked once, ahead of the run
    made = build(config)
    training = made.training or config.train
    if seeds is not None:
        training = dataclasses.replace(training, seeds=seeds)
    recorded = dict(place.settings)
    recorded["train"] = recorded["train"] | {"seeds": training.seeds}
    _prepare(made, place.workdir)
    results = fit_lanes(
        made.task,
        made.train,
        made.validation,
        training,
        place.workdir,
        **_identity(made, recorded),
        on_event=clock.on_event,
    )
    parallel = gtraining.make_parallel("sharding")
    metrics = analysis.read_metrics(place.workdir / "metrics.jsonl")
    runs = []
    for one, alone, lane, result in _lanes(made, config, training, results):
        # a line of a sweep does not say of which value it is
        lines = [] if training.sweep else [m for m in metrics if m.get("seed") == lane.seed]
        record = _begun(one, settings(alone), result) | {"lanes": len(results)}
        record |= outcome(result, lines) | one.logged(lines)
        if result.stopped != "signal":
            record |= _tested(one, lane.seed, result, place.workdir, parallel)
        runs.append(Run(result, one.task, record))
    # a run's share, so that records of lanes and of single runs can be compared
    seconds = clock.seconds / len(runs)
    for one_run in runs:
        finish(one_run.record, seconds)
    if all(one_run.fit.stopped != "signal" for one_run in runs):
        records = [saved_record(one_run.record) for one_run in runs]
        write_json(place.workdir / "results.json", {"lanes": records})
    return runs


def _lanes(
    made: Experiment, config: Config, training: TrainConfig, results: list[FitResult]
) -> Iterator[tuple[Experiment, Config, Lane, FitResult]]:
    """Of every lane: the single run that it equals, its configuration, and its result."""
    tasks: dict[float | None, Task] = {}
    for lane, result in zip(lanes_of(training), results, strict=True):
        train = lane.config
        if made.training is not None:
            # as of a single run, the record has what was asked for, not what the data made of it
            solo = {"seed": lane.seed, "seeds": 1, "sweep": (), "sweep_over": train.sweep_over}
            rate = {"optimizer.learning_rate": train.optimizer.learning_rate}
            train = changed(config.train, solo | rate)
        alone = dataclasses.replace(config, train=train)
        if lane.value is None or training.sweep_over not in getattr(made.task, "sweepable", ()):
            yield made, alone, lane, result
            continue
        if lane.value not in tasks:
            tasks[lane.value] = made.task.with_value(training.sweep_over, lane.value)
        task = tasks[lane.value]
        alone = dataclasses.replace(alone, model=task.model.config)
        yield dataclasses.replace(made, task=task), alone, lane, result


def lanes_that_fit(made: Experiment, training: TrainConfig) -> int:
    """How many seeds fit into half of the memory of the devices (on a CPU: of the machine).

    XLA says what one step of one seed needs at the longest shape; a lane needs as much.
    """
    task, train = made.task, made.train(training.seed)
    tx = gtraining.make_optimizer(
        training.optimizer, training.num_steps, frozen=gtraining.frozen_parameters(task)
    )
    batch = _largest(train)
    key = jax.random.key(0)
    state = jax.eval_shape(lambda k: gtraining.init_state(task, tx, k, batch), key)
    step = jax.jit(gtraining.make_train_step(task, tx), donate_argnums=0)
    memory = step.lower(state, batch, key).compile().memory_analysis()
    size = sum(
        math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves((state, state.params))
    )
    if memory is not None:
        size += memory.temp_size_in_bytes
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        room = stats["bytes_limit"] * jax.local_device_count()
    else:
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, room // 2 // size)


def _largest(train: Batches) -> dict[str, np.ndarray]:
    """The batch of an epoch with the most numbers."""

    def size(batch: dict[str, np.ndarray]) -> int:
        return sum(np.size(column) for column in batch.values())

    return max((train[step] for step in range(len(train))), key=size)
