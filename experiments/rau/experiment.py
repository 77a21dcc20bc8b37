"""The experiment of a run of RAU, a GRU or an LSTM: images, reviews, or a language model."""

import functools
import math
from pathlib import Path

import jax
import numpy as np

from experiments.core import text
from experiments.core.config import Files
from experiments.core.experiment import Experiment
from experiments.core.kinds import Json, Params
from experiments.core.origins import join_remarks
from experiments.rau.config import DataConfig, RAURunConfig
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.models import RAUClassifier, RAULanguageModel, RAULanguageTask, RAUTask
from gatedjax.training import FitResult, evaluate, make_parallel


def count_parameters(params: Params) -> dict[str, int]:
    """Counts the trained numbers: of the network, and of the recurrent layers."""
    sizes = {name: sum(x.size for x in jax.tree.leaves(part)) for name, part in params.items()}
    recurrent = sum(size for name, size in sizes.items() if name.startswith("recurrent"))
    return {"parameters": sum(sizes.values()), "recurrent_parameters": recurrent}


# The images of the last call are cached for the runs that follow.
_images = functools.lru_cache(maxsize=1)(text.load_splits)


def _image_parts(config: DataConfig) -> Json:
    """Loads images and returns the arguments of an `Experiment` that depend on them, by name."""
    digits = config.name == "digits"  # digits need no files
    folders = Files(data_dir=config.data_dir, manual_dir=config.manual_dir)
    splits = _images(config.name, Files() if digits else folders)

    def training(seed: int) -> gdata.ImageBatches:
        return gdata.ImageBatches(splits["train"], batch_size=config.batch_size, seed=seed)

    size = config.eval_batch_size
    one_pass = {s: gdata.ImageBatches.eval(splits[s], batch_size=size) for s in text.SPLITS[1:]}
    return {
        "train": training,
        **one_pass,
        "labels": splits["train"].labels,
        "before": functools.partial(text.write_words, None, splits["train"].info.class_names),
        "substitute": join_remarks(split.info.substitute for split in splits.values()),
    }


def _texts(config: RAURunConfig) -> text.Texts:
    """Returns the encoded IMDB reviews of a run, with their vocabulary and word vectors. The
    vocabulary has only words of the training text."""
    data = config.data
    return text.read_texts(
        "imdb_reviews",
        data,
        config.model.embedding_dim,
        words="training",
        random=False,
        vocabulary={"max_size": data.vocabulary_size + 2},
        encode={"max_len": data.max_len, "truncate_side": data.truncate_side},
        load={"held_out": data.held_out},
    )


def experiment(config: RAURunConfig) -> Experiment:
    """Returns the experiment of a configuration."""
    data = config.data
    if data.name == "ptb":
        return language_model(config)
    facts: Json = {"data": data.name, "cell": config.model.cell}
    if data.name == "imdb":
        texts = _texts(config)
        model = texts.classifier(RAUClassifier, config.model)
        facts, parts = facts | texts.facts(), text.for_training(texts, data)
    else:
        parts = _image_parts(data)
        classes = len(parts["test"].source.info.class_names)
        model = RAUClassifier(config.model, num_classes=classes)
        facts |= {"vocabulary_size": None, "embedding_coverage": None}
    return Experiment(task=RAUTask(model), facts=facts, count=count_parameters, **parts)


def language_model(config: RAURunConfig) -> Experiment:
    """Returns the experiment of a language model. The best parameters are those of the lowest
    validation loss after an epoch, measured on `data.eval_batch_size` rows, each of which starts
    from the zero state. The perplexities of the record are measured on a single row, so that each
    word is predicted from all words before it."""
    data = config.data
    streams = text.load_splits("ptb", data)
    vocabulary = streams["train"].vocabulary
    train = gdata.LanguageModelBatches(
        streams["train"], batch_size=data.batch_size, num_steps=data.window
    )
    task = RAULanguageTask(RAULanguageModel(config.model, vocab_size=len(vocabulary)))

    def one_pass(split: str, rows: int) -> gdata.LanguageModelBatches:
        stream = streams[split]
        return gdata.LanguageModelBatches.eval(stream, batch_size=rows, num_steps=data.window)

    def test_language_model(result: FitResult, workdir: Path) -> Json | None:
        # A signal that came with the last step also skips the test, because the test takes minutes;
        # the same command makes it later.
        if result.signal is not None:
            return None
        single, params = make_parallel("single"), result.best_params
        validation, _ = evaluate(task, params, one_pass("validation", 1), single)
        test, predictions = evaluate(task, params, one_pass("test", 1), single)
        order = np.argsort(predictions["example_id"], kind="stable")
        return {
            "curve": [[line["step"], line["loss"], line["perplexity"]] for line in result.history],
            "validation": validation,
            "test": test,
            "test_n": int(predictions["tokens"].sum()),
            "test_tokens": predictions["tokens"][order].tolist(),
            # Paired tests need the negative log-likelihood of each window of the test text, in
            # nats.
            "test_nll": [round(float(x), 3) for x in predictions["nll"][order]],
            "train_last_epoch_perplexity": last_epoch_perplexity(
                workdir, result.steps, train.steps_per_epoch
            ),
        }

    return Experiment(
        task=task,
        # A text has the same order for all seeds.
        train=lambda seed: train,
        validation=one_pass("validation", data.eval_batch_size),
        test=one_pass("test", 1),
        facts={
            "data": config.preset,
            "cell": config.model.cell,
            "vocabulary_size": len(vocabulary),
        },
        **text.vocabulary_parts(vocabulary),
        substitute=join_remarks(stream.info.substitute for stream in streams.values()),
        count=count_parameters,
        tested=test_language_model,
    )


def last_epoch_perplexity(workdir: Path, steps: int, steps_per_epoch: int) -> float | None:
    """Computes the training perplexity over the last whole epoch, including dropout. It is None if
    no epoch is complete."""
    first = steps // steps_per_epoch * steps_per_epoch - steps_per_epoch
    if first < 0:
        return None
    losses = [
        (line["step"], line["loss"])
        for line in analysis.read_metrics(workdir / "metrics.jsonl")
        if line["split"] == "train"
        and first < line["step"] <= first + steps_per_epoch
        and line["loss"] is not None
    ]
    if not losses:
        return None
    # Losses are weighted by their steps, because a line has the mean loss since the line before it.
    ends = [first, *(step for step, _ in losses)]
    total = sum(loss * (b - a) for (_, loss), a, b in zip(losses, ends[:-1], ends[1:], strict=True))
    return math.exp(total / (ends[-1] - first))
