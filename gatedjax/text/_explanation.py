"""Explanations of predictions: the words with open gates, and the effect of removing words."""

from collections.abc import Sequence

import numpy as np

from gatedjax.lexicon._heads import ClassHead
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._lexicon_explanation import explain_with_lexicon
from gatedjax.text._model import Failure, TextOutput, TrainedModel
from gatedjax.text._show import Change, Explanation, Reasons
from gatedjax.text._states_model import StatesModel
from gatedjax.text._target_show import TargetExplanation
from gatedjax.text._windows import number_windows, pool_windows

Example = tuple[tuple[str, ...], ...]


def explain_texts(
    model: TrainedModel | LexiconModel | StatesModel, texts: Sequence[str]
) -> Explanation | TargetExplanation:
    """Explains a prediction; a network runs again with each gate flipped and without each word."""
    if isinstance(model, StatesModel):
        (text,) = texts
        return model.explain(text)
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
        flips=_flip_gates(model, output, best),
        removed=_remove_words(model, output, best),
        reasons=None if all(output.tokens) else _explain_prior(model, output),
        windows=tuple(number_windows(output.windows)),
        cut=sum(len(model.tokenizer.split(text)) for text in texts) - len(words),
    )


def _explain_prior(model: TrainedModel, output: TextOutput) -> Reasons:
    head = ClassHead(len(model.classes))
    return Reasons(
        classes=model.classes,
        bias=tuple(map(float, head.compute_prior_logits(np.array(model.prior)))),
        words=((0.0,) * head.num_classes,) * sum(map(len, output.tokens)),
        pairs=(),
        is_same=True,
        note=output.note,
        rule=head.prior_rule,
    )


def _change(model: TrainedModel, probabilities: np.ndarray, best: int) -> Change:
    label = model.classes[int(np.argmax(probabilities))]
    # The probability is that of the class which is predicted without the change.
    return Change(label=label, probability=float(probabilities[best]))


def _flip_gates(
    model: TrainedModel, output: TextOutput, best: int
) -> tuple[Change | None, ...] | None:
    """Returns the prediction after each single gate is flipped, with the same encoder states."""
    if output.gates is None:
        return None
    changes: list[Change | None] = []
    windows, before = _read_windows(model, output)
    ends = np.cumsum([len(tokens) for (tokens,) in windows])[:-1]
    for place, is_open in enumerate(np.split(output.masks[0], ends)):
        # Row i of the identity flips gate i, so that the patterns of all words run as a batch.
        flipped = np.logical_xor(is_open, np.eye(len(is_open), dtype=bool))
        # If no gate is open, such a network opens the likeliest gate: the gate just closed.
        again = ~flipped.any(axis=1) & (model.config.gates.empty == "max_gate")
        rows = model.with_gates(windows[place][0], flipped.astype(np.float32))
        pooled = _replace_window(before, windows, place, rows)
        changes += [
            None if opens_again else _change(model, row, best)
            for opens_again, row in zip(again, pooled, strict=True)
        ]
    return tuple(changes)


def _read_windows(model: TrainedModel, output: TextOutput) -> tuple[list[Example], np.ndarray]:
    windows, _ = model.list_windows([output.tokens])
    if len(windows) == 1:
        return windows, output.probabilities[None]
    return windows, np.stack([window.probabilities for window in model.read_tokens(windows)])


def _replace_window(
    before: np.ndarray, windows: Sequence[Example], place: int, rows: np.ndarray
) -> np.ndarray:
    """Returns the pooled probabilities [S, C] with each of S results of the window at `place`."""
    if len(windows) == 1:
        return rows
    changed = np.repeat(before[None], len(rows), axis=0)
    changed[:, place] = rows
    lengths = np.array([len(tokens) for (tokens,) in windows])
    return pool_windows(changed, np.zeros(len(windows), int), lengths, 1)[:, 0]


def _remove_words(model: TrainedModel, output: TextOutput, best: int) -> tuple[Change, ...]:
    """Returns the prediction without each single word; a long text keeps its windows."""
    if not all(output.tokens):
        return (_change(model, output.probabilities, best),) * sum(map(len, output.tokens))
    changes: list[Change] = []
    windows, before = _read_windows(model, output)
    for window, tokens in enumerate(windows):
        # All shortened texts are read in a call, so that texts of equal width share a batch.
        shorter = []
        for place, words in enumerate(tokens):
            for number in range(len(words)):
                remaining = (*words[:number], *words[number + 1 :])
                shorter.append((*tokens[:place], remaining, *tokens[place + 1 :]))
        rows = np.stack([after.probabilities for after in model.read_tokens(shorter)])
        pooled = _replace_window(before, windows, window, rows)
        changes += [_change(model, row, best) for row in pooled]
    return tuple(changes)
