"""Names that earlier versions had, and what to use in their place."""

import importlib
from collections.abc import Callable

_COUNTS = (
    "gatedjax.analysis.distance_counts and tag_counts sum weights by distance and by class of word"
)
# package -> name -> the reason, or what replaces the name
REMOVED: dict[str, dict[str, str]] = {
    "gatedjax.functional": {
        "AttentionStatistics": _COUNTS,
        "attention_statistics": _COUNTS,
        "streamed_attention_statistics": _COUNTS,
        "skipping_selective_attention": (
            "selective_attention gives the same outputs. Skipping keys cost 9 to 15 times as much "
            "on a GPU and saved time only on a CPU, from 1,024 tokens on"
        ),
    },
    "gatedjax.models.ga_net": {"GANetTask": "import it from gatedjax.models"},
    "gatedjax.models": {
        f"ssan_{name}": f"gatedjax.models.ssan.{name} has its contents"
        for name in ("nli", "probe", "reordering", "tagger", "translation")
    },
}
# package -> name -> the module that defines it, of names that are public in both
_MODES = ("GateModes", "ModeValues", "gate_modes", "measure")
MOVED = {"gatedjax.gates": dict.fromkeys(_MODES, "gatedjax.text.gate_modes")}


def removed_from(package: str) -> Callable[[str], object]:
    """Returns a module's `__getattr__` for the names that `REMOVED` and `MOVED` list.

    Names that were removed are explained; names that have moved are imported on first use.
    A package assigns it outside of type checking, because a type checker would take every name for
    an attribute of a module that has `__getattr__`.
    """

    def explain(name: str) -> object:
        if (home := MOVED.get(package, {}).get(name)) is not None:
            return getattr(importlib.import_module(home), name)
        if (reason := REMOVED.get(package, {}).get(name)) is not None:
            raise ImportError(f"{package}.{name} was removed in 0.1.0: {reason}", name=name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return explain
