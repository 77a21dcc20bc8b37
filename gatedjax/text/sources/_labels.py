"""Texts and labels by one rule for all sources; labels that only look the same are refused.

Labels are compared with their types: the text "1" is not the number 1. Two labels that a reader
cannot distinguish are never two classes.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from gatedjax._utils.terminal import printable
from gatedjax.text.sources._lines import fault

Label = str | int | float | bool
Labels = tuple[Label, ...]
"""Several labels of a text, as in fastText's "__label__a __label__b text" or a list in JSON."""
TARGETS = ("class", "labels", "number")
"""The forms of a label: `Columns.target`."""
# Control characters, and characters without a width: spaces, marks of direction, byte order marks.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
# In addition, characters that a font may not draw: the soft hyphen, joiners and variants.
_UNSEEN = re.compile(
    f"{CONTROL.pattern[:-1]}\u00ad\u034f\u061c\u180b-\u180e\u200c\u200d\ufe00-\ufe0f]"
)
_TRUTHS = {True: ("True", "true", "TRUE"), False: ("False", "false", "FALSE")}


def compose(text: str) -> str:
    """Returns the text in Unicode's form NFC, without spaces around it."""
    return unicodedata.normalize("NFC", text).strip()


def read_text(name: str, value: object) -> str:
    """Returns the text in a cell of the column `name`; bytes are decoded as UTF-8."""
    if isinstance(value, bytes):  # The texts of TFDS are bytes.
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str):
        _refuse(name, value, "a text")
    # The words are a reason in the report on unusable lines, which counts equal reasons.
    if not value.strip():
        raise ValueError(f"no {name}")
    if problem := fault(value):
        raise ValueError(problem)
    return str.__str__(value)  # A subclass of str, such as a string of NumPy, becomes a plain str.


def read_label(name: str, value: object) -> Label:
    """Normalises a label, by the same rule in files, rows, columns, y and classes. A text gets
    Unicode's form NFC without outer spaces and stays a text if it looks like a number. NumPy's
    numbers and truth values become Python's.
    """
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of NumPy
        value = value.item()
    if isinstance(value, str | bytes):
        return compose(read_text(name, value))
    if not isinstance(value, bool | int | float) or value != value:
        _refuse(name, value, "a text or a number")
    if isinstance(value, float) and math.isinf(value):
        raise ValueError(f"{name} must be finite, got {value}")
    # `int` turns a subclass of int, such as a member of an IntEnum, into a plain number.
    return value if isinstance(value, bool | float) else int(value)


def read_target(name: str, value: object, target: str) -> Label | Labels:
    """Reads the cell of a label: for the target "class" a label, or several that are refused later;
    for "labels" a tuple; for "number" a finite number, which may be a text such as "3.5".
    """
    if target == "number":
        return _read_number(name, value)
    if not isinstance(value, list | tuple) and getattr(value, "ndim", 0) != 1:
        if target == "class":
            return read_label(name, value)
        return () if isinstance(value, str) and not value.strip() else (read_label(name, value),)
    cells = list(cast(Iterable[object], value))
    # An array of 0 and 1 would be read as the labels 0 and 1; a list has each label once.
    if target == "labels" and is_zero_or_one(cells) and len(set(cells)) < len(cells):
        raise ValueError(
            f"{name} must be a list of labels, got the indicator {value!r:.40}: write the names "
            "of the labels"
        )
    # The types count too, because 1 equals True.
    by_type = {(type(label), label): label for label in (read_label(name, cell) for cell in cells)}
    labels = tuple(by_type.values())
    if target == "labels":
        return labels
    if not labels:
        raise ValueError(f"{name} must be a label or several, got an empty list")
    return labels[0] if len(labels) == 1 else labels


def _read_number(name: str, value: object) -> float:
    label = read_label(name, value)
    # `float` would read true as 1.
    if isinstance(label, bool):
        raise ValueError(f"{name} must be a number, got {label}")
    try:
        number = parse_number(label)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a number, got {label!r:.40}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {label!r:.40}")
    return number


def parse_number(label: Label) -> float:
    """Returns the number that a label is, or has as a text in the usual notation."""
    # `float` reads underscores as in the source code of Python, where "1_0" is 10. In data such a
    # text is more likely a name or an error.
    if "_" in str(label):
        raise ValueError(f"a number must have no underscore, got {label!r:.40}")
    return float(label)


def is_zero_or_one(cells: Iterable[Any]) -> bool:
    """Returns True if all cells are 0, 1 or truth values, as in a row of an indicator."""
    # The texts "0" and "1" are labels.
    plain = [cell.item() if getattr(cell, "ndim", None) == 0 else cell for cell in cells]
    return all(isinstance(cell, bool | int | float) and cell in (0, 1) for cell in plain)


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    """Raises ValueError for a cell that is missing, as pandas writes it too, or of another type."""
    is_nan = isinstance(value, float) and math.isnan(value)
    if is_nan or value is None or type(value).__name__ in ("NAType", "NaTType"):
        raise ValueError(f"no {name}")
    raise ValueError(
        f"{name} must be {expected}, got {type(value).__name__} {printable(repr(value))[:40]}"
    )


class Classes:
    """A table of the positions of labels, in the order in which the labels come: `places`. With
    the `classes` of a model a new label is refused or, with `accept_unknown`, has the position -1.
    `noun` is "label" or "tag", for messages.
    """

    def __init__(
        self, noun: str, classes: Sequence[Label] | None = None, *, accept_unknown: bool = False
    ) -> None:
        self._noun, self._accepts_unknown = noun, accept_unknown
        self.is_new = classes is None  # then the labels of the source become the classes
        self._classes: Sequence[Label] | None = None
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
            self.place(plain, "the model", 1)
        self._classes = classes

    def place(self, label: Label | Labels, where: str, line: int) -> int:
        """Returns the position of a label; several labels and look-alikes are refused."""
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
        if label in self.places:
            return self.places[label]
        looks = _looks(label)
        if other := next(filter(None, map(self._looks.get, looks)), None):
            raise ValueError(f"{where}:{line}: {self._alike(label, *other)}")
        if self._classes is None:
            self._looks |= dict.fromkeys(looks, (label, f"{where}:{line}"))
            if not isinstance(label, str):
                self._truths.add(isinstance(label, bool))
            return self.places.setdefault(label, len(self.places))
        if self._accepts_unknown:
            return -1
        names = ", ".join(map(repr, self._classes[:8]))
        more = f", ... ({len(self._classes)} in all)" * (len(self._classes) > 8)
        raise ValueError(
            f"{where}:{line}: {self._noun} must be a class of the model ({names}{more}), got "
            f"{label!r}"
        )

    def _alike(self, label: Label, other: Label, first: str) -> str:
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
    # Spreadsheets and frames print a whole number with or without a fraction.
    return (str(int(label)), f"{int(label)}.0") if label == int(label) else (str(label),)


def show(label: Label) -> str:
    """Returns a label with the name of its type, such as "'good' (str)"."""
    # In ASCII, because other characters may look alike.
    return f"{label!a} ({type(label).__name__})"


def array_of(labels: Iterable[Label]) -> np.ndarray:
    """Returns an array of labels; its dtype is object if another dtype would change a label. NumPy
    converts numbers to strings in an array that also has strings, and large integers to float64.
    """
    labels = list(labels)
    array = np.array(labels)
    is_equal = array.tolist() == labels
    # 1 equals 1.0, so that the comparison does not show that integers became floats.
    if array.dtype.kind == "f":
        is_equal = is_equal and any(isinstance(label, float) for label in labels)
    return array if is_equal else np.array(labels, object)
