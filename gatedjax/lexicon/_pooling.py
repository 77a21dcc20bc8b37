"""A linear classifier of the mean of token vectors, with gates before the mean."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from threadpoolctl import get_cached_controller

from gatedjax.lexicon import _heads
from gatedjax.lexicon._fit import SHARES, drop_unweighted
from gatedjax.lexicon._lexicon import Parts, Readings, check_shapes, note_priors
from gatedjax.lexicon._solve import fit_weights

# Inverse penalty of the classifier for standardised means, and the ridge of the gate for
# standardised vectors, as a share of their variance.
_INVERSE_PENALTY, _RIDGE = 0.1, 1e-3
# Largest number of tokens from which the gate is fitted. More tokens take longer and change little.
_MOST_FITTED = 200_000
# Gains outside of this share of the tokens at each end are moved to its border, because the gain of
# a token that decides its text is large and would dominate the squares.
_OUTLIERS = 0.01
# Number of token vectors in memory as float64 at the same time.
_CHUNK = 16_384
MADE_OPEN = "no token was read, so the token with the largest gate logit is read"
"""The note of a text in which `GatedPooling` reads a token because none was read."""


@dataclasses.dataclass(frozen=True, eq=False)
class GatedPooling:
    """A text classifier that reads the mean of the vectors of the tokens read.

        z_t = u . h_t - c,   g_t = [z_t > 0],   O = {t: g_t = 1}
        m = 1/|O| sum_{t in O} h_t,   p = softmax((W^T m + b) / T)

    h_t [D] is the vector of token t. A gate depends on the vector of its token only, and the other
    tokens are not in the mean. |O| is the number of tokens read. So the vectors of the tokens read
    give the same prediction, bit for bit. Whether a vector depends on other tokens is decided by
    the encoder that computed it.

    If a text has no such token, the token with the largest z is read. The prediction for a text
    without a token is the prior, the frequencies of the classes in the training texts.

    Attributes:
      num_classes: the number C of classes.
      gate: float32 [D], the vector u.
      cut: the number c.
      weights: float32 [D, K], W. K is C, but 1 for two classes, whose logits are -s/2 and s/2 with
        the score s.
      bias: float32 [K], b.
      prior: float64 [C], the weighted frequencies of the classes in the training texts.
      share: the share of the tokens of the training texts that the fit was asked to read.
      temperatures: the numbers T of texts with 1, 2, 3 to 5, and more tokens read.
    """

    num_classes: int
    gate: np.ndarray
    cut: float
    weights: np.ndarray
    bias: np.ndarray
    prior: np.ndarray
    share: float
    temperatures: tuple[float, ...] = _heads.NO_TEMPERATURES

    def check(self) -> None:
        """Raises ValueError if the arrays do not fit each other, as in a damaged file."""
        columns = 1 if self.num_classes == 2 else self.num_classes
        shapes = {
            "weights": (self.width, columns),
            "bias": (columns,),
            "prior": (self.num_classes,),
        }
        check_shapes(self, shapes)
        for name in ("gate", "weights", "bias"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite, got NaN or infinity")
        _heads.check_temperatures(self.temperatures)
        if not np.isfinite(self.cut):
            raise ValueError(f"cut must be finite, got {self.cut}")
        self._head.check_prior(self.prior)

    @property
    def width(self) -> int:
        """The width D of a vector."""
        return len(self.gate)

    @functools.cached_property
    def _head(self) -> _heads.ClassHead:
        return _heads.ClassHead(self.num_classes)

    @functools.cached_property
    def _weights64(self) -> np.ndarray:
        return self.weights.astype(np.float64)

    def select(self, texts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns the gates of each text, bool [T], and True for the texts without a token to read.

        A gate is True if its token is read. The second result, bool [n] for n texts, is True for a
        text in which the token with the largest z = u . h - c, the logit of its gate, is read
        because no token was; h is the vector of the token, u the field `gate` and c the field
        `cut`.

        Args:
          texts: for each text the vectors [T, D] of its tokens.
        """
        is_read = []
        had_none = np.zeros(len(texts), bool)
        for number, vectors in enumerate(texts):
            logits = score_gate(vectors, self.gate, self.cut)
            gates = logits > 0
            if len(gates) and not gates.any():
                gates[np.argmax(logits)] = True
                had_none[number] = True
            is_read.append(gates)
        return is_read, had_none

    def read(self, texts: Sequence[np.ndarray]) -> Readings:
        """Predicts the classes of texts.

            >>> pooling = GatedPooling(2, np.ones(1, np.float32), 0.5, np.ones((1, 1), np.float32),
            ...                        np.zeros(1, np.float32), np.full(2, 0.5), 0.5)
            >>> reading = pooling.read([np.array([[2.0], [0.1]])])
            >>> print(reading.is_read[0], reading.probabilities.round(3))
            [ True False] [[0.119 0.881]]

        Args:
          texts: for each text the vectors [T, D] of its tokens, T at least 0.

        Returns:
          A `Readings` with the probabilities of the classes [n, C] and the logits [n, C] of n
          texts, the gates of each, bool [T], True at the tokens read, and notes for texts without a
          token to read.
        """
        is_read, had_none = self.select(texts)
        means = np.zeros((len(texts), self.width))
        for row, (vectors, gates) in enumerate(zip(texts, is_read, strict=True)):
            if gates.any():
                means[row] = np.asarray(vectors)[gates].astype(np.float64).mean(0)
        # Each row is multiplied by itself, so that a text has the same bits in each batch.
        scores = np.array([mean @ self._weights64 for mean in means]).reshape(
            len(texts), len(self.bias)
        )
        bias = self.bias.astype(np.float64)
        logits = self._head.add_bias(scores, bias) / _heads.find_temperatures(
            self.temperatures, is_read
        )
        probabilities = self._head.compute_probabilities(logits, bias)
        is_prior = np.array([not len(gates) for gates in is_read], bool)
        probabilities[is_prior] = self.prior
        logits[is_prior] = self._head.compute_prior_logits(self.prior)
        # A vector has no spelling, so that no token is unknown.
        is_known = [np.ones(len(gates), bool) for gates in is_read]
        notes = [
            MADE_OPEN if none_open else note
            for none_open, note in zip(had_none, note_priors(is_prior, is_known), strict=True)
        ]
        return Readings(probabilities, is_read, is_known, is_prior, notes, logits)

    def parts(self, vectors: np.ndarray) -> Parts:
        """Computes the part of each token read in the logits of a text, W^T h_t / (|O| T).

        W is the field `weights`, T the temperature for |O| tokens, O the set of the tokens read,
        and h_t the vector of token t. The result is a `Parts` with the bias [C] and the parts
        [M, C] of the M tokens. There are no pairs, and the other tokens have the part 0.

        Args:
          vectors: [M, D], the vectors of the M tokens of the text.
        """
        (gates,), _ = self.select([vectors])
        places = np.flatnonzero(gates)
        heat = _heads.find_temperatures(self.temperatures, [gates])[0]
        parts = np.zeros((len(gates), self.num_classes))
        scores = np.asarray(vectors, np.float64)[places] @ self._weights64
        parts[places] = self._head.expand(scores) / (max(len(places), 1) * heat)
        bias = self._head.expand(self.bias.astype(np.float64)[None])[0] / heat
        if not len(gates):
            bias = self._head.compute_prior_logits(self.prior)
        return Parts(bias, parts, np.zeros((0, self.num_classes)), np.zeros((0, 2), np.int64))


