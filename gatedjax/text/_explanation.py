"""Explanations of predictions: the words with open gates, and the effect of removing words."""

from collections.abc import Sequence

import numpy as np

from gatedjax.text._corpus import split_words
from gatedjax.text._model import Failure, TrainedModel
from gatedjax.text._show import Change, Explanation


def explain_texts(model: TrainedModel, texts: Sequence[str]) -> Explanation:
    """Explains the prediction for a text.

    The network runs on the text, with each single gate flipped, and on the text without each word.

    Args:
      model: a trained classifier of texts or of pairs.
      texts: the text, or both texts of a pair; the words of both are explained.

    Returns:
      The prediction and its changes, by words.

    Raises:
      ValueError: if a text has no word.
    """
    (one,) = model.read_texts([tuple(texts)])
    if isinstance(one, Failure):
        raise ValueError(one.error)
    probabilities = one.probabilities
    best = int(np.argmax(probabilities))
    words = [word for tokens in one.tokens for word in tokens]
    kept = [bool(k) for mask in one.kept for k in mask]
    attention = None if one.attention is None else tuple(map(float, one.attention))
    return Explanation(
        text="\n".join(texts),
        tokens=tuple(words),
        label=model.classes[best],
        probability=float(probabilities[best]),
        probabilities=dict(zip(model.classes, map(float, probabilities), strict=True)),
        kept=tuple(kept),
        density=one.density,
        attention=attention,
        gates=None if one.gates is None else tuple(map(float, one.gates)),
        flips=_flip_gates(model, one.tokens[0], np.array(one.kept[0]), best),
        removed=_remove_words(model, one.tokens, best),
        cut=sum(len(split_words(text)) for text in texts) - len(words),
    )


def _change(model: TrainedModel, probabilities: np.ndarray, best: int) -> Change:
    label = model.classes[int(np.argmax(probabilities))]
    return Change(label=label, probability=float(probabilities[best]))


def _flip_gates(
    model: TrainedModel, tokens: tuple[str, ...], kept: np.ndarray, best: int
) -> tuple[Change | None, ...] | None:
    """Returns the prediction after each single gate is flipped, with the same encoder states."""
    if not model.entry.gated:
        return None
    flipped = np.logical_xor(kept, np.eye(len(kept), dtype=bool))
    # If no gate is open, such a network opens the likeliest gate: the gate that was just closed.
    again = ~flipped.any(axis=1) & (model.config.empty == "max_gate")
    found = model.with_gates(tokens, flipped.astype(np.float32))
    return tuple(
        None if opened else _change(model, row, best)
        for opened, row in zip(again, found, strict=True)
    )


def _remove_words(
    model: TrainedModel, tokens: tuple[tuple[str, ...], ...], best: int
) -> tuple[Change, ...]:
    """Returns the prediction of the whole network after each single word is removed."""
    shorter = []
    for place, words in enumerate(tokens):
        for number in range(len(words)):
            rest = (*words[:number], *words[number + 1 :])
            shorter.append((*tokens[:place], rest, *tokens[place + 1 :]))
    return tuple(_change(model, one.probabilities, best) for one in model.read_tokens(shorter))
