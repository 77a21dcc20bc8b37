"""Temperature scaling of the probabilities of a model."""

from collections.abc import Callable

import numpy as np

from gatedjax.lexicon import ClassHead, Head, Readings
from gatedjax.lexicon._heads import NO_TEMPERATURES, find_temperatures, place_texts
from gatedjax.text.targets._base import Weights, count_effective, measure_error

# A sharper or flatter scale than these would follow from too few texts.
_LOWEST, _HIGHEST = 0.1, 10.0
# The common temperature counts as much as this many texts in the temperature of texts with few
# words read.
_PSEUDO_TEXTS = 20
# From the temperature to the losses [n] of n texts.
_Losses = Callable[[float], np.ndarray]


def choose_temperatures(
    head: Head, bias: np.ndarray, readings: Readings, targets: np.ndarray, weights: Weights = None
) -> tuple[tuple[float, ...], float]:
    """Returns the temperatures by the number of words read, and the common temperature to which
    they are drawn, from n texts that were not fitted; `bias`, [n, B], has the biases of each text.
    The common temperature is 1 if it improves the loss by less than the standard error. Reference:
    Guo et al. 2017; Platt 1999 (the smoothed targets of classes).
    """
    # The prior has no temperature, so that its texts are no evidence.
    rows = np.flatnonzero(~readings.is_prior)
    if not head.num_probabilities or not len(rows):
        return NO_TEMPERATURES, 1.0
    weights = np.ones(len(rows)) if weights is None else weights[rows]
    places = place_texts([readings.is_read[i] for i in rows.tolist()])
    losses, smoothed = _find_losses(head, bias[rows], readings, targets[rows], weights, rows)
    fitted = _find_best(lambda t: float(np.average(smoothed(t), weights=weights)))
    # The gains have no smoothed targets: of a few texts that are all predicted correctly, only the
    # smoothing would be evidence for less extreme probabilities. Near T = 1 the gain of a
    # correct model is a quadratic function of T, so that the rule is a test of T = 1 at two
    # standard errors of T.
    gains = losses(1.0) - losses(fitted)
    n = len(rows)
    # The spread of a single text is unknown.
    is_clear = n > 1 and bool(
        np.average(gains, weights=weights) > measure_error(gains, weights) * (n / (n - 1)) ** 0.5
    )
    common = fitted if is_clear else 1.0

    counts = weights / weights.sum() * count_effective(weights, n)

    def choose(place: int) -> float:
        inside = counts * (places == place)
        if not inside.any():
            return common
        return _find_best(
            lambda t: float(inside @ losses(t)) + _PSEUDO_TEXTS * np.log(t / common) ** 2
        )

    return tuple(map(choose, range(len(NO_TEMPERATURES)))), common


def apply_temperatures(
    head: Head, bias: np.ndarray, readings: Readings, temperatures: tuple[float, ...]
) -> Readings:
    """Applies the temperatures to readings of a model without any; `bias`, [n, B], as above."""
    heat = find_temperatures(temperatures, readings.is_read)
    heat[readings.is_prior] = 1.0
    logits = readings.logits / heat
    probabilities = head.compute_probabilities(logits, bias / heat)
    probabilities[readings.is_prior] = readings.probabilities[readings.is_prior]
    return readings._replace(logits=logits, probabilities=probabilities)


def _find_losses(
    head: Head,
    bias: np.ndarray,
    readings: Readings,
    targets: np.ndarray,
    weights: np.ndarray,
    rows: np.ndarray,
) -> tuple[_Losses, _Losses]:
    """Returns the losses of texts, and losses that keep T away from 0 if all are right."""
    count = count_effective(weights, len(rows))
    if isinstance(head, ClassHead):
        probabilities = readings.probabilities[rows]
        smoothing = 1 / (count + 2)
        return (
            _class_losses(probabilities, targets, smoothing=0.0),
            _class_losses(probabilities, targets, smoothing=smoothing),
        )
    logits = readings.logits[rows]
    # Further columns are labels that the model does not have.
    known = targets[:, : head.num_logits] if targets.ndim == 2 else targets

    def losses(t: float) -> np.ndarray:
        return head.compute_losses(logits / t, bias / t, known)

    return losses, lambda t: losses(t) + np.log(t) ** 2 / (2 * count)


def _class_losses(probabilities: np.ndarray, labels: np.ndarray, smoothing: float) -> _Losses:
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
    result = minimize_scalar(lambda log: loss(float(np.exp(log))), bounds=bounds, method="bounded")
    return float(np.exp(result.x))
