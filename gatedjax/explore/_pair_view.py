"""The view of a classifier of pairs of texts: its class, and the words that it selects."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax.explore._example import example_words
from gatedjax.explore._removal import summarize_effects
from gatedjax.explore._state import State
from gatedjax.explore._views import KEPT, LONGEST, Found, View, floats, grids, line
from gatedjax.text._buckets import COARSE, pad_texts, width_of
from gatedjax.text._model import TrainedModel

PAIR_EFFECTS = 64
"""Largest number of words of each text of a pair with effects."""


class PairView(View):
    """The view of a classifier of pairs of texts."""

    fields = (
        {"name": "text", "label": "First text", "empty": "Type a sentence (a premise)"},
        {"name": "hypothesis", "label": "Second text", "empty": "Type another (a hypothesis)"},
    )
    weighed = True

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self._model, self.network, self.max_len = model, model.entry.about, model.max_len
        self.classes = [str(label) for label in model.classes]
        # The parameters are moved once, because each call would otherwise copy them to the device.
        self._params = jax.device_put(model.params)
        self._reading = functools.lru_cache(KEPT)(self._run_texts)
        self._removing = functools.lru_cache(KEPT)(self._run_removed)

    def effects(self, state: State) -> Json | None:
        """Computes the effect of each word of the two texts of a state on the predicted class."""
        _, texts = self._texts(state)
        if not all(2 <= len(words) <= PAIR_EFFECTS for words in texts):
            return None
        probabilities, *_ = self._reading(texts)
        result = summarize_effects(probabilities[0], self._removing(texts))
        count, effects = len(texts[0]), result["effects"]
        return {"class": result["class"], "lines": [effects[:count], effects[count:]]}

    def _run_removed(self, texts: tuple[tuple[str, ...], ...]) -> np.ndarray:
        """Computes the probabilities [T, C] of C classes for a pair without each of its T words."""
        first, second = map(self._model.ids, texts)
        pairs = [(np.delete(first, place), second) for place in range(len(first))]
        pairs += [(first, np.delete(second, place)) for place in range(len(second))]
        edge = width_of(max(map(len, texts)), PAIR_EFFECTS, COARSE)
        # The number of rows depends only on the padded length, and so does the program.
        with self._lock:
            outputs = self._model.run(pad_texts(pairs, (2 * edge, edge)))
        probabilities: np.ndarray = outputs["probabilities"][: len(pairs)]
        return probabilities

    @functools.cached_property
    def _program(self) -> Any:
        def run(params: Params, batch: Tree) -> Tree:
            output: Output = self._model.module.apply({"params": params}, batch)
            reading = self._model.entry.summarize(output, batch)
            both = output.premise, output.hypothesis
            return jax.nn.softmax(output.logits), reading["kept"], reading["density"], both

        return jax.jit(run)

    def _run_texts(self, texts: tuple[tuple[str, ...], ...]) -> Any:
        # Both texts are padded to the same width, so that there is one program for each width and
        # not for each pair of widths.
        edge = width_of(max(map(len, texts)), min(LONGEST, self.max_len), COARSE)
        batch = self._model.batch([texts], edge)
        with self._lock:
            return jax.device_get(self._program(self._params, batch))

    def example(self) -> dict[str, str]:
        """Returns {"text", "hypothesis"}: two texts of frequent words of the vocabulary."""
        words = example_words(self._model.vocabulary.words)
        return {"text": " ".join(words), "hypothesis": " ".join(words[: len(words) // 2])}

    def _texts(self, state: State) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
        """Returns (notes, words of both texts) of a state."""
        notes, most = [], min(LONGEST, self.max_len)
        texts = [self._model.tokenizer.split(text) for text in (state.text, state.hypothesis)]
        for number, words in zip(("first", "second"), texts, strict=True):
            if not words:
                notes.append(f"The {number} text has no word yet.")
            if len(words) > most:
                notes.append(
                    f"The {number} text has {len(words):,} words; the first {most:,} are read."
                )
        return notes, tuple(words[:most] for words in texts)

    def answer(self, state: State) -> Found:
        """Computes the class of the pair of texts in a state."""
        notes, texts = self._texts(state)
        if not all(texts):
            return notes, None
        probabilities, masks, density, both = self._reading(texts)
        selects = both[0].gates is not None
        lines = []
        for name, words, mask in zip(("First text", "Second text"), texts, masks, strict=True):
            is_selected = [bool(flag) for flag in mask[0, : len(words)]]
            note = f"{sum(is_selected)} of {len(words)} words are selected by most words."
            is_known = [word in self._model.vocabulary for word in words]
            entries: Json = {"kept": is_selected, "note": note} if selects else {}
            lines.append(line(name, words, is_known, **entries))
        share = f"{density[0]:.3f} of the pairs of words are selected, over both texts."
        best = int(np.argmax(probabilities[0]))
        return notes, {
            "title": self.classes[best],
            "share": float(probabilities[0, best]),
            "head": "Class",
            "classes": self.classes,
            "probabilities": floats(probabilities[0]),
            "details": None,
            "note": share if selects else "The model has no selector: words attend to all words.",
            "lines": lines,
        }

    def count_words(self, state: State) -> int:
        """Returns the number of words of the first text of a state, as the model splits it."""
        return len(self._model.tokenizer.split(state.text))

    def layers(self, state: State) -> list[Json] | None:
        """Computes a grid for each of the two texts and each head: the weights of its words."""
        _, texts = self._texts(state)
        if not all(texts):
            return None
        *_, both = self._reading(texts)
        note = "A row is a word, and what it attends to within its text."
        sides = zip(("First text", "Second text"), both, texts, strict=True)
        return [
            result
            for name, selection, words in sides
            for result in grids(name, selection, words, note)
        ]

    def warm_up(self, closed: Callable[[], bool]) -> None:
        """Compiles the programs for short texts."""
        # Short texts come first when a user begins to type, and their programs are quick to
        # compile.
        for edge in COARSE[:2]:
            if not closed():
                self._reading((("a",) * edge, ("a",)))
