"""The explanation of a prediction, for every model. It does not import JAX."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.lexicon import Parts, Readings
from gatedjax.lexicon._heads import ClassHead, find_temperatures
from gatedjax.text.answers._explanation import (
    MOST_COLUMNS,
    Change,
    Explanation,
    RankedPart,
    Reasons,
    name_places,
)
from gatedjax.text.answers._prediction import (
    LINEAR,
    STATES,
    WITHOUT_NETWORK,
    AnyPrediction,
    Failure,
)
from gatedjax.text.models._base import TextReading
from gatedjax.text.models._buckets import pool_windows
from gatedjax.text.models._states import remove_tokens
from gatedjax.text.sources._labels import Label


def explain(model: Any, texts: Sequence[Any]) -> Explanation:
    """Explains the prediction for a text or a pair, for every kind of model."""
    (output,) = model.read([tuple(texts)])
    if isinstance(output, Failure):
        raise ValueError(output.error)
    if model.network not in WITHOUT_NETWORK:
        return _explain_network(model, texts, output)
    (text,) = texts
    if model.network == STATES:
        return _explain_states(model, text, output)
    return _explain_lexicon(model, text, output)


# Sums of parts: a lexicon and a model of states ---------------------------------------------------


class ReasonedReading(NamedTuple):
    """The output of a lexicon for a text, with the parts of its words."""

    reading: Readings  # of this text only
    parts: Parts  # the parts of the words and pairs in the C logits
    reasons: Reasons


def read_with_reasons(model: Any, words: Sequence[str]) -> ReasonedReading:
    """Computes the prediction of a lexicon for a text, and the parts of its words."""
    lexicon = model.lexicon
    reading = lexicon.read([words])
    # The words are split again, because a reader checks the claim by typing them as a text.
    remaining = model.splitter.split_again(compress(words, reading.is_read[0].tolist()))
    heat = find_temperatures(lexicon.temperatures, reading.is_read)[0]
    bias = lexicon.bias.astype(np.float64) / heat
    is_prior = reading.is_prior[0]
    rule = lexicon.head.prior_rule if is_prior else model.target.render_rule(bias)
    again = lexicon.read([remaining])
    fields = {"rule": rule, "reads_all": model.network == LINEAR}
    return _make_reasons(model, lexicon.parts(words), reading, again, **fields)


def _make_reasons(
    model: Any, parts: Parts, reading: Readings, again: Readings, **fields: Any
) -> ReasonedReading:
    is_equal = reading.probabilities[0] == again.probabilities[0]
    reasons = Reasons(
        classes=model.target.columns,
        prior=tuple(parts.bias.tolist()),
        words=tuple(map(tuple, parts.words.tolist())),
        pairs=tuple(
            (first, second, tuple(row))
            for (first, second), row in zip(
                parts.places.tolist(), parts.pairs.tolist(), strict=True
            )
        ),
        is_same=bool(is_equal.all() and (reading.logits == again.logits).all()),
        note=reading.notes[0],
        **fields,
    )
    return ReasonedReading(reading, parts, reasons)


def _explain_lexicon(model: Any, text: str, output: TextReading) -> Explanation:
    words = output.text
    result = read_with_reasons(model, words)
    is_unknown = tuple(map(bool, ~result.reading.is_known[0]))
    shorter = [[*words[:i], *words[i + 1 :]] for i in range(len(words))]
    removed = model.lexicon.read(shorter).probabilities if model.kind == "text" else None
    return _explain_parts(model, text, words, output, result, removed, unknown=is_unknown)


def read_states_with_reasons(model: Any, text: str, output: TextReading) -> ReasonedReading:
    """Computes the parts of the tokens in the prediction of a model of states."""
    (tokens, vectors), reading = output
    is_read = reading.is_read[0]
    leak = ""
    if not model.has_no_leak:
        (prediction,) = model.predict([(remove_tokens(text, tokens, (~is_read).tolist()),)])
        leak = (
            "the vectors of the tokens that are read also depend on the other tokens: the tokens "
            f"read alone, encoded again, are {prediction.label} with {prediction.probability:.3f}"
        )
    parts, again = model.pooling.parts(vectors), model.pooling.read([vectors[is_read]])
    return _make_reasons(model, parts, reading, again, leak=leak)


def _explain_states(model: Any, text: str, output: TextReading) -> Explanation:
    (tokens, vectors), reading = output
    is_read = reading.is_read[0]
    # A token that is not read is not in the mean, so that its removal changes no bit.
    removed = np.repeat(reading.probabilities, len(is_read), 0)
    for place in np.flatnonzero(is_read).tolist():
        remaining = np.delete(vectors, place, axis=0)
        removed[place] = model.pooling.read([remaining]).probabilities[0]
    result = read_states_with_reasons(model, text, output)
    return _explain_parts(model, text, tokens, output, result, removed)


def _explain_parts(
    model: Any,
    text: str,
    words: Sequence[str],
    output: TextReading,
    result: ReasonedReading,
    removed: np.ndarray | None,  # the probabilities without each word, for classes
    **fields: Any,
) -> Explanation:
    is_read = result.reading.is_read[0]
    columns = tuple(model.target.rank_columns(result.reading))
    if removed is None:
        fields["headline"] = model.target.render_prediction(result.reading)
    else:
        fields["probabilities"] = _name_probabilities(model.classes, output.probabilities)
        # A linear model has no gates, so its page needs no legend for unread words.
        fields["gates"] = None if model.network == LINEAR else tuple(map(float, is_read))
        fields["removed"] = _predict_changes(model, removed, columns[0])
    return Explanation(
        text=text,
        tokens=tuple(words),
        prediction=model.predict_read(output),
        read=tuple(map(bool, is_read)),
        reasons=result.reasons,
        columns=columns,
        ranked=_rank_reasons(model, words, result.reading, result.parts),
        **fields,
    )


def _rank_reasons(
    model: Any, words: Sequence[str], reading: Readings, parts: Parts
) -> tuple[RankedPart, ...]:
    """Returns the parts of the words and pairs that are read, the largest effects first."""
    places = np.flatnonzero(reading.is_read[0]).tolist()
    items = [((place,), parts.words[place]) for place in places]
    items += zip(map(tuple, parts.places.tolist()), parts.pairs, strict=True)
    columns = model.target.rank_columns(reading)[:MOST_COLUMNS]
    items.sort(key=lambda item: -model.target.measure_effect(item[1], columns))
    return tuple(
        RankedPart(name_places(words, places), tuple(map(float, row)), places)
        for places, row in items
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ReasonedPrediction:
    """A prediction with the parts of the words and pairs that are read."""

    prediction: AnyPrediction
    parts: Json  # "classes", "prior" and "reasons": with the prior the parts sum to the logits

    def to_json(self) -> Json:
        """Returns the line of `gatedjax predict --reasons`: a dict for `json.dumps`."""
        return {**self.prediction.to_json(), **self.parts}


def predict_with_reasons(
    model: Any, examples: Iterable[Sequence[Any]]
) -> Iterator[ReasonedPrediction | Failure]:
    """Yields the prediction of a lexicon for each example with its reasons, or a `Failure`."""
    for output in model.read(examples):
        if isinstance(output, Failure):
            yield output
            continue
        parts = model.lexicon.parts(output.text)
        ranked = _rank_reasons(model, output.text, output.reading, parts)
        fields = {
            "classes": list(model.target.columns),
            "prior": [round(number, 6) for number in parts.bias.tolist()],
            "reasons": [
                {"words": item.name, "parts": [round(part, 6) for part in item.parts]}
                for item in ranked
            ],
        }
        yield ReasonedPrediction(model.predict_read(output), fields)


# Networks -----------------------------------------------------------------------------------------


def _explain_network(model: Any, texts: Sequence[str], output: Any) -> Explanation:
    best = int(np.argmax(output.probabilities))
    words = tuple(itertools.chain(*output.tokens))
    return Explanation(
        text="\n".join(texts),
        tokens=words,
        prediction=model.predict_read(output),
        probabilities=_name_probabilities(model.classes, output.probabilities),
        read=tuple(bool(flag) for mask in output.masks for flag in mask),
        attention=None if output.attention is None else tuple(map(float, output.attention)),
        gates=None if output.gates is None else tuple(map(float, output.gates)),
        flips=_flip_gates(model, output, best),
        removed=_remove_words(model, output, best),
        reasons=None if all(output.tokens) else _explain_prior(model, output),
        columns=tuple(np.argsort(-output.probabilities, kind="stable").tolist()),
        windows=tuple(np.repeat(np.arange(len(output.windows)) + 1, output.windows).tolist()),
        cut=sum(len(model.tokenizer.split(text)) for text in texts) - len(words),
    )


def _name_probabilities(classes: Sequence[Label], row: np.ndarray) -> dict[Label, float]:
    return dict(zip(classes, map(float, row), strict=True))


def _explain_prior(model: Any, output: Any) -> Reasons:
    head = ClassHead(len(model.classes))
    return Reasons(
        classes=model.classes,
        prior=tuple(map(float, head.compute_prior_logits(np.array(model.prior)))),
        words=((0.0,) * head.num_classes,) * sum(map(len, output.tokens)),
        pairs=(),
        is_same=True,
        note=output.note,
        rule=head.prior_rule,
    )


def _predict_changes(model: Any, probabilities: np.ndarray, best: int) -> tuple[Change, ...]:
    """Returns the predictions after n changes of a text, [n, C], with the probability of `best`."""
    labels = model.target.decide(Readings.of_outputs(probabilities, probabilities)).tolist()
    return tuple(
        Change(label=model.classes[place], probability=float(row[best]))
        for place, row in zip(labels, probabilities, strict=True)
    )


def _change_windows(
    model: Any, output: Any, best: int, change: Callable[[int, Any], np.ndarray]
) -> list[Change]:
    """Returns the predictions after each change of a text; `change` takes the number and the words
    of a window, and returns the probabilities of the window after S changes, [S, C].
    """
    windows, _ = model.list_windows([output.tokens])
    before = output.probabilities[None]
    if len(windows) > 1:
        before = np.stack([window.probabilities for window in model.read_tokens(windows)])
    owners, lengths = np.zeros(len(windows), int), [sum(map(len, words)) for words in windows]
    changes: list[Change] = []
    for place, words in enumerate(windows):
        rows = change(place, words)
        # The other windows stay, and the scores of the text are pooled again.
        changed = np.repeat(before[None], len(rows), axis=0)
        changed[:, place] = rows
        pooled = pool_windows(changed, owners, np.array(lengths), 1)[:, 0]
        changes += _predict_changes(model, pooled, best)
    return changes


def _flip_gates(model: Any, output: Any, best: int) -> tuple[Change | None, ...] | None:
    """Returns the prediction after each single gate is flipped, with the same encoder states."""
    if output.gates is None:
        return None
    # Row i of the identity flips gate i, so that the patterns of all words run as a batch.
    flipped = [
        np.logical_xor(is_read, np.eye(len(is_read), dtype=bool))
        for is_read in np.split(output.masks[0], np.cumsum(output.windows)[:-1])
    ]
    changes = _change_windows(
        *(model, output, best),
        lambda place, words: model.with_gates(words[0], flipped[place].astype(np.float32)),
    )
    # If no gate is open, such a network opens the likeliest gate: the gate just closed.
    is_last = np.concatenate([~gates.any(axis=1) for gates in flipped])
    opens_again = is_last & (model.config.gates.empty == "max_gate")
    return tuple(None if o else c for o, c in zip(opens_again, changes, strict=True))


def _remove_words(model: Any, output: Any, best: int) -> tuple[Change, ...]:
    """Returns the prediction without each single word; a long text keeps its windows."""
    if not all(output.tokens):
        count = sum(map(len, output.tokens))
        return _predict_changes(model, np.repeat(output.probabilities[None], count, 0), best)

    def shorten(_: int, texts: Any) -> np.ndarray:
        # A single call reads all shortened texts, so that texts of equal width share a batch.
        shorter = [
            (*texts[:place], (*words[:number], *words[number + 1 :]), *texts[place + 1 :])
            for place, words in enumerate(texts)
            for number in range(len(words))
        ]
        return np.stack([after.probabilities for after in model.read_tokens(shorter)])

    return tuple(_change_windows(model, output, best, shorten))
