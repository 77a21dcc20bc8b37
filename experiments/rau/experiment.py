"""What one run of RAU, a GRU or an LSTM is made of."""

import functools
from typing import Any

from experiments.core.experiment import Experiment
from experiments.core.kinds import Json
from experiments.core.origins import joined
from experiments.core.text import SPLITS, Texts, in_batches, read_texts
from experiments.rau.config import Config, DataConfig
from experiments.rau.language import language_model
from experiments.rau.parameters import count_parameters
from gatedjax import data as gdata
from gatedjax.models import RAUClassifier, RAUTask


@functools.lru_cache(maxsize=1)
def _images(name: Any, data_dir: str | None, manual_dir: str | None) -> Json:
    """The images of a data set; those of the last call are kept for the runs that follow."""
    folders = {} if name == "digits" else {"data_dir": data_dir, "manual_dir": manual_dir}
    return {split: gdata.load(name, split, **folders) for split in SPLITS}


def _image_batches(splits: Json, config: DataConfig) -> tuple[Any, ...]:
    """From a seed to the training batches; those of validation and test, each one ordered pass."""

    def training(seed: int) -> gdata.ImageBatches:
        return gdata.ImageBatches(splits["train"], batch_size=config.batch_size, seed=seed)

    size = config.eval_batch_size
    return training, *(gdata.ImageBatches.eval(splits[s], batch_size=size) for s in SPLITS[1:])


def _texts(config: Config) -> Texts:
    """The reviews of a run; only the words of its training text are known."""
    data = config.data
    return read_texts(
        "imdb_reviews",
        data,
        config.model.embedding_dim,
        words="training",
        random=False,
        vocabulary={"max_size": data.vocabulary_size + 2},
        encode={"max_len": data.max_len, "truncate_side": data.truncate_side},
        load={"held_out": data.held_out},
    )


def experiment(config: Config) -> Experiment:
    """The run of a configuration."""
    data = config.data
    if data.name == "ptb":
        return language_model(config)
    texts = _texts(config) if data.name == "imdb" else None
    if texts is None:
        splits = _images(data.name, data.data_dir, data.manual_dir)
        train, validation, test = _image_batches(splits, data)
    else:
        splits = texts.splits
        train, validation, test = in_batches(texts.splits, data)
    model = RAUClassifier(
        config.model,
        num_classes=len(splits["test"].info.class_names),
        vocab_size=None if texts is None else len(texts.vocabulary),
        embeddings=None if texts is None else texts.embeddings,
    )
    words = {"vocabulary_size": None, "embedding_coverage": None}
    words = words if texts is None else texts.facts()
    return Experiment(
        task=RAUTask(model),
        train=train,
        validation=validation,
        test=test,
        facts={"data": data.name, "cell": config.model.cell, **words},
        vocabulary=None if texts is None else texts.vocabulary.digest(),
        labels=splits["train"].labels,
        substitute=joined(split.info.substitute for split in splits.values()),
        count=count_parameters,
    )
