"""The classes `TextClassifier` and `PairClassifier`: train, predict, evaluate and explain."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Self

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.text._asides import MAX_ASIDE
from gatedjax.text._estimator import TextEstimator, explains_unknown_parameters
from gatedjax.text._evaluation import evaluate_model
from gatedjax.text._explanation import explain_texts
from gatedjax.text._labels import Classes
from gatedjax.text._model import usable
from gatedjax.text._options import with_arguments
from gatedjax.text._prediction import STATES, WITHOUT_NETWORK
from gatedjax.text._read import Columns, Label, open_table
from gatedjax.text._show import Explanation
from gatedjax.text._states import EncodedText, check_encoded, collect_states
from gatedjax.text._table import READERS, compose, read_label
from gatedjax.text._training import COLUMNS, Say


class _Classifier(TextEstimator):
    """The base class of `TextClassifier` and `PairClassifier`, with the methods of both."""

    _estimator_type = "classifier"

    @classmethod
    def train(
        cls,
        data: object,
        *,
        columns: Columns | None = None,
        validation: object = None,
        test: object = None,
        validation_states: object = None,
        test_states: object = None,
        encoding: str = "utf-8",
        max_aside: float = MAX_ASIDE,
        workdir: str | Path | None = None,
        say: Say = lambda line: None,
        progress: bool = False,
        **options: Any,
    ) -> Self:
        """Trains a classifier.

        Args:
          data: a path (.csv, .tsv, .json, .jsonl, .xlsx, .parquet, fastText's .txt, a folder with a
            folder per class), the name of a data set ("demo": generated sentences), rows (text,
            label), a frame, a Dataset, or a dict of columns.
          columns: names of the columns; None uses "text" and "label", or for pairs "premise",
            "hypothesis" and "label".
          validation: data that choose the best parameters; None splits off a part of `data`, a
            tenth unless `held_out` is set.
          test: data on which the trained model is evaluated for its report.
          validation_states: the file with the vectors of the validation texts, or their tokens and
            vectors, if there is no `encoder`.
          test_states: the same of the texts of `test`.
          encoding: encoding of the files.
          max_aside: the largest share of the lines in a source that may be set aside because they
            cannot be used; empty lines do not count.
          workdir: folder for checkpoints; the same call continues an interrupted training. None
            uses a temporary folder.
          say: called with each line of the progress report, like `print`.
          progress: True shows a progress bar.
          **options: parameters of the constructor.

        Returns:
          The trained classifier.

        Raises:
          FileNotFoundError, ValueError, TypeError: for data or options that cannot be used.
          StoppedBySignal: after Ctrl-C or SIGTERM.
        """
        columns = cls._choose_columns(columns)
        tables = (
            None if source is None else open_table(source, columns, encoding=encoding)
            for source in (data, validation, test)
        )
        arguments: Json = {"say": say, "progress": progress, "max_aside": max_aside}
        arguments |= {"validation_states": validation_states, "test_states": test_states}
        return cls(**options)._train(*tables, workdir=workdir, **arguments)

    @classmethod
    def _choose_columns(cls, columns: Columns | None) -> Columns:
        # The kind of the labels is that of this class, whatever `columns` has.
        default = COLUMNS[cls._kind]
        return default if columns is None else dataclasses.replace(columns, target=default.target)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        workdir: str | Path | None = None,
    ) -> Self:
        """Trains on texts and their labels, with the interface of scikit-learn.

        A text without a word is left out, with a warning that has the number of such texts. A label
        that is a string is converted to Unicode's form NFC, and spaces around it are removed, as in
        files. If this changes a label there is a warning, because functions that compare `y` with
        the predictions see two different labels.

        Args:
          X: n texts; for a `PairClassifier`, n pairs of texts; for model="states" also n pairs
            (tokens, vectors [T, D]) of T tokens of width D, as of `read_states`.
          y: n labels.
          sample_weight: n weights of the texts, at least 0, for a model without a network; None
            gives all texts the same weight. They count in the fit, in the choices on the validation
            texts and in the scores of `report_`. A text of weight 0 is left out, as if it were not
            in X.
          workdir: folder for checkpoints; the same call continues an interrupted training. None
            uses a temporary folder.

        Returns:
          The trained classifier itself.

        Raises:
          TypeError: if X is not a list of texts.
          ValueError: if X and y differ in length, a label is missing (None or NaN) or infinite, the
            data or options cannot be used, or there are weights for a network.
        """
        model = self.options.model
        texts = _list_examples(X, self._kind, encoded=model == STATES)
        if sample_weight is not None:
            sample_weight = self._check_weights(sample_weight, len(texts))
            rows_kept = np.flatnonzero(sample_weight)
            if len(rows_kept) < len(texts):
                y = _select_rows(y, rows_kept, len(texts))
                texts = [texts[i] for i in rows_kept.tolist()]
                sample_weight = sample_weight[rows_kept]
        labels = self._read_targets(y)
        _check_lengths(texts, labels)
        self._check_targets(labels)
        arguments: Json = {}
        if any(not isinstance(text, str) for (text, *_) in texts) and model == STATES:
            encoded = collect_states("X", check_encoded((text for (text,) in texts), "X"))
            arguments["states"] = encoded
            texts = [(" ".join(text.tokens),) for text in encoded]
        if sample_weight is not None:
            arguments["sample_weight"] = sample_weight
        rows = [(*text, label) for text, label in zip(texts, labels, strict=True)]
        table = open_table(rows, COLUMNS[self._kind])
        # The interface of scikit-learn has no progress report, so the lines about unused texts
        # become warnings.
        report: list[str] = []
        self._train(table, None, None, workdir=workdir, say=report.append, **arguments)
        for line in report:
            if "set aside" in line:
                warnings.warn(line, stacklevel=2)
        texts_of_y = (label for label in labels if isinstance(label, str))
        changed = next((label for label in texts_of_y if label != compose(label) != ""), None)
        if changed is not None:
            warnings.warn(
                f"y has {changed!a}, which becomes the class {compose(changed)!a}: labels are "
                "stored without outer spaces and in Unicode's form NFC",
                stacklevel=2,
            )
        return self

    def _read_targets(self, y: Any) -> list[Any]:
        return _values(y, "y")

    def _check_targets(self, labels: Sequence[Any]) -> None:
        """Raises ValueError for the first label that is empty, infinite or of another form."""
        # A line of a file without a label is set aside, but a hole in y is an error of a program.
        form = COLUMNS[self._kind].target
        for position, label in enumerate(labels):
            try:
                READERS[form]("label", label)
            except ValueError as error:
                wanted = "finite numbers" if form == "number" else "labels: texts or finite numbers"
                raise ValueError(
                    f"y must be {wanted}, got {label!r:.40} at position {position} ({error}): give "
                    "its label, or leave the text out"
                ) from None

    def _check_weights(self, sample_weight: Any, count: int) -> np.ndarray:
        """Returns the weights as float64 [count]; raises ValueError for a network."""
        if self.options.model not in WITHOUT_NETWORK:
            raise ValueError(
                "sample_weight must be None unless model is 'lexicon' or 'states', got "
                f"weights for model={self.model!r}: leave them out"
            )
        weights = np.asarray(sample_weight, np.float64)
        if weights.shape != (count,):
            raise ValueError(
                f"sample_weight must have a number for each of the {count} texts, got the shape "
                f"{weights.shape}"
            )
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ValueError(
                "sample_weight must be finite numbers of at least 0, and some above 0, got "
                f"{weights[:5].tolist()} first"
            )
        return weights

    def _list_examples(self, X: Any) -> list[tuple[Any, ...]]:
        network = getattr(self._get_trained(), "network", None)
        return _list_examples(X, self._kind, encoded=network == STATES)

    def predict(self, X: Any) -> np.ndarray:
        """Predicts the class of each text; `explain` shows the words that a prediction rests on.

        Args:
          X: texts; for a `PairClassifier`, pairs of texts; for model="states" also pairs
            (tokens, vectors [T, D]) of T tokens of width D, as of `read_states`.

        Returns:
          An array [n] of the predicted labels of n texts, with the dtype of `classes_`.
        """
        items = self._predict_items(X)
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        return self.classes_[np.array([places[item.label] for item in items], np.int64)]

    def _predict_items(self, X: Any) -> list[Any]:
        """Returns the `Prediction` of each text of X; other tasks have classes of their own."""
        return list(usable(self._get_trained().predict(self._list_examples(X))))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Computes the probability of each class for each text.

        Args:
          X: texts; for a `PairClassifier`, pairs of texts.

        Returns:
          float32 [n, C] for n texts, with the C classes in the order of `classes_`.
        """
        return self._get_trained().probabilities(self._list_examples(X))

    def score(self, X: Any, y: Any) -> float:
        """Computes the accuracy on texts and their labels.

        Labels are normalised like the labels in files. A text with a label that is not a class of
        the model counts as wrong.

        Args:
          X: texts; for a `PairClassifier`, pairs of texts.
          y: n labels.

        Returns:
          The share of the texts with a correct prediction.

        Raises:
          ValueError: if a label is missing, or only looks like a class ("1" if the class is 1).
        """
        labels, model_classes = _values(y, "y"), self._get_trained().classes
        classes = Classes("label", model_classes)
        places = []
        for number, label in enumerate(labels, 1):
            try:
                plain = read_label("label", label)
            except ValueError as error:
                raise ValueError(f"y:{number}: {error}") from None
            # A label that is no class has the place None, which equals no prediction.
            places.append(classes.find(plain, "y", number))
        place_of = {label: place for place, label in enumerate(model_classes)}
        predicted = [place_of[label] for label in self.predict(X).tolist()]
        _check_lengths(predicted, labels)
        _check_any(labels)
        return float(np.mean([a == b for a, b in zip(predicted, places, strict=True)]))

    def evaluate(
        self,
        data: object,
        *,
        columns: Columns | None = None,
        encoding: str = "utf-8",
        states: object = None,
    ) -> Json:
        """Evaluates the model on labelled texts.

        Args:
          data: labelled texts in a form that `train` accepts: a path, the name of a data set, rows
            (text, label), a frame, a Dataset, or a dict of columns.
          columns: names of the columns; None uses "text" and "label", or for pairs "premise",
            "hypothesis" and "label".
          encoding: encoding of the files.
          states: for model="states" without an encoder the file with the vectors of the texts, or
            their tokens and vectors.

        Returns:
          A dict with accuracy, macro F1, confusion, calibration and density (the share of open
          words), for a network with gates also the accuracy in each gate mode, and "leak" (the
          change of the prediction without a closed word) if words are left out; `evaluate_model`
          lists the keys.

        Raises:
          ValueError: for a label that is not a class of the model, or data that cannot be used.
        """
        table = open_table(data, self._choose_columns(columns), encoding=encoding)
        return evaluate_model(self._get_trained(), table, states=states)

    def explain(self, text: str | Sequence[str] | EncodedText) -> Explanation:
        """Explains the prediction for a text by the words of the text.

        Args:
          text: a text; for a `PairClassifier`, both texts of a pair; for model="states" also
            (tokens, vectors [T, D]) of T tokens of width D.

        Returns:
          An `Explanation`: the words with open gates, the attention to each word, and the
          prediction after flipping each gate and after removing each word.
        """
        model = self._get_trained()
        is_single = isinstance(text, str) or getattr(model, "network", None) == STATES
        explanation: Any = explain_texts(model, (text,) if is_single else tuple(text))  # type: ignore[arg-type]
        return explanation

    def __sklearn_tags__(self) -> Any:
        """Returns a `sklearn.utils.Tags`, which describes a classifier of texts to scikit-learn."""
        # scikit-learn is optional; only its tools call this method.
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
    """A text classifier, by default a lexicon with gates, which reads no word but its open words.

    The constructor takes the name of the model, such as "lexicon" or "gru", and keywords, the
    fields of `TextOptions`. The prediction of a network also depends on words that attention cannot
    see, through the encoder; "leak" in `report_` and in the result of `evaluate` measures by how
    much.

        >>> model = TextClassifier.train("demo")  # or a file such as "reviews.csv"
        >>> print(model.predict(["a dull , lifeless film"]))
        ['negative']
        >>> explanation = model.explain("a dull , lifeless film")  # print shows it as a table
        >>> [word for word, is_open in zip(explanation.tokens, explanation.kept) if is_open]
        ['dull', 'lifeless']
        >>> TextClassifier.load(model.save("model"))
        <TextClassifier(model='lexicon'): 2 classes, density 0.20>

    The class has the interface of a scikit-learn classifier: `fit(X, y)`, `predict`,
    `predict_proba`, `score`, `classes_`, `get_params`, `set_params`.

        >>> model = TextClassifier("gru", num_steps=200, seed=1)
        >>> model
        TextClassifier(model='gru', num_steps=200, seed=1)
        >>> model.set_params(max_len=100).get_params()["max_len"]
        100

    Attributes:
      classes_: array [C] of the labels, sorted.
      report_: a dict; "validation" and, with test texts, "test" are dicts of scores of the model,
        such as "accuracy", and "baseline" has the accuracy of a linear baseline on the same texts.
    """

    _kind = "text"


