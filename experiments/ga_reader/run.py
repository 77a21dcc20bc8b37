"""One run of a reader: questions in, trained parameters and test results out."""

import time
from pathlib import Path
from typing import Any

import jax

from experiments.core.origins import joined
from experiments.core.records import jsonable
from experiments.core.curves import finish, outcome, results_on_test
from experiments.core.text import correct_string
from experiments.ga_reader.config import Config
from experiments.ga_reader.data import batches, counts, prepare, save_words
from experiments.ga_reader.results import public_config
from gatedjax import analysis
from gatedjax.models import GAReader, GAReaderTask
from gatedjax.training import fit, make_parallel


def default_workdir(config: Config) -> Path:
    """runs/ga_reader/PRESET, unless the configuration names one."""
    if config.workdir is not None:
        return Path(config.workdir)
    return Path("runs") / "ga_reader" / config.preset


def build(config: Config, vocab_size: int, num_characters: int, embeddings: Any) -> GAReader:
    """The network of a configuration."""
    return GAReader(
        config.model,
        vocab_size=vocab_size,
        num_characters=num_characters if config.model.char_dim else 0,
        embeddings=embeddings,
    )


def run(config: Config) -> dict[str, Any]:
    """Trains, and evaluates the best parameters by validation accuracy and the last ones on test.

    Args:
      config: the run.

    Returns:
      The record; `results.json` in the workdir holds it, less "exit_code" and "signal". A run that
      was stopped by a signal has no test results and writes none.
    """
    start = time.perf_counter()
    prepared = prepare(config.data, config.model.embedding_dim)
    model = build(config, len(prepared.vocabulary), len(prepared.characters), prepared.embeddings)
    task = GAReaderTask(model)
    characters = config.model.char_dim > 0
    train, validation, test = batches(
        prepared, config.data, characters=characters, seed=config.train.seed
    )
    workdir = default_workdir(config)
    workdir.mkdir(parents=True, exist_ok=True)
    settings = jsonable(public_config(config))
    metadata = {"config": settings, "vocabulary": prepared.vocabulary.digest()}
    save_words(workdir, prepared)
    training = config.training(len(train))
    parallel = make_parallel(training.parallel, accumulate=training.accumulate)
    result = fit(task, train, validation, training, workdir, metadata=metadata, parallel=parallel)
    metrics = analysis.read_metrics(workdir / "metrics.jsonl")
    record = {
        "data": config.data.name,
        "preset": config.preset,
        "seed": config.train.seed,
        "config": settings,
        "substitute": substitute(config, prepared),
        "train_n": len(train.encoded),
        "steps_per_epoch": len(train),
        "counts": {split: counts(encoded) for split, encoded in prepared.splits.items()},
        "vocabulary_size": len(prepared.vocabulary),
        "embedding_coverage": prepared.coverage,
        "shapes": [list(jax.tree.leaves(jsonable(vars(shape)))) for shape in train.shapes],
        "padding": round(train.padding_fraction, 4),
        **count_parameters(result.best_params, config.model.freeze_embeddings),
        **outcome(result, metrics),
    }
    if result.stopped != "signal":
        found, predictions = results_on_test(task, result, test, parallel)
        record |= {
            **found,
            "test_n": len(predictions["correct"]),
            "correct": correct_string(predictions),
        }
    return finish(record, start, workdir)


def count_parameters(params: Any, frozen_words: bool) -> dict[str, int]:
    """How many numbers are trained, and how many of them are word vectors."""
    sizes = {name: sum(x.size for x in jax.tree.leaves(part)) for name, part in params.items()}
    words = 0 if frozen_words else sizes["embed"]
    return {
        "parameters": sum(sizes.values()) - sizes["embed"] + words,
        "parameters_without_embeddings": sum(sizes.values()) - sizes["embed"],
    }


def substitute(config: Config, prepared: Any) -> str | None:
    """What differs from the paper's data and word vectors; None if nothing does."""
    parts = [prepared.splits[split].info.substitute for split in ("train", "validation", "test")]
    if config.data.name != "two_facts":
        if config.data.embeddings == "none":
            parts.append("random word vectors where the paper has GloVe 100-d")
        if config.data.fraction < 1:
            parts.append(f"{100 * config.data.fraction:g} % of the training questions")
    return joined(parts)
