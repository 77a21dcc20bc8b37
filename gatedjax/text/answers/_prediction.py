"""Predictions of classifiers, and checks of model folders. No function of this module needs JAX."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from gatedjax._utils.types import Json
from gatedjax.export._card import LEXICON as LEXICON
from gatedjax.export._card import LINEAR as LINEAR
from gatedjax.text.sources._labels import Label
from gatedjax.text.sources._table import Columns

T = TypeVar("T")
STATES = "states"
"""The name of the model that reads the token vectors of an encoder."""
OF_WORDS = LEXICON, LINEAR
"""The models whose logits are sums over the words of a text."""
WITHOUT_NETWORK = *OF_WORDS, STATES
# The names of files in the folder of a model.
VOCABULARY, REPORT, TOKENS = "vocabulary.json", "report.json", "tokens.json"
LABELS, REGRESSION, ORDINAL = "labels", "regression", "ordinal"
"""The kinds that only models of words have, besides "text": several labels for each text, a real
number, and a grade among grades with an order."""
TARGETS = LABELS, REGRESSION, ORDINAL
COLUMNS = {
    "text": Columns(("text",)),
    "pair": Columns(("premise", "hypothesis")),
    LABELS: Columns(("text",), target="labels"),
    REGRESSION: Columns(("text",), target="number"),
    ORDINAL: Columns(("text",)),
}
"""The default columns for each kind of model."""


class _Answer:
    """The base class of predictions."""

    __slots__: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Returns the line of `gatedjax predict`, a dict of the fields for `json.dumps`."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "most_probable"}
        return {
            name: _FORMS[name](value) if name in _FORMS else value
            for name, value in fields.items()
            if value or name not in ("note", "unknown")
        }


def _round(number: float) -> float:
    return round(number, 6)


_FORMS: dict[str, Callable[[Any], Any]] = {
    "labels": list,
    "probabilities": lambda numbers: list(map(_round, numbers)),
    "probability": _round,
    "share": _round,
    "value": lambda number: float(f"{number:.12g}"),
}
"""The form of a field in JSON; other fields stay as they are."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction(_Answer):
    """The prediction of a model for a text or a pair of texts.

        >>> prediction = Prediction("good", 0.75, ["fun"], 0.5)
        >>> prediction.label
        'good'
        >>> prediction.to_json()
        {'label': 'good', 'probability': 0.75, 'read': ['fun'], 'share': 0.5}

    Attributes:
      label: the predicted class, as it was written in the training data: the most probable class,
        or the class that a threshold chose, or the median grade.
      probability: the probability of this class.
      read: the words that are read. A lexicon reads them and no other word. For a network they are
        the words that attention can see: words with an open gate, or without gates all words, or
        the words that local attention or the selector chose. For a pair there is a list for each
        text. The prediction of a network also depends on other words, through the encoder; "leak"
        in the reports of `train` and `evaluate` measures by how much.
      share: share of the words in `read`. In an SSAN each word selects words, and the share is
        the share of the pairs of words that are selected.
      note: a remark, such as "nothing of it was in the training texts", or "".
      most_probable: the most probable class and its probability, if `label` may be another class: a
        grade, which is the median, or a class that a threshold chose; None if it is `label`.
      unknown: for a lexicon the words of the text that are in no training text, read or not. Those
        in `read` are read by their letters only.
    """

    label: Label
    probability: float
    read: list[Any]
    share: float
    note: str = ""
    most_probable: tuple[Label, float] | None = dataclasses.field(default=None, kw_only=True)
    unknown: list[str] = dataclasses.field(default_factory=list, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Failure(_Answer):
    """The reason why there is no prediction for a text."""

    error: str


@dataclasses.dataclass(frozen=True, slots=True)
class LabelsPrediction(_Answer):
    """The prediction of a model with several labels for each text.

        >>> LabelsPrediction(("sports", "news"), (0.875, 0.5), ["goal"], 0.25).to_json()["labels"]
        ['sports', 'news']

    Attributes:
      labels: the predicted labels, the most probable first; may be empty.
      probabilities: the probability of each predicted label.
      read: the words that the model reads, and no other word.
      share, note, unknown: as in `Prediction`.
    """

    labels: tuple[Label, ...]
    probabilities: tuple[float, ...]
    read: list[str]
    share: float
    note: str = ""
    unknown: list[str] = dataclasses.field(default_factory=list, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True)
class ValuePrediction(_Answer):
    """The prediction of a real number.

        >>> ValuePrediction(3.5, ["fine"], 0.25).to_json()
        {'value': 3.5, 'read': ['fine'], 'share': 0.25}

    Attributes:
      value: the predicted number, in the unit of the training targets.
      read: the words that the model reads, and no other word.
      share, note, unknown: as in `Prediction`.
    """

    value: float
    read: list[str]
    share: float
    note: str = ""
    unknown: list[str] = dataclasses.field(default_factory=list, kw_only=True)


AnyPrediction = Prediction | LabelsPrediction | ValuePrediction


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields lists of `size` items; the last list may be shorter."""
    iterator = iter(items)
    while part := list(itertools.islice(iterator, size)):
        yield part


def usable(results: Iterable[T | Failure], noun: str = "text") -> Iterator[T]:
    """Yields the results of texts in order, and raises an error at the first `Failure`."""
    for number, result in enumerate(results):
        if isinstance(result, Failure):
            raise ValueError(f"{noun} {number}: {result.error}")
        yield result


def inputs_of(kind: str) -> int:
    """Returns the number of texts in an example: 2 for the kind "pair", 1 for other kinds."""
    return 2 if kind == "pair" else 1


def check_inputs(columns: Columns, kind: str) -> None:
    """Raises ValueError if `columns` has a wrong number of text columns for a kind of model."""
    if len(columns.inputs) != inputs_of(kind):
        expected = "two columns for pairs" if kind == "pair" else "one column for texts"
        raise ValueError(
            f"columns.inputs must name {expected}, got {', '.join(map(repr, columns.inputs))}"
        )
