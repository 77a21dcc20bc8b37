"""The targets of a corpus, its strata, and its split into training and validation."""

import dataclasses

import numpy as np

from gatedjax.text import _copies, _corpus
from gatedjax.text._corpus import Corpus
from gatedjax.text._prediction import LABELS, REGRESSION
from gatedjax.text._table import Label
from gatedjax.text._targets import TARGET_OF, Target, TargetOptions

WITHOUT_CLASSES = LABELS, REGRESSION
"""The kinds of models whose texts have not a single class each."""


def read_target(corpus: Corpus, kind: str, options: TargetOptions) -> Target:
    """Returns the target of training texts.

    Args:
      corpus: the texts, with the different labels in the place of the classes.
      kind: the kind of the model.
      options: the options of the target.

    Raises:
      ValueError: if the labels are no targets of this kind.
    """
    return TARGET_OF[kind].of_labels(corpus.classes, list(corpus.class_counts.values()), options)


def encode_corpus(corpus: Corpus, target: Target) -> np.ndarray:
    """Returns the targets of the texts, see `Target.encode`."""
    return target.encode(corpus.classes)[corpus.labels]


def stratify_corpus(corpus: Corpus, target: Target, targets: np.ndarray) -> Corpus:
    """Returns a corpus in which the stratum of each text has the place of its class."""
    labels, classes = target.stratify(targets)
    return dataclasses.replace(corpus, labels=labels, classes=classes)


def check_strata(strata: Corpus, kind: str, *, split: bool) -> None:
    """Raises ValueError if there are too few texts for training.

    Args:
      strata: the result of `stratify_corpus`.
      kind: the kind of the model.
      split: True if a part of the texts will be split off for validation.
    """
    if kind not in WITHOUT_CLASSES:
        _corpus.check_trainable(strata, split=split)
    elif split and len(np.unique(_copies.equal_texts(strata))) < 2:
        raise ValueError(
            f"{strata.name} must have two different texts, for training and validation, got one: "
            "add texts, or give validation data"
        )


def split_strata(strata: Corpus, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the texts for training and for validation.

    Args:
      strata: the result of `stratify_corpus`.
      held_out: the share of the texts for validation.
    """
    training, validation = _corpus.split_training(strata, held_out)
    if len(validation):
        return training, validation
    # With few texts each stratum may have a single text, which would be for training.
    return _corpus.split_training(join_strata(strata), held_out)


def join_strata(strata: Corpus) -> Corpus:
    """Returns a corpus in which all texts are in a single stratum."""
    return dataclasses.replace(strata, labels=np.zeros_like(strata.labels), classes=("",))


def list_single(strata: Corpus, target: Target, targets: np.ndarray) -> list[Label]:
    """Returns the classes or labels that a single text has, which validation cannot check."""
    if target.kind in WITHOUT_CLASSES:
        return target.list_single(targets)
    return _copies.single_text_classes(strata)