def score_gate(vectors: np.ndarray, gate: np.ndarray, cut: float) -> np.ndarray:
    """Computes z_t = u . h_t - c for each token: float64 [T].

    >>> print(score_gate(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, 1.0]), 2.0))
    [ 1. -1.]
    """
    # A product of matrices would give a token other bits in another batch. The sum of a row
    # depends on this row only.
    products = np.asarray(vectors, np.float64) * gate.astype(np.float64)
    return np.asarray(products.sum(1)) - cut


def find_cut(logits: np.ndarray, share: float) -> float:
    """Returns the threshold above which the share of the logits is nearest to a share. Equal
    logits are on the same side of it, and at least one logit is above it.

        >>> find_cut(np.array([3.0, 1.0, 1.0, 0.0]), 0.25)
        2.0
    """
    values, counts = np.unique(logits.astype(np.float64), return_counts=True)
    parts = np.cumsum(counts[::-1])[::-1] / len(logits)
    lowest = int(np.argmin(np.abs(parts - share)))
    below = values[lowest - 1] if lowest else values[0] - 2
    return float((values[lowest] + below) / 2)


class _Chunk(NamedTuple):
    """The T tokens of several whole texts."""

    vectors: np.ndarray  # float64 [T, D]
    tokens: slice  # the positions among the tokens of all texts


