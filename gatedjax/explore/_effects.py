"""The effect of each word in the explorer: the change of the prediction when the word is removed.

For a text x of T words with the predicted class j, and x without its word t,

    delta_t [C] = p(x) - p(x without t),        effect_t = delta_t[j]

A word speaks for class j if its effect is not negative, otherwise for the class that loses most
probability without the word. If p_j is above 0.99, no probability can show what a word adds: p is
then replaced by the log-odds log p_c - log sum_{d != c} p_d of each class.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.text.models._buckets import COARSE, pad_texts, width_of

MOST_REMOVED = 256
"""Largest number of words of a text with effects, because a text of n words is read n times."""


SATURATED = 0.99
"""The probability of the predicted class above which effects are in log-odds."""


def summarize_effects(probabilities: np.ndarray, without: np.ndarray) -> Json:
    """Computes the effects of T words from probabilities [C] of a text and `without` [T, C], as the
    module defines them.

        >>> effects = summarize_effects(np.array([0.25, 0.75]), np.array([[0.5, 0.5]]))
        >>> effects["effects"], effects["speaks_for"]
        ([0.25], [1])
    """
    best = int(np.argmax(probabilities))
    is_saturated = bool(probabilities[best] > SATURATED)
    changes = probabilities - without
    if is_saturated:
        changes = _log_odds(probabilities) - _log_odds(without)
    effects = changes[:, best]
    speaks_for = np.where(effects >= 0, best, changes.argmax(axis=1))
    return {
        "class": best,
        "effects": effects.tolist(),
        "speaks_for": speaks_for.tolist(),
        "unit": "log-odds" if is_saturated else "probability",
    }


def _log_odds(probabilities: np.ndarray) -> np.ndarray:
    p = np.maximum(np.asarray(probabilities, np.float64), np.finfo(np.float32).tiny)
    # The sum over the other classes is exact where a probability has been rounded to 1.
    complement = p @ (1 - np.eye(p.shape[-1]))
    log_odds: np.ndarray = np.log(p) - np.log(complement)
    return log_odds


def probabilities_without_each(
    model: Any, texts: Sequence[tuple[str, ...]], most: int
) -> np.ndarray:
    """Computes the probabilities [T, C] of an example without each of its T words."""
    outputs = model.run(batch_without_each(model, texts, most))
    probabilities: np.ndarray = outputs["probabilities"][: sum(map(len, texts))]
    return probabilities


def batch_without_each(model: Any, texts: Sequence[tuple[str, ...]], most: int) -> Json:
    """Pads an example without each of its words in turn, with rows for `most` words."""
    ids = [model.ids(words) for words in texts]
    rows = [
        (*ids[:number], np.delete(text, place), *ids[number + 1 :])
        for number, text in enumerate(ids)
        for place in range(len(text))
    ]
    edge = width_of(max(map(len, texts)), most, COARSE)
    return pad_texts(rows, (len(texts) * edge, edge))
