"""Linear models on sparse features, and the choice of the words that are read."""

from typing import Any

import numpy as np
from threadpoolctl import get_cached_controller

from gatedjax.lexicon._heads import ClassHead, Head

# The length of the gradient at which the solver stops, and its largest number of steps. Nearer to
# the optimum the accuracy does not change.
_SLOPE, _STEPS = 5e-3, 100
# The first and the largest length of a step; the weights of words and letters are of this length.
_RADIUS, _LARGEST_RADIUS = 100.0, 1e4
# The largest change of a score for a difference of slopes, which have 64 bits.
_CHANGE = 1e-5


def choose_words(scores: np.ndarray, counts: np.ndarray, room: float) -> np.ndarray:
    """Chooses the words with the highest scores whose counts sum to at most `room`.

    Words are tried from the highest score down. A word that would exceed `room` is skipped.

        >>> choose_words(np.array([3.0, 2.0, 1.0]), np.array([5, 9, 4]), 10).tolist()
        [True, False, True]

    Args:
      scores: [V], the score of each word; -inf is never chosen. Among equals the first is chosen.
      counts: int [V], the number of occurrences of each word, at least 1.
      room: the limit of the summed counts.

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
    head: Head | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Fits a linear model: minimises sum_i w_i loss(W f_i + b, y_i) + |W|^2 / 2C.

    The loss is that of the head, by default of logistic regression. For two classes the weights of
    the first class are minus those of the second, so that a single column is fitted, with the
    logits -z/2 and z/2.

    Args:
      features: the features f [n, F], a float32 csr matrix of SciPy or an array.
      labels: the targets y of the rows, int [n] for classes.
      num_classes: the number of classes, for the head None.
      inverse_penalty: the number C. The bias has no penalty.
      start: weights and bias from which the solver starts, of the same shapes as the result; None
        is weights of 0 and the bias that the head proposes.
      steps: the largest number of steps of Newton's method in a trust region.
      sample_weight: [n], the weight w of each row; None is 1.
      head: the loss and the number of weights; None is `ClassHead(num_classes)`.

    Returns:
      W, float64 [F, K], and b, float64 [B], as the head defines. For classes K and B are the number
      of classes, but 1 for two classes.
    """
    from scipy.optimize import minimize

    matrix: object = features
    num_texts, width = matrix.shape  # type: ignore[attr-defined]
    head = ClassHead(num_classes) if head is None else head
    columns = head.num_columns
    transposed: Any = matrix.T  # type: ignore[attr-defined]
    if not isinstance(matrix, np.ndarray):
        transposed = transposed.tocsr()
    dtype = matrix.dtype  # type: ignore[attr-defined]
    mass = np.ones(num_texts) if sample_weight is None else sample_weight

    def measure(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores [n, K] without the biases, and the parameters of the biases."""
        weights = point[: width * columns].reshape(width, columns)
        return (matrix @ weights.astype(dtype)).astype(np.float64), point[width * columns :]

    def find_slopes(
        scores: np.ndarray, free: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        losses, wrong, of_free = head.compute_slopes(scores, free, labels)
        return losses * mass, wrong * mass[:, None], of_free * mass[:, None]

    def add_up(wrong: np.ndarray, of_free: np.ndarray, point: np.ndarray) -> np.ndarray:
        """Returns the gradient of the penalised loss divided by the number of texts."""
        slope = (transposed @ wrong.astype(dtype)).ravel()
        slope = inverse_penalty * np.concatenate([slope, of_free.sum(0)])
        slope[: width * columns] += point[: width * columns]
        # The mean over the texts lets a single `_SLOPE` stop the solver for data of any size.
        return slope / num_texts

    # The slopes at the last point, where the solver asks for the curvature.
    last: list[np.ndarray] = []

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        scores, free = measure(point)
        losses, wrong, of_free = find_slopes(scores, free)
        last[:] = point, scores, wrong, of_free
        weights = point[: width * columns]
        value = inverse_penalty * float(losses.sum()) + 0.5 * float(weights @ weights)
        return value / num_texts, add_up(wrong, of_free, point)

    def curve(point: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Returns the product of the Hessian and a direction, by the difference of two slopes."""
        if not np.array_equal(point, last[0]):
            objective(point)
        _, scores, wrong, of_free = last
        along, free = measure(direction)
        change = _CHANGE / max(np.abs(along).max(), np.abs(free).max(), 1e-300)
        _, moved, moved_free = find_slopes(
            scores + change * along, point[width * columns :] + change * free
        )
        return add_up((moved - wrong) / change, (moved_free - of_free) / change, direction)

    point = np.concatenate([np.zeros(width * columns), head.start_free(labels)])
    if start is not None:
        point = np.concatenate([start[0].ravel(), head.make_free(start[1].ravel())])
    options = {
        "maxiter": steps,
        "gtol": _SLOPE,
        "initial_trust_radius": _RADIUS,
        "max_trust_radius": _LARGEST_RADIUS,
    }
    with get_cached_controller().limit(limits=1, user_api="blas"):
        point = minimize(
            objective, point, jac=True, hessp=curve, method="trust-ncg", options=options
        ).x
    weights = point[: width * columns].reshape(width, columns)
    return weights, head.make_bias(point[width * columns :])
