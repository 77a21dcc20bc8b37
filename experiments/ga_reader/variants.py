"""The readers that tables compare: names of their records, and what they change."""

import dataclasses
from typing import Any

from experiments.ga_reader.config import PRESETS, Config


@dataclasses.dataclass(frozen=True)
class Variant:
    """A reader of a table.

    Attributes:
      name: how tables call it.
      model: what it changes in the network of a preset without the feature.
      corpus: whether it starts from word vectors trained on the questions' own documents.
    """

    name: str
    model: dict[str, Any]
    corpus: bool = False


_FEATURE: dict[str, Any] = {"feature": True}
_OLD: dict[str, Any] = {"token_attention": False, "char_dim": 0, "freeze_embeddings": False}
VARIANTS: dict[str, Variant] = {
    "fix": Variant("GA, fixed vectors", {"freeze_embeddings": True}),
    "update": Variant("GA, trained vectors", {"freeze_embeddings": False}),
    "feature_fix": Variant("GA + feature, fixed vectors", {"freeze_embeddings": True, **_FEATURE}),
    "feature_update": Variant(
        "GA + feature, trained vectors", {"freeze_embeddings": False, **_FEATURE}
    ),
    "minus": Variant("GA-- (no characters, one query vector, corpus vectors)", _OLD, corpus=True),
    "sum": Variant("gating: sum", {"gating": "sum"}),
    "concat": Variant("gating: concatenate", {"gating": "concat"}),
    "no_gating": Variant("no gating", {"gating": "none"}),
    "feature_no_gating": Variant("no gating + feature", {"gating": "none", **_FEATURE}),
    "hops_1": Variant("K = 1", {"hops": 1}),
    "hops_2": Variant("K = 2", {"hops": 2}),
    "hops_4": Variant("K = 4", {"hops": 4}),
    "no_characters": Variant("without characters", {"char_dim": 0}),
    "no_token_attention": Variant("one query vector for all tokens", {"token_attention": False}),
    "corpus": Variant("corpus vectors instead of GloVe", {}, corpus=True),
}


def base_of(data: str) -> str:
    """The variant without the feature whose word vectors are as the preset has them."""
    return "fix" if PRESETS[data].model.freeze_embeddings else "update"


def feature_of(data: str) -> str:
    """As `base_of`, with the feature."""
    return f"feature_{base_of(data)}"


def with_fraction(variant: str, share: int) -> str:
    """The name of a variant trained on a share of the questions, in percent."""
    return variant if share == 100 else f"{variant}_{share}"


def apply(preset: Config, variant: str) -> Config:
    """The preset with a variant's network."""
    changed = {"feature": False} | VARIANTS[variant].model
    model = dataclasses.replace(preset.model, **changed)
    return dataclasses.replace(preset, model=model)


TABLES: dict[str, tuple[str, ...]] = {
    "table1": ("minus", "update", "fix", "feature_update", "feature_fix"),
    "table2": ("sum", "concat", "BASE", "hops_1", "hops_2", "hops_4"),
    "table3": ("minus", "update", "fix", "feature_update", "feature_fix"),
    "table4": ("BASE", "no_characters", "no_token_attention", "corpus", "minus"),
    "figure2": ("BASE", "no_gating", "FEATURE", "feature_no_gating"),
    "cbt": ("BASE", "hops_1", "no_gating", "sum", "concat", "no_characters", "FEATURE"),
    "toy": ("BASE", "hops_1"),
}
"""Tables and figures: their readers; BASE and FEATURE are those of the data set."""


def of_table(table: str, data: str) -> tuple[str, ...]:
    """The readers of a table on a data set."""
    own = {"BASE": base_of(data), "FEATURE": feature_of(data)}
    return tuple(own.get(name, name) for name in TABLES[table])
