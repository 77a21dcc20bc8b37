"""Logistic regression on sparse features, and the gain of each word."""

from typing import Any

import numpy as np

from gatedjax._utils.threads import limit_to_one_thread

# The slope of the mean loss and the relative decrease of the loss at which the solver stops, and
# its largest number of steps. Nearer to the optimum the accuracy does not change. With many classes
# a step takes long, and the solver stops earlier.
_SLOPE, _DECREASE, _STEPS = 1e-4, 1e-5, 100
_MANY, _MANY_DECREASE = 16, 1e-4
# Vectors that L-BFGS stores.
_HISTORY = 5


def compute_loss(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Computes the cross-entropy log sum_c exp(z_c) - z_y of each row.

        >>> compute_loss(np.zeros((1, 2)), np.array([0])).round(4).tolist()
        [0.6931]

    Args:
      logits: [n, C], the logits z.
      labels: int [n], the class y of each row.

    Returns:
      [n].
    """
    top = logits.max(1)
    total = np.exp(logits - top[:, None]).sum(1)
    return np.asarray(np.log(total) + top - logits[np.arange(len(labels)), labels])


def compute_gains(
    logits: np.ndarray, shares: np.ndarray, rows: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Computes the gain of each word: by how much it lowers the loss of its text.

        gain_t = loss(z - s_t, y) - loss(z, y)

    z are the logits of the text of the word, y is its class and s_t the share of the word.

        >>> logits, shares = np.array([[0.0, 2.0]]), np.array([[0.0, 2.0]])
        >>> compute_gains(logits, shares, np.array([0]), np.array([1])).round(4)
        array([0.5662])

    Args:
      logits: [n, C], the logits of n texts.
      shares: [T, C], the part of each word in the logits.
      rows: int [T], the text of each word.
      labels: int [n], the class of each text.

    Returns:
      [T].
    """
    return compute_loss(logits[rows] - shares, labels[rows]) - compute_loss(logits, labels)[rows]


def choose_words(scores: np.ndarray, counts: np.ndarray, room: float) -> np.ndarray:
    """Chooses words by falling score, as long as their occurrences fit into a number of places.

    A word that does not fit is left out, and the next is tried.

        >>> choose_words(np.array([3.0, 2.0, 1.0]), np.array([5, 9, 4]), 10).tolist()
        [True, False, True]

    Args:
      scores: [V], the score of each word; -inf is never chosen. Among equals the first is chosen.
      counts: int [V], the number of occurrences of each word, at least 1.
      room: the number of places.

    Returns:
      bool [V], True at the chosen words.
    """
    chosen = np.zeros(len(scores), bool)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > -np.inf]
    while len(order) and room >= 1:
        # All words before the first that does not fit are taken at once.
        used = np.cumsum(counts[order])
        fitting = int(np.searchsorted(used, room, "right"))
        chosen[order[:fitting]] = True
        room -= used[fitting - 1] if fitting else 0
        order = order[fitting:]
        order = order[counts[order] <= room]
    return chosen


def fit_weights(
    features: object,
    labels: np.ndarray,
    num_classes: int,
    inverse_penalty: float,
    start: tuple[np.ndarray, np.ndarray] | None = None,
    steps: int = _STEPS,
    sample_weight: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Fits logistic regression: minimises sum_i w_i loss(W f_i + b, y_i) + |W|^2 / 2C.

    For two classes the weights of the first class are minus those of the second, so that a single
    column is fitted, with the logits -z/2 and z/2.

    Args:
      features: the features f [n, F], a float32 csr matrix of SciPy or an array.
      labels: int [n], the class y of each row.
      num_classes: the number of classes.
      inverse_penalty: the number C. The bias has no penalty.
      start: weights and bias from which the solver starts, of the same shapes as the result.
      steps: the largest number of steps of L-BFGS.
      sample_weight: [n], the weight w of each row; None is 1.

    Returns:
      W, float64 [F, K], and b, float64 [K]. K is the number of classes, but 1 for two classes.
    """
    from scipy.optimize import minimize

    matrix: object = features
    num_texts, width = matrix.shape  # type: ignore[attr-defined]
    columns = 1 if num_classes == 2 else num_classes
    transposed: Any = matrix.T  # type: ignore[attr-defined]
    if not isinstance(matrix, np.ndarray):
        transposed = transposed.tocsr()
    dtype = matrix.dtype  # type: ignore[attr-defined]

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        weights, bias = point[: width * columns].reshape(width, columns), point[width * columns :]
        scores = matrix @ weights.astype(dtype) + bias
        losses, wrong = _loss_and_slope(scores, labels)
        if sample_weight is not None:
            losses, wrong = losses * sample_weight, wrong * sample_weight[:, None]
        loss = float(losses.sum())
        slope = transposed @ wrong.astype(dtype)
        value = inverse_penalty * loss + 0.5 * float(np.vdot(weights, weights))
        gradient = np.empty_like(point)
        np.add(
            slope * inverse_penalty, weights, out=gradient[: width * columns].reshape(weights.shape)
        )
        gradient[width * columns :] = inverse_penalty * wrong.sum(0)
        gradient /= num_texts
        return value / num_texts, gradient

    point = np.zeros((width + 1) * columns)
    if start is not None:
        point = np.concatenate([start[0].ravel(), start[1].ravel()])
    decrease = _DECREASE if columns < _MANY else _MANY_DECREASE
    options = {"maxiter": steps, "gtol": _SLOPE, "ftol": decrease, "maxcor": _HISTORY}
    with limit_to_one_thread():
        point = minimize(objective, point, jac=True, method="L-BFGS-B", options=options).x
    return point[: width * columns].reshape(width, columns), point[width * columns :]


def _loss_and_slope(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the losses of texts, [n], and their derivatives by the scores, [n, K].

    `scores` are the logits, or for two classes [n, 1], the logit of the second class minus that of
    the first.
    """
    if scores.shape[1] == 1:
        signs = np.where(labels == 1, 1.0, -1.0)[:, None]
        margins = signs * scores
        # log(1 + exp(-m)) without overflow
        losses = np.logaddexp(0, -margins)[:, 0]
        return losses, -signs / (1 + np.exp(np.clip(margins, -500, 500)))
    scores = scores - scores.max(1, keepdims=True)
    exponentials = np.exp(scores)
    totals = exponentials.sum(1)
    places = np.arange(len(labels)), labels
    losses = np.log(totals) - scores[places]
    wrong = exponentials / totals[:, None]
    wrong[places] -= 1
    return losses, wrong


def expand_scores(scores: np.ndarray) -> np.ndarray:
    """Returns the logits [n, C] of scores [n, K]; a single column z becomes (-z/2, z/2)."""
    return np.concatenate([-scores / 2, scores / 2], 1) if scores.shape[1] == 1 else scores
