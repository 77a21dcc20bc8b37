"""The state of a page, and its check."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

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
    candidates: str = ""  # one on each line
    mode: Mode = "threshold"
    threshold: float = 0.5
    density: float = 0.5
    seed: int = 0
    # Position of a word in the tokens of `text` -> True to open its gate, False to close it.
    forced: Mapping[int, bool] = dataclasses.field(default_factory=dict)


def check_state(message: Mapping[str, Any]) -> State:
    """Converts a message to a state; raises ValueError for a wrong type or value of a field.

    >>> check_state({"text": "fun", "forced": {"0": False}}).forced
    {0: False}
    """
    fields = {field.name for field in dataclasses.fields(State)}
    values = {name: value for name, value in message.items() if name in fields}
    mode = values.get("mode", "threshold")
    for name in TEXTS:
        if not isinstance(text := values.get(name, ""), str):
            raise ValueError(f"{name} must be a string, got {text!r:.40}")
    if mode not in get_args(Mode):
        modes = ", ".join(map(repr, get_args(Mode)))
        raise ValueError(f"mode must be one of {modes}, got {str(mode)[:40]!r}")
    for name in ("threshold", "density"):
        values[name] = _share(name, values.get(name, 0.5))
    seed = values.get("seed", 0)
    # bool is a subclass of int, but true is no seed.
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer in [0, 2^32), got {seed!r:.40}")
    return State(**{**values, "forced": _check_forced(values.get("forced", {}))})


def _share(name: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number in [0, 1], got {value!r:.40}")
    return float(value)


def _check_forced(value: Any) -> dict[int, bool]:
    """Converts a JSON object of forced gates to a dict with integers as keys."""
    if not isinstance(value, Mapping):
        raise ValueError(f"forced must be an object, got {value!r:.40}")
    forced = {}
    for place, is_open in value.items():
        number = str(place)
        # `isdigit` also accepts digits of other scripts, and some of them have no integer value.
        plain = number.isascii() and number.isdigit() and len(number) < 8
        if not plain or not isinstance(is_open, bool):
            raise ValueError(
                "forced must map numbers of words to true or false, got "
                f"{number[:40]!r}: {is_open!r:.40}"
            )
        forced[int(number)] = is_open
    return forced
