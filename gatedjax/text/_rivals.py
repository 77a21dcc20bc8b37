"""The simple models with which a lexicon for labels, numbers or grades is compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from gatedjax._utils.types import Json
from gatedjax.lexicon import Head, LabelHead, Readings, RealHead, fit_weights
from gatedjax.lexicon._features import find_keys, find_pairs, number_words
from gatedjax.lexicon._fit import scale_weights
from gatedjax.text._baseline import LinearBaseline
from gatedjax.text._target_base import Target

# A pair of neighbours is a feature if it occurs this often; a word always is.
_LEAST = 2
# The inverse penalty of logistic regression is that of `LinearBaseline`, and the penalty of ridge
# regression is the default of scikit-learn.
_INVERSE_PENALTY = {LabelHead: 10.0, RealHead: 1.0}
_NAMES = {
    LabelHead: "one-vs-rest logistic regression on TF-IDF",
    RealHead: "ridge regression on TF-IDF",
}


class TfidfModel:
    """A linear model of the TF-IDF of words and of pairs of neighbours.

        v_f = (1 + log count_f) (log((1 + n) / (1 + n_f)) + 1), in rows of length 1

    n_f of the n training texts have the word or pair f. With a `LabelHead` it is one-vs-rest
    logistic regression, because the loss is a sum over the labels; with a `RealHead` it is ridge
    regression.

        >>> texts, targets = [["good"], ["bad"], ["good"], ["bad"]], np.array([1.0, 0, 1, 0])
        >>> model = TfidfModel(RealHead.of_targets(targets)).fit(texts, targets)
        >>> values = model.compute_readings([["good"], ["bad"]]).logits[:, 0]
        >>> bool(values[0] > values[1])
        True
    """

    def __init__(self, head: Head) -> None:
        self._head = head

    def fit(
        self,
        texts: Sequence[Sequence[str]],
        targets: np.ndarray,
        sample_weight: np.ndarray | None = None,
    ) -> "TfidfModel":
        """Fits the model to targets, bool [n, L] of labels or float [n] of numbers; returns it."""
        if sample_weight is not None:
            sample_weight = scale_weights(sample_weight, len(texts))
        words = number_words(texts)
        self._number_of = {word: number for number, word in enumerate(words.types)}
        keys, counts = np.unique(
            find_pairs(words.ids, words.rows, len(words.types))[0], return_counts=True
        )
        self._pairs = keys[counts >= _LEAST]
        features = self._count(texts)
        presence = np.bincount(features.indices, minlength=features.shape[1])
        self._idf = np.log((1 + len(texts)) / (1 + presence)) + 1
        self._weights, self._bias = fit_weights(
            self._weigh(features),
            targets,
            self._head.num_groups,
            _INVERSE_PENALTY[type(self._head)],
            sample_weight=sample_weight,
            head=self._head,
        )
        return self

    def compute_readings(self, texts: Sequence[Sequence[str]]) -> Readings:
        """Returns the logits [n, C] and probabilities of n texts, in which all words are open."""
        scores = self._weigh(self._count(texts)) @ self._weights
        logits = self._head.add_bias(scores, self._bias)
        probabilities = self._head.compute_probabilities(logits, self._bias)
        return Readings.of_outputs(probabilities, logits)

    def _count(self, texts: Sequence[Sequence[str]]) -> Any:
        """Counts the known words, then the known pairs of neighbours: a sparse matrix [n, F]."""
        words = number_words(texts)
        width = max(len(self._number_of), 1)
        numbers = np.array([self._number_of.get(word, -1) for word in words.types], np.int64)
        ids = numbers[words.ids] if len(words.ids) else words.ids
        keys, first = find_pairs(ids, words.rows, width)
        places = find_keys(self._pairs, keys)
        rows = np.concatenate([words.rows[ids >= 0], words.rows[first[places >= 0]]])
        columns = np.concatenate([ids[ids >= 0], width + places[places >= 0]])
        shape = len(texts), width + len(self._pairs)
        counts = csr_matrix((np.ones(len(rows)), (rows, columns)), shape)
        counts.sum_duplicates()
        return counts

    def _weigh(self, counts: Any) -> Any:
        # A text of words that training has not seen has no feature, and the length 0.
        values = (1 + np.log(counts.data)) * self._idf[counts.indices]
        weighted = csr_matrix((values, counts.indices, counts.indptr), counts.shape)
        squares = np.asarray(weighted.multiply(weighted).sum(1)).ravel()
        factors = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))
        values = values * np.repeat(factors, np.diff(counts.indptr))
        return csr_matrix((values, counts.indices, counts.indptr), counts.shape)


def measure_rivals(
    target: Target,
    training: Any,
    validation: Any,
    fitted: Any,
    checked: Any,
) -> dict[str, Json]:
    """Trains the simple model that a lexicon is compared with, and returns its metrics by its name.
    Its thresholds are chosen on the validation texts, like the thresholds of the lexicon; `fitted`
    has the training texts of the measured model, and perhaps the validation texts.
    """
    head = target.make_head(fitted.labels, fitted.sample_weight)
    weights = checked.sample_weight
    if type(head) not in _NAMES:
        baseline = LinearBaseline().fit(
            fitted.words, fitted.labels, len(target.classes), fitted.sample_weight
        )
        probabilities = baseline.probabilities(checked.words)
        # A class is predicted, not the median, because the rival knows no order.
        best = np.eye(len(target.classes))[probabilities.argmax(1)]
        readings = Readings.of_outputs(best, best)
        scores = target.measure(checked.labels, readings, sample_weight=weights)
        return {"logistic regression on words": scores}
    # The thresholds must not be chosen on texts that the model was trained on, so that the model is
    # fitted without the validation texts first, like the lexicon.
    model = TfidfModel(head).fit(training.words, training.labels, training.sample_weight)
    target = target.choose_decision(
        model.compute_readings(validation.words), validation.labels, validation.sample_weight
    )
    if fitted is not training and len(fitted.words) != len(training.words):
        model = TfidfModel(head).fit(fitted.words, fitted.labels, fitted.sample_weight)
    readings = model.compute_readings(checked.words)
    scores = target.measure(checked.labels, readings, checked.unknown, weights)
    return {_NAMES[type(head)]: scores}
