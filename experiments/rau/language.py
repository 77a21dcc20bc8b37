"""One run of a language model: data in, trained parameters and perplexities out."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.origins import joined
from experiments.core.records import jsonable
from experiments.core.curves import finish, seconds_per_step
from experiments.rau.config import Config
from experiments.rau.data import streams as load_streams
from experiments.rau.results import public_config
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.models import RAULanguageModel, RAULanguageTask
from gatedjax.training import evaluate, fit, make_parallel


def run_language(config: Config) -> dict[str, Any]:
    """Trains, and measures validation and test perplexity of the best parameters; returns a record.

    The best parameters are those of the lowest validation loss after an epoch, measured on
    `data.eval_batch_size` rows, each of which starts from the zero state. The perplexities of the
    record are measured on one row: every word is predicted after all that come before it.
    """
    from experiments.rau.run import count_parameters, default_workdir

    start = time.perf_counter()
    streams = load_streams(config.data)
    vocabulary = streams["train"].vocabulary
    window, rows = config.data.window, config.data.eval_batch_size
    train = gdata.LanguageModelBatches(
        streams["train"], batch_size=config.data.batch_size, num_steps=window
    )
    validation = gdata.LanguageModelBatches.eval(
        streams["validation"], batch_size=rows, num_steps=window
    )
    task = RAULanguageTask(RAULanguageModel(config.model, vocab_size=len(vocabulary)))
    workdir = default_workdir(config)
    settings = jsonable(public_config(config))
    parallel = make_parallel(config.train.parallel, accumulate=config.train.accumulate)
    result = fit(
        task,
        train,
        validation,
        config.train,
        workdir,
        metadata={"config": settings, "vocabulary": vocabulary.digest()},
        parallel=parallel,
    )
    record = {
        "data": config.preset,
        "substitute": joined(stream.info.substitute for stream in streams.values()),
        "cell": config.model.cell,
        "seed": config.train.seed,
        "config": settings,
        **count_parameters(result.best_params),
        "vocabulary_size": len(vocabulary),
        "stopped": result.stopped,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "steps": result.steps,
        "best_step": result.best_step,
        "curve": [[one["step"], one["loss"], one["perplexity"]] for one in result.history],
        "seconds_per_step": seconds_per_step(analysis.read_metrics(workdir / "metrics.jsonl")),
    }
    # also one that came with the last step: measuring takes minutes, and the same command does it
    if result.signal is not None:
        return record | {"stopped": "signal"}
    single = make_parallel("single")
    for split in ("validation", "test"):
        data = gdata.LanguageModelBatches.eval(streams[split], batch_size=1, num_steps=window)
        record[split], predictions = evaluate(task, result.best_params, data, single)
    order = np.argsort(predictions["example_id"], kind="stable")
    record["test_n"] = int(predictions["tokens"].sum())
    record["test_tokens"] = predictions["tokens"][order].tolist()
    # what each window of the test text cost, in nats: for paired tests
    record["test_nll"] = [round(float(x), 3) for x in predictions["nll"][order]]
    record["train_last_epoch_perplexity"] = last_epoch_perplexity(
        workdir, result.steps, train.steps_per_epoch
    )
    return finish(record, start, workdir)


def last_epoch_perplexity(workdir: Path, steps: int, steps_per_epoch: int) -> float | None:
    """Training perplexity over the last whole epoch, dropout included, from metrics.jsonl.

    Returns:
      None if there was no whole epoch.
    """
    first = steps // steps_per_epoch * steps_per_epoch - steps_per_epoch
    if first < 0:
        return None
    found = [
        (line["step"], line["loss"])
        for line in analysis.read_metrics(workdir / "metrics.jsonl")
        if line["split"] == "train"
        and first < line["step"] <= first + steps_per_epoch
        and line["loss"] is not None
    ]
    if not found:
        return None
    # a line is the mean since the line before it
    ends = [first, *(step for step, _ in found)]
    total = sum(loss * (b - a) for (_, loss), a, b in zip(found, ends[:-1], ends[1:], strict=True))
    return math.exp(total / (ends[-1] - first))
