"""The questions of a run, encoded and kept between consecutive runs."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.records import read_json, write_json
from experiments.core.text import check_embeddings, find_embeddings, read_embeddings
from experiments.ga_reader.config import DataConfig
from gatedjax import data as gdata

SPLITS = ("train", "validation", "test")
SOURCES = {
    "cnn": "cnn_cloze",
    "daily_mail": "daily_mail_cloze",
    "wdw": "wdw_strict",
}
"""Names of data sets that are other ones in `gatedjax.data.load`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A data set as the trainer needs it."""

    splits: dict[str, gdata.EncodedCloze]
    """All questions, by name of the split."""
    vocabulary: gdata.Vocabulary
    characters: gdata.Characters
    embeddings: np.ndarray
    coverage: float | None
    """Share of the vocabulary with a pretrained vector; None without a file."""

    @functools.cached_property
    def spelling(self) -> tuple[np.ndarray, np.ndarray]:
        """The characters of every word."""
        return self.characters.table(self.vocabulary)

    @property
    def info(self) -> gdata.SourceInfo:
        """Of the test split."""
        return self.splits["test"].info


def word_vectors(
    config: DataConfig, vocabulary: gdata.Vocabulary, dim: int
) -> tuple[np.ndarray, float | None]:
    """The table to start from, and the share of words that the file has."""
    path = find_embeddings(config.embeddings, config.manual_dir)
    if path is None:
        return gdata.random_embeddings(vocabulary, dim, std=config.oov_std), None
    found = read_embeddings(path, vocabulary, dim=dim, oov_std=config.oov_std)
    return found.matrix, found.coverage


def prepare(config: DataConfig, embedding_dim: int) -> Prepared:
    """Loads, counts and encodes the splits, and reads the word vectors.

    The vocabulary has the words of all splits: a word without a pretrained vector has a random one
    of its own, as it would in any new text (the paper's OOV vectors at test time).
    The data set of the last call is kept, so that consecutive runs share it.

    Args:
      config: which data. Batch sizes, shapes and the share to train on change nothing.
      embedding_dim: width of the word vectors.
    """
    same = dataclasses.replace(
        config, batch_size=1, eval_batch_size=1, max_shapes=1, fraction=1.0, fraction_seed=0
    )
    return _prepare(same, embedding_dim)


@functools.lru_cache(maxsize=1)
def _prepare(config: DataConfig, embedding_dim: int) -> Prepared:
    check_embeddings(find_embeddings(config.embeddings, config.manual_dir), embedding_dim)
    options: dict[str, Any] = {}
    if config.name != "two_facts":
        options = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
    name = SOURCES.get(config.name, config.name)
    sources = {split: gdata.load(name, split, **options) for split in SPLITS}
    vocabulary = gdata.cloze_vocabulary(list(sources.values()), lowercase=config.lowercase)
    matrix, coverage = word_vectors(config, vocabulary, embedding_dim)
    encoded = {
        split: gdata.encode_cloze(source, vocabulary, max_doc_len=config.max_doc_len)
        for split, source in sources.items()
    }
    characters = gdata.Characters.build(vocabulary)
    return Prepared(encoded, vocabulary, characters, matrix, coverage)


def batches(
    prepared: Prepared, config: DataConfig, *, characters: bool, seed: int
) -> tuple[gdata.ClozeBatches, gdata.ClozeBatches, gdata.ClozeBatches]:
    """Returns training, validation and test batches; the last two are one ordered pass.

    All splits have the same shapes: what validation compiled, the test pass finds.

    Args:
      prepared: the questions.
      config: which share to train on, and how they are batched.
      characters: whether batches have the characters of words.
      seed: of the order of the training questions.
    """
    train = prepared.splits["train"]
    if config.fraction < 1:
        train = train.fraction(config.fraction, seed=config.fraction_seed)
    rest = [prepared.splits[split] for split in SPLITS[1:]]
    shapes = gdata.plan_cloze_shapes(
        [train, *rest], max_shapes=config.max_shapes, batch_size=config.batch_size
    )
    options: dict[str, Any] = {
        "shapes": shapes,
        "characters": prepared.spelling if characters else None,
    }
    training = gdata.ClozeBatches(train, batch_size=config.batch_size, seed=seed, **options)
    held = [
        gdata.ClozeBatches.eval(split, batch_size=config.eval_batch_size, **options)
        for split in rest
    ]
    return training, held[0], held[1]


def counts(encoded: gdata.EncodedCloze) -> dict[str, Any]:
    """The account of a split: questions read, set aside, out of the ordinary, without an answer."""
    report = encoded.source.report
    return {
        "questions": len(encoded),
        "read": report.lines,
        "set_aside": len(report.quarantine),
        "notes": dict(report.notes),
        "documents_cut": encoded.cut,
        "answer_not_in_document": int((~encoded.answerable).sum()),
    }


def save_words(workdir: Path, prepared: Prepared) -> None:
    """Writes what `answer` needs beside the checkpoints: words and alphabet."""
    prepared.vocabulary.save(workdir / "vocabulary.json")
    write_json(workdir / "characters.json", {"alphabet": prepared.characters.alphabet})


def load_words(workdir: Path) -> tuple[gdata.Vocabulary, gdata.Characters]:
    """Reads what `save_words` wrote."""
    vocabulary = gdata.Vocabulary.load(workdir / "vocabulary.json")
    alphabet = read_json(workdir / "characters.json", "alphabet")["alphabet"]
    return vocabulary, gdata.Characters(alphabet)
