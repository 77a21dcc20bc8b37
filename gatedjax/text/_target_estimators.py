"""Models of targets that are no class: several labels, a real number, or a grade for each text."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np

from gatedjax.text._classifier import _check_any, _check_lengths, _Classifier, _values
from gatedjax.text._labels import array_of
from gatedjax.text._options import with_arguments
from gatedjax.text._prediction import LABELS, ORDINAL, REGRESSION
from gatedjax.text._table import Label, is_zero_or_one, parse_number, read_label
from gatedjax.text._target_base import sort_key
from gatedjax.text._target_show import TargetExplanation


class _TargetModel(_Classifier):
    """The base class of the lexicons that predict several labels, a real number or a grade."""

    def explain(self, text: str) -> TargetExplanation:  # type: ignore[override]
        """Explains the prediction for a text by the words of the text.

        Args:
          text: the text.

        Returns:
          The prediction, and the open words and pairs with their signed shares in it.
        """
        explanation: Any = super().explain(text)
        return explanation


@with_arguments
class MultiLabelTextClassifier(_TargetModel):
    """A lexicon that predicts any number of labels for each text.

    The gates of the words are common to all labels, and each label has a sigmoid and a threshold.
    The constructor takes keywords, the fields of `TextOptions`.

        >>> rows = [(f"goal {x} {y}", ["sport"]) for x in "abcd" for y in "efgh"]
        >>> rows += [(f"bank {x} {y}", ["money"]) for x in "abcd" for y in "efgh"]
        >>> rows += [(f"bank {x} goal {y}", ["money", "sport"]) for x in "abcd" for y in "efgh"]
        >>> model = MultiLabelTextClassifier.train([*rows, ("a tea", [])])
        >>> print(model.predict(["a goal", "the bank"]).tolist(), model.classes_)
        [[0, 1], [1, 0]] ['money' 'sport']

    The class has the interface of a scikit-learn classifier. y has the labels of n texts: it is an
    array of 0 and 1, [n, L], with a column for each of L labels, or a frame with a column for each
    label, or a list of the lists of labels. `score` is the subset accuracy, the share of the texts
    of which all labels are right.

    Attributes:
      classes_: array [L] of the labels, sorted, or in the order of the columns of y.
      report_: a dict; "validation" and, with test texts, "test" are dicts of scores of the model,
        such as "micro_f1", and "baseline" has the scores of one-vs-rest logistic regression.
    """

    _kind = LABELS
    _column_names: tuple[Label, ...] | None = None

    def _read_targets(self, y: Any) -> list[Any]:
        rows, self._column_names = _read_label_lists(y)
        return rows

    def _train(self, *tables: Any, **arguments: Any) -> Self:
        return super()._train(*tables, **arguments, has_columns=self._column_names is not None)

    def _take(self, trained: Any) -> None:
        """Stores the trained model, its report and its labels. With y in columns `classes_` has all
        columns, and a warning names the columns without a text.
        """
        names = self._column_names
        if names is not None:
            trained = dataclasses.replace(trained, columns=names)
            unused = [name for name in names if name not in trained.classes]
            if unused:
                warnings.warn(
                    f"y has columns without a text, whose labels are never predicted: {unused[:5]}",
                    stacklevel=4,
                )
        super()._take(trained)
        # Functions of scikit-learn compare the columns of y with those of the prediction.
        if trained.columns is not None:
            self.classes_ = array_of(trained.columns)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, workdir: str | Path | None = None
    ) -> Self:
        """Trains on texts and their labels, see `TextClassifier.fit`.

        Args:
          X: n texts, a sequence or a column of strings.
          y: an array of 0 and 1, [n, L], whose labels are the numbers of its columns; a frame with
            a column of 0 and 1 for each label; or a list of n lists of labels. An integer in a list
            is the name of a label, as in `MultiLabelBinarizer` of scikit-learn, and not the
            position of a column.
          sample_weight: n weights of the texts, see `TextClassifier.fit`; None gives all texts the
            same weight.
          workdir: has no effect, because a lexicon has no checkpoints.

        Returns:
          The trained model itself.
        """
        return super().fit(X, y, sample_weight, workdir=workdir)

    def predict(self, X: Any) -> np.ndarray:
        """Predicts the labels of each text, in the form in which scikit-learn has several labels.

        Args:
          X: n texts, a sequence or a column of strings.

        Returns:
          An array of 0 and 1, int64 [n, L], 1 where a label is predicted, with a column for each of
          the L labels in `classes_`.
        """
        items = self._predict_items(X)
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        indicator = np.zeros((len(items), len(places)), np.int64)
        for row, item in enumerate(items):
            indicator[row, [places[label] for label in item.labels]] = 1
        return indicator

    def predict_proba(self, X: Any) -> np.ndarray:
        """Computes the probability of each label for each text: float32 [n, L].

        The L columns are the labels in the order of `classes_`. A label without a training text has
        the probability 0.

        Args:
          X: n texts, a sequence or a column of strings.
        """
        probabilities = super().predict_proba(X)
        classes, names = self._get_trained().classes, self.classes_.tolist()
        # The labels of columns without a text are no part of the model.
        wide = np.zeros((len(probabilities), len(names)), probabilities.dtype)
        wide[:, [names.index(label) for label in classes]] = probabilities
        return wide

    def score(self, X: Any, y: Any) -> float:
        """Computes the subset accuracy: the share of the texts of which all labels are right.

        Args:
          X: n texts, a sequence or a column of strings.
          y: their labels: an array or frame of 0 and 1, [n, L], with a column for each label, or a
            list of n lists of labels.
        """
        rows, _ = _read_label_lists(y)
        self._check_targets(rows)
        predicted = [item.labels for item in self._predict_items(X)]
        _check_lengths(predicted, rows)
        _check_any(rows)
        expected = [{read_label("label", label) for label in row} for row in rows]
        return float(np.mean([set(a) == b for a, b in zip(predicted, expected, strict=True)]))

    def __sklearn_tags__(self) -> Any:
        """Returns a `sklearn.utils.Tags` for a classifier with several labels for each text."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.two_d_labels = True
        return tags


