"""Gated and selective attention, and masked recurrence, for JAX and Flax.

`functional` holds the mathematics as pure functions of arrays, `nn` the Flax modules that own
parameters, `models` the networks of the papers with the tasks that train them. `data`, `training`,
`analysis` and `export` stand beside them. Subpackages load on first use, so that `import gatedjax`
is cheap.
"""

import importlib
from types import ModuleType

from gatedjax._version import __version__ as __version__

_SUBPACKAGES = ("analysis", "data", "export", "functional", "models", "nn", "training")

__all__ = ["__version__", *_SUBPACKAGES]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"gatedjax.{name}")
    raise AttributeError(f"module 'gatedjax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
