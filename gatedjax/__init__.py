"""Gated and selective attention, and masked recurrence, for JAX and Flax.

`functional` holds the mathematics as pure functions of arrays, `nn` the Flax modules that own
parameters, `models` the networks of the papers with the tasks that train them. `data`, `training`,
`analysis` and `export` stand beside them, and `text` makes models of one's own texts
(`TextClassifier`, `PairClassifier`, `Tagger`). Names load on first use, so that `import gatedjax`
is cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gatedjax._version import __version__ as __version__

if TYPE_CHECKING:
    from gatedjax.text import PairClassifier as PairClassifier
    from gatedjax.text import Tagger as Tagger
    from gatedjax.text import TextClassifier as TextClassifier

_SUBPACKAGES = ("analysis", "data", "export", "functional", "models", "nn", "text", "training")
_CLASSES = ("PairClassifier", "Tagger", "TextClassifier")

__all__ = ["PairClassifier", "Tagger", "TextClassifier", "__version__", *_SUBPACKAGES]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"gatedjax.{name}")
    if name in _CLASSES:
        return getattr(importlib.import_module("gatedjax.text"), name)
    raise AttributeError(f"module 'gatedjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
