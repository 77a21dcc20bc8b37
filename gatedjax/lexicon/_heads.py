"""The heads of a lexicon: how the score of a text becomes a prediction, and its loss.

All that differs between classes, several labels, real targets and grades is in this module. The
fit, the gates and the folder of a model call the methods of a `Head`.
"""

import abc
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

# Larger exponents would overflow, and the sigmoid is 0 or 1 in float64 long before.
_LARGEST = 500.0


@dataclasses.dataclass(frozen=True)
class Head(abc.ABC):
    """The last step of a lexicon, from the weighted features of a text to its prediction.

    A text with the features f [F] and the weights W [F, K] has K scores f W and, with B biases, C
    logits; n is the number of texts, and G that of the groups of `group_texts`. The logits are sums
    over the features, so that each word has a part in them. The probabilities and the loss follow
    from the logits.

    The targets of n texts are int [n] for classes and grades, bool [n, L] for L labels, True where
    a text has the label, and float [n] for numbers.

    Attributes:
      kind: the name of the head in the folder of a model: "classes", "labels", "real" or "ordinal".
      prior_rule: the sentence that explains the prediction for a text that is not read.
      inverse_penalty: the number c of the penalty |W|^2 / 2c of the fit; larger numbers mean less
        regularisation.
    """

    kind: ClassVar[str]
    prior_rule: ClassVar[str]
    inverse_penalty: ClassVar[float] = 10.0

    @property
    @abc.abstractmethod
    def num_columns(self) -> int:
        """The number K of scores of a text, of columns of the weights [F, K] of F features."""

    @property
    def num_biases(self) -> int:
        """The number B of biases, which are added to the scores or are thresholds of grades."""
        return self.num_columns

    @property
    def num_logits(self) -> int:
        """The number C of logits of a text."""
        return self.num_columns

    @property
    def num_probabilities(self) -> int:
        """The number of probabilities of a text, 0 for a real target."""
        return self.num_logits

    @property
    def num_groups(self) -> int:
        """The number G of groups of texts, such as a group for each class."""
        return self.num_logits

    @abc.abstractmethod
    def check_targets(self, targets: np.ndarray) -> None:
        """Raises ValueError if the array `targets` is not the targets of n texts for this head."""

    @abc.abstractmethod
    def group_texts(self, targets: np.ndarray) -> np.ndarray:
        """Returns a bool [n, G], the groups whose log-ratios weigh the features before the fit.

        An entry is True if a text belongs to a group, such as that of a class or a label.
        """

    @abc.abstractmethod
    def compute_slopes(
        self, scores: np.ndarray, free: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the losses of n texts and their derivatives, for the solver.

        Args:
          scores: [n, K], the K scores of each text, without the biases.
          free: [B], the free parameters, numbers without bounds from which `make_bias` computes the
            B biases.
          targets: the targets of the texts.

        Returns:
          The losses [n], their derivatives by the scores, [n, K], and by `free`, [n, B].
        """

    def start_free(self, targets: np.ndarray) -> np.ndarray:
        """Returns the free parameters [B] from which the solver starts, zeros by default."""
        return np.zeros(self.num_biases)

    def make_bias(self, free: np.ndarray) -> np.ndarray:
        """Returns the biases [B] of the free parameters of the solver.

        `free`, [B], has no bounds, and the biases may have some, such as the order of thresholds.
        """
        return free

    def make_free(self, bias: np.ndarray) -> np.ndarray:
        """Returns the free parameters [B] of the biases `bias`, [B]: the inverse of `make_bias`."""
        return bias

    def add_bias(self, scores: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Returns the logits [n, C] of n texts, from their scores [n, K] and the biases [B]."""
        return self.expand(scores + bias)

    def expand(self, weights: np.ndarray) -> np.ndarray:
        """Returns the parts [F, C] of F features in the C logits, from their weights [F, K].

        The part of a feature is the number that it adds to a logit where its value is 1. The parts
        are the weights themselves unless K differs from C or the logits have another unit.
        """
        return weights

    def centre(self, weights: np.ndarray) -> np.ndarray:
        """Returns the parts of `expand`, less the part that is common to the logits of all classes
        and therefore has no effect.
        """
        return self.expand(weights)

    @abc.abstractmethod
    def compute_losses(
        self, logits: np.ndarray, bias: np.ndarray, targets: np.ndarray
    ) -> np.ndarray:
        """Computes the loss of each text: [n].

        Args:
          logits: [n, C], the C logits of n texts, which contain the bias as `add_bias` defines.
          bias: [B], the biases, or [n, B] for biases of each text.
          targets: the targets of the texts.
        """

    @abc.abstractmethod
    def compute_probabilities(self, logits: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Computes the probabilities of n texts from their logits.

        A text has the same bits in each batch.

        Args:
          logits: [n, C], the C logits of each text, divided by the temperature.
          bias: the B biases, divided by the temperature: [B], or [n, B] for each text.

        Returns:
          [n, P] for P probabilities (`num_probabilities`), of the classes or grades, which sum to
          1, or of each label.
        """

    def check_bias(self, bias: np.ndarray) -> None:
        """Raises ValueError if the biases `bias`, [B], are not possible, as in a damaged file."""
        if not np.isfinite(bias).all():
            raise ValueError(f"bias must be finite, got {bias[:8]}")

    def compute_prior(self, targets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Computes the prediction for a text that is not read: [P], or [1] for numbers.

        It is the weighted frequency of each class, label or grade, or the weighted mean.

        Args:
          targets: the targets of n texts.
          weights: [n], the weights of the texts; None gives all the same weight.
        """
        return np.asarray(np.average(self.group_texts(targets), axis=0, weights=weights))

    def compute_prior_logits(self, prior: np.ndarray) -> np.ndarray:
        """Returns the logits [C] of a text whose prediction is `prior`, see `compute_prior`.

        They are log p for classes, log p / (1 - p) for labels, and the mean itself for numbers. The
        score of grades is 0, because their frequencies need other thresholds than the fitted.
        """
        return _take_log(prior)

    def check_prior(self, prior: np.ndarray) -> None:
        """Raises ValueError if `prior`, [P], are no frequencies, as in a damaged file."""
        if not ((prior >= 0) & (prior <= 1)).all():
            raise ValueError(f"prior must be in [0, 1], got {prior[:8]}")

    def to_json(self) -> dict[str, Any]:
        """Returns a dict of "kind" and the fields, such as "num_classes", for the model folder."""
        return {"kind": self.kind, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class ClassHead(Head):
    """A class for each text: softmax and cross-entropy.

        p = softmax(z),   loss = log sum_c exp(z_c) - z_y

    Two classes have a single column of weights, with the logits -z/2 and z/2.

        >>> head = ClassHead(2)
        >>> head.num_columns, head.compute_probabilities(np.zeros((1, 2)), np.zeros(1)).tolist()
        (1, [[0.5, 0.5]])

    Attributes:
      num_classes: the number of classes C, at least 2. The targets are int [n], from 0.
    """

    num_classes: int

    kind: ClassVar[str] = "classes"
    prior_rule: ClassVar[str] = (
        "The probability of each class is its (weighted) frequency in the training texts."
    )

    def __post_init__(self) -> None:
        """Raises ValueError unless `num_classes` is an int of at least 2."""
        _check_count("num_classes", self.num_classes, 2)

    @property
    def num_columns(self) -> int:
        """The number K of scores of a text: the number of classes, but 1 for two classes."""
        return 1 if self.num_classes == 2 else self.num_classes

    @property
    def num_logits(self) -> int:
        """The number of classes C."""
        return self.num_classes

    def check_targets(self, targets: np.ndarray) -> None:
        """Raises ValueError unless the targets are integers in [0, C)."""
        _check_integers(targets, self.num_classes)

    def group_texts(self, targets: np.ndarray) -> np.ndarray:
        """Returns a bool [n, C], True at the class of each text."""
        return np.asarray(targets[:, None] == np.arange(self.num_classes))

    def compute_slopes(
        self, scores: np.ndarray, free: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the cross-entropies of n texts and their derivatives, for the solver."""
        scores = scores + free
        if scores.shape[1] == 1:
            signs = np.where(targets == 1, 1.0, -1.0)[:, None]
            margins = signs * scores
            # log(1 + exp(-m)) without overflow
            losses = np.logaddexp(0, -margins)[:, 0]
            wrong = -signs / (1 + np.exp(np.clip(margins, -_LARGEST, _LARGEST)))
            return losses, wrong, wrong
        scores = scores - scores.max(1, keepdims=True)
        exponentials = np.exp(scores)
        totals = exponentials.sum(1)
        places = np.arange(len(targets)), targets
        losses = np.log(totals) - scores[places]
        wrong = exponentials / totals[:, None]
        wrong[places] -= 1
        return losses, wrong, wrong

    def expand(self, weights: np.ndarray) -> np.ndarray:
        """Returns the weights; for two classes a single column z becomes (-z/2, z/2)."""
        if self.num_classes > 2:
            return weights
        return np.concatenate([-weights / 2, weights / 2], 1)

    def centre(self, weights: np.ndarray) -> np.ndarray:
        """Returns the parts [F, C] of F features in the logits of C classes, with a mean of 0."""
        parts = self.expand(weights)
        return np.asarray(parts - parts.mean(1, keepdims=True))

    def compute_losses(
        self, logits: np.ndarray, bias: np.ndarray, targets: np.ndarray
    ) -> np.ndarray:
        """Computes the cross-entropy of each text: [n]."""
        top = logits.max(1)
        total = np.exp(logits - top[:, None]).sum(1)
        return np.asarray(np.log(total) + top - logits[np.arange(len(targets)), targets])

    def compute_probabilities(self, logits: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Computes the probability of each class: [n, C]; the rows sum to 1."""
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        # The sum is taken class by class, so that its bits do not depend on the number of texts.
        total = functools.reduce(np.add, exponentials.T)
        return np.asarray(exponentials / total[:, None])


@dataclasses.dataclass(frozen=True)
class LabelHead(Head):
    """Several labels for each text, or none: a sigmoid for each label.

        p_l = 1 / (1 + exp(-z_l)),   loss = sum_l log(1 + exp(-s_l z_l)),   s_l = 2 y_l - 1

    Only the gates are common to the labels.

        >>> head = LabelHead(2)
        >>> targets = np.array([[True, False], [False, False]])
        >>> head.compute_losses(np.zeros((2, 2)), np.zeros(2), targets).round(4).tolist()
        [1.3863, 1.3863]

    Attributes:
      num_labels: the number of labels L. The targets are bool [n, L], True where a
        text has a label.
    """

    num_labels: int

    kind: ClassVar[str] = "labels"
    prior_rule: ClassVar[str] = (
        "The probability of each label is its (weighted) frequency in the training texts."
    )

    def __post_init__(self) -> None:
        """Raises ValueError unless `num_labels` is an int of at least 1."""
        _check_count("num_labels", self.num_labels, 1)

    @property
    def num_columns(self) -> int:
        """The number K of scores of a text, which is the number of labels."""
        return self.num_labels

    def check_targets(self, targets: np.ndarray) -> None:
        """Raises ValueError unless the targets are a bool [n, L]."""
        if targets.dtype != bool or targets.ndim != 2 or targets.shape[1] != self.num_labels:
            raise ValueError(
                f"labels must be a bool array of shape (n, {self.num_labels}), got "
                f"{targets.dtype} of shape {targets.shape}"
            )

    def group_texts(self, targets: np.ndarray) -> np.ndarray:
        """Returns the targets, bool [n, L]: a group for each label."""
        return targets

    def compute_slopes(
        self, scores: np.ndarray, free: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the losses of n texts and their derivatives, for the solver."""
        logits = scores + free
        # A single exponential gives the loss and its derivative, the error of the probability.
        decay = np.exp(-np.abs(logits))
        losses = np.maximum(logits, 0) - logits * targets + np.log1p(decay)
        wrong = np.where(logits >= 0, 1.0, decay) / (1 + decay) - targets
        return losses.sum(1), wrong, wrong

    def compute_prior_logits(self, prior: np.ndarray) -> np.ndarray:
        """Returns log p / (1 - p) for the frequency p of each label, [L]; `prior` are these."""
        return _take_log(prior) - _take_log(1 - prior)

    def compute_losses(
        self, logits: np.ndarray, bias: np.ndarray, targets: np.ndarray
    ) -> np.ndarray:
        """Computes the sum of the cross-entropies of the labels of each text: [n]."""
        return np.asarray(np.logaddexp(0, np.where(targets, -logits, logits)).sum(1))

    def compute_probabilities(self, logits: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Computes the probability of each label: [n, L]."""
        return compute_sigmoid(logits)


@dataclasses.dataclass(frozen=True)
class RealHead(Head):
    """A real number for each text: squared error with a ridge penalty.

        v = m + u (f W + b),   loss = ((v - y) / u)^2 / 2

    m and u are the mean and the standard deviation of the training targets, so that the penalty
    does not depend on the unit of the target. The single logit v is the prediction.

        >>> head = RealHead.of_targets(np.array([10.0, 30.0]))
        >>> head.centre_of_targets, head.unit
        (20.0, 10.0)

    Attributes:
      centre_of_targets: the number m.
      unit: the number u, above 0.

    Reference: Hoerl and Kennard 1970 (ridge regression).
    """

    centre_of_targets: float
    unit: float

    kind: ClassVar[str] = "real"
    prior_rule: ClassVar[str] = "The prediction is the (weighted) mean of the training texts."
    # Measured on the grades of the Stanford Sentiment Treebank, like that of `OrdinalHead`.
    inverse_penalty: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        """Raises ValueError unless both fields are finite numbers, and `unit` is above 0."""
        if not (np.isfinite(self.centre_of_targets) and 0 < self.unit < np.inf):
            raise ValueError(
                "centre_of_targets must be finite and unit positive, got "
                f"{self.centre_of_targets} and {self.unit}"
            )

    @classmethod
    def of_targets(cls, targets: np.ndarray, sample_weight: np.ndarray | None = None) -> "RealHead":
        """Returns the head with the mean and the standard deviation of the targets.

        `targets`, [n], are the numbers of the training texts, and `sample_weight`, [n], their
        weights; None is 1. The standard deviation 0 is replaced by 1.
        """
        targets = np.asarray(targets, np.float64)
        cls(0.0, 1.0).check_targets(targets)
        mean = float(np.average(targets, weights=sample_weight))
        unit = float(np.sqrt(np.average((targets - mean) ** 2, weights=sample_weight)))
        # Equal targets have no spread, and any unit gives the same prediction, their mean.
        return cls(mean, unit if unit > 0 else 1.0)

    @property
    def num_columns(self) -> int:
        """The number K of scores of a text, 1: the weights of F features are [F, 1]."""
        return 1

    @property
    def num_probabilities(self) -> int:
        """The number of probabilities, 0, because the prediction is a number."""
        return 0

    def check_targets(self, targets: np.ndarray) -> None:
        """Raises ValueError unless the targets are finite numbers [n]."""
        is_real = targets.ndim == 1 and np.issubdtype(targets.dtype, np.floating)
        if not is_real or not len(targets) or not np.isfinite(targets).all():
            raise ValueError(f"targets must be finite numbers [n], got {targets[:5]}")

    def group_texts(self, targets: np.ndarray) -> np.ndarray:
        """Returns a bool [n, 1], True for the targets above the median."""
        return np.asarray(targets > np.median(targets))[:, None]

    def compute_prior(self, targets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Returns the weighted mean of the targets, float [n], of n texts: [1]."""
        return np.asarray(np.average(targets[:, None], axis=0, weights=weights))

    def compute_prior_logits(self, prior: np.ndarray) -> np.ndarray:
        """Returns `prior` itself, [1], the mean of the targets."""
        return prior

    def check_prior(self, prior: np.ndarray) -> None:
        """Raises ValueError unless `prior`, [1], is finite."""
        if not np.isfinite(prior).all():
            raise ValueError(f"prior must be finite, got {prior}")

    def compute_slopes(
        self, scores: np.ndarray, free: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the losses of n texts and their derivatives, for the solver."""
        standardised = (targets - self.centre_of_targets) / self.unit
        wrong = scores + free - standardised[:, None]
        return 0.5 * wrong[:, 0] ** 2, wrong, wrong

    def add_bias(self, scores: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Returns the predictions of n texts, [n, 1], from their scores [n, 1] and the bias [1]."""
        # The mean may be large against the scores, so that 32 bits would be too few for the sum.
        return self.centre_of_targets + self.unit * (scores + bias).astype(np.float64)

    def expand(self, weights: np.ndarray) -> np.ndarray:
        """Returns the weights [F, 1] of F features in the unit of the target: [F, 1]."""
        return weights * self.unit

    def compute_losses(
        self, logits: np.ndarray, bias: np.ndarray, targets: np.ndarray
    ) -> np.ndarray:
        """Computes half of the squared error in units of the standard deviation: [n]."""
        return np.asarray(0.5 * ((logits[:, 0] - targets) / self.unit) ** 2)

    def compute_probabilities(self, logits: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Returns an array [n, 0] without entries, because a number has no probabilities."""
        return np.zeros((len(logits), 0))


@dataclasses.dataclass(frozen=True)
class OrdinalHead(Head):
    """A grade for each text, among grades with an order: cumulative logits.

        P(y > k) = sigmoid(z - t_k),   t_0 < t_1 < ...

    The weights are common to all grades, and the G - 1 biases are the thresholds t. The solver has
    the free parameters t_0 and log(t_k - t_(k-1)), so that the thresholds stay in order. The
    predicted grade is the number of thresholds below z, the median of the distribution.

        >>> head = OrdinalHead(3)
        >>> head.compute_probabilities(np.zeros((1, 1)), np.array([-1.0, 1.0])).round(3).tolist()
        [[0.269, 0.462, 0.269]]

    Attributes:
      num_grades: the number of grades G, at least 2. The targets are int [n], from 0.

    Reference: McCullagh 1980.
    """

    num_grades: int

    kind: ClassVar[str] = "ordinal"
    prior_rule: ClassVar[str] = (
        "The probability of each grade is its (weighted) frequency in the training texts."
    )
    inverse_penalty: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        """Raises ValueError unless `num_grades` is an int of at least 2."""
        _check_count("num_grades", self.num_grades, 2)

    @property
    def num_columns(self) -> int:
        """The number K of scores of a text, 1: the weights of F features are [F, 1]."""
        return 1

    @property
    def num_biases(self) -> int:
        """The number of thresholds between the grades, the number of grades less 1."""
        return self.num_grades - 1

    @property
    def num_probabilities(self) -> int:
        """The number of probabilities of a text, which is the number of grades."""
        return self.num_grades

    @property
    def num_groups(self) -> int:
        """The number of groups of texts: the texts above each grade but the highest."""
        return self.num_grades - 1

    def check_targets(self, targets: np.ndarray) -> None:
        """Raises ValueError unless the targets are integers in [0, G)."""
        _check_integers(targets, self.num_grades)

    def group_texts(self, targets: np.ndarray) -> np.ndarray:
        """Returns a bool [n, G - 1], True at k for the targets above the grade k."""
        return np.asarray(targets[:, None] > np.arange(self.num_groups))

    def compute_prior(self, targets: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Computes the weighted frequency of each grade: [G]."""
        is_grade = targets[:, None] == np.arange(self.num_grades)
        return np.asarray(np.average(is_grade, axis=0, weights=weights))

    def compute_prior_logits(self, prior: np.ndarray) -> np.ndarray:
        """Returns the score 0, [1], to which no word adds; `prior` are the frequencies [G]."""
        return np.zeros(1)

    def start_free(self, targets: np.ndarray) -> np.ndarray:
        """Returns the free parameters [G - 1] from which the solver starts, for G grades."""
        # A text is added to each grade, because a grade without a text would have no threshold.
        counts = np.bincount(targets, minlength=self.num_grades) + 1.0
        below = np.cumsum(counts)[:-1] / counts.sum()
        return self.make_free(np.log(below / (1 - below)))

    def make_bias(self, free: np.ndarray) -> np.ndarray:
        """Returns the thresholds t of the parameters t_0, log(t_1 - t_0), log(t_2 - t_1), ..."""
        # The solver may try a step that would overflow.
        steps = np.exp(np.clip(free[1:], -_LARGEST, 50.0))
        return np.cumsum(np.concatenate([free[:1], steps]))

    def make_free(self, bias: np.ndarray) -> np.ndarray:
        """Returns the parameters t_0, log(t_1 - t_0), log(t_2 - t_1), ... of the thresholds t."""
        # Two thresholds of a rare grade may be equal after rounding to 32 bits.
        return np.concatenate([bias[:1], np.log(np.maximum(np.diff(bias), 1e-6))])

    def compute_slopes(
        self, scores: np.ndarray, free: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the losses -log P(y) of n texts and their derivatives, for the solver."""
        thresholds = self.make_bias(free)
        has_lower, has_upper = targets > 0, targets < self.num_grades - 1
        lower, upper = np.maximum(targets - 1, 0), np.minimum(targets, self.num_groups - 1)
        score = scores[:, 0].astype(np.float64)
        # Slopes of log(1 + exp(t_lower - z)) and log(1 + exp(z - t_upper)).
        from_lower = np.where(has_lower, compute_sigmoid(thresholds[lower] - score), 0.0)
        from_upper = np.where(has_upper, compute_sigmoid(score - thresholds[upper]), 0.0)
        is_inner = has_lower & has_upper
        # The solver may try thresholds that are equal after rounding.
        gaps = np.where(is_inner, np.maximum(thresholds[upper] - thresholds[lower], 1e-12), 1.0)
        from_gap = np.where(is_inner, 1 / np.expm1(np.minimum(gaps, _LARGEST)), 0.0)
        rows = np.arange(len(targets))
        slopes = np.zeros((len(targets), self.num_groups))
        slopes[rows, lower] += np.where(has_lower, from_lower + from_gap, 0.0)
        slopes[rows, upper] -= np.where(has_upper, from_upper + from_gap, 0.0)
        # The threshold t_k is the sum of the first k + 1 steps.
        tails = np.cumsum(slopes[:, ::-1], 1)[:, ::-1]
        steps = np.diff(thresholds, prepend=thresholds[0] - 1)
        losses = self.compute_losses(score[:, None], thresholds, targets)
        return losses, (from_upper - from_lower)[:, None], tails * steps

    def add_bias(self, scores: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Returns the scores z, because the thresholds are no part of them: [n, 1]."""
        return scores + np.zeros(1, bias.dtype)

    def compute_losses(
        self, logits: np.ndarray, bias: np.ndarray, targets: np.ndarray
    ) -> np.ndarray:
        """Computes -log P(y) of each text, without the difference of two near numbers: [n]."""
        score = logits[:, 0]
        # The lowest grade has no threshold below it, and the highest none above it.
        ends = np.full((len(score), 1), np.inf)
        inner = np.broadcast_to(bias, (len(score), bias.shape[-1])).astype(np.float64)
        bounds = np.concatenate([-ends, inner, ends], 1)
        rows = np.arange(len(score))
        below, above = bounds[rows, targets], bounds[rows, targets + 1]
        # sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)) for the thresholds a
        # below and b above the grade, less the score.
        gaps = np.maximum(above - below, 1e-12)
        losses = np.logaddexp(0, below - score) + np.logaddexp(0, score - above)
        return np.asarray(losses - np.log(-np.expm1(-gaps)))

    def compute_probabilities(self, logits: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Computes the probability of each grade: [n, G]; the rows sum to 1."""
        above = compute_sigmoid(logits - bias)
        edge = np.ones((len(logits), 1))
        bounds = np.concatenate([edge, above, 0 * edge], 1)
        # Two equal thresholds may give a difference of -1e-17.
        return np.maximum(bounds[:, :-1] - bounds[:, 1:], 0.0)

    def check_bias(self, bias: np.ndarray) -> None:
        """Raises ValueError unless the thresholds `bias` of G grades, [G - 1], are in order."""
        super().check_bias(bias)
        if not (np.diff(bias) >= 0).all():
            raise ValueError(f"the thresholds of the grades must be in order, got {bias[:8]}")


HEADS: dict[str, type[Head]] = {
    head.kind: head for head in (ClassHead, LabelHead, RealHead, OrdinalHead)
}
"""The heads by the name in the folder of a model."""


def head_from_json(value: dict[str, Any]) -> Head:
    """Returns the head of `value`, a dict that `Head.to_json` returned.

    >>> head_from_json({"kind": "labels", "num_labels": 3})
    LabelHead(num_labels=3)
    """
    fields = dict(value)
    # The name comes from a file, so that an unknown name raises KeyError, which the caller expects.
    return HEADS[fields.pop("kind")](**fields)


def compute_sigmoid(values: np.ndarray) -> np.ndarray:
    """Computes 1 / (1 + exp(-x)) without overflow; infinite values are allowed."""
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -_LARGEST, _LARGEST))))


def _take_log(values: np.ndarray) -> np.ndarray:
    """Returns log x, and -690 for 0, so that explanations have finite numbers."""
    return np.asarray(np.log(np.maximum(values, 1e-300)))


def _check_count(name: str, count: object, least: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise ValueError(f"{name} must be at least {least}, got {count}")


def _check_integers(targets: np.ndarray, count: int) -> None:
    is_integer = np.issubdtype(targets.dtype, np.integer) and targets.ndim == 1
    if not is_integer or (len(targets) and not 0 <= targets.min() <= targets.max() < count):
        raise ValueError(f"labels must be integers in [0, {count}), got {targets[:5]}")


FEW_WORDS = (1, 2, 5)
"""Texts with at most so many words read have a temperature each, and longer ones have another."""
NO_TEMPERATURES = (1.0,) * (len(FEW_WORDS) + 1)
"""The temperatures of a model that has not been calibrated."""


def place_texts(is_read: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the position of the temperature of each text by its words read, int [n]."""
    counts = np.array([np.count_nonzero(gates) for gates in is_read], np.int64)
    return np.searchsorted(FEW_WORDS, counts)


def find_temperatures(temperatures: Sequence[float], is_read: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the temperature of each text, float64 [n, 1]; `is_read` as in `place_texts`."""
    return np.array(temperatures, np.float64)[place_texts(is_read), None]


def check_temperatures(temperatures: Sequence[float]) -> None:
    """Raises ValueError unless there are four positive, finite temperatures."""
    if len(temperatures) != len(NO_TEMPERATURES) or not all(0 < t < np.inf for t in temperatures):
        raise ValueError(
            f"temperatures must be {len(NO_TEMPERATURES)} positive, finite numbers, got "
            f"{list(temperatures)}"
        )
