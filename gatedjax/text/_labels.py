"""Tables of the positions of labels and tags; labels that only look the same are refused.

`gatedjax.text._table.read_label` reads a label. Labels are compared with their types: the text "1"
is not the number 1. Two labels that a reader cannot distinguish are never two classes.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from gatedjax.text._table import Label, Labels, read_label

# Control characters, and characters without a width: spaces, marks of direction, byte order marks.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
# In addition, characters that a font may not draw: the soft hyphen, joiners and variants.
_UNSEEN = re.compile(
    f"{CONTROL.pattern[:-1]}\u00ad\u034f\u061c\u180b-\u180e\u200c\u200d\ufe00-\ufe0f]"
)
_TRUTHS = {True: ("True", "true", "TRUE"), False: ("False", "false", "FALSE")}


class Classes:
    """A table of the positions of labels, in the order in which the labels come.

        >>> classes = Classes("label")
        >>> [classes.place(label, "a.csv", 1) for label in ("good", "bad", "good")]
        [0, 1, 0]

    Args:
      noun: the noun for messages: "label" or "tag".
      classes: the classes of a model, to which no label is added; None adds each new label.

    Attributes:
      places: a dict from each label to its position, from 0.

    Raises:
      ValueError: if two of `classes` are the same label after `read_label` has normalised them.
    """

    def __init__(self, noun: str, classes: Sequence[Label] | None = None) -> None:
        self._noun, self._classes = noun, classes
        self.places: dict[Label, int] = {}
        self._looks: dict[str, tuple[Label, str]] = {}
        self._truths: set[bool] = set()
        for label in classes or ():
            # The classes of a folder from elsewhere may have spaces around them.
            plain = read_label(noun, label)
            if plain in self.places:
                raise ValueError(
                    "classes must differ without outer spaces and in Unicode's form NFC, got "
                    f"two that are {show(plain)}: train the model again"
                )
            self._add(plain, "the model")

    def find(self, label: Label | Labels, where: str, line: int) -> int | None:
        """Returns the position of a label, or None if the table does not have the label.

        Args:
          label: a label that `read_label` returned; a tuple of several labels is refused.
          where, line: the file and the line of the label, for messages.

        Returns:
          The position, from 0, or None for a label that is not in the table and looks like no
          label of the table.

        Raises:
          ValueError: if the label is a number and the table has truth values, or the reverse; if
            the table does not have the label but a label that looks the same, such as 1 for "1"; or
            for several labels.
        """
        if isinstance(label, tuple):
            raise ValueError(
                f"{where}:{line}: {self._noun} must be a single label, got "
                f"{', '.join(map(repr, label[:4]))}{', ...' * (len(label) > 4)}: this model has "
                "a single class for each text (it is no multi-label model). Give a label to each "
                "text, or train with --task labels (in Python with MultiLabelTextClassifier)"
            )
        mixed = self._truths and isinstance(label, bool) not in self._truths
        if mixed and not isinstance(label, str):  # As keys of a dict, 1 and True are equal.
            remainder = "numbers" if isinstance(label, bool) else "true and false"
            raise ValueError(
                f"{where}:{line}: {self._noun}s must be only numbers or only true and false, "
                f"because true equals 1, got {show(label)} where other {self._noun}s are "
                f"{remainder}"
            )
        place = self.places.get(label)
        if place is None:
            other = next(filter(None, map(self._looks.get, _looks(label))), None)
            if other is not None:
                raise ValueError(f"{where}:{line}: {self._alike(label, *other)}")
        return place

    def place(self, label: Label | Labels, where: str, line: int) -> int:
        """Returns the position of a label, and adds a new label unless the classes are known.

        Args:
          label: a label that `read_label` returned.
          where, line: the file and the line of the label, for messages.

        Returns:
          The position, from 0.

        Raises:
          ValueError: if the classes are known and the label is not among them; if the label is a
            number and the table has truth values, or the reverse; or if the table does not have
            the label but a label that looks the same, such as 1 for "1".
        """
        place = self.find(label, where, line)
        if place is None and self._classes is not None:
            raise ValueError(
                f"{where}:{line}: {self._noun} must be a class of the model "
                f"({_list_classes(self._classes)}), got {label!r}"
            )
        # `find` has refused a tuple of labels.
        return self._add(cast(Label, label), f"{where}:{line}") if place is None else place

    def _add(self, label: Label, first: str) -> int:
        """Adds a label, first read at a place such as "a.csv:3", and returns its position."""
        self.places[label] = len(self.places)
        for look in _looks(label):
            # The first label with this look stays, because the message names the place where it was
            # read first.
            self._looks.setdefault(look, (label, first))
        if not isinstance(label, str):
            self._truths.add(isinstance(label, bool))
        return self.places[label]

    def _alike(self, label: Label, other: Label, first: str) -> str:
        """Returns the message about a label that only looks like a label of the table."""
        ours, theirs = show(label), show(other)
        if self._classes is None:
            return (
                f"{self._noun}s that look the same must be equal, got {ours}, and {theirs} in "
                f"{first}: write both in the same way"
            )
        hint = "write it like the class"
        if isinstance(label, str) != isinstance(other, str):
            hint = (
                f"give it as {type(other).__name__} (.csv, .tsv, .txt and folders have only texts, "
                ".jsonl and data in memory also have numbers)"
            )
        return (
            f"{self._noun} must be a class of the model, got {ours}, which only looks like the "
            f"class {theirs}: {hint}"
        )


def _looks(label: Label) -> tuple[str, ...]:
    """Returns the texts by which a label may be printed, such as "1" and "1.0" for the number 1."""
    if isinstance(label, str):
        return (_UNSEEN.sub("", " ".join(label.split())),)
    if isinstance(label, bool):
        return _TRUTHS[label]
    if label == int(label):
        # Spreadsheets and frames print a whole number with or without a fraction.
        return str(int(label)), f"{int(label)}.0"
    return (str(label),)


def show(label: Label) -> str:
    """Returns a label with the name of its type, such as "'good' (str)"."""
    # In ASCII, because other characters may look alike.
    return f"{label!a} ({type(label).__name__})"


def array_of(labels: Iterable[Label], dtype: object = None) -> np.ndarray:
    """Returns an array of labels; its dtype is object if another dtype would change a label. NumPy
    converts numbers to strings in an array that also has strings, and large integers to float64.

        >>> print(array_of([1, "a"]).tolist())
        [1, 'a']
    """
    labels = list(labels)
    array = np.array(labels, dtype)  # type: ignore[call-overload]
    is_equal = array.tolist() == labels
    # 1 equals 1.0, so that the comparison does not show that integers became floats.
    if array.dtype.kind == "f":
        is_equal = is_equal and any(isinstance(label, float) for label in labels)
    return array if is_equal or dtype is not None else np.array(labels, object)


def _list_classes(classes: Sequence[Label]) -> str:
    names = ", ".join(repr(label) for label in itertools.islice(classes, 8))
    return names + (f", ... ({len(classes)} in all)" if len(classes) > 8 else "")