@with_arguments
@explains_unknown_parameters
@dataclasses.dataclass(eq=False, repr=False)
class PairClassifier(TextClassifier):
    """A classifier of pairs of texts, for example whether the first text entails the second.

    The constructor takes the name of the model, "ssan" or "san", and keywords, the fields of
    `TextOptions`. The columns are premise, hypothesis and label. The methods are the same as in
    `TextClassifier`: `train`, `fit`, `predict`, `predict_proba`, `score`, `evaluate`, `explain`,
    `save` and `load`.

        >>> PairClassifier(num_steps=200)
        PairClassifier(num_steps=200)
        >>> PairClassifier().get_params()["model"]
        'ssan'

    Attributes:
      classes_: array [C] of the labels, sorted.
      report_: a dict; "validation" and, with test pairs, "test" are dicts of scores of the model,
        such as "accuracy", and "baseline" has the accuracy of a linear baseline on the same pairs.
    """

    _kind = "pair"

    model: str = "ssan"


def _check_lengths(texts: Sized, labels: Sized) -> None:
    if len(texts) != len(labels):
        raise ValueError(f"X and y must have the same length, got {len(texts)} and {len(labels)}")


def _select_rows(y: Any, rows: np.ndarray, count: int) -> Any:
    """Returns the labels `y` of `count` texts at the positions `rows`, in the form of `y`."""
    if isinstance(y, Mapping):
        return y  # which `_values` refuses
    # A sparse matrix need not have rows that can be selected.
    y = y.toarray() if hasattr(y, "toarray") else y
    values = y if hasattr(y, "shape") else list(y)
    _check_lengths(range(count), values)
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return [values[i] for i in rows.tolist()] if isinstance(values, list) else values[rows]


