"""How records become cells of tables."""

from typing import Any

import numpy as np

from experiments.core.records import averaged
from experiments.rau import paper

NAMES = {
    "digits": "digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "imdb": "IMDB",
    "imdb_100": "IMDB, width 100",
    "ptb_small": "PTB small",
    "ptb_medium": "PTB medium",
    "ptb_large": "PTB large",
}


def metric_of(data: str) -> tuple[str, int]:
    """The metric of a data set, and its digits."""
    return ("perplexity", 2) if data in paper.LANGUAGE else ("accuracy", 4)


def cell_text(records: list[dict[str, Any]], part: str, data: str) -> str:
    """Mean and deviation of "validation", "test" or "test_last" over the seeds."""
    name, digits = metric_of(data)
    if records and not any(name in r.get(part, {}) for r in records):
        return "-"  # a language model has no test of its last step
    return averaged(records, lambda r: r.get(part, {}).get(name), digits)


def parameters(records: list[dict[str, Any]]) -> str:
    """How many parameters the runs trained."""
    counts = sorted({record["parameters"] for record in records if "parameters" in record})
    return ", ".join(f"{count:,}" for count in counts) or "-"


def milliseconds(records: list[dict[str, Any]]) -> str:
    """The mean time of a step, in milliseconds."""
    values = [r["seconds_per_step"] for r in records if r.get("seconds_per_step")]
    return f"{1000 * np.mean(values):.1f}" if values else "-"
