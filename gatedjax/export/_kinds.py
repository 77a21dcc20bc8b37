"""The kind of model and the format version in config.json of a model folder."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, get_args

from gatedjax._utils.types import Tree
from gatedjax._version import __version__

FORMAT = 1
"""The format that this version writes; it reads all formats up to it."""
KEY = "gatedjax"
"""The key of the kind and format in config.json."""
Kind = Literal[
    "text", "pair", "tags", "labels", "regression", "ordinal", "cloze", "translation", "run"
]
LEXICON = "lexicon"
"""The name of the lexicon, among the names of networks in config.json."""


@dataclasses.dataclass(frozen=True)
class _About:
    """The content of a kind of model folder and its reader, for messages and for the card."""

    content: str
    command: str
    loader: str = ""

    @property
    def reader(self) -> str:
        return f"{self.command} (in Python {self.loader}.load)" if self.loader else self.command


_PREDICT = "gatedjax predict"
_ABOUT: dict[Kind, _About] = {
    "text": _About("a text classifier", _PREDICT, "TextClassifier"),
    "pair": _About("a classifier of pairs of texts", _PREDICT, "PairClassifier"),
    "tags": _About("a tagger", _PREDICT, "Tagger"),
    "labels": _About(
        "a model with several labels for each text", _PREDICT, "MultiLabelTextClassifier"
    ),
    "regression": _About("a model that predicts a number", _PREDICT, "TextRegressor"),
    "ordinal": _About("a model that predicts a grade", _PREDICT, "OrdinalTextClassifier"),
    "cloze": _About("a reader that answers questions", "gatedjax answer"),
    "translation": _About("a translator", "gatedjax translate"),
    "run": _About("the parameters of an experiment's run", "gatedjax.export.load"),
}


def loader_of(config: Mapping[str, Tree]) -> str:
    """Returns the class of `gatedjax` that loads a model folder, as "TextClassifier", or ""."""
    facts = config.get(KEY)
    kind = facts.get("kind") if isinstance(facts, dict) else None
    return next((about.loader for name, about in _ABOUT.items() if name == kind), "")


def facts_of(kind: Kind) -> dict[str, Tree]:
    """Returns {"gatedjax": {"kind": kind, "format": version}}, an entry of config.json."""
    if kind not in get_args(Kind):
        raise ValueError(
            f"kind must be one of {', '.join(map(repr, get_args(Kind)))}, got {kind!r}"
        )
    return {KEY: {"kind": kind, "format": FORMAT}}


def check_kind(
    config: Mapping[str, Tree], accepted: Kind | Collection[Kind], folder: str | Path
) -> Kind:
    """Returns the kind of a model folder, which must be among `accepted` in a known format."""
    facts = config.get(KEY)
    if not isinstance(facts, dict) or "kind" not in facts:
        raise ValueError(
            f"{folder} must name the kind of its model in {KEY!r} of config.json, got "
            f"{facts!r:.80}: write it again with gatedjax export WORKDIR --out FOLDER, or read it "
            "with gatedjax.export.load"
        )
    version, kind = facts.get("format"), facts["kind"]
    # bool is a subclass of int, but true is no version.
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(
            f"{folder} must have an integer of at least 1 as its format, got {version!r}"
        )
    # The format is checked before the kind, because a newer format may have kinds that are unknown
    # here.
    if version > FORMAT:
        raise ValueError(
            f"{folder} must have a format of at most {FORMAT} for gatedjax {__version__}, got "
            f"{version}: read it with the newer gatedjax that wrote it"
        )
    if not isinstance(kind, str) or kind not in _ABOUT:
        raise ValueError(
            f"{folder} must hold a model of the kind {' or '.join(map(repr, _ABOUT))}, got {kind!r}"
        )
    if kind not in ([accepted] if isinstance(accepted, str) else accepted):
        raise ValueError(
            f"{folder} holds {_ABOUT[kind].content}, which must be read with {_ABOUT[kind].reader}"
        )
    return kind
