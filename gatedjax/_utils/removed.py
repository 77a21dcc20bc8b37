"""Names and options that earlier versions had, and what to use in their place."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)

_COUNTS = (
    "gatedjax.analysis.distance_counts and tag_counts sum weights by distance and by class of word"
)
_LAZY_ROWS = (
    "every optimizer updates all word vectors. With 20,000 words, lazy rows saved 9 % of a step of "
    "`gatedjax train` for texts of 24 words, and made it 17 % longer for texts of 200 words"
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
    "gatedjax.training": {
        "LazyRows": _LAZY_ROWS,
        "lazy_rows": _LAZY_ROWS,
        "table_lookups": "it served lazy_rows; a task needs no attribute `lookups`",
    },
}

# dataclass -> field -> (its default, the reason)
REMOVED_FIELDS: dict[str, dict[str, tuple[object, str]]] = {
    "OptimizerConfig": {"lazy_rows": (False, _LAZY_ROWS)}
}
# option of a command -> the reason
_REMOVED_OPTIONS = {"--train.optimizer.lazy-rows": _LAZY_ROWS}


def without_removed_fields(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a dataclass less those that were removed, if these have their default.

    Args:
      kind: the name of the dataclass.
      values: its fields by name, perhaps as an earlier version recorded them.

    Raises:
      ValueError: if a removed field has another value than its default.
    """
    removed = REMOVED_FIELDS[kind]
    for name, (default, reason) in removed.items():
        if values.get(name, default) != default:
            raise ValueError(
                f"{kind} has no {name} since 0.1.0, got {name}={values[name]!r}: {reason}"
            )
    return {name: value for name, value in values.items() if name not in removed}


def accepts_removed_fields(kind: Kind) -> Kind:
    """Makes a dataclass take its removed fields with their defaults, and explain other values."""
    init: Any = kind.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def take(self: Any, **values: Any) -> None:
        init(self, **without_removed_fields(kind.__name__, values))

    kind.__init__ = take  # type: ignore[misc]
    return kind


def explain_removed_option(args: Sequence[str]) -> str | None:
    """Returns why an option on a command line was removed; None if all of them are there."""
    for arg in args:
        name = arg.partition("=")[0].replace("_", "-").replace(".no-", ".")
        if (reason := _REMOVED_OPTIONS.get(name)) is not None:
            return f"{name} was removed in 0.1.0: {reason}"
    return None


def removed_from(package: str) -> Callable[[str], object]:
    """Returns a module's `__getattr__`, which explains the names that `REMOVED` lists.

    A package assigns it outside of type checking, because a type checker would take every name for
    an attribute of a module that has `__getattr__`.
    """

    def explain(name: str) -> object:
        if (reason := REMOVED[package].get(name)) is not None:
            raise ImportError(f"{package}.{name} was removed in 0.1.0: {reason}", name=name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return explain
