"""The view of a model whose output is a sum of the parts of the words that it reads.

A lexicon reads words by their spelling, a linear model all words, and a model of token vectors
tokens by their vector. The parts are exact: logits [C] = prior + sum_t words_t + sum_p pairs_p,
over the words t that are read and the pairs p of them with only unread words between them. A word
that the user switches off is taken out of the text at all its places, and the model reads the
remaining words.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.explore import _views
from gatedjax.explore._state import State
from gatedjax.lexicon import Readings
from gatedjax.text.answers import _explain, _explanation
from gatedjax.text.answers._prediction import LABELS, ORDINAL, REGRESSION, TARGETS
from gatedjax.text.answers._words import list_words_read
from gatedjax.text.models._states import StatesModel, render_states_leak

_TEXTS = 100
"""Number of labelled texts that are read at a time."""
_PAIRS = "Two words that are read, with only unread words between them, also have a part as a pair."
_GAPS = " Words with the same small number are such a pair with a gap."


class Wording(NamedTuple):
    """The words of a page about a kind of target."""

    output: str  # the sum in which a word has a part
    number: str  # the end of the sentence about the number of a word
    head: str | None = None  # the title of the table of probabilities, None for a number
    choice: str | None = None  # the question for the class whose parts are shown
    signs: list[str] | None = None  # the meaning of + and -; None: for and against a class


WORDINGS = {
    "text": Wording("each class", "in the logit of the class", "Class", "Parts for the class: "),
    LABELS: Wording("each label", "in the logit of the label", "Label", "Parts for the label: "),
    REGRESSION: Wording(
        "the prediction, a number",
        "in the prediction, in the unit of the target",
        signs=["raises the prediction", "lowers it"],
    ),
    ORDINAL: Wording(
        "the score of the grades",
        "in the score that gives the grade",
        "Grade",
        signs=["raises the grade", "lowers it"],
    ),
}
"""The words of the page by the kind of the model."""


class LexiconView(_views.View):
    """The view of a lexicon: its prediction, the words that it reads, and their parts."""

    layered = False
    switched = True
    noun, verb, reads_by, cut = "word", "read", "spelling", "are read"
    about_network = "a lexicon: each spelling is read or not read, and has a part in {}"
    claim = "Whether a {} is read depends only on its {}."
    remarks: Sequence[str] = ()

    def __init__(self, model: Any, name: str) -> None:
        super().__init__(name)
        self._model = model
        self.wording = WORDINGS[model.kind]
        self.network = self.about_network.format(self.wording.output)
        self.classes = [str(label) for label in model.classes]
        if not isinstance(model, StatesModel):
            self.tokenizer, self.labelled = model.splitter.tokenizer, model.kind == "text"

    def example(self) -> dict[str, str]:
        return {
            "text": self._extract[0] or " ".join(_views.example_words(self._model.lexicon.words))
        }

    def describe_example(self) -> Json:
        text, label = self._extract
        note = "An example: an extract of a training text. Type your own text."
        return {"note": note, "label": label} if text else super().describe_example()

    @functools.cached_property
    def _extract(self) -> tuple[str, str | None]:
        """The extract of a training text with the most words read, and the label of the text."""
        model = self._model
        extracts: dict[str, str] = {}
        for entry in list_words_read(model)["classes"]:
            for word in entry["words"]:
                # The extracts of a word come from training texts of its class.
                for text in word["examples"]:
                    extracts.setdefault(text, str(entry["label"]))
        texts = list(extracts)[:500]  # Reading more would take too long.
        readings = model.lexicon.read([model.split(text) for text in texts])
        counts = [int(np.sum(is_read)) for is_read in readings.is_read]
        if not any(counts):
            return "", None
        text = texts[counts.index(max(counts))]
        return text, extracts[text] if model.kind == "text" else None

    def split(self, text: str) -> Sequence[str]:
        words: list[str] = self._model.split(text)
        return words

    def _read(self, text: str) -> tuple[Sequence[str], _explain.ReasonedReading]:
        """Returns the words of a text that are shown, and the prediction with their parts."""
        words = self.split(text)[: _views.LONGEST]
        return words, _explain.read_with_reasons(self._model, words)

    def answer(self, state: State) -> _views.Found:
        target, wording, count = self._model.target, self.wording, len(self.split(state.text))
        if not count:
            return [_views.NO_WORD], None
        # The lock is not needed for NumPy, but `close` waits for it.
        with self._lock:
            words, (reading, _, reasons) = self._read(state.text)
        is_read, is_known, before = reading.is_read[0], reading.is_known[0], None
        is_off = np.array([self.switched and word in state.off for word in words])
        if is_off.any():
            before = describe_prediction(target, reading, target.rank_columns(reading))
            with self._lock:
                remaining = _explain.read_with_reasons(
                    self._model, list(itertools.compress(words, ~is_off))
                )
            reading, is_read = remaining.reading, np.zeros(len(words), bool)
            is_read[~is_off] = reading.is_read[0]
            reasons = _move_reasons(remaining.reasons, np.flatnonzero(~is_off), len(words))
        num_read, unknown = int(is_read.sum()), int((is_read & ~is_known).sum())
        output = "prediction" if target.kind in TARGETS else "probabilities"
        notes = [
            f"{num_read} of {len(words)} {self.noun}s are {self.verb} (share "
            f"{num_read / max(len(words), 1):.3f}){_explanation.describe_unknown(unknown)}.",
            *_explanation.describe_words_read(reasons, output),
            *self.remarks,
        ]
        note = (
            f"{self.claim.format(self.noun, self.reads_by)} The number is the part of the "
            f"{self.noun} {wording.number}."
        )
        entries = describe_prediction(target, reading, target.rank_columns(reading))
        names = [str(name) for name in target.columns] if wording.choice else None
        return _views.describe_cut(
            "The text", count, _views.LONGEST, self.cut, f"{self.noun}s"
        ), _views.make_answer(
            lines=make_part_lines(
                words, is_known, is_read, is_off, reasons, names, note, self.noun
            ),
            before=before and {name: before[name] for name in ("title", "share")},
            head=wording.head,
            classes=self.classes,
            note=" ".join(notes),
            choice=wording.choice,
            chosen=entries["order"][0] if wording.choice else None,
            signs=wording.signs,
            **entries,
        )

    def probabilities(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        with self._lock:
            probabilities: np.ndarray = self._model.lexicon.read(texts).probabilities
        return probabilities

    def results(
        self, texts: Sequence[str], check: Callable[[], None], leaks: int
    ) -> _views.Results:
        rows, masks = [np.zeros((0, len(self.classes)))], []
        for begin in range(0, len(texts), _TEXTS):
            check()
            part = texts[begin : begin + _TEXTS]
            readings = self._model.lexicon.read(
                [self.split(text)[: _views.LONGEST] for text in part]
            )
            rows.append(readings.probabilities)
            masks += [np.asarray(is_read, bool) for is_read in readings.is_read]
        probabilities = np.concatenate(rows)
        return _views.Results(
            probabilities=probabilities,
            predicted=probabilities.argmax(1)[None],
            num_read=np.array([[mask.sum() for mask in masks]]),
            words=sum(map(len, masks)),
            masks=masks,
            thresholds=np.zeros(1),
        )


class LinearView(LexiconView):
    """The view of a linear model, which reads all words."""

    about_network = "a linear model: each word is read, and has a part in {}"
    claim = "All words are read; the letters of a word are in its part."


class StatesView(LexiconView):
    """The view of a model that reads the vectors of an encoder."""

    noun, reads_by, switched = "token", "vector", False
    about_network = (
        "gates on the vectors of an encoder: each token that they read has a part in each class"
    )
    cut = "are shown, and the prediction is that of all tokens"

    def __init__(self, model: StatesModel, name: str) -> None:
        super().__init__(model, name)
        model.encode([])  # raises the error about a missing encoder
        if not model.has_no_leak:
            # The encoder has read all tokens, and the gates only some of its vectors.
            self.verb = "read by the gates"
            self.title = "Which tokens do the gates read, and what do they add to the prediction?"
        self.remarks = [f"Measured in training: {render_states_leak(model.report.get('leak'))}."]
        self._reading = functools.lru_cache(_views.KEPT)(self._encode)

    _extract = ("", None)  # the model has no words of its training texts

    def example(self) -> dict[str, str]:
        return {}

    def split(self, text: str) -> Sequence[str]:
        tokens: Sequence[str] = self._reading(text).text.tokens if text.strip() else ()
        return tokens

    def _encode(self, text: str) -> Any:
        (output,) = self._model.read([(text,)])
        return output

    def _read(self, text: str) -> tuple[Sequence[str], _explain.ReasonedReading]:
        output = self._reading(text)
        return output.text.tokens, _explain.read_states_with_reasons(self._model, text, output)


def describe_prediction(target: Any, reading: Readings, columns: Sequence[int]) -> Json:
    """Returns the entries of an answer about the prediction, see `View.answer`."""
    probabilities = reading.probabilities[0]
    decided = target.decide(reading)[0]
    entries: Json = {
        "probabilities": _views.floats(probabilities),
        **dict.fromkeys(("share", "details", "details_head")),
        "exclusive": True,
    }
    if target.kind == REGRESSION:
        title = target.render_prediction(reading)
        return {**entries, "title": title, "order": [], "best": []}
    if target.kind == LABELS:
        best = [place for place in columns if decided[place]]
        names = ", ".join(str(target.classes[place]) for place in best)
        return {
            **entries,
            "title": names or "(no label)",
            "order": list(columns),
            "best": best,
            "details": [f"{threshold:.3f}" for threshold in target.thresholds],
            "details_head": "Threshold",
            "exclusive": False,
        }
    place = int(decided)
    order = list(columns)
    if target.kind == ORDINAL:
        # The table shows the first grades of this list, in the order of the grades.
        ranked = np.argsort(-probabilities, kind="stable").tolist()
        order = sorted(ranked[: _views.MOST_CLASSES]) + ranked[_views.MOST_CLASSES :]
    return {
        **entries,
        "title": str(target.classes[place]),
        "share": float(probabilities[place]),
        "order": order,
        "best": [place],
    }


def _move_reasons(
    reasons: _explanation.Reasons, places: np.ndarray, count: int
) -> _explanation.Reasons:
    """Moves the parts of a shorter text to the places of its words in a text of `count` words."""
    parts = np.zeros((count, len(reasons.prior)))
    parts[places] = np.reshape(reasons.words, (-1, len(reasons.prior)))
    pairs = ((int(places[i]), int(places[j]), row) for i, j, row in reasons.pairs)
    return dataclasses.replace(reasons, words=tuple(map(tuple, parts.tolist())), pairs=tuple(pairs))


def make_part_lines(
    words: Sequence[str],
    is_known: np.ndarray,
    is_read: np.ndarray,
    is_off: np.ndarray,
    reasons: _explanation.Reasons,
    names: Sequence[str] | None,  # of the logits; None for a single logit
    note: str,
    noun: str,
) -> list[Json]:
    """Makes the line of the words with their parts, and that of the pairs, if any."""
    parts = np.array(reasons.words).reshape(-1, len(reasons.prior))
    of_pairs = np.array([pair[2] for pair in reasons.pairs]).reshape(-1, len(reasons.prior))
    gaps = [pair[:2] for pair in reasons.pairs if pair[1] - pair[0] > 1]
    numbers = {gap: str(number) for number, gap in enumerate(gaps, 1)}
    every_part = np.concatenate([parts, of_pairs])
    decimals = _explanation.count_decimals(every_part.ravel().tolist())
    entries: Json = {
        "of": None if names is None else list(names),
        "effects": True,
        "noun": "part",
        # The colour of a word is strongest at the largest part of the text.
        "strong": max(float(np.abs(every_part).max(initial=0.0)), 10.0**-20),
        "decimals": decimals,
    }

    def list_values(parts: np.ndarray) -> Any:
        rows = [_views.floats(row) for row in parts.T]
        return rows[0] if names is None else rows

    def render(value: float) -> str:
        # The page has this minus sign at the words too.
        return f"{value:+.{decimals}f}".replace("-", "\u2212")

    prior = np.array(reasons.prior)
    sums = prior + parts.sum(0) + of_pairs.sum(0)
    summed = f"all {noun}s and pairs" if reasons.pairs else f"all {noun}s"
    totals = [
        f"The parts of {summed} and the prior {render(constant)} sum to {render(total)}"
        + (f" for {names[i]}." if names is not None else ".")
        for i, (constant, total) in enumerate(zip(prior, sums, strict=True))
    ]
    results = [
        _views.line(
            f"{noun.capitalize()}s",
            words[: _views.LONGEST],
            _views.bools(is_known[: _views.LONGEST]),
            values=list_values(parts[: _views.LONGEST]),
            read=_views.bools(is_read[: _views.LONGEST]),
            off=_views.bools(is_off[: _views.LONGEST]),
            marks=[
                ",".join(number for gap, number in numbers.items() if place in gap)
                for place in range(min(len(words), _views.LONGEST))
            ],
            note=note,
            totals=totals,
            rule=reasons.rule,
            **entries,
        )
    ]
    if reasons.pairs:
        places = [pair[:2] for pair in reasons.pairs]
        results.append(
            _views.line(
                "Pairs",
                [_explanation.name_places(words, pair) for pair in places],
                [True] * len(places),
                values=list_values(of_pairs),
                marks=[numbers.get(pair, "") for pair in places],
                note=_PAIRS + _GAPS * bool(gaps),
                **entries,
            )
        )
    return results