@with_arguments
class TextRegressor(_TargetModel):
    """A lexicon that predicts a real number for each text, by ridge regression on the open words.

        >>> rows = [(f"{w} {x} film", v) for w, v in (("dull", 1), ("fine", 5)) for x in "abcdefgh"]
        >>> model = TextRegressor.train(rows)
        >>> values = model.predict(["fine", "dull"])
        >>> bool(values[0] > 3 > values[1])
        True

    The constructor takes keywords, the fields of `TextOptions`. The class has the interface of a
    scikit-learn regressor: `fit(X, y)` takes n texts and their numbers, and `score` is the
    coefficient of determination R^2.

    Attributes:
      report_: a dict; "validation" and, with test texts, "test" are dicts of scores of the model,
        such as "rmse", and "baseline" has the scores of ridge regression.
    """

    _kind = REGRESSION
    _estimator_type = "regressor"

    def _take(self, trained: Any) -> None:
        # A regressor of scikit-learn has no attribute `classes_`.
        self.model_, self.report_ = trained, trained.report

    def predict(self, X: Any) -> np.ndarray:
        """Predicts the number of each text.

        Args:
          X: n texts, a sequence or a column of strings.

        Returns:
          An array float64 [n] of the predicted numbers.
        """
        return np.array([item.value for item in self._predict_items(X)], np.float64)

    @property
    def predict_proba(self) -> Any:
        """Raises AttributeError, because a regressor has no probabilities."""
        raise AttributeError("a TextRegressor has no predict_proba: call predict")

    def score(self, X: Any, y: Any) -> float:
        """Computes the coefficient of determination R^2.

        Args:
          X: n texts, a sequence or a column of strings.
          y: their numbers, which must not all be equal.
        """
        labels = _values(y, "y")
        self._check_targets(labels)
        # A text such as "3.5" is a number in y of `fit` too.
        targets = np.array([parse_number(label) for label in labels])
        predicted = self.predict(X)
        _check_lengths(predicted, targets)
        _check_any(targets)
        variance = float(targets.var())
        if not variance > 0:
            raise ValueError(f"y must have different numbers, got {targets[:5].tolist()}")
        return 1 - float(np.mean((predicted - targets) ** 2)) / variance

    def __sklearn_tags__(self) -> Any:
        """Returns a `sklearn.utils.Tags`, which describes a regressor to scikit-learn."""
        # scikit-learn is optional; only its tools call this method.
        from sklearn.utils import RegressorTags

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = "regressor", None
        tags.regressor_tags = RegressorTags()
        return tags


