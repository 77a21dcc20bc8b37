"""One run of GA-Net or a baseline: data in, trained parameters and test results out."""

import dataclasses
import math
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.common import collapse
from experiments.common.hardware import hardware
from experiments.common.origins import joined, origin_of
from experiments.common.records import jsonable, write_json
from experiments.common.runs import TRAIN_POINTS, curve, finish
from experiments.common.text import (
    check_embeddings,
    correct_string,
    find_embeddings,
    read_embeddings,
    text_batches,
)
from experiments.ga_net.config import Config, DataConfig
from experiments.ga_net.results import public_config
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.models import GANet, GANetConfig, GANetTask
from gatedjax.training import (
    FitResult,
    Parallel,
    evaluate,
    fit,
    fit_lanes,
    frozen_parameters,
    init_state,
    lanes_of,
    make_optimizer,
    make_parallel,
    make_train_step,
)

SOURCES = {"imdb": "imdb_reviews", "ag_news": "ag_news_subset"}


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A data set as the trainer needs it: encoded splits, vocabulary and word vectors."""

    train: gdata.Encoded
    validation: gdata.Encoded
    test: gdata.Encoded
    vocabulary: gdata.Vocabulary
    embeddings: np.ndarray
    coverage: float | None
    """Share of the vocabulary with a pretrained vector; None without a file."""

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.train.info.class_names)


def prepare(config: DataConfig, embedding_dim: int, *, seed: int = 0) -> Prepared:
    """Loads, counts and encodes the splits, and reads the word vectors.

    Without a file the vocabulary is that of the training text. With one, words of the other splits
    join it: their vectors are constants of the file, as they would be for any new text.
    """
    name = SOURCES.get(config.name, config.name)
    options: dict[str, Any] = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    if config.strict:
        options["strict"] = True
    path = find_embeddings(config.embeddings, config.manual_dir)
    check_embeddings(path, embedding_dim)
    splits = {s: gdata.load(name, s, **options) for s in ("train", "validation", "test")}
    seen = [splits["train"]] if path is None else list(splits.values())
    vocabulary = gdata.Vocabulary.build(seen, min_count=config.min_count)
    coverage = None
    if path is None:
        matrix = gdata.random_embeddings(vocabulary, embedding_dim, seed)
    else:
        vectors = read_embeddings(path, vocabulary, dim=embedding_dim, seed=seed)
        matrix, coverage = vectors.matrix, vectors.coverage
    encoded = {
        split: gdata.encode(
            source, vocabulary, max_len=config.max_len, truncate_side=config.truncate_side
        )
        for split, source in splits.items()
    }
    return Prepared(**encoded, vocabulary=vocabulary, embeddings=matrix, coverage=coverage)


def make_task(config: GANetConfig, prepared: Prepared) -> GANetTask:
    """Binds the network to a data set."""
    model = GANet(
        config,
        vocab_size=len(prepared.vocabulary),
        num_classes=prepared.num_classes,
        embeddings=prepared.embeddings,
    )
    return GANetTask(model)


def batches(
    prepared: Prepared, config: DataConfig, *, seed: int
) -> tuple[gdata.Batches, gdata.Batches, gdata.Batches]:
    """Returns training, validation and test batches; the last two are one ordered pass."""
    return text_batches(prepared.train, prepared.validation, prepared.test, config, seed=seed)


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run leaves behind."""

    fit: FitResult
    task: GANetTask
    prepared: Prepared
    record: dict[str, Any]
    """The JSON record: configuration, metrics, per-example correctness, hardware."""


def default_workdir(config: Config) -> Path:
    """runs/ga_net/DATA-SYSTEM, unless the configuration names one."""
    if config.workdir is not None:
        return Path(config.workdir)
    return Path("runs") / "ga_net" / f"{config.data.name}-{config.model.system}"


def run(config: Config, prepared: Prepared | None = None, *, test: bool = True) -> RunResult:
    """Trains, restores the best parameters by validation accuracy, and evaluates on test.

    Args:
      config: the run.
      prepared: the data, if it is loaded already.
      test: evaluate on the test split; a search for settings must not.

    Returns:
      The result; `results.json` in the workdir holds its record. A run that was stopped by a
      signal has no test results and writes none.
    """
    start = time.perf_counter()
    prepared = prepared or prepare(config.data, config.model.embedding_dim)
    task = make_task(config.model, prepared)
    train, validation, test_data = batches(prepared, config.data, seed=config.train.seed)
    workdir = default_workdir(config)
    metadata = _metadata(config, prepared)
    parallel = make_parallel(config.train.parallel, accumulate=config.train.accumulate)
    result = fit(
        task, train, validation, config.train, workdir, metadata=metadata, parallel=parallel
    )
    record = _record(config, prepared, result)
    tested = test and result.stopped != "signal"
    if tested:
        record |= _test(task, result, prepared, test_data, parallel)
        lines = analysis.read_metrics(workdir / "metrics.jsonl")
        record["train_curve"] = curve(lines, "train", TRAIN_POINTS)
    record = finish(record, start, workdir, write=tested)
    return RunResult(fit=result, task=task, prepared=prepared, record=record)


