"""The view of a model that reads the vectors of an encoder: open tokens and their shares."""

import functools
from collections.abc import Sequence

import numpy as np

from gatedjax.explore._shares import WORDINGS, count_open, make_share_lines
from gatedjax.explore._state import State
from gatedjax.explore._views import KEPT, LONGEST, Found, View
from gatedjax.lexicon import Shares
from gatedjax.text._show import Explanation, describe_open_words
from gatedjax.text._states import EncodedText
from gatedjax.text._states_model import StatesModel, render_states_leak

MOST_TEXTS = 1000
"""Largest number of texts of a file that are offered."""
_LONGEST_NAME = 80
_GATE = "The gate of a token depends only on its vector."


class StatesView(View):
    """The view of a model of token vectors: the gate of each token, and its share in each class."""

    layered = False

    def __init__(self, model: StatesModel, states: Sequence[EncodedText] | None = None) -> None:
        super().__init__()
        if states is None and model.encoder is None:
            raise ValueError(
                "states must be the tokens and vectors of texts, because the model reads the "
                "vectors of an encoder, got none: give --states FILE (in Python "
                "states=read_states(FILE), or the model with its encoder)"
            )
        self._model, self._states = model, states
        if states is None:
            self.fields = ({"name": "text", "label": "Sentence", "empty": "Type a sentence"},)
        else:
            if not len(states):
                raise ValueError("states must have a text, got none")
            model.encode(states[:1])
            names = [_name_text(number, text) for number, text in enumerate(states[:MOST_TEXTS], 1)]
            self.fields = ({"name": "text", "label": "Text", "empty": "", "options": names},)
        if not model.has_no_leak:
            self.title = "Which tokens are open, and what do they add to the prediction?"
        self.network = (
            "gates on the vectors of an encoder: each open token has a share in each class"
        )
        self.classes = [str(label) for label in model.classes]
        self._explaining = functools.lru_cache(KEPT)(self._explain)

    def example(self) -> dict[str, str]:
        """Returns {"text": "0"}, the first text of the file; {} if texts are typed."""
        return {} if self._states is None else {"text": "0"}

    def _item(self, text: str) -> str | EncodedText | None:
        if self._states is None:
            return text
        # The page sends the number of a text of the file.
        is_number = text.isascii() and text.isdigit() and len(text) < 8
        return self._states[int(text)] if is_number and int(text) < len(self._states) else None

    def _explain(self, text: str) -> Explanation | str:
        """Returns the explanation of a text, or the reason why there is none."""
        item = self._item(text)
        if item is None:
            return "Choose a text of the file."
        if isinstance(item, str) and not item.strip():
            return "No word yet: type a sentence."
        with self._lock:
            return self._model.explain(item)

    def answer(self, state: State) -> Found:
        """Computes the class of the text of a state, and the shares of its tokens."""
        explanation = self._explaining(state.text)
        if isinstance(explanation, str):
            return [explanation], None
        tokens, reasons = explanation.tokens, explanation.reasons
        assert reasons is not None
        notes = []
        if len(tokens) > LONGEST:
            notes.append(
                f"The text has {len(tokens):,} tokens; the first {LONGEST:,} are shown, and the "
                "prediction is that of all tokens."
            )
        is_open = np.array(explanation.kept, bool)
        probabilities = [float(share) for share in explanation.probabilities.values()]
        order = np.argsort(-np.array(probabilities), kind="stable").tolist()
        shares = Shares(
            np.array(reasons.bias),
            np.array(reasons.words).reshape(len(tokens), len(self.classes)),
            np.zeros((0, len(self.classes))),
            np.zeros((0, 2), np.int64),
        )
        wording = WORDINGS["text"]
        measured = render_states_leak(self._model.report.get("leak"))
        sentences = [
            count_open(is_open, np.ones(len(tokens), bool)),
            *describe_open_words(reasons),
            f"Measured in training: {measured}.",
        ]
        return notes, {
            "title": str(explanation.label),
            "share": float(explanation.probability),
            "head": wording.head,
            "classes": self.classes,
            "probabilities": probabilities,
            "order": order,
            "best": [self._model.classes.index(explanation.label)],
            "details": None,
            "details_head": None,
            "exclusive": True,
            "note": " ".join(sentences),
            "choice": wording.choice,
            "chosen": order[0],
            "signs": None,
            "lines": make_share_lines(
                tokens,
                [True] * len(tokens),
                is_open,
                shares,
                self.classes,
                note=f"{_GATE} {wording.number.replace('word', 'token')}",
                rule=reasons.rule,
                noun="token",
            ),
        }

    def count_words(self, state: State) -> int:
        """Returns the number of tokens of the text of a state; 0 if there is no prediction."""
        explanation = self._explaining(state.text)
        return 0 if isinstance(explanation, str) else len(explanation.tokens)

    def layers(self, state: State) -> None:
        """Returns None, because the layers of the encoder are not known."""
        return


def _name_text(number: int, text: EncodedText) -> str:
    name = f"{number}: {' '.join(text.tokens[:_LONGEST_NAME])}"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026"