@with_arguments
class OrdinalTextClassifier(_TargetModel):
    """A lexicon that predicts a grade for each text, among grades with an order.

    The weights are common to all grades, and thresholds cut their sum (cumulative logits). The
    order is that of the numbers of the grades, or `order` from the lowest to the highest. The
    constructor takes keywords, the fields of `TextOptions`.

        >>> words = {"dull": "low", "fair": "mid", "fine": "high"}
        >>> rows = [(f"{word} {x} film", words[word]) for word in words for x in "abcdefgh"]
        >>> model = OrdinalTextClassifier.train(rows, order=["low", "mid", "high"])
        >>> print(model.predict(["a dull film", "a fine film"]), model.order_)
        ['low' 'high'] ['low' 'mid' 'high']
        >>> print(model.classes_)
        ['high' 'low' 'mid']

    The class has the interface of a scikit-learn classifier. The predicted grade is the median of
    the distribution that `predict_proba` returns; `score` is the accuracy.

    Attributes:
      classes_: array [G] of the grades, sorted as scikit-learn sorts labels: numbers by value, and
        texts by their characters. The columns of `predict_proba` have this order.
      order_: array [G] of the grades, the lowest first.
      report_: a dict; "validation" and, with test texts, "test" are dicts of scores of the model,
        such as "mae", and "baseline" has the scores of logistic regression.
    """

    _kind = ORDINAL

    def _take(self, trained: Any) -> None:
        super()._take(trained)
        # Scorers of scikit-learn take sorted labels for the columns of `predict_proba`.
        self.order_ = self.classes_
        self.classes_ = array_of(sorted(trained.classes, key=sort_key))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Computes the probability of each grade for each text: float32 [n, G].

        The G columns are the grades in the order of `classes_`; `order_` has the order of the
        grades.

        Args:
          X: n texts, a sequence or a column of strings.
        """
        probabilities = super().predict_proba(X)
        grades = self._get_trained().classes
        return probabilities[:, [grades.index(grade) for grade in self.classes_.tolist()]]


def _read_label_lists(y: Any) -> tuple[list[list[Any]], tuple[Label, ...] | None]:
    """Returns the list of the labels of each text, and the names of the columns of an array or a
    frame, None for a list.
    """
    names = None
    # Frames and sparse matrices are recognised by their attributes, so that no package is imported.
    if hasattr(y, "columns") and hasattr(y, "to_numpy"):
        names = tuple(read_label("y", name) for name in y.columns)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(
                f"y must have columns with different names, got {twice!r} twice: rename a column"
            )
        y = y.to_numpy()
    if hasattr(y, "toarray"):
        y = y.toarray()
    if not isinstance(y, np.ndarray):
        rows = list(y)
        for number, row in enumerate(rows):
            if row is None or (isinstance(row, float) and row != row):
                raise ValueError(
                    f"y must be a list of the lists of labels, got {row!r} at position {number}: "
                    "write [] for a text without a label, or leave the text out"
                )
            if isinstance(row, str) or not hasattr(row, "__iter__"):
                raise ValueError(
                    f"y must be a list of the lists of labels, or an array of 0 and 1, got "
                    f"{row!r:.40} at {number}: write [{row!r:.20}] for a single label"
                )
        rows = [list(row) for row in rows]
        _check_names(rows)
        return rows, None
    # NumPy makes such an array of lists of different lengths.
    if y.dtype == object and y.ndim == 1:
        return _read_label_lists(y.tolist())
    is_number = y.dtype.kind in "biuf"
    if y.ndim == 2 and is_number and not np.isin(y, (0, 1)).all():
        row, column = np.argwhere(~np.isin(y, (0, 1)))[0].tolist()
        raise ValueError(
            f"y must be an array of 0 and 1 with a column for each label, got {y[row, column]} in "
            f"row {row}, column {column}: give 0 or 1, or a list of the lists of labels"
        )
    if y.ndim == 1 and is_number and np.isin(y, (0, 1)).all():
        raise ValueError(
            f"y must be an array of 0 and 1 with a column for each label, got the shape {y.shape}: "
            "give y[:, None] for a single label"
        )
    if y.ndim != 2 or not is_number:
        raise ValueError(
            f"y must be an array of 0 and 1 with a column for each label, got {y.dtype} of shape "
            f"{y.shape}: give a list of the lists of labels"
        )
    names = tuple(range(y.shape[1])) if names is None else names
    return [[names[i] for i in np.flatnonzero(row)] for row in y], names


def _check_names(rows: list[list[Any]]) -> None:
    """Raises ValueError if the lists of labels are the rows of an array of 0 and 1. In such lists,
    with each label once, all texts would have the same labels.
    """
    size = len(rows[0]) if rows else 0
    if size < 1 or not all(len(row) == size and is_zero_or_one(row) for row in rows):
        return
    first = rows[0]
    if any(len(set(row)) < size or row != first for row in rows):
        raise ValueError(
            f"y must be a list of the lists of labels, got rows of 0 and 1, such as "
            f"{first!r:.40}: give np.asarray(y) for an array with a column for each label, or "
            "texts as the names of labels"
        )