def run_lanes(config: Config, prepared: Prepared | None = None) -> list[RunResult]:
    """Trains `config.train.seeds` seeds (and a sweep) in one program; tests each as `run` does.

    Args:
      config: the runs.
      prepared: the data, if it is loaded already.

    Returns:
      A result per lane. Its record is that of the single run, with "lanes", how many were trained
      together; "seconds" are its share. `results.json` in the workdir lists the records;
      runs that were stopped by a signal have no test results and write none.
    """
    start = time.perf_counter()
    prepared = prepared or prepare(config.data, config.model.embedding_dim)
    task = make_task(config.model, prepared)
    seed = config.train.seed
    _, validation, test_data = batches(prepared, config.data, seed=seed)
    workdir = default_workdir(config)
    results = fit_lanes(
        task,
        lambda number: batches(prepared, config.data, seed=number)[0],
        validation,
        config.train,
        workdir,
        metadata=_metadata(config, prepared),
    )
    parallel = make_parallel("sharding")
    found = []
    own_tasks: dict[float | None, GANetTask] = {}
    lanes = lanes_of(config.train)
    swept = config.train.sweep_over if config.train.sweep else None
    lines = analysis.read_metrics(workdir / "metrics.jsonl")
    for lane, result in zip(lanes, results, strict=True):
        own = task
        if swept in task.sweepable:
            own = own_tasks.setdefault(lane.value, task.with_value(swept, lane.value))
        alone = dataclasses.replace(config, model=own.model.config, train=lane.config)
        record = _record(alone, prepared, result) | {"lanes": len(lanes)}
        if result.stopped != "signal":
            record |= _test(own, result, prepared, test_data, parallel)
            mine = [line for line in lines if line.get("seed") == lane.seed]
            if swept is None:
                record["train_curve"] = curve(mine, "train", TRAIN_POINTS)
        found.append(RunResult(fit=result, task=own, prepared=prepared, record=record))
    # a run's share, so that records of lanes and of single runs can be compared
    each = round((time.perf_counter() - start) / len(lanes), 1)
    seconds = {"seconds": each, "hardware": hardware()}
    for one in found:
        one.record.update(seconds, origin=origin_of(one.record))
    if all(one.fit.stopped != "signal" for one in found):
        write_json(workdir / "results.json", {"lanes": [one.record for one in found]})
    return found


def lanes_that_fit(config: Config, prepared: Prepared) -> int:
    """How many seeds fit into half of the memory of the devices (on a CPU: of the machine).

    XLA says what one step of one seed needs at the longest shape; a lane needs as much.
    """
    task = make_task(config.model, prepared)
    train, _, _ = batches(prepared, config.data, seed=config.train.seed)
    frozen = frozen_parameters(task)
    tx = make_optimizer(config.train.optimizer, config.train.num_steps, frozen=frozen)
    batch = next(b for b in train if b["tokens"].shape[1] == train.edges[-1])
    key = jax.random.key(0)
    state = jax.eval_shape(lambda k: init_state(task, tx, k, batch), key)
    step = jax.jit(make_train_step(task, tx), donate_argnums=0)
    analysis = step.lower(state, batch, key).compile().memory_analysis()
    size = sum(
        math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves((state, state.params))
    )
    if analysis is not None:
        size += analysis.temp_size_in_bytes
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        room = stats["bytes_limit"] * jax.local_device_count()
    else:
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, room // 2 // size)


def _metadata(config: Config, prepared: Prepared) -> dict[str, Any]:
    """What a checkpoint must share with the run that continues it."""
    return {
        "config": jsonable(public_config(config)),
        "vocabulary": prepared.vocabulary.digest(),
    }


def substitute(prepared: Prepared) -> str | None:
    """What differs from the official data in any split; None if nothing does."""
    splits = (prepared.train, prepared.validation, prepared.test)
    return joined(split.info.substitute for split in splits)


def _record(config: Config, prepared: Prepared, result: FitResult) -> dict[str, Any]:
    return {
        "data": config.data.name,
        "substitute": substitute(prepared),
        "system": config.model.system,
        "seed": config.train.seed,
        "config": jsonable(public_config(config)),
        "vocabulary_size": len(prepared.vocabulary),
        "embedding_coverage": prepared.coverage,
        "stopped": result.stopped,
        "steps": result.steps,
        "best_step": result.best_step,
        "validation": result.best_metrics,
    }


def _test(
    task: GANetTask,
    result: FitResult,
    prepared: Prepared,
    test_data: gdata.Batches,
    parallel: Parallel,
) -> dict[str, Any]:
    metrics, predictions = evaluate(task, result.best_params, test_data, parallel)
    return {
        "test": metrics,
        "test_n": len(predictions["correct"]),
        "attended_tokens": int(predictions["attended"].sum()),
        "test_tokens": int(predictions["length"].sum()),
        "correct": correct_string(predictions),
        **collapse.facts(prepared.train.labels, predictions["predicted"]),
    }
