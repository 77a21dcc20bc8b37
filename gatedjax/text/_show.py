import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    label: Any
    probability: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    text: str
    tokens: Any
    label: Any
    probability: float
    probabilities: Any
    kept: Any
    density: float
    attention: Any
    gates: Any
    flips: Any
    removed: Any