def fit_pooling(
    texts: Sequence[np.ndarray],
    labels: np.ndarray,
    num_classes: int,
    shares: Sequence[float] = SHARES,
    *,
    sample_weight: np.ndarray | None = None,
    inverse_penalty: float = _INVERSE_PENALTY,
) -> Iterator[GatedPooling]:
    """Fits classifiers of pooled vectors of falling share, and yields one for each share.

    Each stage is a convex problem, logistic regression on the standardised means of the
    vectors read. Between two stages the gain of each token is computed from its text,

        gain_t = n (loss without h_t - loss with h_t in the mean of n vectors),

    the gate u is fitted to the gains by ridge regression on the vectors, which is a convex problem
    too, and the cut is set so that the share of the training tokens read is the next. The gains
    need the labels; the gate predicts them from a vector. No step is random.

        >>> texts = [np.array([[1.0, 0.1], [0.0, s]]) for s in (2.0, 2.5, -2.0, -2.5)] * 4
        >>> labels = np.array([1, 1, 0, 0] * 4)
        >>> for pooling in fit_pooling(texts, labels, 2, [1.0, 0.5]):
        ...     reading = pooling.read([np.array([[1.0, 0.1], [0.0, -2.2]])])
        ...     print(reading.probabilities.argmax(1))
        [0]
        [0]

    Args:
      texts: for each text the vectors [T, D] of its tokens.
      labels: int [n], the class of each text, from 0.
      num_classes: the number of classes, at least 2.
      shares: the shares of the tokens that are read, falling, in (0, 1].
      sample_weight: [n], the weight of each text in the loss and in the fit of the gate, at least
        0; None gives all texts the same weight. A text of weight 0 is left out.
      inverse_penalty: the number c of the penalty |W|^2 / 2c; larger numbers mean less
        regularisation.

    Yields:
      A fitted `GatedPooling` for each share, in the given order.

    Raises:
      ValueError: if the number of texts and labels differ, there is no token, the vectors differ in
        width, or a weight is negative or not finite.
    """
    labels = np.asarray(labels)
    weights = np.ones(len(labels)) if sample_weight is None else sample_weight
    texts, labels, weights = drop_unweighted(texts, labels, weights)
    _check_texts(texts, labels)
    width = texts[0].shape[1]
    rows = np.repeat(np.arange(len(texts)), [len(vectors) for vectors in texts])
    gate, cut = np.zeros(width, np.float32), -1.0
    is_read = np.ones(len(rows), bool)
    pooling: GatedPooling | None = None
    fixed = (texts, labels, num_classes, rows, weights, inverse_penalty)
    for share in shares:
        with get_cached_controller().limit(limits=1, user_api="blas"):
            if share < 1:
                if pooling is None:
                    pooling = _fit_classifier(*fixed, is_read, gate, cut, 1.0)
                gate = _fit_gate(texts, labels, rows, is_read, pooling, weights)
                logits = np.concatenate([score_gate(c.vectors, gate, 0.0) for c in _chunks(texts)])
                cut = find_cut(logits, share)
                # Training uses the gates of a prediction, which reads a token in each text.
                gates_of_texts, _ = dataclasses.replace(pooling, gate=gate, cut=cut).select(texts)
                is_read = np.concatenate(gates_of_texts)
            pooling = _fit_classifier(*fixed, is_read, gate, cut, share)
        yield pooling


def _check_texts(texts: Sequence[np.ndarray], labels: np.ndarray) -> None:
    """Raises ValueError unless the texts have labels, vectors of the same width, and a token."""
    if len(texts) != len(labels) or not len(texts):
        raise ValueError(
            f"texts and labels must have the same length of at least 1, got {len(texts)} and "
            f"{len(labels)}"
        )
    widths = {np.shape(vectors)[1:] for vectors in texts}
    if len(widths) > 1 or any(np.ndim(vectors) != 2 for vectors in texts):
        raise ValueError(f"texts must have vectors of the same width [T, D], got {sorted(widths)}")
    if not any(map(len, texts)):
        raise ValueError("texts must have at least one token, got none")


def _chunks(texts: Sequence[np.ndarray]) -> Iterator[_Chunk]:
    """Yields whole texts in order, about `_CHUNK` tokens at a time."""
    ends = np.cumsum([len(vectors) for vectors in texts])
    # A part ends with the first text that fills it.
    first = begin = 0
    while begin < ends[-1]:
        last = min(int(np.searchsorted(ends, begin + _CHUNK)) + 1, len(texts))
        vectors = np.concatenate(texts[first:last]).astype(np.float64)
        yield _Chunk(vectors, slice(begin, begin + len(vectors)))
        first, begin = last, begin + len(vectors)


