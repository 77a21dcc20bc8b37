"""The interface of a model in training: it reads texts, and is fitted to them."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gatedjax.text._options import TextOptions
from gatedjax.text.corpus._corpus import Corpus, Duplicates
from gatedjax.text.targets._base import Target

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """The labelled texts of a training, which are read and split."""

    kind: str
    target: Target | None  # None for a tagger
    corpora: Mapping[str, Corpus]  # by purpose: "train", and if given "validation" and "test"
    targets: Mapping[str, Any]  # of each corpus, see `Target`; for a tagger the rows of tags
    training: np.ndarray  # the positions in "train" of the texts for training
    validation: np.ndarray  # and of those for validation; empty if they are given
    duplicates: Duplicates
    sample_weight: np.ndarray | None  # float64 [n]: of the texts of "train"; None if all are equal

    @property
    def is_split(self) -> bool:
        """True if the validation texts are a part of the training texts."""
        return len(self.validation) > 0

    @property
    def sizes(self) -> dict[str, int]:
        """The number of texts for each purpose."""
        sizes = {name: len(corpus) for name, corpus in self.corpora.items()}
        if self.is_split:
            sizes |= {"train": len(self.training), "validation": len(self.validation)}
        return sizes

    def split(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Returns parts of texts by purpose, validation texts split off unless they are given."""
        if not self.is_split:
            return parts
        every = parts["train"]
        split = {"train": self.training, "validation": self.validation}
        return parts | {name: every.select(rows) for name, rows in split.items()}


class Learner(abc.ABC):
    """A kind of model in training, which reads the training texts first."""

    def __init__(self, kind: str, options: TextOptions) -> None:
        self.kind, self.options = kind, options

    @abc.abstractmethod
    def read(self, name: str, table: Any, **options: Any) -> Corpus:
        """Reads the texts for a purpose, with the options of `read_examples`."""

    def describe(self, corpus: Corpus) -> list[str]:
        """Returns further lines about a corpus."""
        return []

    @abc.abstractmethod
    def fit(self, data: Data, say: Say) -> tuple[Any, int]:
        """Returns the fitted model, whose `report` lacks only "data", and the number of texts."""
