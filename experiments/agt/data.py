"""The texts of a run, encoded and kept between consecutive runs."""

import dataclasses
import functools
from typing import Any

import numpy as np

from experiments.agt.config import PAPER_DIM, Config, DataConfig
from experiments.core.origins import joined
from experiments.core.text import (
    check_embeddings,
    find_embeddings,
    read_embeddings,
    text_batches,
    width_of,
)
from gatedjax import data as gdata

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A data set as the trainer needs it."""

    splits: dict[str, gdata.Encoded]
    """By name; with phrases only "train" has them."""
    vocabulary: gdata.Vocabulary
    embeddings: np.ndarray
    coverage: float | None
    """Share of the vocabulary with a pretrained vector; None without a file."""

    @property
    def info(self) -> gdata.SourceInfo:
        """Name, classes and what differs from the official data of the test split."""
        return self.splits["test"].info


def resolved(config: Config) -> Config:
    """The configuration with the width of the file of word vectors.

    A width other than the paper's 300 was asked for and stays; a file that does not have it is
    then refused by the loader.
    """
    path = find_embeddings(config.data.embeddings, config.data.manual_dir)
    if path is None or config.model.embedding_dim != PAPER_DIM or not path.is_file():
        return config
    width = width_of(path)
    if width is None:
        return config
    return dataclasses.replace(config, model=dataclasses.replace(config.model, embedding_dim=width))


def prepare(config: DataConfig, embedding_dim: int) -> Prepared:
    """Loads, counts and encodes the splits, and reads the word vectors.

    Without a file the vocabulary is that of the training text. With one, words of the other splits
    join it: their vectors are constants of the file, as they would be for any new text. The data
    set of the last call is kept, so that consecutive runs share it.

    Args:
      config: which data. Batch sizes change nothing.
      embedding_dim: width of the word vectors.
    """
    return _prepare(dataclasses.replace(config, batch_size=1, eval_batch_size=1), embedding_dim)


@functools.lru_cache(maxsize=1)
def _prepare(config: DataConfig, embedding_dim: int) -> Prepared:
    path = find_embeddings(config.embeddings, config.manual_dir)
    check_embeddings(path, embedding_dim)
    options: dict[str, Any] = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    sources = {}
    for split in SPLITS:
        phrases = config.train_on == "phrases" and split == "train"
        name = f"{config.name}_phrases" if phrases else config.name
        sources[split] = gdata.load(name, split, **options)
    seen = [sources["train"]] if path is None else list(sources.values())
    vocabulary = gdata.Vocabulary.build(seen)
    coverage = None
    if path is None:
        matrix = gdata.random_embeddings(vocabulary, embedding_dim)
    else:
        vectors = read_embeddings(path, vocabulary, dim=embedding_dim)
        matrix, coverage = vectors.matrix, vectors.coverage
    encoded = {split: gdata.encode(source, vocabulary) for split, source in sources.items()}
    return Prepared(encoded, vocabulary, matrix, coverage)


def batches(
    prepared: Prepared, config: DataConfig, *, seed: int
) -> tuple[gdata.Batches, gdata.Batches, gdata.Batches]:
    """Returns training, validation and test batches; the last two are one ordered pass."""
    train, validation, test = (prepared.splits[split] for split in SPLITS)
    return text_batches(train, validation, test, config, seed=seed)


def substitute(config: Config, prepared: Prepared) -> str | None:
    """What differs from the paper's data and word vectors; None if nothing does."""
    parts = [prepared.splits[split].info.substitute for split in SPLITS]
    if config.data.name != "polarity":
        width = config.model.embedding_dim
        if config.data.embeddings == "none":
            parts.append(f"random word vectors of width {width} where the paper has GloVe 300-d")
        elif width != PAPER_DIM:
            parts.append(f"word vectors of width {width} where the paper has 300")
    return joined(parts)
