"""Models that predict several labels, a real number, or a grade instead of a class."""

import dataclasses
import warnings
from typing import Any, Self

import numpy as np

from gatedjax.text._options import with_arguments
from gatedjax.text.answers._prediction import LABELS, ORDINAL, REGRESSION
from gatedjax.text.estimators import _inputs
from gatedjax.text.estimators._classifier import _Classifier
from gatedjax.text.sources._labels import Label, array_of, parse_number, read_label
from gatedjax.text.targets._base import sort_key


@with_arguments
class MultiLabelTextClassifier(_Classifier):
    """A lexicon that predicts any number of labels for each text.

    All labels share the gates of the words, and each label has a sigmoid and a threshold. The
    constructor takes keywords, the fields of `TextOptions`.

        >>> rows = [(f"goal {x} {y}", ["sport"]) for x in "abcd" for y in "efgh"]
        >>> rows += [(f"bank {x} {y}", ["money"]) for x in "abcd" for y in "efgh"]
        >>> rows += [(f"bank {x} goal {y}", ["money", "sport"]) for x in "abcd" for y in "efgh"]
        >>> model = MultiLabelTextClassifier.train([*rows, ("a tea", [])])
        >>> print(model.predict(["a goal", "the bank"]).tolist(), model.classes_)
        [[0, 1], [1, 0]] ['money' 'sport']

    The class has the interface of a scikit-learn classifier. Pass y for n texts as an array of 0
    and 1, [n, L], with a column for each of L labels, as a frame with a column for each label, or
    as a list of lists of labels, in which an integer is the name of a label, as in
    `MultiLabelBinarizer`. `score` is the subset accuracy, the share of texts with all labels right.

    Attributes:
      classes_: array [L] of the labels, sorted, or in the order of the columns of y.
      report_: a dict; "validation" and, with test texts, "test" are dicts of scores of the model,
        such as "micro_f1", and "baseline" has the scores of one-vs-rest logistic regression.
    """

    _kind = LABELS
    _column_names: tuple[Label, ...] | None = None

    def _read_targets(self, y: Any) -> list[Any]:
        rows, self._column_names = _inputs.read_label_lists(y)
        return rows

    def _train(self, *tables: Any, **arguments: Any) -> Self:
        return super()._train(*tables, **arguments, has_columns=self._column_names is not None)

    def _take(self, trained: Any) -> None:
        """Stores the trained model; with y in columns `classes_` has all columns."""
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

    def predict(self, X: Any) -> np.ndarray:
        """Predicts the labels of each text, in scikit-learn's form for several labels.

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

    def score(self, X: Any, y: Any) -> float:
        """Computes the subset accuracy: the share of texts with all labels right.

        Args:
          X: n texts, a sequence or a column of strings.
          y: their labels: an array or frame of 0 and 1, [n, L], with a column for each label, or a
            list of n lists of labels.
        """
        rows, _ = _inputs.read_label_lists(y)
        _inputs.check_targets(rows, "labels")
        predicted = [item.labels for item in self._predict_items(X)]
        _inputs.check_lengths(predicted, rows)
        expected = [{read_label("label", label) for label in row} for row in rows]
        return float(np.mean([set(a) == b for a, b in zip(predicted, expected, strict=True)]))


@with_arguments
class TextRegressor(_Classifier):
    """A lexicon that predicts a real number for each text, by ridge regression on the words read.

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
        labels = _inputs.list_labels(y)
        _inputs.check_targets(labels, "number")
        # A text such as "3.5" is a number in y of `fit` too.
        targets = np.array([parse_number(label) for label in labels])
        predicted = self.predict(X)
        _inputs.check_lengths(predicted, targets)
        variance = float(targets.var())
        if not variance > 0:
            raise ValueError(f"y must have different numbers, got {targets[:5].tolist()}")
        return 1 - float(np.mean((predicted - targets) ** 2)) / variance


@with_arguments
class OrdinalTextClassifier(_Classifier):
    """A lexicon that predicts a grade for each text, among grades with an order.

    All grades share the weights, and thresholds divide their sum (cumulative logits). Grades are
    ordered by their numbers, or by `order`, from the lowest to the highest. The constructor takes
    keywords, the fields of `TextOptions`.

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
