"""The view of a lexicon: gates that depend on words, and the shares of the words in its output."""

import functools
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.explore._example import example_text
from gatedjax.explore._shares import WORDINGS, count_open, make_share_lines
from gatedjax.explore._state import State
from gatedjax.explore._views import LONGEST, MOST_CLASSES, Found, View, floats
from gatedjax.lexicon import Readings
from gatedjax.text._lexicon_explanation import list_open_words, read_with_reasons
from gatedjax.text._prediction import LABELS, ORDINAL, REGRESSION, TARGETS
from gatedjax.text._show import describe_open_words

_SPELLING = "The gate of a word depends only on its spelling."
_OUTPUTS = {
    "text": "class",
    LABELS: "label",
    REGRESSION: "prediction, a number",
    ORDINAL: "score of the grades",
}
"""The output in which a word has a share, by the kind of the model."""
_EXTRACT = "An example: an extract of a training text. Type your own text."
_MOST_EXTRACTS = 500
"""Largest number of extracts that are read to choose the example."""


class LexiconView(View):
    """Answers the requests of the explorer's page for a lexicon: classes, gates and shares. The
    shares are exact: logits [C] = bias + sum_t words_t + sum_p pairs_p, over the open words t and
    the pairs p of open neighbours.
    """

    fields = ({"name": "text", "label": "Sentence", "empty": "Type a sentence"},)
    layered = False

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model
        scope = "each" if model.kind in ("text", LABELS) else "the"
        self.network = (
            f"a lexicon: each spelling has a gate and a share in {scope} {_OUTPUTS[model.kind]}"
        )
        self.classes = [str(label) for label in model.classes]

    def example(self) -> dict[str, str]:
        """Returns {"text": an extract of a training text that the model has}."""
        return {"text": self._extract[0] or example_text(self._model.lexicon.words)}

    def describe_example(self) -> Json:
        """Describes the text of `example` for the page, for JSON."""
        text, label = self._extract
        return {"note": _EXTRACT, "label": label} if text else super().describe_example()

    @functools.cached_property
    def _extract(self) -> tuple[str, str | None]:
        """The extract of a training text with the most open words, and the label of the text."""
        model = self._model
        extracts: dict[str, str] = {}
        for entry in list_open_words(model)["classes"]:
            for word in entry["words"]:
                # The extracts of a word are of training texts with its class.
                for text in word["examples"]:
                    extracts.setdefault(text, str(entry["label"]))
        texts = list(extracts)[:_MOST_EXTRACTS]
        readings = model.lexicon.read([model.split(text) for text in texts])
        counts = [int(np.sum(is_open)) for is_open in readings.is_open]
        if not any(counts):
            return "", None
        text = texts[counts.index(max(counts))]
        return text, extracts[text] if model.kind == "text" else None

    def answer(self, state: State) -> Found:
        """Computes the prediction for the text of a state, and the shares of its words."""
        model = self._model
        every_word = model.split(state.text)
        words = every_word[:LONGEST]
        if not words:
            return ["No word yet: type a sentence."], None
        notes = []
        if len(every_word) > LONGEST:
            notes.append(f"The text has {len(every_word):,} words; the first {LONGEST:,} are read.")
        # The lock is not needed for NumPy, but `close` waits for it.
        with self._lock:
            reading, shares, columns, reasons = read_with_reasons(model, words)
        is_open, is_known, wording = reading.is_open[0], reading.is_known[0], WORDINGS[model.kind]
        has_choice = wording.choice is not None
        noun = "prediction" if model.kind in TARGETS else "probabilities"
        return notes, {
            **_describe_prediction(model, reading, columns),
            "head": wording.head,
            "classes": self.classes,
            "probabilities": floats(reading.probabilities[0]),
            "note": " ".join([count_open(is_open, is_known), *describe_open_words(reasons, noun)]),
            "choice": wording.choice,
            "chosen": columns[0] if has_choice else None,
            "signs": None if wording.signs is None else list(wording.signs),
            "lines": make_share_lines(
                words,
                is_known.tolist(),
                is_open,
                shares,
                [str(name) for name in model.target.columns] if has_choice else None,
                note=f"{_SPELLING} {wording.number}",
                rule=reasons.rule,
            ),
        }

    def count_words(self, state: State) -> int:
        """Returns the number of words of the text of a state, as the lexicon splits it."""
        return len(self._model.split(state.text))

    def layers(self, state: State) -> None:
        """Returns None, because a lexicon has no layers."""
        return


def _describe_prediction(model: Any, reading: Readings, columns: tuple[int, ...]) -> Json:
    """Returns the entries of an answer about the prediction, see `View.answer`."""
    target, probabilities = model.target, reading.probabilities[0]
    decided = target.decide(reading)[0]
    entries: Json = {"share": None, "details": None, "details_head": None, "exclusive": True}
    if model.kind == REGRESSION:
        title = target.render_prediction(reading, 0)
        return {**entries, "title": title, "order": [], "best": []}
    if model.kind == LABELS:
        best = [place for place in columns if decided[place]]
        names = ", ".join(str(model.classes[place]) for place in best)
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
    if model.kind == ORDINAL:
        # The table shows the first grades of this list, in the order of the grades.
        ranked = np.argsort(-probabilities, kind="stable").tolist()
        order = sorted(ranked[:MOST_CLASSES]) + ranked[MOST_CLASSES:]
    return {
        **entries,
        "title": str(model.classes[place]),
        "share": float(probabilities[place]),
        "order": order,
        "best": [place],
    }
