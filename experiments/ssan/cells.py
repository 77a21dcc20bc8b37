"""How records become cells of tables."""

from typing import Any

from experiments.common.records import NOT_RUN, mean_std

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
    values = [100 * r[part][name] for r in records if name in r.get(part, {})]
    return mean_std(values, 2) if values else NOT_RUN


def share(records: Records, *path: str | int) -> str:
    """Mean and deviation over the seeds of any number of the records, in percent."""
    values = []
    for record in records:
        value: Any = record
        for key in path:
            known = isinstance(value, dict) and key in value
            value = value[key] if known or isinstance(value, list) else None
        if value is not None:
            values.append(100 * value)
    return mean_std(values, 2) if values else NOT_RUN


def number(value: float | None) -> str:
    """A number of the paper, or a dash."""
    return "-" if value is None else f"{value:.2f}"