def _fit_classifier(
    texts: Sequence[np.ndarray],
    labels: np.ndarray,
    num_classes: int,
    rows: np.ndarray,
    sample_weight: np.ndarray,
    inverse_penalty: float,
    is_read: np.ndarray,
    gate: np.ndarray,
    cut: float,
    share: float,
) -> GatedPooling:
    """Fits logistic regression to the standardised means of the vectors read."""
    counts = np.bincount(rows[is_read], minlength=len(texts))
    means = np.zeros((len(texts), texts[0].shape[1]))
    for chunk in _chunks(texts):
        gates = is_read[chunk.tokens]
        places = rows[chunk.tokens][gates]
        if len(places):
            first = np.flatnonzero(np.diff(places, prepend=-1))
            means[places[first]] = np.add.reduceat(chunk.vectors[gates], first, axis=0)
    means /= np.maximum(counts, 1)[:, None]
    centre, scale = means.mean(0), means.std(0)
    scale[scale < 1e-9] = 1.0
    weights, bias = fit_weights(
        (means - centre) / scale, labels, num_classes, inverse_penalty, sample_weight=sample_weight
    )
    weights = weights / scale[:, None]
    return GatedPooling(
        num_classes,
        gate,
        cut,
        weights.astype(np.float32),
        (bias - centre @ weights).astype(np.float32),
        _heads.ClassHead(num_classes).compute_prior(labels, sample_weight),
        share,
    )


def _fit_gate(
    texts: Sequence[np.ndarray],
    labels: np.ndarray,
    rows: np.ndarray,
    is_read: np.ndarray,
    pooling: GatedPooling,
    sample_weight: np.ndarray,
) -> np.ndarray:
    """Fits u, [D], by ridge regression, so that u . h predicts the gain of a token from h."""
    weights = pooling.weights.astype(np.float64)
    scores = np.concatenate([chunk.vectors @ weights for chunk in _chunks(texts)])
    gains = _compute_gains(scores, rows, is_read, labels, pooling.bias.astype(np.float64))
    low, high = np.quantile(gains, [_OUTLIERS, 1 - _OUTLIERS])
    step = max(-(-len(gains) // _MOST_FITTED), 1)
    places = np.arange(0, len(gains), step)
    targets = np.clip(gains[places], low, high)
    importance = sample_weight[rows[places]]
    importance = importance / max(importance.sum(), 1e-300)
    width = pooling.width
    total, square, cross = np.zeros(width), np.zeros((width, width)), np.zeros(width)
    for chunk in _chunks(texts):
        first, last = np.searchsorted(places, (chunk.tokens.start, chunk.tokens.stop))
        vectors = chunk.vectors[places[first:last] - chunk.tokens.start]
        weighted = vectors * importance[first:last, None]
        total += weighted.sum(0)
        square += weighted.T @ vectors
        cross += weighted.T @ targets[first:last]
    covariance = square - np.outer(total, total)
    slope = cross - total * float(importance @ targets)
    scale = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale[scale < 1e-9] = np.inf
    correlation = covariance / np.outer(scale, scale) + _RIDGE * np.eye(width)
    return np.asarray(np.linalg.solve(correlation, slope / scale) / scale, np.float32)


def _compute_gains(
    scores: np.ndarray,
    rows: np.ndarray,
    is_read: np.ndarray,
    labels: np.ndarray,
    bias: np.ndarray,
) -> np.ndarray:
    """Computes n (loss without the token - loss with it) of each token, in a mean of n with it."""
    num_texts = len(labels)
    counts = np.bincount(rows[is_read], minlength=num_texts)
    sums = np.stack(
        [np.bincount(rows[is_read], column, num_texts) for column in scores[is_read].T], 1
    )

    head = _heads.ClassHead(2 if len(bias) == 1 else len(bias))

    def measure(sums: np.ndarray, counts: np.ndarray, labels: np.ndarray) -> np.ndarray:
        # The mean of no vector is zero.
        logits = head.add_bias(sums / np.maximum(counts, 1)[:, None], bias)
        return head.compute_losses(logits, bias, labels)

    losses = measure(sums, counts, labels)[rows]
    # A token that is not read is added to the mean. Without such tokens the gate would extrapolate.
    change = np.where(is_read, -1, 1)
    other_counts = counts[rows] + change
    # The difference of a sum and its only term need not be zero.
    changed_sums = np.where(other_counts[:, None] > 0, sums[rows] + change[:, None] * scores, 0.0)
    other_losses = measure(changed_sums, other_counts, labels[rows])
    return np.asarray(change * (losses - other_losses) * np.maximum(counts[rows], other_counts))
