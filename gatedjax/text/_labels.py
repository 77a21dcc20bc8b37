"""Classes and tags: the places of labels, and the refusal of labels that only look the same.

`gatedjax.text._table.read_label` reads a label; labels then are compared as what they are: the text
"1" is not the number 1. Two labels that a reader cannot tell apart are never two classes.
"""

import itertools
import re
from collections.abc import Iterable, Sequence

import numpy as np

from gatedjax.text._table import Label, read_label

# controls, and characters without a width: spaces, marks of direction, byte order marks
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_TRUTHS = {True: ("True", "true", "TRUE"), False: ("False", "false", "FALSE")}


class Classes:
    """The places of labels, in the order in which they come.

    Args:
      what: what they are called in errors: "label" or "tag".
      known: the classes of a model, which are the only ones then; None takes what comes.

    Raises:
      ValueError: if two of the known classes are one label by `read_label`.
    """

    def __init__(self, what: str, known: Sequence[Label] | None = None) -> None:
        self._what, self._known = what, known
        self.places: dict[Label, int] = {}
        self._looks: dict[str, tuple[Label, str]] = {}
        self._truths: set[bool] = set()
        for label in known or ():
            # models of earlier versions have classes with spaces around them
            plain = read_label(what, label)
            if plain in self.places:
                raise ValueError(
                    f"the model has two classes for the {what} {show(plain)}, with spaces or in "
                    "another Unicode form: train it again"
                )
            self._add(plain, "the model")

    def find(self, label: Label, where: str, line: int) -> int | None:
        """Returns the place of a label, None if it has none.

        Args:
          label: from `read_label`.
          where, line: where it stands, for messages.

        Raises:
          ValueError: for a number beside truth values, and for a label without a place that looks
            like one that has a place: a text like a number, or with other spaces in it.
        """
        mixed = self._truths and isinstance(label, bool) not in self._truths
        if mixed and not isinstance(label, str):  # as keys they would be one class
            raise ValueError(
                f"{where}:{line}: {self._what}s must not mix numbers with true and false, which "
                f"equal 1 and 0, got {show(label)} beside others"
            )
        place = self.places.get(label)
        if place is None:
            other = next(filter(None, map(self._looks.get, _looks(label))), None)
            if other is not None:
                raise ValueError(f"{where}:{line}: {self._alike(label, *other)}")
        return place

    def place(self, label: Label, where: str, line: int) -> int:
        """Returns the place of a label; a new label gets the next one if no classes are known.

        Raises:
          ValueError: as `find`, and for a label that is not among the known classes.
        """
        place = self.find(label, where, line)
        if place is None and self._known is not None:
            raise ValueError(
                f"{where}:{line}: the {self._what} {label!r} is none that the model was trained "
                f"on: {_listed(self._known)}"
            )
        return self._add(label, f"{where}:{line}") if place is None else place

    def _add(self, label: Label, first: str) -> int:
        self.places[label] = len(self.places)
        for look in _looks(label):
            self._looks.setdefault(look, (label, first))
        if not isinstance(label, str):
            self._truths.add(isinstance(label, bool))
        return self.places[label]

    def _alike(self, label: Label, other: Label, first: str) -> str:
        ours, theirs = show(label), show(other)
        if self._known is None:
            return (
                f"the {self._what} {ours} looks like {theirs} of {first}, but is another one: "
                "write both in one way"
            )
        hint = "write it in the same way"
        if isinstance(label, str) != isinstance(other, str):
            hint = (
                "give it in that type (.csv, .tsv, .txt and folders have texts alone, .jsonl and "
                "data in memory have numbers too)"
            )
        return (
            f"the {self._what} {ours} is none that the model was trained on: it has {theirs}, "
            f"which only looks the same: {hint}"
        )


def _looks(label: Label) -> tuple[str, ...]:
    """The texts as which a label may be seen."""
    if isinstance(label, str):
        return (CONTROL.sub("", " ".join(label.split())),)
    if isinstance(label, bool):
        return _TRUTHS[label]
    if label == int(label):
        return str(int(label)), f"{int(label)}.0"
    return (str(label),)


def show(label: Label) -> str:
    """Returns a label with its type, in ASCII: other characters may look alike."""
    return f"{label!a} ({type(label).__name__})"


def array_of(labels: Iterable[Label], dtype: object = None) -> np.ndarray:
    """An array of labels, in which they are still what they are: an array of texts and numbers
    would have texts alone."""
    labels = list(labels)
    array = np.array(labels, dtype)  # type: ignore[call-overload]
    as_they_are = array.tolist() == labels
    if array.dtype.kind == "f":  # large integers become float64
        as_they_are = as_they_are and any(isinstance(label, float) for label in labels)
    return array if as_they_are or dtype is not None else np.array(labels, object)


def _listed(classes: Sequence[Label]) -> str:
    shown = ", ".join(repr(label) for label in itertools.islice(classes, 8))
    return shown + (f", ... ({len(classes)} in all)" if len(classes) > 8 else "")
