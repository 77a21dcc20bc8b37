"""The state of a page, its check, and the gates of the words: the modes, and forced gates."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np

Mode = Literal["threshold", "density", "sample", "open", "expected", "relaxed"]
HARD: tuple[Mode, ...] = ("threshold", "density", "sample", "open")
"""Modes with gates that are 0 or 1."""

TEXTS = ("text", "hypothesis", "question", "candidates")
"""Names of the fields with text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The state of a page: the texts and the choice of gates."""

    text: str = ""  # the sentence, the first text of a pair, or the document
    hypothesis: str = ""  # the second text of a pair
    question: str = ""
    candidates: str = ""  # a candidate on each line
    mode: Mode = "threshold"
    threshold: float = 0.5
    density: float = 0.5
    seed: int = 0
    # Position of a word in the tokens of `text` -> True to open its gate, False to close it.
    forced: Mapping[int, bool] = dataclasses.field(default_factory=dict)
    off: tuple[str, ...] = ()  # words that a lexicon reads the text without


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1  # bool is a subclass of int


def _are_words(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)


def _is_forced(value: Any) -> bool:
    # `isdigit` would also accept digits of other scripts, of which some have no integer value.
    return isinstance(value, Mapping) and all(
        re.fullmatch("[0-9]{1,7}", str(place)) and isinstance(is_open, bool)
        for place, is_open in value.items()
    )


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(TEXTS, ("a string", lambda text: isinstance(text, str))),
    "mode": (f"one of {', '.join(map(repr, get_args(Mode)))}", lambda mode: mode in get_args(Mode)),
    "threshold": ("a number in [0, 1]", _is_share),
    "density": ("a number in [0, 1]", _is_share),
    "seed": ("an integer in [0, 2^32)", lambda seed: type(seed) is int and 0 <= seed < 2**32),
    "off": ("a list of words", _are_words),
    "forced": ("an object that maps numbers of words to true or false", _is_forced),
}
"""Field of a message -> the values that it must have, and their test."""


def check_state(message: Mapping[str, Any]) -> State:
    """Converts a message to a state; raises ValueError for a wrong type or value of a field.

    >>> check_state({"text": "fun", "forced": {"0": False}}).forced
    {0: False}
    """
    values = {name: message[name] for name in _RULES if name in message}
    for name, value in values.items():
        requirement, holds = _RULES[name]
        if not holds(value):
            raise ValueError(f"{name} must be {requirement}, got {value!r:.40}")
    forced = {int(place): is_open for place, is_open in values.get("forced", {}).items()}
    return State(**{**values, "forced": forced, "off": tuple(values.get("off", ()))})


def gates_of(
    open_: np.ndarray, state: State, temperature: float, *, removed: int | None = None
) -> np.ndarray:
    """Computes the gates of a mode, float32 [T], from the probabilities p that they are open.

    [p > threshold], [p among the round(density T) largest], [a + L > 0] for "sample", ones for
    "open", p for "expected", sigmoid((a + L) / tau) for "relaxed", with a = logit p and logistic
    noise L that depends only on the seed; without the word `removed` the other words keep theirs.

    >>> state = State(mode="threshold", threshold=0.5)
    >>> print(gates_of(np.array([0.25, 0.75]), state, temperature=1.0))
    [0. 1.]
    """
    # A probability that was rounded to 0 or 1 would have an infinite logit.
    p = np.clip(np.asarray(open_, np.float64), 1e-12, 1 - 1e-9)
    # The noise depends only on the seed, so that two models and the two random modes share it.
    size = len(p) + (removed is not None)
    noise = np.random.default_rng(state.seed).logistic(size=size)
    if removed is not None:
        noise = np.delete(noise, removed)
    logits = np.log(p) - np.log1p(-p)
    modes: dict[str, Callable[[], np.ndarray]] = {
        "threshold": lambda: p > state.threshold,
        "density": lambda: _largest(p, state.density),
        "sample": lambda: logits + noise > 0,
        "open": lambda: np.ones_like(p),
        "expected": lambda: p,
        "relaxed": lambda: 1 / (1 + np.exp(-(logits + noise) / temperature)),
    }
    return modes[state.mode]().astype(np.float32)


def force(gates: np.ndarray, forced: Mapping[int, bool]) -> np.ndarray:
    """Returns a copy of `gates` with the forced ones replaced; places beyond the text are ignored.

    >>> print(force(np.array([0.5, 0.5]), {0: True, 7: False}))
    [1.  0.5]
    """
    changed = gates.copy()
    for place, is_open in forced.items():
        if place < len(changed):
            changed[place] = is_open
    return changed


def shift_forced(forced: Mapping[int, bool], removed: int) -> dict[int, bool]:
    """Moves the forced gates to the positions of their words after the word `removed` is removed.

    >>> shift_forced({0: True, 1: False, 2: True}, removed=1)
    {0: True, 1: True}
    """
    return {i - (i > removed): is_open for i, is_open in forced.items() if i != removed}


def _largest(p: np.ndarray, density: float) -> np.ndarray:
    is_largest = np.zeros(len(p), bool)
    is_largest[np.argsort(-p, kind="stable")[: max(1, int(density * len(p) + 0.5))]] = True
    return is_largest
