"""The view of a classifier of pairs of texts: its class, and the words that it selects."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gatedjax._utils.types import Json, Output, Params, Tree
from gatedjax.explore import _views
from gatedjax.explore._effects import probabilities_without_each, summarize_effects
from gatedjax.explore._state import State
from gatedjax.text.models._buckets import COARSE, width_of
from gatedjax.text.models._network import TrainedModel

PAIR_EFFECTS = 64
"""Largest number of words of each text of a pair with effects."""


class PairView(_views.View):
    """The view of a classifier of pairs of texts."""

    fields = (
        {"name": "text", "label": "First text", "empty": "Type a sentence (a premise)"},
        {"name": "hypothesis", "label": "Second text", "empty": "Type another (a hypothesis)"},
    )
    weighed = True

    def __init__(self, model: TrainedModel, name: str) -> None:
        super().__init__(name)
        self._model, self.network, self.max_len = model, model.entry.about, model.max_len
        self.tokenizer = model.tokenizer
        self.classes = [str(label) for label in model.classes]
        # The parameters are moved once, because each call would otherwise copy them to the device.
        self._params = jax.device_put(model.params)
        self._reading = functools.lru_cache(_views.KEPT)(self._run_texts)
        self._removing = functools.lru_cache(_views.KEPT)(self._run_removed)

    def effects(self, state: State) -> Json | None:
        _, texts = self._texts(state)
        if not all(2 <= len(words) <= PAIR_EFFECTS for words in texts):
            return None
        probabilities, *_ = self._reading(texts)
        result = summarize_effects(probabilities[0], self._removing(texts))
        count, effects = len(texts[0]), result["effects"]
        return {"class": result["class"], "lines": [effects[:count], effects[count:]]}

    def _run_removed(self, texts: tuple[tuple[str, ...], ...]) -> np.ndarray:
        with self._lock:
            return probabilities_without_each(self._model, texts, PAIR_EFFECTS)

    @functools.cached_property
    def _program(self) -> Any:
        def run(params: Params, batch: Tree) -> Tree:
            output: Output = self._model.module.apply({"params": params}, batch)
            reading = self._model.entry.summarize(output, batch)
            both = output.premise, output.hypothesis
            return jax.nn.softmax(output.logits), reading["read"], reading["share"], both

        return jax.jit(run)

    def _run_texts(self, texts: tuple[tuple[str, ...], ...]) -> Any:
        # Both texts are padded to the same width, so that there is a program for each width and
        # not for each pair of widths.
        edge = width_of(max(map(len, texts)), min(_views.LONGEST, self.max_len), COARSE)
        batch = self._model.batch([texts], edge)
        with self._lock:
            return jax.device_get(self._program(self._params, batch))

    def example(self) -> dict[str, str]:
        words = _views.example_words(self._model.vocabulary.words)
        return {"text": " ".join(words), "hypothesis": " ".join(words[: len(words) // 2])}

    def _texts(self, state: State) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
        """Returns (notes, words of both texts) of a state."""
        notes, most = [], min(_views.LONGEST, self.max_len)
        texts = [tuple(self.split(text)) for text in (state.text, state.hypothesis)]
        for number, words in zip(("first", "second"), texts, strict=True):
            if not words:
                notes.append(f"The {number} text has no word yet.")
            notes += _views.describe_cut(f"The {number} text", len(words), most)
        return notes, tuple(words[:most] for words in texts)

    def answer(self, state: State) -> _views.Found:
        notes, texts = self._texts(state)
        if not all(texts):
            return notes, None
        probabilities, masks, share, both = self._reading(texts)
        selects = both[0].gates is not None
        lines = []
        for name, words, mask in zip(("First text", "Second text"), texts, masks, strict=True):
            is_read = _views.bools(mask[0, : len(words)])
            note = f"{sum(is_read)} of {len(words)} words have a frame: most words read them."
            is_known = [word in self._model.vocabulary for word in words]
            entries: Json = {"marked": is_read, "note": note} if selects else {}
            lines.append(_views.line(name, words, is_known, **entries))
        note = "The model has no selector: words attend to all words."
        if selects:
            note = f"A word reads {share[0]:.3f} of the pairs of words, over both texts."
        best = int(np.argmax(probabilities[0]))
        return notes, _views.make_answer(
            self.classes[best],
            lines,
            share=float(probabilities[0, best]),
            head="Class",
            classes=self.classes,
            probabilities=_views.floats(probabilities[0]),
            note=note,
        )

    def layers(self, state: State) -> list[Json] | None:
        _, texts = self._texts(state)
        if not all(texts):
            return None
        *_, both = self._reading(texts)
        note = "A row is a word, and what it attends to within its text."
        sides = zip(("First text", "Second text"), both, texts, strict=True)
        return [
            result
            for name, selection, words in sides
            for result in _views.grids(name, selection, words, note)
        ]

    def warm_up(self, closed: Callable[[], bool]) -> None:
        for edge in COARSE[:2]:
            if not closed():
                self._reading((("a",) * edge, ("a",)))
