"""The linear models of scikit-learn with which a model of texts is compared."""

import collections
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from threadpoolctl import get_cached_controller

from gatedjax._utils.types import Json
from gatedjax.lexicon import Readings, choose_words
from gatedjax.lexicon._features import number_words
from gatedjax.text.answers._prediction import LABELS
from gatedjax.text.answers._report import CHARACTERS, CONSTANT, FILTER, WORDS, name_rivals
from gatedjax.text.targets._base import Target, measure_error

# scikit-learn's C and tol. On the questions of TREC 10 is as good as 30 and better than 5. A point
# nearer to the optimum takes half as long again and changes the fourth digit of the accuracy.
_INVERSE_PENALTY, _TOLERANCE = 10.0, 0.1
# A pair of neighbours is a feature if at least this many texts have it; a word always is.
_LEAST_TEXTS = 2
# Some texts are left out if there are more words, or if words times columns of targets are more,
# and rare features if there are more, because memory and time grow with them.
_MOST_WORDS, _MOST_CELLS = 10_000_000, 80_000_000
_MOST_FEATURES, _MOST_COEFFICIENTS = 200_000, 20_000_000
# With more characters in the training texts, the model of characters takes longer than the lexicon.
_MOST_CHARACTERS = 2_000_000
# The quantile of the normal distribution for an interval of 95 %.
_QUANTILE = 1.96


