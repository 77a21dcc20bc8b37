"""Temperature scaling of the probabilities of a classifier."""

from collections.abc import Callable

import numpy as np

from gatedjax.lexicon import Head
from gatedjax.text._metrics import count_effective, measure_error

# A sharper or flatter scale than these would follow from too few texts.
_LOWEST, _HIGHEST = 0.1, 10.0


def choose_temperature(
    probabilities: np.ndarray, labels: np.ndarray, sample_weight: np.ndarray | None = None
) -> tuple[float, float]:
    """Fits the temperature, and decides whether the texts are evidence for it.

    The fitted T is used if the mean gain of the texts exceeds its standard error. The gain of a
    text is its loss, -log p of its class, with temperature 1 minus its loss with T. Near T = 1 the
    gain of a correct model is a quadratic function of T, so that the rule is a test of T = 1 at two
    standard errors of T.

        >>> doubtful = np.array([[0.8, 0.2]] * 20)
        >>> choose_temperature(doubtful, np.array([0] * 15 + [1] * 5))[0]
        1.0

    Args:
      probabilities: [n, C], the probabilities of C classes for n texts that were not fitted.
      labels: int [n], the class of each text, from 0.
      sample_weight: [n], the weight of each text in the means; None is 1.

    Returns:
      The temperature to use, which is T or 1, and the fitted T.
    """
    # The gains have no smoothed targets: of a few texts that are all predicted correctly, the
    # smoothing alone would be evidence for less extreme probabilities.
    losses = _losses(probabilities, labels, smoothing=0.0)
    return _choose(losses, fit_temperature(probabilities, labels, sample_weight), sample_weight)


def fit_temperature(
    probabilities: np.ndarray, labels: np.ndarray, sample_weight: np.ndarray | None = None
) -> float:
    """Fits the temperature T with which softmax(log p / T) has the largest likelihood.

    The target of a text is 1 - e for its class, and e / (C - 1) for each other class, with
    e = 1 / (n + 2), so that T stays away from 0 if all n texts are predicted correctly. With
    weights, n in e is the number of `count_effective`.

        >>> sure = np.array([[0.98, 0.02], [0.98, 0.02], [0.98, 0.02], [0.02, 0.98]])
        >>> bool(fit_temperature(sure, np.array([0, 0, 1, 1])) > 1)
        True

    Args:
      probabilities: [n, C], the probabilities p of the C classes for each of the n texts.
      labels: int [n], the class of each text, from 0.
      sample_weight: [n], the weight of each text in the mean loss; None is 1.

    Returns:
      T, in [0.1, 10]. A number above 1 makes the probabilities less extreme.

    Reference: Guo et al. 2017; Platt 1999 (the targets).
    """
    smoothing = 1 / (count_effective(sample_weight, len(labels)) + 2)
    losses = _losses(probabilities, labels, smoothing)
    return _find_best(
        lambda temperature: float(np.average(losses(temperature), weights=sample_weight))
    )


def _losses(
    probabilities: np.ndarray, labels: np.ndarray, smoothing: float
) -> Callable[[float], np.ndarray]:
    """Returns a function from T to cross-entropies [n]; `smoothing` is the other classes' share."""
    n, num_classes = probabilities.shape
    # A probability that was rounded to 0 would have an infinite logarithm.
    logs = np.log(np.maximum(probabilities, 1e-300))
    targets = np.full(probabilities.shape, smoothing / (num_classes - 1))
    targets[np.arange(n), labels] = 1 - smoothing

    def losses(temperature: float) -> np.ndarray:
        scores = logs / temperature
        scores = scores - scores.max(1, keepdims=True)
        return np.log(np.exp(scores).sum(1)) - (targets * scores).sum(1)

    return losses


def _find_best(loss: Callable[[float], float]) -> float:
    from scipy.optimize import minimize_scalar

    # The search is over log T, in which halving and doubling the scores are steps of equal size.
    bounds = float(np.log(_LOWEST)), float(np.log(_HIGHEST))
    found = minimize_scalar(lambda log: loss(float(np.exp(log))), bounds=bounds, method="bounded")
    return float(np.exp(found.x))


def _choose(
    losses: Callable[[float], np.ndarray], fitted: float, weights: np.ndarray | None
) -> tuple[float, float]:
    """Returns the temperature to use, which is T or 1, and the fitted T."""
    gains = losses(1.0) - losses(fitted)
    n = len(gains)
    # The spread of a single text is unknown.
    is_clear = n > 1 and bool(
        np.average(gains, weights=weights) > measure_error(gains, weights) * (n / (n - 1)) ** 0.5
    )
    return (fitted if is_clear else 1.0), fitted


def choose_head_temperature(
    head: Head,
    logits: np.ndarray,
    bias: np.ndarray,
    targets: np.ndarray,
    sample_weight: np.ndarray | None = None,
) -> tuple[float, float]:
    """Fits and chooses the temperature T of the logits of a head that is not for classes. The mean
    loss has the penalty (log T)^2 / 2n, so that T stays away from 0 if all predictions are right.
    Further columns of `targets` are labels that the model does not have, and are ignored.
    """
    if not head.num_probabilities:
        return 1.0, 1.0
    known = targets[:, : head.num_logits] if targets.ndim == 2 else targets

    def losses(temperature: float) -> np.ndarray:
        return head.compute_losses(logits / temperature, bias / temperature, known)

    def loss(temperature: float) -> float:
        mean = float(np.average(losses(temperature), weights=sample_weight))
        return mean + np.log(temperature) ** 2 / (2 * count)

    count = count_effective(sample_weight, len(known))
    return _choose(losses, _find_best(loss), sample_weight)
