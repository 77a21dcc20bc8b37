"""One run of RAU, GRU or LSTM: data in, trained parameters and test results out."""

import time
from pathlib import Path
from typing import Any

import jax

from experiments.core import collapse
from experiments.core.records import jsonable
from experiments.core.curves import finish, outcome, results_on_test
from experiments.core.text import correct_string
from experiments.rau.config import Config
from experiments.rau.data import batches, labels_of, prepare, substitute
from experiments.rau.results import public_config
from gatedjax import analysis
from gatedjax.models import RAUClassifier, RAUTask
from gatedjax.training import fit, make_parallel


def default_workdir(config: Config) -> Path:
    """runs/rau/PRESET-CELL, unless the configuration names one."""
    if config.workdir is not None:
        return Path(config.workdir)
    return Path("runs") / "rau" / f"{config.preset}-{config.model.cell}"


def run(config: Config) -> dict[str, Any]:
    """Trains, and evaluates the best parameters by validation accuracy and the last ones on test.

    Args:
      config: the run. Data "ptb" trains a language model: see `experiments.rau.language`.

    Returns:
      The record; `results.json` in the workdir holds it, less "exit_code" and "signal". A run that
      was stopped by a signal has no test results and writes none.
    """
    if config.data.name == "ptb":
        from experiments.rau.language import run_language

        return run_language(config)
    start = time.perf_counter()
    prepared = prepare(config.data, config.model.embedding_dim)
    model = RAUClassifier(
        config.model,
        num_classes=len(prepared.info.class_names),
        vocab_size=prepared.vocab_size,
        embeddings=prepared.embeddings,
    )
    task = RAUTask(model)
    train, validation, test = batches(prepared, config.data, seed=config.train.seed)
    workdir = default_workdir(config)
    settings = jsonable(public_config(config))
    metadata = {"config": settings}
    if prepared.vocabulary is not None:
        metadata["vocabulary"] = prepared.vocabulary.digest()
    parallel = make_parallel(config.train.parallel, accumulate=config.train.accumulate)
    result = fit(
        task, train, validation, config.train, workdir, metadata=metadata, parallel=parallel
    )
    metrics = analysis.read_metrics(workdir / "metrics.jsonl")
    record = {
        "data": config.data.name,
        "cell": config.model.cell,
        "seed": config.train.seed,
        "config": settings,
        "substitute": substitute(config),
        "vocabulary_size": prepared.vocab_size,
        "embedding_coverage": prepared.coverage,
        **count_parameters(result.best_params),
        **outcome(result, metrics),
    }
    if result.stopped != "signal":
        found, predictions = results_on_test(task, result, test, parallel)
        record |= {
            **found,
            "test_n": len(predictions["correct"]),
            "correct": correct_string(predictions),
            **collapse.facts(labels_of(prepared.splits["train"]), predictions["predicted"]),
        }
    return finish(record, start, workdir)


def count_parameters(params: Any) -> dict[str, int]:
    """How many numbers are trained: all of them, and those of the recurrent layers."""
    sizes = {name: sum(x.size for x in jax.tree.leaves(part)) for name, part in params.items()}
    recurrent = sum(size for name, size in sizes.items() if name.startswith("recurrent"))
    return {"parameters": sum(sizes.values()), "recurrent_parameters": recurrent}