def train_rival(
    texts: Iterable[Any], targets: np.ndarray, weights: np.ndarray | None = None, size: int = 0
) -> Callable[[Iterable[Any]], np.ndarray]:
    """Trains on n texts, which have `size` words and are read once: a logistic regression for each
    column of `targets`, bool [n, L], or a ridge regression of numbers, float [n], on the TF-IDF of
    words and pairs of neighbours, or of n-grams of characters if a text is a string. Returns the
    function from texts to probabilities [n, L] or numbers [n, 1].
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge

    columns = targets[:, None] if targets.ndim == 1 else targets
    kept = _choose_texts(len(targets), size, min(_MOST_WORDS, _MOST_CELLS // columns.shape[1]))
    chosen, columns = list(itertools.compress(texts, kept)), columns[kept]
    weights = np.ones(len(columns)) if weights is None else weights[kept] / weights[kept].mean()
    most = min(_MOST_FEATURES, _MOST_COEFFICIENTS // columns.shape[1])
    options: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (1, 4), "max_features": most}
    if not isinstance(chosen[0], str):
        names = _choose_features(chosen, most)
        options = {"analyzer": _list_features, "vocabulary": names, "lowercase": False}
    features = TfidfVectorizer(sublinear_tf=True, **options)
    rows = features.fit_transform(chosen)
    models: list[Any] = []
    with get_cached_controller().limit(limits=1, user_api="blas"):
        for column in columns.T:
            model = LogisticRegression(C=_INVERSE_PENALTY, tol=_TOLERANCE, solver="liblinear")
            if column.dtype != bool:
                models.append(Ridge().fit(rows, column, weights).predict)
            elif column.all() or not column.any():
                # A label of all texts or of none leaves nothing to learn.
                models.append(lambda rows, value=float(column[0]): np.full(rows.shape[0], value))
            else:
                model.fit(rows, column, weights)
                models.append(lambda rows, model=model: model.predict_proba(rows)[:, 1])

    def predict(texts: Iterable[Any]) -> np.ndarray:
        rows = features.transform(texts)
        return np.stack([model(rows) for model in models], axis=1)

    return predict


def _choose_texts(count: int, size: int, most: int) -> np.ndarray:
    """Returns a bool [count], True for all texts, or for a share with about `most` words."""
    share = min(1.0, most / max(size, 1))
    kept = np.random.default_rng(0).permutation(count) < max(count * share, 1)
    return np.asarray(kept)


def _list_features(words: Sequence[str]) -> list[str]:
    words = list(map(str.lower, words))
    return [*words, *map(" ".join, itertools.pairwise(words))]


def _choose_features(texts: Iterable[Sequence[str]], most: int) -> list[str]:
    """Returns the words, and the pairs of at least `_LEAST_TEXTS` texts, the most frequent ones."""
    counts = collections.Counter(
        itertools.chain.from_iterable(dict.fromkeys(_list_features(text)) for text in texts)
    )
    often = [name for name, count in counts.items() if count >= _LEAST_TEXTS or " " not in name]
    # Texts without a word have a feature that none of them has.
    return sorted(sorted(often, key=counts.__getitem__, reverse=True)[:most]) or [""]


def filter_words(texts: Sequence[Sequence[str]], groups: np.ndarray, share: float) -> set[str]:
    """Returns the words of a chi-squared filter of n texts in groups, bool [n, G]: among the words
    that occur twice, those with the largest chi-squared per occurrence whose occurrences fit into
    the share of all words.
    """
    words = number_words(texts)
    ones = np.ones(len(words.ids))
    counts = csr_matrix((ones, (words.rows, words.ids)), (len(texts), len(words.types)))
    totals = np.bincount(words.ids, minlength=len(words.types))
    # Observed and expected occurrences of each word in each group; a group may have no text.
    observed = np.asarray((csr_matrix(groups.T.astype(float)) @ counts).toarray())
    expected = np.outer(groups.mean(0), totals)
    chi2 = (np.square(observed - expected) / np.maximum(expected, 1e-12)).sum(0)
    # Words that occur once have the largest chi-squared per occurrence, by chance, and other texts
    # rarely have them.
    scores = np.where(totals > 1, chi2 / totals, -np.inf)
    is_kept = choose_words(scores, totals, share * len(words.ids))
    return set(itertools.compress(words.types, is_kept.tolist()))


def train_rivals(target: Target, part: Any, share: float) -> dict[str, Callable[[Any], Readings]]:
    """Trains the simple models; returns their functions from texts to outputs by name."""
    columns = part.labels
    if target.has_classes:
        columns = np.eye(len(target.classes), dtype=bool)[columns]

    def train(choose: Callable[[Any], Sequence[Any]]) -> Callable[[Any], Readings]:
        texts = choose(part)
        rival = train_rival(texts, columns, part.sample_weight, sum(map(len, texts)))

        def read(judge: Any) -> Readings:
            outputs = rival(choose(judge))
            if target.has_classes:
                # A class is predicted, not the median grade, because the rival's classes have no
                # order.
                outputs = np.eye(len(target.classes))[outputs.argmax(1)]
            return Readings.of_outputs(outputs, outputs)

        return read

    rivals = {WORDS: train(lambda judge: judge.words)}
    size = sum(map(len, part.texts))
    if target.kind == "text" and size <= _MOST_CHARACTERS:
        rivals[CHARACTERS] = train(lambda judge: judge.texts)
    if share < 1:
        is_number = columns.dtype != bool
        groups = columns[:, None] > np.median(columns) if is_number else columns
        vocabulary = filter_words(part.words, groups, share)
        read = train(lambda judge: [[w for w in words if w in vocabulary] for words in judge.words])
        rivals[FILTER] = lambda judge: read(judge)._replace(
            is_read=[np.array([w in vocabulary for w in words], bool) for words in judge.words]
        )
    prior = target.make_head(part.labels).compute_prior(part.labels, part.sample_weight)
    rivals[CONSTANT] = lambda judge: target.repeat_prior(prior, len(judge.labels))
    return rivals


def measure_rivals(
    target: Target,
    training: Any,
    validation: Any,
    fitted: Any,
    checked: Any,
    ours: Readings,
    share: float,
) -> tuple[dict[str, Json], dict[str, Json]]:
    """Returns the metrics of the simple models by their names in the report, and for the better
    models by their titles the comparison with the outputs `ours` for the checked texts. Thresholds
    are chosen on validation texts without which a model is trained, like those of the lexicon.
    """
    metrics, better, targets = {}, {}, {}
    rivals = None
    if target.kind == LABELS:
        rivals = train_rivals(target, training, share)
        for name, read in rivals.items():
            targets[name] = target.choose_decision(
                read(validation), validation.labels, validation.sample_weight
            )
    if rivals is None or fitted is not training:
        rivals = train_rivals(target, fitted, share)
    weights = checked.sample_weight
    for name, read in rivals.items():
        readings, deciding = read(checked), targets.get(name, target)
        metrics[name] = deciding.measure(checked.labels, readings, checked.unknown, weights)
        if readings.is_read:
            metrics[name]["share"] = float(np.mean(np.concatenate(readings.is_read)))
        values = deciding.score_texts(checked.labels, readings)
        result = compare_scores(target.score_texts(checked.labels, ours), values, weights)
        # Smaller errors are better.
        low, high = sorted(bound * (-1) ** target.is_error for bound in result["interval"])
        if low > 0:
            better[name_rivals(target)[name]] = {**result, "interval": [low, high]}
    return metrics, better


def compare_scores(ours: np.ndarray, theirs: np.ndarray, weights: np.ndarray | None) -> Json:
    """Compares two models by the scores of n texts: their means, and the 95 % interval of the mean
    difference, which is that of McNemar's test (normal approximation) where the scores are 0 or 1.
    """
    differences = theirs - ours
    mean = float(np.average(differences, weights=weights))
    half = _QUANTILE * measure_error(differences, weights)
    return {
        "ours": float(np.average(ours, weights=weights)),
        "theirs": float(np.average(theirs, weights=weights)),
        "interval": [mean - half, mean + half],
    }
