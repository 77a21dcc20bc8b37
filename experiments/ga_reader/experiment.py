"""A run of a reader, put together from its configuration."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core import text
from experiments.core.config import with_changes
from experiments.core.experiment import Experiment, count_parameters
from experiments.core.kinds import Json, Params
from experiments.core.origins import join_remarks
from experiments.core.records import write_json
from experiments.ga_reader.config import DataConfig, GAReaderRunConfig
from gatedjax import data as gdata
from gatedjax.models import GAReader, GAReaderTask
from gatedjax.text.models._folders import CHARACTERS
from gatedjax.training.distributed import is_main

SOURCES = {"cnn": "cnn_cloze", "daily_mail": "daily_mail_cloze", "wdw": "wdw_strict"}
"""The names in `gatedjax.data.load` of the data sets that have another name there."""


def source_of(name: str, split: str, folders: Any) -> gdata.Source:
    """Loads the questions of a split."""
    source: gdata.Source = text.load_splits(SOURCES.get(name, name), folders, [split])[split]
    return source


@dataclasses.dataclass(frozen=True, eq=False)
class Questions:
    """A data set of questions: the encoded splits, and the alphabet of their words."""

    texts: text.Texts[gdata.EncodedCloze]
    characters: gdata.Characters

    @functools.cached_property
    def spelling(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the characters of each word in the vocabulary."""
        return self.characters.table(self.texts.vocabulary)

    def save(self, workdir: Path) -> None:
        """Writes the words and the alphabet, which `answer` needs in addition to the
        checkpoints."""
        text.write_words(self.texts.vocabulary, (), workdir)
        if is_main():
            write_json(workdir / CHARACTERS, {"alphabet": self.characters.alphabet})


@functools.lru_cache(maxsize=1)
def read_questions(config: DataConfig, dim: int) -> Questions:
    """Loads, counts and encodes the splits, and reads the word vectors. The vocabulary has the
    words of all splits. A word without a pretrained vector has a random vector, as words of new
    texts have (the paper's OOV vectors at test time). The last result is cached, so that
    consecutive runs share it."""
    path = text.find_embeddings(config.embeddings, config.manual_dir)
    text.check_embeddings(path, dim)
    sources = {split: source_of(config.name, split, config) for split in text.SPLITS}
    vocabulary = gdata.cloze_vocabulary(list(sources.values()), lowercase=config.lowercase)
    # The coverage is only known for a file of word vectors.
    coverage = None
    if path is None:
        matrix = gdata.random_embeddings(vocabulary, dim, std=config.oov_std)
    else:
        vectors = text.read_embeddings(path, vocabulary, dim=dim, oov_std=config.oov_std)
        matrix, coverage = vectors.matrix, vectors.coverage
    splits = {
        split: gdata.encode_cloze(source, vocabulary, max_doc_len=config.max_doc_len)
        for split, source in sources.items()
    }
    texts = text.Texts(splits, vocabulary, matrix, coverage)
    return Questions(texts, gdata.Characters.build(vocabulary))


UNREAD = {"batch_size": 1, "eval_batch_size": 1, "max_shapes": 1, "fraction": 1, "fraction_seed": 0}
"""Options without an effect on the files that are read: batch sizes and the share of the questions.
The cache of `read_questions` sees them as constants."""


def experiment(config: GAReaderRunConfig) -> Experiment:
    """Returns the run of a configuration."""
    data, spelt = config.data, config.model.characters.char_dim > 0
    questions = read_questions(with_changes(data, UNREAD), config.model.embedding_dim)
    texts, letters = questions.texts, questions.characters
    train, *evaluation = (texts.splits[split] for split in text.SPLITS)
    if data.fraction < 1:
        train = train.fraction(data.fraction, seed=data.fraction_seed)
    # All splits have the same shapes, so that the test reuses the program compiled for validation.
    shapes = gdata.plan_cloze_shapes(
        [train, *evaluation], max_shapes=data.max_shapes, batch_size=data.batch_size
    )
    options: Json = {"shapes": shapes}
    options["characters"] = questions.spelling if spelt else None
    batches = functools.partial(gdata.ClozeBatches, train, batch_size=data.batch_size, **options)
    validation, test = (
        gdata.ClozeBatches.eval(split, batch_size=data.eval_batch_size, **options)
        for split in evaluation
    )
    first = batches()
    network = GAReader(
        config.model,
        vocab_size=len(texts.vocabulary),
        num_characters=len(letters) if spelt else 0,
        embeddings=texts.embeddings,
    )
    return Experiment(
        task=GAReaderTask(network),
        train=lambda seed: batches(seed=seed),
        validation=validation,
        test=test,
        facts={
            "data": data.name,
            "preset": config.preset,
            "train_n": len(train),
            "steps_per_epoch": len(first),
            "counts": {split: counts(encoded) for split, encoded in texts.splits.items()},
            **texts.facts(),
            "shapes": [[size for _, size in sorted(vars(shape).items())] for shape in shapes],
            "padding": round(first.padding_fraction, 4),
        },
        vocabulary=texts.vocabulary.digest(),
        substitute=substitute(data, texts.substitute),
        training=config.training(len(first)),
        count=functools.partial(count, frozen=config.model.freeze_embeddings),
        before=questions.save,
    )


def count(params: Params, *, frozen: bool) -> dict[str, int]:
    """Counts the trained numbers like `count_parameters`, without frozen word vectors."""
    counts = count_parameters(params)
    trained = "parameters_without_embeddings" if frozen else "parameters"
    return counts | {"parameters": counts[trained]}


def counts(encoded: gdata.EncodedCloze) -> Json:
    """Counts the questions of a split that were read, set aside, unusual, or without an answer."""
    report = encoded.source.report
    return {
        "questions": len(encoded),
        "read": report.lines,
        "set_aside": len(report.quarantine),
        "notes": dict(report.notes),
        "documents_cut": encoded.cut,
        "answer_not_in_document": int((~encoded.answerable).sum()),
    }


def substitute(config: DataConfig, questions: str | None) -> str | None:
    """Returns a note about the differences from the paper's questions and word vectors."""
    parts = [questions]
    if config.name != "two_facts":
        if config.embeddings == "none":
            parts.append("random word vectors where the paper has GloVe 100-d")
        if config.fraction < 1:
            parts.append(f"{100 * config.fraction:g} % of the training questions")
    return join_remarks(parts)