def _check_any(labels: Sized) -> None:
    if not len(labels):
        raise ValueError("y must have at least one label, got none: give texts and their labels")


def _check_list(values: Any, name: str) -> None:
    # `list` of a frame or of a dict returns the names of its columns, not the values.
    if isinstance(values, Mapping) or hasattr(values, "columns"):
        raise TypeError(
            f"{name} must be a list, an array or one column of a frame, got "
            f"{type(values).__name__}: pass one of its columns"
        )


def _values(values: Any, name: str) -> list[Label]:
    """Returns the labels in `values` (a list, an array or a column) as a list."""
    _check_list(values, name)
    items = values.tolist() if hasattr(values, "tolist") else list(values)
    # `tolist` of an array with two dimensions returns a list of lists.
    if items and isinstance(items[0], list):
        if len(items[0]) == 1:
            raise ValueError(
                f"{name} must have one dimension, got the row {items[0]!r:.40}: give {name}.ravel()"
            )
        raise ValueError(
            f"{name} must have one dimension, got the row {items[0]!r:.40}: "
            "MultiLabelTextClassifier learns several labels for each text"
        )
    return items


def _list_examples(texts: Any, kind: str, *, encoded: bool = False) -> list[tuple[Any, ...]]:
    """Returns (text,) or (first, second) of each example; `encoded` allows tokens with vectors."""
    if isinstance(texts, str):
        raise TypeError(f"X must be a list of texts, got the text {texts[:40]!r}: pass [text]")
    _check_list(texts, "X")
    items = texts.tolist() if hasattr(texts, "tolist") else list(texts)
    if kind == "pair":
        return [tuple(row) for row in items]
    for number, item in enumerate(items):
        if not isinstance(item, str) and not (encoded and isinstance(item, tuple | list)):
            raise TypeError(f"X must be a list of texts, got {item!r:.40} at position {number}")
    return [(text,) for text in items]
