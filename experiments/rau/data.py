"""The data of a run: images or encoded texts, kept between consecutive runs."""

import dataclasses
import functools
from typing import Any

import numpy as np

from experiments.core.origins import joined
from experiments.core.text import check_embeddings, find_embeddings, read_embeddings, text_batches
from experiments.rau.config import TEXT, Config, DataConfig
from gatedjax import data as gdata

SOURCES = {"imdb": "imdb_reviews"}
SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A data set as the trainer needs it."""

    splits: dict[str, Any]
    """Images as sources, texts encoded; by name of the split."""
    vocabulary: gdata.Vocabulary | None = None
    embeddings: np.ndarray | None = None
    """Word vectors to start from; None starts random."""
    coverage: float | None = None
    """Share of the vocabulary with a pretrained vector; None without a file."""

    @property
    def info(self) -> gdata.SourceInfo:
        """Name, classes and what differs from the official data of the test split."""
        return self.splits["test"].info

    @property
    def vocab_size(self) -> int | None:
        """Rows of the embedding table; None for images."""
        return None if self.vocabulary is None else len(self.vocabulary)


def prepare(config: DataConfig, embedding_dim: int) -> Prepared:
    """Loads the splits; texts are counted and encoded.

    The data set of the last call is kept, so that consecutive runs share it.

    Args:
      config: which data. Batch sizes change nothing.
      embedding_dim: width of the word vectors.
    """
    dim = embedding_dim if config.name in TEXT else 0
    return _prepare(dataclasses.replace(config, batch_size=1, eval_batch_size=1), dim)


@functools.lru_cache(maxsize=1)
def _prepare(config: DataConfig, embedding_dim: int) -> Prepared:
    options: dict[str, Any] = {}
    if config.name != "digits":
        options = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    if config.name not in TEXT:
        return Prepared({split: gdata.load(config.name, split, **options) for split in SPLITS})
    path = find_embeddings(config.embeddings, config.manual_dir)
    check_embeddings(path, embedding_dim)
    options["held_out"] = config.held_out
    sources = {split: gdata.load(SOURCES[config.name], split, **options) for split in SPLITS}
    vocabulary = gdata.Vocabulary.build([sources["train"]], max_size=config.vocabulary_size + 2)
    embeddings = coverage = None
    if path is not None:
        vectors = read_embeddings(path, vocabulary, dim=embedding_dim)
        embeddings, coverage = vectors.matrix, vectors.coverage
    encoded = {
        split: gdata.encode(
            source, vocabulary, max_len=config.max_len, truncate_side=config.truncate_side
        )
        for split, source in sources.items()
    }
    return Prepared(encoded, vocabulary, embeddings, coverage)


def substitute(config: Config) -> str | None:
    """What differs from the official data of a run in any split; None if nothing does."""
    if config.data.name == "ptb":
        return joined(stream.info.substitute for stream in streams(config.data).values())
    splits = prepare(config.data, config.model.embedding_dim).splits
    return joined(split.info.substitute for split in splits.values())


def labels_of(split: Any) -> np.ndarray:
    """The classes of a split of images or texts."""
    return np.asarray(split.labels)


def streams(config: DataConfig) -> dict[str, Any]:
    """The texts of a language model, by split."""
    folders: dict[str, Any] = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    return {split: gdata.load(config.name, split, **folders) for split in SPLITS}


def batches(prepared: Prepared, config: DataConfig, *, seed: int) -> tuple[Any, Any, Any]:
    """Returns training, validation and test batches; the last two are one ordered pass."""
    train, validation, test = (prepared.splits[split] for split in SPLITS)
    if prepared.vocabulary is not None:
        return text_batches(train, validation, test, config, seed=seed)
    return (
        gdata.ImageBatches(train, batch_size=config.batch_size, seed=seed),
        gdata.ImageBatches.eval(validation, batch_size=config.eval_batch_size),
        gdata.ImageBatches.eval(test, batch_size=config.eval_batch_size),
    )
