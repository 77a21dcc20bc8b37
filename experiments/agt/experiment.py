"""One run of AGT or a baseline: texts in, trained parameters and test results out."""

import time
from pathlib import Path
from typing import Any

import jax

from experiments.agt import layers
from experiments.agt.config import Config
from experiments.agt.data import batches, prepare, resolved, substitute
from experiments.agt.results import public_config
from experiments.core import collapse
from experiments.core.records import jsonable
from experiments.core.curves import finish, outcome, results_on_test
from experiments.core.text import correct_string
from gatedjax import analysis
from gatedjax.models import AGT, AGTTask
from gatedjax.training import fit, make_parallel


def default_workdir(config: Config) -> Path:
    """runs/agt/PRESET-SYSTEM, unless the configuration names one."""
    if config.workdir is not None:
        return Path(config.workdir)
    return Path("runs") / "agt" / f"{config.preset}-{config.model.system}"


def run(config: Config) -> dict[str, Any]:
    """Trains, and evaluates the best parameters by validation accuracy and the last ones on test.

    Args:
      config: the run. The width of the word vectors becomes that of their file.

    Returns:
      The record, with what every layer selects on the test sentences; `results.json` in the
      workdir holds it, less "exit_code" and "signal". A run that was stopped by a signal has no
      test results and writes none.
    """
    start = time.perf_counter()
    config = resolved(config)
    prepared = prepare(config.data, config.model.embedding_dim)
    model = AGT(
        config.model,
        vocab_size=len(prepared.vocabulary),
        num_classes=len(prepared.info.class_names),
        embeddings=prepared.embeddings,
    )
    task = AGTTask(model)
    train, validation, test = batches(prepared, config.data, seed=config.train.seed)
    workdir = default_workdir(config)
    settings = jsonable(public_config(config))
    metadata = {"config": settings, "vocabulary": prepared.vocabulary.digest()}
    parallel = make_parallel(config.train.parallel, accumulate=config.train.accumulate)
    result = fit(
        task, train, validation, config.train, workdir, metadata=metadata, parallel=parallel
    )
    metrics = analysis.read_metrics(workdir / "metrics.jsonl")
    record = {
        "data": config.data.name,
        "train_on": config.data.train_on,
        "train_n": len(prepared.splits["train"]),
        "system": config.model.system,
        "seed": config.train.seed,
        "config": settings,
        "substitute": substitute(config, prepared),
        "embedding_dim": config.model.embedding_dim,
        "embedding_coverage": prepared.coverage,
        "vocabulary_size": len(prepared.vocabulary),
        **count_parameters(result.best_params),
        **outcome(result, metrics),
    }
    if result.stopped != "signal":
        found, predictions = results_on_test(task, result, test, parallel)
        record |= {
            **found,
            "test_n": len(predictions["correct"]),
            "correct": correct_string(predictions),
            **collapse.facts(prepared.splits["train"].labels, predictions["predicted"]),
            **layers.statistics(model, result.best_params, test),
            "examples": layers.examples(model, result.best_params, prepared.splits["test"]),
        }
    return finish(record, start, workdir)


def count_parameters(params: Any) -> dict[str, int]:
    """How many numbers are trained: all of them, and those that are not word vectors."""
    sizes = {name: sum(x.size for x in jax.tree.leaves(part)) for name, part in params.items()}
    total = sum(sizes.values())
    return {
        "parameters": total,
        "parameters_without_embeddings": total - sizes.get("embed", 0),
    }
