"""The view of a lexicon: gates that depend on words, and shares of the classes."""

from typing import Any

import numpy as np

from gatedjax.explore._example import example_text
from gatedjax.explore._state import State
from gatedjax.explore._views import LONGEST, Found, View, floats, line
from gatedjax.text._prediction import WINDOW

_SPELLING = "The gate of a word depends only on its spelling."
_WINDOW = "The gate of a word depends on the word and its two neighbours."
_SHARES = (
    "{gates} The number is the share of the word in the logit of the class: the shares of all "
    "words and pairs and the constant {bias} sum to {logit}."
)
_PAIRS = "Two open words with only closed words between them also have a share as a pair."
_CHOSEN = "No word was open, so the closed word with the largest weight was read."
_CHOSEN_BY_WINDOW = "No word was open, so the word with the largest gate logit was read."
_EMPTY = "Nothing of this text was read, so the prediction is that of the constants."


class LexiconView(View):
    """Answers the requests of the explorer's page for a lexicon: classes, gates and shares.

    The shares of the words in the logits are additive and exact:

        logits [C] = bias + sum_t words_t + sum_p pairs_p

    Here words_t and pairs_p, each [C], are the shares of the open word t and of the pair p of open
    neighbours in the logits of the C classes. No program is compiled, because a lexicon is read
    with NumPy.

    Args:
      model: the fitted lexicon, a `LexiconModel`.

    Attributes:
      network: a description of the network.
      fields: the input fields, each a dict of texts: "name", its field of `State`; "label"; and
        "empty", the text that is shown in an empty field.
      classes: the names of the classes.
      layered: False, because a lexicon has no layers that the page could show.
      max_len: the largest number of words that are shown.
    """

    fields = ({"name": "text", "label": "Sentence", "empty": "Type a sentence"},)
    layered = False

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model
        self._has_windows = model.network == WINDOW
        owner = "place" if self._has_windows else "spelling"
        self.network = f"a lexicon: each {owner} has a gate and a share in each class"
        self._known = frozenset(model.lexicon.words)
        self.classes = [str(label) for label in model.classes]

    def example(self) -> dict[str, str]:
        """Returns {"text": a sentence of the first words of the lexicon}."""
        return {"text": example_text(self._model.lexicon.words)}

    def answer(self, state: State) -> Found:
        """Computes the class of the text of a state, and the shares of its words.

        Returns (notes, answer): a list of sentences for the user, and a dict for JSON, or None for
        a text without a word. It has the keys of `View.answer`, such as "title" (the predicted
        class), "share" (its probability), "classes" with "probabilities", and "lines". The lines
        are dicts that `line` makes: the words with their shares in each class, and the pairs of
        open neighbours.
        """
        every_word = self._model.split(state.text)
        words, lexicon = every_word[:LONGEST], self._model.lexicon
        if not words:
            return ["No word yet: type a sentence."], None
        notes = []
        if len(every_word) > LONGEST:
            notes.append(f"The text has {len(every_word):,} words; the first {LONGEST:,} are read.")
        # The lock is not needed for NumPy, but `close` waits for it.
        with self._lock:
            reading, shares = lexicon.read([words]), lexicon.share(words)
        probabilities, is_open = reading.probabilities[0], reading.is_open[0]
        best = self._model.target.rank_columns(reading, 0)[0]
        logits = shares.bias + shares.words.sum(0) + shares.pairs.sum(0)
        # The colour of a word is strongest at the largest share of the text.
        largest = max(np.abs(shares.words).max(), np.abs(shares.pairs).max(initial=0.0), 1e-9)
        entries = {"of": self.classes, "effects": True, "strong": float(largest)}
        lines = [
            line(
                "Words",
                words,
                [word in self._known for word in words],
                values=[floats(row) for row in shares.words.T],
                gates=[bool(gate) for gate in is_open],
                note=_SHARES.format(
                    gates=_WINDOW if self._has_windows else _SPELLING,
                    bias=f"{shares.bias[best]:+.3f}",
                    logit=f"{logits[best]:+.3f} for {self.classes[best]}",
                ),
                **entries,
            )
        ]
        if len(shares.places):
            pairs = [f"{words[first]} {words[second]}" for first, second in shares.places]
            values = [floats(row) for row in shares.pairs.T]
            is_known = [True] * len(pairs)
            lines.append(line("Pairs", pairs, is_known, values=values, note=_PAIRS, **entries))
        count = int(is_open.sum())
        note = f"{count} of {len(words)} gates are open (density {np.mean(is_open):.3f})."
        if reading.chosen[0] or reading.is_empty[0]:
            chosen = _CHOSEN_BY_WINDOW if self._has_windows else _CHOSEN
            note = f"{note} {chosen if reading.chosen[0] else _EMPTY}"
        return notes, {
            "title": self.classes[best],
            "share": float(probabilities[best]),
            "head": "Class",
            "classes": self.classes,
            "probabilities": floats(probabilities),
            "details": None,
            "note": note,
            "choice": "Shares for the class: ",
            "lines": lines,
        }

    def layers(self, state: State) -> None:
        """Returns None, because a lexicon has no layers."""
        return
