"""Temperature scaling of the probabilities of a classifier."""

from collections.abc import Callable

import numpy as np

from gatedjax.lexicon import Head

# A sharper or flatter scale than these would follow from too few texts.
_LOWEST, _HIGHEST = 0.1, 10.0


def choose_temperature(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Fits the temperature T to texts that are not training texts, and returns (T or 1, T). T is
    used if the mean gain of the texts, their loss -log p with temperature 1 minus their loss with
    T, exceeds its standard error. Near T = 1 the gain of a correct model is a quadratic function of
    T, so that the rule is a test of T = 1 at two standard errors of T.
    """
    # The gains have no smoothed targets: of a few texts that are all predicted correctly, the
    # smoothing alone would be evidence for less extreme probabilities.
    losses = _losses(probabilities, labels, smoothing=0.0)
    return _choose(losses, fit_temperature(probabilities, labels))


def fit_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Fits the temperature T in [0.1, 10] with which softmax(log p / T) has the largest likelihood.
    The target of a text is 1 - e for its class, with e = 1 / (n + 2), and e / (C - 1) for each
    other class, so that T stays away from 0 if all n texts are predicted correctly.

    Reference: Guo et al. 2017; Platt 1999 (the targets).
    """
    losses = _losses(probabilities, labels, smoothing=1 / (len(labels) + 2))
    return _find_best(lambda temperature: float(np.mean(losses(temperature))))


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


def _choose(losses: Callable[[float], np.ndarray], fitted: float) -> tuple[float, float]:
    gains = losses(1.0) - losses(fitted)
    n = len(gains)
    # The spread of a single text is unknown.
    is_clear = n > 1 and bool(np.mean(gains) > np.std(gains, ddof=1) / n**0.5)
    return (fitted if is_clear else 1.0), fitted


def choose_head_temperature(
    head: Head, logits: np.ndarray, bias: np.ndarray, targets: np.ndarray
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
        return float(np.mean(losses(temperature))) + np.log(temperature) ** 2 / (2 * len(known))

    return _choose(losses, _find_best(loss))
