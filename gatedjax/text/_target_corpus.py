"""The targets of a corpus, its strata, and its split into training and validation."""

import dataclasses
import re
from collections.abc import Container, Iterable
from typing import Any

import numpy as np

from gatedjax.text import _copies, _corpus
from gatedjax.text._corpus import Corpus
from gatedjax.text._prediction import LABELS, REGRESSION
from gatedjax.text._table import Label
from gatedjax.text._target_base import Target, TargetOptions
from gatedjax.text._target_labels import LabelTarget
from gatedjax.text._targets import TARGET_OF

# A list of quoted texts or of numbers, or an empty list, as Python, NumPy and JSON write it.
# The possessive repetitions take all spaces, because three that share them would take cubic time.
_LIST = re.compile(r"""\[\s*+((["']).*\2\s*+|[\d\s.,]*+)\]""", re.DOTALL)
WITHOUT_CLASSES = LABELS, REGRESSION
"""The kinds of models whose texts have not a single class each."""


def read_target(corpus: Corpus, kind: str, options: TargetOptions) -> Target:
    """Returns the `Target` of training texts, which encodes labels and computes metrics."""
    return TARGET_OF[kind].of_labels(corpus.classes, list(corpus.class_counts.values()), options)


def encode_corpus(corpus: Corpus, target: Target) -> np.ndarray:
    """Returns the targets of the texts, an array with a row for each of the n texts."""
    return target.encode(corpus.classes)[corpus.labels]


def stratify_corpus(corpus: Corpus, target: Target, targets: np.ndarray) -> Corpus:
    """Returns the corpus with the stratum of each text in place of its class: a class, a grade, the
    rarest label, or a tenth of the numbers. Texts are split in proportion to the strata.
    """
    labels, classes = target.stratify(targets)
    return dataclasses.replace(corpus, labels=labels, classes=classes)


def check_strata(strata: Corpus, kind: str, *, split: bool) -> None:
    """Raises ValueError if there are too few texts for training."""
    if kind not in WITHOUT_CLASSES:
        _corpus.check_trainable(strata, split=split)
    elif split and len(np.unique(_copies.equal_texts(strata))) < 2:
        raise ValueError(
            f"{strata.name} must have two different texts, for training and validation, got one: "
            "add texts, or give validation data"
        )


def split_strata(strata: Corpus, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the texts for training and for validation."""
    training, validation = _corpus.split_training(strata, held_out)
    if len(validation):
        return training, validation
    # With few texts each stratum may have a single text, which would be for training.
    return _corpus.split_training(join_strata(strata), held_out)


def join_strata(strata: Corpus) -> Corpus:
    """Returns the corpus with all texts in a single stratum, a class with the name ""."""
    return dataclasses.replace(strata, labels=np.zeros_like(strata.labels), classes=("",))


def count_left_out(corpus: Corpus, target: Target) -> dict[Label, int]:
    """Returns the labels that training leaves out, with their numbers of texts."""
    # The texts of rare classes are not in the corpus.
    if not isinstance(target, LabelTarget):
        return {}
    counts = dict.fromkeys(sorted(target.left_out, key=str), 0)
    labels: Any = corpus.class_counts
    for names, count in labels.items():
        for name in target.left_out.intersection(names):
            counts[name] += count
    return counts


def note_joined_labels(labels: Iterable[Any]) -> str | None:
    """Returns a sentence about labels that look like several labels in a cell, or None: a list as
    text, as "['a', 'b']", or other labels with ";", "," or "|" between them.

        >>> note_joined_labels(["a", "b", "a;b"]).split(":")[0]
        "labels with several labels in a cell ('a;b') count as single labels"
        >>> note_joined_labels(["a", "b", "c;d"]) is None
        True
    """
    different = {name for names in labels for name in (names if type(names) is tuple else [names])}
    texts = {name.strip() for name in different if isinstance(name, str)}
    joined = sorted(name for name in texts if _LIST.fullmatch(name) or _is_joined(name, texts))
    if not joined:
        return None
    shown = ", ".join(map(repr, joined[:3])) + ", ..." * (len(joined) > 3)
    return (
        f"labels with several labels in a cell ({shown}) count as single labels: for several "
        "labels of a text give a list in .jsonl, or __label__a __label__b in .txt, with --task "
        "labels"
    )


def _is_joined(name: str, labels: Container[str]) -> bool:
    parts = [[part.strip() for part in name.split(mark)] for mark in ";,|" if mark in name]
    return any(all(part in labels for part in split) for split in parts)


def list_single(strata: Corpus, target: Target, targets: np.ndarray) -> list[Label]:
    """Returns the classes or labels that a single text has, which validation cannot check."""
    if target.kind in WITHOUT_CLASSES:
        return target.list_single(targets)
    return _copies.single_text_classes(strata)
