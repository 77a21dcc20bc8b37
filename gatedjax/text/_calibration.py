"""Temperature scaling of the probabilities of a classifier."""

import numpy as np

from gatedjax.lexicon import Head

# A sharper or flatter scale than these would follow from too few texts.
_LOWEST, _HIGHEST = 0.1, 10.0


def fit_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Fits the temperature T with which softmax(log p / T) has the largest likelihood.

    The target of a text is 1 - e for its class, and e / (C - 1) for each other class, with
    e = 1 / (n + 2), so that T stays away from 0 if all n texts are predicted correctly.

        >>> sure = np.array([[0.98, 0.02], [0.98, 0.02], [0.98, 0.02], [0.02, 0.98]])
        >>> bool(fit_temperature(sure, np.array([0, 0, 1, 1])) > 1)
        True

    Args:
      probabilities: [n, C], the probabilities p of the C classes for each of the n texts.
      labels: int [n], the class of each text, from 0.

    Returns:
      T, in [0.1, 10]. A number above 1 makes the probabilities less extreme.

    Reference: Guo et al. 2017; Platt 1999 (the targets).
    """
    from scipy.optimize import minimize_scalar

    n, num_classes = probabilities.shape
    # A probability that was rounded to 0 would have an infinite logarithm.
    logs = np.log(np.maximum(probabilities, 1e-300))
    smoothing = 1 / (n + 2)
    targets = np.full(probabilities.shape, smoothing / (num_classes - 1))
    targets[np.arange(n), labels] = 1 - smoothing

    def loss(log_temperature: float) -> float:
        scores = logs / np.exp(log_temperature)
        scores = scores - scores.max(1, keepdims=True)
        return float(np.mean(np.log(np.exp(scores).sum(1)) - (targets * scores).sum(1)))

    # The search is over log T, in which halving and doubling the scores are steps of equal size.
    bounds = float(np.log(_LOWEST)), float(np.log(_HIGHEST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def fit_head_temperature(
    head: Head, logits: np.ndarray, bias: np.ndarray, targets: np.ndarray
) -> float:
    """Fits the temperature T of a head that is not for classes: the loss of the logits / T.

    The mean loss has the penalty (log T)^2 / 2n for n texts, so that T stays away from 0 if all
    predictions are right. A head without probabilities has the temperature 1.

    Args:
      head: the head.
      logits: [n, C], the logits of validation texts at the temperature 1.
      bias: [B], the biases.
      targets: the targets of the texts, of which columns of unknown labels are ignored.

    Returns:
      T, in [0.1, 10].
    """
    from scipy.optimize import minimize_scalar

    if not head.num_probabilities:
        return 1.0
    targets = targets[:, : head.num_logits] if targets.ndim == 2 else targets

    def loss(log_temperature: float) -> float:
        scale = np.exp(-log_temperature)
        losses = head.compute_losses(logits * scale, bias * scale, targets)
        return float(np.mean(losses)) + log_temperature**2 / (2 * len(targets))

    bounds = float(np.log(_LOWEST)), float(np.log(_HIGHEST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
