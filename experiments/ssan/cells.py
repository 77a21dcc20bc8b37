"""How records become cells of tables."""

from typing import Any

from experiments.core.records import averaged

NAMES = {
    "bshift": "BShift",
    "tree_depth": "TreeDepth",
    "top_const": "TopConst",
    "wrd": "WRD",
    "wrd_small": "WRD, Multi30k",
    "wrd_published": "WRD, published test set",
    "nli": "SNLI",
    "nli_sick": "SICK",
    "srl": "semantic roles",
    "srl_small": "semantic roles, small",
    "mt_multi30k": "Multi30k En-De",
    "mt_multi30k_small": "Multi30k En-De, small",
    "mt_en_ro": "IWSLT14 En-Ro",
    "mt_en_ja": "KFTT En-Ja",
    "mt_en_de": "WMT14 En-De",
}

Records = list[dict[str, Any]]


def percent(records: Records, name: str, part: str = "test") -> str:
    """Mean and deviation over the seeds of a metric of a part, in percent."""
    return averaged(records, lambda r: _times(r.get(part, {}).get(name)), 2)


def share(records: Records, *path: str | int) -> str:
    """Mean and deviation over the seeds of any number of the records, in percent."""

    def found(record: dict[str, Any]) -> float | None:
        value: Any = record
        for key in path:
            known = isinstance(value, dict) and key in value
            value = value[key] if known or isinstance(value, list) else None
        return _times(value)

    return averaged(records, found, 2)


def _times(value: float | None) -> float | None:
    return None if value is None else 100 * value


def number(value: float | None) -> str:
    """A number of the paper, or a dash."""
    return "-" if value is None else f"{value:.2f}"
