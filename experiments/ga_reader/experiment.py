"""What one run of a reader is made of."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.experiment import Experiment, count_parameters
from experiments.core.origins import joined
from experiments.core.records import read_json, write_json
from experiments.core.text import SPLITS, check_embeddings, find_embeddings, read_embeddings
from experiments.ga_reader.config import Config, DataConfig
from gatedjax import data as gdata
from gatedjax.models import GAReader, GAReaderTask

SOURCES = {"cnn": "cnn_cloze", "daily_mail": "daily_mail_cloze", "wdw": "wdw_strict"}
"""Names of data sets that are other ones in `gatedjax.data.load`."""


def source_of(name: str, split: str, folders: Any) -> gdata.Source:
    """The questions of a split; `folders` has data_dir and manual_dir."""
    if name == "two_facts":
        return gdata.load(name, split)
    paths = {"data_dir": folders.data_dir, "manual_dir": folders.manual_dir}
    return gdata.load(SOURCES.get(name, name), split, **paths)


@dataclasses.dataclass(frozen=True, eq=False)
class Questions:
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


def questions_of(config: DataConfig, embedding_dim: int) -> Questions:
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
    return _questions(same, embedding_dim)


@functools.lru_cache(maxsize=1)
def _questions(config: DataConfig, dim: int) -> Questions:
    path = find_embeddings(config.embeddings, config.manual_dir)
    check_embeddings(path, dim)
    sources = {split: source_of(config.name, split, config) for split in SPLITS}
    vocabulary = gdata.cloze_vocabulary(list(sources.values()), lowercase=config.lowercase)
    coverage = None
    if path is None:
        matrix = gdata.random_embeddings(vocabulary, dim, std=config.oov_std)
    else:
        vectors = read_embeddings(path, vocabulary, dim=dim, oov_std=config.oov_std)
        matrix, coverage = vectors.matrix, vectors.coverage
    encoded = {
        split: gdata.encode_cloze(source, vocabulary, max_doc_len=config.max_doc_len)
        for split, source in sources.items()
    }
    characters = gdata.Characters.build(vocabulary)
    return Questions(encoded, vocabulary, characters, matrix, coverage)


def experiment(config: Config) -> Experiment:
    """The run of a configuration."""
    data, spelt = config.data, config.model.char_dim > 0
    questions = questions_of(data, config.model.embedding_dim)
    asked, *held = (questions.splits[split] for split in SPLITS)
    if data.fraction < 1:
        asked = asked.fraction(data.fraction, seed=data.fraction_seed)
    # all splits have the same shapes: what validation compiled, the test pass finds
    shapes = gdata.plan_cloze_shapes(
        [asked, *held], max_shapes=data.max_shapes, batch_size=data.batch_size
    )
    options: dict[str, Any] = {
        "shapes": shapes,
        "characters": questions.spelling if spelt else None,
    }

    def training(seed: int) -> gdata.ClozeBatches:
        return gdata.ClozeBatches(asked, batch_size=data.batch_size, seed=seed, **options)

    validation, test = (
        gdata.ClozeBatches.eval(split, batch_size=data.eval_batch_size, **options) for split in held
    )
    batches = training(config.train.seed)
    network = GAReader(
        config.model,
        vocab_size=len(questions.vocabulary),
        num_characters=len(questions.characters) if spelt else 0,
        embeddings=questions.embeddings,
    )
    return Experiment(
        task=GAReaderTask(network),
        train=training,
        validation=validation,
        test=test,
        facts={
            "data": data.name,
            "preset": config.preset,
            "train_n": len(asked),
            "steps_per_epoch": len(batches),
            "counts": {split: counts(encoded) for split, encoded in questions.splits.items()},
            "vocabulary_size": len(questions.vocabulary),
            "embedding_coverage": questions.coverage,
            "shapes": [[size for _, size in sorted(vars(one).items())] for one in shapes],
            "padding": round(batches.padding_fraction, 4),
        },
        vocabulary=questions.vocabulary.digest(),
        substitute=substitute(data, questions),
        training=config.training(len(batches)),
        count=_count_without_words if config.model.freeze_embeddings else count_parameters,
        before=functools.partial(save_words, questions),
    )


def _count_without_words(params: Any) -> dict[str, int]:
    """As `count_parameters`, where word vectors are not trained."""
    rest = count_parameters(params)["parameters_without_embeddings"]
    return {"parameters": rest, "parameters_without_embeddings": rest}


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


def substitute(config: DataConfig, questions: Questions) -> str | None:
    """What differs from the paper's data and word vectors; None if nothing does."""
    parts = [questions.splits[split].info.substitute for split in SPLITS]
    if config.name != "two_facts":
        if config.embeddings == "none":
            parts.append("random word vectors where the paper has GloVe 100-d")
        if config.fraction < 1:
            parts.append(f"{100 * config.fraction:g} % of the training questions")
    return joined(parts)


def save_words(questions: Questions, workdir: Path) -> None:
    """Writes what `answer` needs beside the checkpoints: words and alphabet."""
    questions.vocabulary.save(workdir / "vocabulary.json")
    write_json(workdir / "characters.json", {"alphabet": questions.characters.alphabet})


def load_words(workdir: Path) -> tuple[gdata.Vocabulary, gdata.Characters]:
    """Reads what `save_words` wrote."""
    vocabulary = gdata.Vocabulary.load(workdir / "vocabulary.json")
    alphabet = read_json(workdir / "characters.json", "alphabet")["alphabet"]
    return vocabulary, gdata.Characters(alphabet)
