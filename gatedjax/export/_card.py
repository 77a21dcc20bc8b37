"""Model cards, README.md files for users of saved parameters, and the kind of a saved model."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from gatedjax._utils.choices import check_choice
from gatedjax._utils.json import to_json
from gatedjax._utils.types import Tree
from gatedjax._version import __version__

_UNSTATED = "Not stated."


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCard:
    """The texts and results of a model card, without configuration and parameters.

        >>> card = ModelCard(name="TREC, seed 0", metrics={"test accuracy": 0.91}, seeds=(0,))
        >>> card.licence
        ''

    Attributes:
      name: title of the card.
      description: a description of the model and its purpose.
      data: the training and evaluation data.
      metrics: results by name, for example {"test accuracy": 0.91}.
      seeds: seeds of the run or runs.
      licence: licence of the parameters, as an SPDX identifier ("Apache-2.0").
      limitations: uses for which the model is not suitable.
    """

    name: str
    description: str = ""
    data: str = ""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    licence: str = ""
    limitations: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a name or licence that is not a printable line of text."""
        for name in ("name", "licence"):
            value = getattr(self, name)
            # A line break would begin another entry of the front matter or another paragraph.
            if not isinstance(value, str) or not value.isprintable():
                raise ValueError(f"{name} must be one line of text, got {value!r}")
        if not self.name.strip():
            raise ValueError(f"name must not be empty, got {self.name!r}")


def title_of(folder_name: str) -> str:
    """Returns the title of the card of a folder: the name of the folder as a line of text, with
    U+FFFD in place of each character that is not printable, such as the joiners of an emoji.

    >>> title_of("model\\nof reviews")
    'model of reviews'
    """
    line = " ".join(folder_name.split())
    return "".join(c if c.isprintable() else "\ufffd" for c in line) or "model"


def render_card(
    card: ModelCard,
    config: Any,
    leaves: Mapping[str, Any],  # the arrays by their names
    digests: Mapping[str, str],
    folder: str,
) -> str:
    """Returns the README.md of a folder, with the front matter that model hubs read."""
    # Imported here, because `predict` loads folders and writes no card.
    from gatedjax.analysis import render_table

    front = ["---", "library_name: gatedjax"]
    if config.get("network") not in (LEXICON, LINEAR):
        # These need no JAX.
        front.append("tags: [jax, flax]")
    if card.licence:
        # All JSON strings are valid YAML strings.
        front.append(f"license: {to_json(card.licence.lower())}")
    results = [(name, f"{value:.6g}") for name, value in card.metrics.items()]
    arrays = [(name, str(leaf.dtype), str(list(leaf.shape))) for name, leaf in leaves.items()]
    total = sum(math.prod(leaf.shape) for leaf in leaves.values())
    sections = [
        "\n".join([*front, "---"]),
        f"# {card.name}",
        card.description or f"Parameters of a gatedjax {__version__} model.",
        "## Data",
        card.data or _UNSTATED,
        "## Results",
        render_table(("metric", "value"), results).rstrip() if results else _UNSTATED,
        "## Seeds",
        ", ".join(map(str, card.seeds)) or _UNSTATED,
        "## Limitations",
        card.limitations or _UNSTATED,
        "## Licence",
        card.licence or _UNSTATED,
        "## Load it",
        _fence("python", _example(folder, loader_of(config), "model.jax_export" in digests)),
        "## Configuration",
        _fence("json", to_json(config, indent=1, sort_keys=True)),
        f"## Parameters\n\n{total:,} numbers in {len(leaves)} arrays.",
        render_table(("name", "dtype", "shape"), arrays).rstrip(),
        "## Files\n\n`sha256sum -c SHA256SUMS` checks them, and so does loading.",
        render_table(("file", "SHA-256"), list(digests.items())).rstrip(),
    ]
    return "\n\n".join(sections) + "\n"


