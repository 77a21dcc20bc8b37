"""Predictions of classifiers, and checks of model folders. No function of this module needs JAX."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from gatedjax._utils.limits import MOST_LENGTH, check_most
from gatedjax._utils.types import Json
from gatedjax.export._kinds import LEXICON as LEXICON
from gatedjax.text._table import Columns, Label

T = TypeVar("T")
STATES = "states"
"""The name of the model that reads the token vectors of an encoder."""
WITHOUT_NETWORK = LEXICON, STATES
# The names of files in the folder of a model.
VOCABULARY, REPORT, TOKENS = "vocabulary.json", "report.json", "tokens.json"
LABELS, REGRESSION, ORDINAL = "labels", "regression", "ordinal"
"""The kinds of models that only a lexicon has, besides "text": several labels for each text, a
real number, and a grade among grades with an order."""
TARGETS = LABELS, REGRESSION, ORDINAL
COLUMNS = {
    "text": Columns(("text",)),
    "pair": Columns(("premise", "hypothesis")),
    LABELS: Columns(("text",), target="labels"),
    REGRESSION: Columns(("text",), target="number"),
    ORDINAL: Columns(("text",)),
}
"""The default columns for each kind of model."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction of a model for a text or a pair of texts.

        >>> prediction = Prediction("good", 0.75, ["fun"], 0.5)
        >>> prediction.label
        'good'
        >>> prediction.to_json()
        {'label': 'good', 'probability': 0.75, 'kept': ['fun'], 'density': 0.5}

    Attributes:
      label: the predicted class, as it was written in the training data: the most probable class,
        or the class that a threshold chose, or the median grade.
      probability: the probability of this class.
      kept: the open words. A lexicon reads them and no other word. For a network they are the words
        that attention can see: words with an open gate, or without gates all words, or the words
        that local attention or the selector chose. For a pair there is a list for each text. The
        prediction of a network also depends on other words, through the encoder; "leak" in the
        reports of `train` and `evaluate` measures by how much.
      density: share of the words in `kept`. In an SSAN each word selects words, and the density is
        the share of the pairs of words that are selected.
      note: a remark, such as "nothing of it was in the training texts", or "".
      most_probable: the most probable class and its probability, if `label` may be another class: a
        grade, which is the median, or a class that a threshold chose; None if it is `label`.
      unknown: for a lexicon the words of the text that are in no training text, read or not. Those
        in `kept` are read by their letters only.
    """

    label: Label
    probability: float
    kept: list[Any]
    density: float
    note: str = ""
    most_probable: tuple[Label, float] | None = dataclasses.field(default=None, kw_only=True)
    unknown: list[str] = dataclasses.field(default_factory=list, kw_only=True)

    def to_json(self) -> Json:
        """Returns the line of `gatedjax predict`: a dict of the fields for `json.dumps`.

        The keys are `label`, `probability`, `kept`, `density` and, if there are any, `note` and
        `unknown`.
        """
        fields: Json = {
            "label": self.label,
            "probability": round(self.probability, 6),
            "kept": self.kept,
            "density": round(self.density, 6),
        }
        return fields | _list_remarks(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """The reason why there is no prediction for a text."""

    error: str

    def to_json(self) -> Json:
        """Returns the line of `gatedjax predict`: {"error": the reason}."""
        return {"error": self.error}


@dataclasses.dataclass(frozen=True, slots=True)
class LabelsPrediction:
    """The prediction of a model with several labels for each text.

        >>> LabelsPrediction(("sports", "news"), (0.875, 0.5), ["goal"], 0.25).to_json()["labels"]
        ['sports', 'news']

    Attributes:
      labels: the predicted labels, the most probable first; may be empty.
      probabilities: the probability of each predicted label.
      kept: the open words, which the model reads, and no other word.
      density: the share of the words in `kept`.
      note: a remark, such as "nothing of it was in the training texts", or "".
      unknown: the words of the text that are in no training text, read or not. Those in `kept` are
        read by their letters only.
    """

    labels: tuple[Label, ...]
    probabilities: tuple[float, ...]
    kept: list[str]
    density: float
    note: str = ""
    unknown: list[str] = dataclasses.field(default_factory=list, kw_only=True)

    def to_json(self) -> Json:
        """Returns the line of `gatedjax predict`: a dict of the fields for `json.dumps`.

        The keys are `labels`, `probabilities`, `kept`, `density` and, if there are any, `note` and
        `unknown`.
        """
        fields: Json = {
            "labels": list(self.labels),
            "probabilities": [round(share, 6) for share in self.probabilities],
            "kept": self.kept,
            "density": round(self.density, 6),
        }
        return fields | _list_remarks(self)


@dataclasses.dataclass(frozen=True, slots=True)
class ValuePrediction:
    """The prediction of a real number.

        >>> ValuePrediction(3.5, ["fine"], 0.25).to_json()
        {'value': 3.5, 'kept': ['fine'], 'density': 0.25}

    Attributes:
      value: the predicted number, in the unit of the training targets.
      kept: the open words, which the model reads, and no other word.
      density: the share of the words in `kept`.
      note: a remark, such as "nothing of it was in the training texts", or "".
      unknown: the words of the text that are in no training text, read or not. Those in `kept` are
        read by their letters only.
    """

    value: float
    kept: list[str]
    density: float
    note: str = ""
    unknown: list[str] = dataclasses.field(default_factory=list, kw_only=True)

    def to_json(self) -> Json:
        """Returns the line of `gatedjax predict`: a dict of the fields for `json.dumps`.

        The keys are `value`, `kept`, `density` and, if there are any, `note` and `unknown`.
        """
        fields: Json = {
            "value": float(f"{self.value:.12g}"),
            "kept": self.kept,
            "density": round(self.density, 6),
        }
        return fields | _list_remarks(self)


def _list_remarks(prediction: Prediction | LabelsPrediction | ValuePrediction) -> Json:
    """Returns the fields "note" and "unknown" of a prediction for JSON, without empty ones."""
    remarks = {"note": prediction.note, "unknown": prediction.unknown}
    return {name: value for name, value in remarks.items() if value}


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


# The next functions check values from the files of a model folder, because anybody may have written
# them. Each returns its value, and raises ValueError for a value of another form.
def check_texts(values: object) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise ValueError(f"words must be a list of texts, got {values!r:.80}")
    return values


def check_classes(values: object) -> tuple[Label, ...]:
    if not isinstance(values, list) or len(set(values)) < max(len(values), 2):
        raise ValueError(
            f"classes must be a list of at least two different labels, got {values!r:.80}"
        )
    if not all(isinstance(label, str | int | float) for label in values):
        raise ValueError(f"classes must be texts or numbers, got {values!r:.80}")
    return tuple(values)


def check_prior(values: Any, count: int) -> tuple[float, ...]:
    prior = tuple(map(float, values))
    if len(prior) != count or not all(0 <= share <= 1 for share in prior):
        raise ValueError(f"prior must be {count} numbers in [0, 1], got {values!r:.80}")
    return prior


def check_report(value: object) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{REPORT} must be a JSON object, got {value!r:.80}")
    return value


def check_stored_options(value: object) -> Json | None:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"options must be a JSON object, got {value!r:.80}")
    return value


def check_length(value: object) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"max_len must be an integer of at least 1, got {value!r}")
    check_most("max_len", value, MOST_LENGTH)
    return value
