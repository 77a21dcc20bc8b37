"""The effect of each word in the explorer: the change of the prediction when the word is removed.

For a text x of T words with the predicted class j, and x without its word t,

    delta_t [C] = p(x) - p(x without t),        effect_t = delta_t[j]

The network runs again on the shorter text, so the gates of its other words are computed again by
the same rule; forced gates stay with their words. A word speaks for class j if its effect is not
negative, and else for the class whose probability falls most without the word.
"""

import functools
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from gatedjax._utils.types import Json
from gatedjax.explore._gates import force, gates_of
from gatedjax.explore._state import HARD, State
from gatedjax.text._buckets import COARSE, pad_texts, width_of

MOST_REMOVED = 256
"""Largest number of words of a text with effects, because a text of n words is read n times."""
# Results of texts that stay in memory; a result has a row for each word, so it is large.
_KEPT_TEXTS = 16


class Removal:
    """The effects of the words of a text for a model; several threads may call `effects`."""

    def __init__(self, programs: Any) -> None:
        self._programs = programs
        # The user does not wait for effects, so an answer never waits for this lock.
        self._lock = threading.Lock()
        self._likely = functools.lru_cache(_KEPT_TEXTS)(self._open_probabilities)
        self._reading = functools.lru_cache(_KEPT_TEXTS)(self._run_model)

    def effects(self, tokens: tuple[str, ...], state: State) -> Json | None:
        """Computes the effects of 2 to `MOST_REMOVED` words on the predicted class, else None."""
        model = self._programs.model
        tokens = tokens[: model.max_len]
        if not 2 <= len(tokens) <= MOST_REMOVED:
            return None
        probabilities = np.array(self._programs.answer(tokens, state)["probabilities"])
        return summarize_effects(probabilities, self.without_each(tokens, state))

    def without_each(self, tokens: tuple[str, ...], state: State) -> np.ndarray:
        """Computes the probabilities [T, C] of C classes for a text without each of its T words."""
        if not self._programs.gated:
            return self._reading(tokens)
        temperature = self._programs.model.config.gates.temperature
        likely = self._likely(tokens)
        gates = np.zeros((1, *_batch_shape(len(tokens))), np.float32)
        for place, row in enumerate(likely):
            free = gates_of(row, state, temperature, removed=place)
            gates[0, place, : len(row)] = force(free, shift_forced(state.forced, place))
        soft = state.mode not in HARD
        probabilities, _ = self._run_gates(tokens, gates, soft=soft)
        return probabilities

    def open_probabilities(self, tokens: tuple[str, ...]) -> np.ndarray:
        """Returns [T, T - 1]: row t has the open probabilities of the text without word t."""
        return self._likely(tokens)

    def close(self, seconds: float) -> bool:
        """Acquires the lock for good, so that no computation starts again; True if it got it."""
        return self._lock.acquire(timeout=seconds)

    def _batch(self, tokens: tuple[str, ...]) -> dict[str, np.ndarray]:
        ids = self._programs.model.ids(tokens)
        texts = [(np.delete(ids, place),) for place in range(len(tokens))]
        return pad_texts(texts, _batch_shape(len(tokens)))

    def _open_probabilities(self, tokens: tuple[str, ...]) -> np.ndarray:
        # The open probabilities do not depend on the gates, so any pattern serves.
        closed = np.zeros((1, *_batch_shape(len(tokens))), np.float32)
        _, likely = self._run_gates(tokens, closed, soft=False)
        return likely

    def _run_gates(
        self, tokens: tuple[str, ...], gates: np.ndarray, *, soft: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        batch, count = self._batch(tokens), len(tokens)
        with self._lock:
            probabilities, *_, likely = self._programs.run_patterns(batch, gates, soft=soft)
        return probabilities[0, :count], likely[:count, : count - 1]

    def _run_model(self, tokens: tuple[str, ...]) -> np.ndarray:
        with self._lock:
            outputs = self._programs.model.run(self._batch(tokens))
        probabilities: np.ndarray = outputs["probabilities"][: len(tokens)]
        return probabilities


def summarize_effects(probabilities: np.ndarray, without: np.ndarray) -> Json:
    """Computes the effects of T words from probabilities [C] of a text and `without` [T, C], as the
    module defines them.

        >>> effects = summarize_effects(np.array([0.25, 0.75]), np.array([[0.5, 0.5]]))
        >>> effects["effects"], effects["speaks_for"]
        ([0.25], [1])
    """
    changes = probabilities - without
    best = int(np.argmax(probabilities))
    effects = changes[:, best]
    speaks_for = np.where(effects >= 0, best, changes.argmax(axis=1))
    return {
        "class": best,
        "effects": [float(effect) for effect in effects],
        "speaks_for": [int(place) for place in speaks_for],
    }


def shift_forced(forced: Mapping[int, bool], removed: int) -> dict[int, bool]:
    """Moves the forced gates to the positions of their words after the word `removed` is removed.

    >>> shift_forced({0: True, 1: False, 2: True}, removed=1)
    {0: True, 1: True}
    """
    return {i - (i > removed): is_open for i, is_open in forced.items() if i != removed}


def _batch_shape(words: int) -> tuple[int, int]:
    # As many rows as columns, so that there is one program for each padded length.
    edge = width_of(words, MOST_REMOVED, COARSE)
    return edge, edge
