"""Explanations of predictions: the words with open gates, and the effect of removing words."""

from collections.abc import Sequence

import numpy as np

from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._lexicon_explanation import explain_with_lexicon
from gatedjax.text._model import Failure, TrainedModel
from gatedjax.text._show import Change, Explanation


def explain_texts(model: TrainedModel | LexiconModel, texts: Sequence[str]) -> Explanation:
    """Explains the prediction of a classifier for a text, or for a pair of texts.

    A network runs on the text, with each single gate flipped, and on the text without each word.
    For a lexicon the parts of the words in its sum are returned instead.

    Args:
      model: a trained classifier of texts or of pairs.
      texts: the text, or both texts of a pair; the words of both are explained.

    Returns:
      An `Explanation`: the prediction, and for each word its attention, its gate, and the
      prediction after a flip of this gate and after the removal of this word; for a lexicon the
      part of each word in the logits.

    Raises:
      ValueError: if a text has no word.
    """
    if isinstance(model, LexiconModel):
        if len(texts) != 1:
            raise ValueError(
                f"text must be a single text for a lexicon, got {len(texts)}: explain each of them"
            )
        return explain_with_lexicon(model, texts[0])
    (output,) = model.read_texts([tuple(texts)])
    if isinstance(output, Failure):
        raise ValueError(output.error)
    probabilities = output.probabilities
    best = int(np.argmax(probabilities))
    words = [word for tokens in output.tokens for word in tokens]
    is_open = [bool(k) for mask in output.masks for k in mask]
    attention = None if output.attention is None else tuple(map(float, output.attention))
    return Explanation(
        text="\n".join(texts),
        tokens=tuple(words),
        label=model.classes[best],
        probability=float(probabilities[best]),
        probabilities=dict(zip(model.classes, map(float, probabilities), strict=True)),
        kept=tuple(is_open),
        density=output.density,
        attention=attention,
        gates=None if output.gates is None else tuple(map(float, output.gates)),
        flips=_flip_gates(model, output.tokens[0], np.array(output.masks[0]), best),
        removed=_remove_words(model, output.tokens, best),
        cut=sum(len(model.tokenizer.split(text)) for text in texts) - len(words),
    )


def _change(model: TrainedModel, probabilities: np.ndarray, best: int) -> Change:
    """Returns the prediction for a changed text, as a `Change`: (label, probability).

    Its probability is that of the class which was predicted without the change.

    Args:
      model: the trained model.
      probabilities: [C], the probabilities of the classes for the changed text.
      best: the position in `model.classes` of the class that is predicted without the change.
    """
    label = model.classes[int(np.argmax(probabilities))]
    return Change(label=label, probability=float(probabilities[best]))


def _flip_gates(
    model: TrainedModel, tokens: tuple[str, ...], is_open: np.ndarray, best: int
) -> tuple[Change | None, ...] | None:
    """Returns the prediction after each single gate is flipped, with the same encoder states.

    Args:
      model: the trained model.
      tokens: the T words of the text.
      is_open: bool [T], True at the words with an open gate.
      best: the position in `model.classes` of the class that is predicted without a flip.

    Returns:
      A `Change` for each word, or None for the last open gate if the network would open it again;
      None for a network without gates.
    """
    if not model.entry.gated:
        return None
    # Row i of the identity flips gate i, so that the patterns of all words run as a batch.
    flipped = np.logical_xor(is_open, np.eye(len(is_open), dtype=bool))
    # If no gate is open, such a network opens the likeliest gate: the gate that was just closed.
    again = ~flipped.any(axis=1) & (model.config.gates.empty == "max_gate")
    rows = model.with_gates(tokens, flipped.astype(np.float32))
    return tuple(
        None if opens_again else _change(model, row, best)
        for opens_again, row in zip(again, rows, strict=True)
    )


def _remove_words(
    model: TrainedModel, tokens: tuple[tuple[str, ...], ...], best: int
) -> tuple[Change, ...]:
    """Returns the prediction of the whole network after each single word is removed.

    Args:
      model: the trained model.
      tokens: a tuple with the words of the text, or of both texts of a pair.
      best: the position in `model.classes` of the class that is predicted with all words.

    Returns:
      A `Change` for each word, the words of the first text first.
    """
    # All shortened texts are read in a call, so that texts of equal width share a batch.
    shorter = []
    for place, words in enumerate(tokens):
        for number in range(len(words)):
            remaining = (*words[:number], *words[number + 1 :])
            shorter.append((*tokens[:place], remaining, *tokens[place + 1 :]))
    return tuple(
        _change(model, output.probabilities, best) for output in model.read_tokens(shorter)
    )
