"""A run of a language model: what it is made of, and its perplexities."""

import math
from pathlib import Path

import numpy as np

from experiments.core.experiment import Experiment
from experiments.core.kinds import Json
from experiments.core.origins import joined
from experiments.core.text import SPLITS
from experiments.rau.config import Config
from experiments.rau.parameters import count_parameters
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.models import RAULanguageModel, RAULanguageTask
from gatedjax.training import FitResult, evaluate, make_parallel


def language_model(config: Config) -> Experiment:
    """The run of a configuration.

    The best parameters are those of the lowest validation loss after an epoch, measured on
    `data.eval_batch_size` rows, each of which starts from the zero state. The perplexities of the
    record are measured on one row: every word is predicted after all that come before it.
    """
    data = config.data
    folders = {"data_dir": data.data_dir, "manual_dir": data.manual_dir}
    streams = {split: gdata.load("ptb", split, **folders) for split in SPLITS}
    vocabulary = streams["train"].vocabulary
    train = gdata.LanguageModelBatches(
        streams["train"], batch_size=data.batch_size, num_steps=data.window
    )
    task = RAULanguageTask(RAULanguageModel(config.model, vocab_size=len(vocabulary)))

    def one_pass(split: str, rows: int) -> gdata.LanguageModelBatches:
        stream = streams[split]
        return gdata.LanguageModelBatches.eval(stream, batch_size=rows, num_steps=data.window)

    def tested(result: FitResult, workdir: Path) -> Json | None:
        # also one that came with the last step: measuring takes minutes, the same command does it
        if result.signal is not None:
            return None
        single, params = make_parallel("single"), result.best_params
        validation, _ = evaluate(task, params, one_pass("validation", 1), single)
        test, predictions = evaluate(task, params, one_pass("test", 1), single)
        order = np.argsort(predictions["example_id"], kind="stable")
        return {
            "curve": [[one["step"], one["loss"], one["perplexity"]] for one in result.history],
            "validation": validation,
            "test": test,
            "test_n": int(predictions["tokens"].sum()),
            "test_tokens": predictions["tokens"][order].tolist(),
            # what each window of the test text cost, in nats: for paired tests
            "test_nll": [round(float(x), 3) for x in predictions["nll"][order]],
            "train_last_epoch_perplexity": last_epoch_perplexity(
                workdir, result.steps, train.steps_per_epoch
            ),
        }

    return Experiment(
        task=task,
        # a text has one order, whatever the seed
        train=lambda seed: train,
        validation=one_pass("validation", data.eval_batch_size),
        test=one_pass("test", 1),
        facts={
            "data": config.preset,
            "cell": config.model.cell,
            "vocabulary_size": len(vocabulary),
        },
        vocabulary=vocabulary.digest(),
        substitute=joined(stream.info.substitute for stream in streams.values()),
        count=count_parameters,
        tested=tested,
    )


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
