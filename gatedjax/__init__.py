"""Gated and selective attention, and masked recurrence, for JAX and Flax.

`functional` has the mathematics as pure functions of arrays, `nn` Flax modules with parameters
(`nnx` has the same modules for NNX), and `models` the networks of the papers with the tasks that
train them. `data`, `training`, `analysis` and `export` work with these networks. `lexicon` is a
text classifier whose gates hold by construction. `text` trains models on your texts
(`TextClassifier`, `PairClassifier`, `Tagger`), and `explore` shows their gates (`explorer(model)`
in a notebook). Names are imported on first use, so that `import gatedjax` is fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gatedjax._version import __version__ as __version__

if TYPE_CHECKING:
    from gatedjax import analysis as analysis
    from gatedjax import data as data
    from gatedjax import explore as explore
    from gatedjax import export as export
    from gatedjax import functional as functional
    from gatedjax import gates as gates
    from gatedjax import lexicon as lexicon
    from gatedjax import models as models
    from gatedjax import nn as nn
    from gatedjax import nnx as nnx
    from gatedjax import text as text
    from gatedjax import training as training
    from gatedjax.explore import explorer as explorer
    from gatedjax.text import MultiLabelTextClassifier as MultiLabelTextClassifier
    from gatedjax.text import OrdinalTextClassifier as OrdinalTextClassifier
    from gatedjax.text import PairClassifier as PairClassifier
    from gatedjax.text import Tagger as Tagger
    from gatedjax.text import TextClassifier as TextClassifier
    from gatedjax.text import TextRegressor as TextRegressor

_SUBPACKAGES = (
    *("analysis", "data", "explore", "export", "functional", "gates", "lexicon", "models"),
    *("nn", "nnx", "text", "training"),
)
_OF_TEXT = (
    *("MultiLabelTextClassifier", "OrdinalTextClassifier", "PairClassifier", "Tagger"),
    *("TextClassifier", "TextRegressor"),
)
_MODULES = dict.fromkeys(_OF_TEXT, "text") | {"explorer": "explore"}

__all__ = [*_MODULES, "__version__", *_SUBPACKAGES]


if not TYPE_CHECKING:
    # A type checker would accept any name as an attribute of a module with `__getattr__`.

    def __getattr__(name: str) -> Any:
        if name in _SUBPACKAGES:
            return importlib.import_module(f"gatedjax.{name}")
        if name in _MODULES:
            return getattr(importlib.import_module(f"gatedjax.{_MODULES[name]}"), name)
        raise AttributeError(f"module 'gatedjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