def _fence(language: str, text: str) -> str:
    # The text may contain a fence, which would end the block.
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _example(folder: str, loader: str, has_program: bool) -> str:
    """Returns an example of Python code that loads the model folder with the name `folder`."""
    if loader:
        lines = [f"from gatedjax import {loader}", "", f"model = {loader}.load({folder!r})"]
    else:
        lines = ["from gatedjax import export", "", f"params, config = export.load({folder!r})"]
    if has_program:
        lines += [
            "",
            "# Or, without the code of the model, a program: run it only if you trust its author.",
            *["from gatedjax import export"] * bool(loader),
            f"predict = export.load_predictor({folder!r})",
            "outputs = predict(batch)",
        ]
    return "\n".join(lines)


FORMAT = 1
"""The format that this version writes; it reads all formats up to it."""
KEY = "gatedjax"
"""The key of the kind and format in config.json."""
Kind = Literal[
    "text", "pair", "tags", "labels", "regression", "ordinal", "cloze", "translation", "run"
]
LEXICON = "lexicon"
"""The name of the lexicon, among the names of networks in config.json."""
LINEAR = "linear"
"""The name of the linear model of all words."""


_PREDICT = "gatedjax predict (in Python {}.load)"
_CONTENTS: dict[str, tuple[str, str, str]] = {
    # kind: (content, class that loads it, reader)
    "text": ("a text classifier", "TextClassifier", _PREDICT),
    "pair": ("a classifier of pairs of texts", "PairClassifier", _PREDICT),
    "tags": ("a tagger", "Tagger", _PREDICT),
    "labels": ("a model with several labels for each text", "MultiLabelTextClassifier", _PREDICT),
    "regression": ("a model that predicts a number", "TextRegressor", _PREDICT),
    "ordinal": ("a model that predicts a grade", "OrdinalTextClassifier", _PREDICT),
    "cloze": ("a reader that answers questions", "", "gatedjax answer"),
    "translation": ("a translator", "", "gatedjax translate"),
    "run": ("the parameters of an experiment's run", "", "gatedjax.export.load"),
}


def loader_of(config: Mapping[str, Tree]) -> str:
    """Returns the class of `gatedjax` that loads a model folder, as "TextClassifier", or ""."""
    facts = config.get(KEY)
    kind = facts.get("kind") if isinstance(facts, dict) else None
    return _CONTENTS[kind][1] if isinstance(kind, str) and kind in _CONTENTS else ""


def facts_of(kind: Kind) -> dict[str, Tree]:
    """Returns {"gatedjax": {"kind": kind, "format": version}}, an entry of config.json."""
    check_choice(Kind, kind=kind)
    return {KEY: {"kind": kind, "format": FORMAT}}


def check_kind(
    config: Mapping[str, Tree], accepted: Kind | Collection[Kind], folder: str | Path
) -> Kind:
    """Returns the kind of a model folder, which must be among `accepted` in a known format."""
    stored = config.get(KEY)
    facts = stored if isinstance(stored, dict) else {}
    version, kind = facts.get("format"), facts.get("kind")
    # bool is a subclass of int, but true is no version.
    if type(version) is not int or version < 1 or not isinstance(kind, str):
        raise ValueError(
            f"{folder} must name the kind of its model, and its format, an integer of at least 1, "
            f"in {KEY!r} of config.json, got {stored!r:.80}: write it again with gatedjax export "
            "WORKDIR --out FOLDER, or read it with gatedjax.export.load"
        )
    # The format is checked before the kind, because a newer format may have kinds that are unknown
    # here.
    if version > FORMAT:
        raise ValueError(
            f"{folder} must have a format of at most {FORMAT} for gatedjax {__version__}, got "
            f"{version}: read it with the newer gatedjax that wrote it"
        )
    if kind not in _CONTENTS:
        kinds = " or ".join(map(repr, _CONTENTS))
        raise ValueError(f"{folder} must hold a model of the kind {kinds}, got {kind!r}")
    if kind not in ([accepted] if isinstance(accepted, str) else accepted):
        content, loader, reader = _CONTENTS[kind]
        reader = reader.format(loader)
        raise ValueError(f"{folder} holds {content}, which must be read with {reader}")
    return cast(Kind, kind)
