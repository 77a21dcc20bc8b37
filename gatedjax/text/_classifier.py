"""`TextClassifier` and `PairClassifier`: train, predict, evaluate and explain, from Python."""

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Self

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.text._asides import MAX_ASIDE
from gatedjax.text._estimator import Estimator
from gatedjax.text._evaluation import evaluate_model
from gatedjax.text._explanation import explain_texts
from gatedjax.text._labels import Classes, array_of
from gatedjax.text._model import Prediction, usable
from gatedjax.text._options import with_arguments
from gatedjax.text._read import Columns, Label, open_table
from gatedjax.text._show import Explanation
from gatedjax.text._table import compose, read_label
from gatedjax.text._training import COLUMNS, Say


class Predictions(Sequence[Prediction]):
    """Predictions in the order of the texts; as an array they are the labels."""

    def __init__(self, items: Iterable[Prediction]) -> None:
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index):
        return Predictions(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return array_of((one.label for one in self._items), dtype)

    @property
    def labels(self) -> np.ndarray:
        """The likeliest class of every text."""
        return np.asarray(self)

    def __repr__(self) -> str:
        return f"Predictions({self._items!r})"


class _Classifier(Estimator):
    """What both classifiers share."""

    _estimator_type = "classifier"

    @classmethod
    def train(
        cls,
        data: object,
        *,
        columns: Columns | None = None,
        validation: object = None,
        test: object = None,
        encoding: str = "utf-8",
        max_aside: float = MAX_ASIDE,
        workdir: str | Path | None = None,
        say: Say = lambda line: None,
        progress: bool = False,
        **options: Any,
    ) -> Self:
        """Trains a classifier.

        Args:
          data: a path (.csv, .tsv, .jsonl, fastText's .txt, a folder per class), the name of a data
            set, rows of texts and label, a frame, a Dataset, or a dict of columns.
          columns: names of the columns, if they are not those of the class.
          validation: data that choose the best parameters; None holds out a tenth.
          test: data that are reported on.
          encoding: of files.
          max_aside: the largest share of the lines (of a tagger, sentences) of a source that may be
            set aside because they cannot be used; empty lines do not count.
          workdir: where checkpoints are kept: the same call continues what was stopped. None uses
            a temporary folder.
          say: is told what is read and made, a line at a time, as `print`.
          progress: whether training shows its bar.
          **options: of the constructor.

        Returns:
          The trained classifier.

        Raises:
          FileNotFoundError, ValueError, TypeError: for data or options that cannot be used.
          StoppedBySignal: after Ctrl-C or SIGTERM.
        """
        columns = columns or COLUMNS[cls._kind]
        tables = (
            None if one is None else open_table(one, columns, encoding=encoding)
            for one in (data, validation, test)
        )
        more: Json = {"say": say, "progress": progress, "max_aside": max_aside}
        return cls(**options)._train(*tables, workdir=workdir, **more)

    def fit(self, X: Any, y: Any, *, workdir: str | Path | None = None) -> Self:
        """Trains on texts and their labels, as scikit-learn wants it.

        Args:
          X: n texts (of a `PairClassifier`, n pairs of texts).
          y: n labels.
          workdir: see `train`.

        A text without a word, or without a label, is left out, with a warning that counts them. A
        label that is a text is composed (NFC) and loses the spaces around it, as in files; where
        that changes one there is a warning, because functions that compare `y` with predictions
        see two labels.
        """
        texts, labels = _listed(X, self._kind), _values(y, "y")
        _check_lengths(texts, labels)
        rows = [(*text, label) for text, label in zip(texts, labels, strict=True)]
        table = open_table(rows, COLUMNS[self._kind])
        said: list[str] = []
        self._train(table, None, None, workdir=workdir, say=said.append)
        for line in said:
            if "set aside" in line:
                warnings.warn(line, stacklevel=2)
        texts_of_y = (one for one in labels if isinstance(one, str))
        changed = next((one for one in texts_of_y if one != compose(one) != ""), None)
        if changed is not None:
            warnings.warn(
                f"y has {changed!a}, of which the class is {compose(changed)!a}: labels "
                "have no spaces around them and are in Unicode's form NFC",
                stacklevel=2,
            )
        return self

    def predict(self, X: Any) -> Predictions:
        """What the model says of texts.

        Args:
          X: texts (of a `PairClassifier`, pairs of texts).

        Returns:
          A prediction for each; `np.asarray` of them is the array of labels.

        Raises:
          ValueError: if a text has no word.
        """
        return Predictions(usable(self._fitted().predict(_listed(X, self._kind))))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class [n, C], in the order of `classes_`."""
        return self._fitted().probabilities(_listed(X, self._kind))

    def score(self, X: Any, y: Any) -> float:
        """Returns the accuracy on texts and their labels, which are read as those of files are.

        A label that the model does not have is a wrong prediction.

        Raises:
          ValueError: if a label is missing, or only looks like a class: "1" where that is 1.
        """
        labels, known = _values(y, "y"), self._fitted().classes
        classes = Classes("label", known)
        places = []
        for number, label in enumerate(labels, 1):
            try:
                plain = read_label("label", label)
            except ValueError as error:
                raise ValueError(f"y:{number}: {error}") from None
            places.append(classes.find(plain, "y", number))
        place_of = {label: place for place, label in enumerate(known)}
        found = [place_of[one.label] for one in self.predict(X)]
        _check_lengths(found, labels)
        return float(np.mean([a == b for a, b in zip(found, places, strict=True)]))

    def evaluate(
        self, data: object, *, columns: Columns | None = None, encoding: str = "utf-8"
    ) -> Json:
        """Accuracy, macro F1, confusion, calibration, density and the gap between gate modes.

        Args:
          data: labelled texts, as for `train`.
          columns: see `train`.
          encoding: of files.
        """
        table = open_table(data, columns or COLUMNS[self._kind], encoding=encoding)
        return evaluate_model(self._fitted(), table)

    def explain(self, text: str | Sequence[str]) -> Explanation:
        """What a prediction rests on: kept words, attention, and what changes if a gate flips."""
        pair = (text,) if isinstance(text, str) else tuple(text)
        return explain_texts(self._fitted(), pair)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            transformer_tags=None,
            classifier_tags=ClassifierTags(),
            regressor_tags=None,
            input_tags=InputTags(two_d_array=False, string=True),
        )


@with_arguments
class TextClassifier(_Classifier):
    """A classifier of texts that returns, with each label, the words that attention kept.

    The prediction also depends on words that were not kept, through the encoder: `report_` and
    `evaluate` have by how much, as "leak".

        model = TextClassifier.train("reviews.csv")
        model.predict(["a dull , lifeless film"])[0]   # Prediction(label=..., kept=[...], ...)
        model.save("model"); model = TextClassifier.load("model")

    It is a scikit-learn classifier: `fit(X, y)`, `predict`, `predict_proba`, `score`, `classes_`.

    Attributes:
      classes_: the labels, sorted.
      report_: what is known of the model's quality, beside a linear baseline's.
    """

    _kind = "text"


@with_arguments
@dataclasses.dataclass(eq=False, repr=False)
class PairClassifier(TextClassifier):
    """A classifier of pairs of texts: does the first entail the second?

    Columns are premise, hypothesis and label; everything else is as for `TextClassifier`.
    """

    _kind = "pair"

    model: str = "ssan"


def _check_lengths(texts: Sized, labels: Sized) -> None:
    if len(texts) != len(labels):
        raise ValueError(f"X and y must be of one length, got {len(texts)} and {len(labels)}")


def _check_list(values: Any, what: str) -> None:
    # as a list, a frame or a dict of columns is the names of its columns
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        raise TypeError(
            f"{what} must be a list, an array or one column of a frame, got "
            f"{type(values).__name__}, as which the names of its columns would be read"
        )


def _values(values: Any, what: str) -> list[Label]:
    _check_list(values, what)
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if listed and isinstance(listed[0], list):
        raise ValueError(f"{what} must have one dimension")
    return listed


def _listed(texts: Any, kind: str) -> list[tuple[str, ...]]:
    """Texts, or pairs, as tuples."""
    if isinstance(texts, str):
        raise TypeError("X must be a list of texts, got one text")
    _check_list(texts, "X")
    listed = texts.tolist() if hasattr(texts, "tolist") else list(texts)
    if kind == "pair":
        return [tuple(row) for row in listed]
    for number, one in enumerate(listed):
        if not isinstance(one, str):
            raise TypeError(f"X must be a list of texts, got {type(one).__name__} at {number}")
    return [(text,) for text in listed]
