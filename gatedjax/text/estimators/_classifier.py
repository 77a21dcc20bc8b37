"""The classes `TextClassifier` and `PairClassifier`: train, predict, evaluate and explain."""

import dataclasses
import itertools
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, overload

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.text._options import with_arguments
from gatedjax.text.answers._evaluation import evaluate_model
from gatedjax.text.answers._explain import explain
from gatedjax.text.answers._explanation import Explanation
from gatedjax.text.answers._prediction import (
    COLUMNS,
    LABELS,
    OF_WORDS,
    WITHOUT_NETWORK,
    usable,
)
from gatedjax.text.answers._words import WordWeight, weigh_words
from gatedjax.text.estimators import _inputs
from gatedjax.text.estimators._base import TextEstimator, explains_unknown_parameters
from gatedjax.text.fit._learner import Say
from gatedjax.text.sources._labels import Classes, compose, read_label
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import MAX_ASIDE, Columns


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
            folder per class), the name of a data set ("demo": sentences of three authors), rows
            (text, label), a frame, a Dataset, or a dict of columns.
          columns: names of the columns; None uses "text" and "label", or for pairs "premise",
            "hypothesis" and "label".
          validation: data that choose the best parameters; None splits off a part of `data`, a
            tenth unless `held_out` is set.
          test: data on which the trained model is evaluated for its report.
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
        return cls(**options)._train(
            *(data, validation, test),
            opener=lambda source: open_table(
                source, cls._choose_columns(columns), encoding=encoding
            ),
            workdir=workdir,
            say=say,
            progress=progress,
            max_aside=max_aside,
        )

    @classmethod
    def _choose_columns(cls, columns: Columns | None) -> Columns:
        # This class determines the form of the labels, whatever `columns` contains.
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

        Texts without a word are left out, and a warning states their number. A label that is a
        string is converted to Unicode's form NFC, and spaces around it are removed, as in files. If
        this changes a label there is a warning, because functions that compare `y` with the
        predictions see two different labels.

        Args:
          X: n texts; for a `PairClassifier`, n pairs of texts.
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
        texts, labels = _inputs.list_texts(X, self._kind), self._read_targets(y)
        _inputs.check_lengths(texts, labels)
        arguments: Json = {}
        if sample_weight is not None:
            if self.options.model not in WITHOUT_NETWORK:
                raise ValueError(
                    "sample_weight must be None for a network, got "
                    f"weights for model={self.model!r}: leave them out"
                )
            weights = _inputs.read_weights(sample_weight, len(texts))
            texts, labels = (list(itertools.compress(c, weights)) for c in (texts, labels))
            arguments["sample_weight"] = weights[weights > 0]
        _inputs.check_targets(labels, COLUMNS[self._kind].target)
        rows = [(*text, label) for text, label in zip(texts, labels, strict=True)]
        # The interface of scikit-learn has no progress report, so the lines about unused texts
        # become warnings.
        report: list[str] = []
        arguments |= {"workdir": workdir, "say": report.append}
        self._train(rows, opener=lambda rows: open_table(rows, COLUMNS[self._kind]), **arguments)
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
        return _inputs.list_labels(y)

    def predict(self, X: Any) -> np.ndarray:
        """Predicts the class of each text; `explain` shows the words that a prediction rests on.

        Args:
          X: texts; for a `PairClassifier`, pairs of texts.

        Returns:
          An array [n] of the predicted labels of n texts, with the dtype of `classes_`.
        """
        items = self._predict_items(X)
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        return self.classes_[np.array([places[item.label] for item in items], np.int64)]

    def _predict_items(self, X: Any) -> list[Any]:
        """Returns the `Prediction` of each text of X; other tasks have classes of their own."""
        return list(usable(self._get_trained().predict(_inputs.list_texts(X, self._kind))))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Computes the probability of each class, label or grade for each text.

        Args:
          X: texts; for a `PairClassifier`, pairs of texts.

        Returns:
          float32 [n, C] for n texts, with the C classes in the order of `classes_`. A label without
          a training text has the probability 0.
        """
        trained = self._get_trained()
        probabilities = trained.probabilities(_inputs.list_texts(X, self._kind))
        # The classes of the model may have another order, and lack labels without a text.
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        columns = np.zeros((len(probabilities), len(places)), np.float32)
        columns[:, [places[label] for label in trained.classes]] = probabilities
        return columns

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
        labels, model_classes = _inputs.list_labels(y), self._get_trained().classes
        classes = Classes("label", model_classes, accept_unknown=True)
        places = []
        for number, label in enumerate(labels, 1):
            try:
                plain = read_label("label", label)
            except ValueError as error:
                raise ValueError(f"y:{number}: {error}") from None
            # A label that is not a class gets the place -1, which equals no prediction.
            places.append(classes.place(plain, "y", number))
        place_of = {label: place for place, label in enumerate(model_classes)}
        predicted = [place_of[label] for label in self.predict(X).tolist()]
        _inputs.check_lengths(predicted, labels)
        return float(np.mean([a == b for a, b in zip(predicted, places, strict=True)]))

    def evaluate(
        self,
        data: object,
        *,
        columns: Columns | None = None,
        encoding: str = "utf-8",
    ) -> Json:
        """Evaluates the model on labelled texts.

        Args:
          data: labelled texts in a form that `train` accepts: a path, the name of a data set, rows
            (text, label), a frame, a Dataset, or a dict of columns.
          columns: names of the columns; None uses "text" and "label", or for pairs "premise",
            "hypothesis" and "label".
          encoding: encoding of the files.

        Returns:
          A dict with accuracy, macro F1, confusion, calibration and share (of the words that are
          read), for a network with gates also the accuracy in each gate mode, and "leak" (the
          change of the prediction without a word that is not read) if words are left out.

        Raises:
          ValueError: for a label that is not a class of the model, or data that cannot be used.
        """
        table = open_table(data, self._choose_columns(columns), encoding=encoding)
        return evaluate_model(self._get_trained(), table)

    @overload
    def explain(self, X: str | tuple[str, str]) -> Explanation: ...

    @overload
    def explain(self, X: Iterable[Any]) -> list[Explanation]: ...

    def explain(self, X: Any) -> Explanation | list[Explanation]:
        """Explains the predictions for texts by their words.

        Args:
          X: a text, or texts; for a `PairClassifier` a pair of texts, or pairs.

        Returns:
          An `Explanation`, or a list of them for texts: for a lexicon or a model of states the
          words that are read and their parts; for a network the attention to each word, and the
          prediction after flipping each gate and after removing each word.
        """
        trained = self._get_trained()
        if isinstance(X, str) or _inputs.is_pair_of_texts(X, self._kind):
            return explain(trained, (X,) if isinstance(X, str) else tuple(X))
        return [explain(trained, texts) for texts in _inputs.list_texts(X, self._kind)]

    @property
    def words_(self) -> list[WordWeight]:
        """The words that a lexicon reads, as `WordWeight` (word, label, weight, count), the most
        important first; `pandas.DataFrame(model.words_)` is their table. Words that occur once in
        the training texts are read by their letters and are not in the list.
        """
        trained = self._get_trained()
        if trained.network not in OF_WORDS:
            raise AttributeError(
                f"words_ must be asked of {' or '.join(OF_WORDS)}, got {self.model!r}"
            )
        return weigh_words(trained)[1]

    def __sklearn_tags__(self) -> Any:
        """Returns a `sklearn.utils.Tags`, which describes a model of texts to scikit-learn."""
        # Imported here, because it is slow and only tools of scikit-learn call this method.
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        is_classifier, has_several = self._estimator_type == "classifier", self._kind == LABELS
        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True, two_d_labels=has_several),
            transformer_tags=None,
            classifier_tags=ClassifierTags(multi_label=has_several) if is_classifier else None,
            regressor_tags=None if is_classifier else RegressorTags(),
            input_tags=InputTags(two_d_array=False, string=True),
        )


@with_arguments
class TextClassifier(_Classifier):
    """A text classifier, by default a lexicon with gates, which reads some words and no others.

    The constructor takes the name of the model, such as "lexicon" or "gru", and keywords, the
    fields of `TextOptions`. The prediction of a network also depends on words that attention cannot
    see, through the encoder; "leak" in `report_` and in the result of `evaluate` measures by how
    much.

        >>> model = TextClassifier.train("demo", share=0.3)  # or a file such as "reviews.csv"
        >>> print(model.predict(["we lay on the deck and saw the ship"]))
        ['Stevenson']
        >>> explanation = model.explain("we lay on the deck and saw the ship")
        >>> [word for word, is_read in zip(explanation.tokens, explanation.read) if is_read]
        ['we', 'deck', 'ship']
        >>> print(explanation.label)  # print(explanation) shows the part of each word
        Stevenson
        >>> TextClassifier.load(model.save("model"))
        <TextClassifier(model='lexicon', share=0.3): 3 classes, share 0.30>

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
        such as "accuracy", and "baseline" has the accuracy of logistic regression on the words of
        the same texts.
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
        such as "accuracy", and "baseline" has the accuracy of logistic regression on the words of
        the same pairs.
    """

    _kind = "pair"

    model: str = "ssan"
