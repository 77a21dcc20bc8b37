"""How records become cells of tables."""

from typing import Any

import numpy as np

from experiments.core.records import averaged

NAMES = {
    "sst1": "SST-1",
    "sst1_sentences": "SST-1, sentences only",
    "sst2": "SST-2",
    "trec": "TREC",
    "polarity": "polarity",
}
SYSTEMS = {"agt": "AGT", "highway": "highway network", "average": "mean word vector"}


def percent(records: list[dict[str, Any]], part: str) -> str:
    """Mean and deviation over the seeds of the accuracy of a part, in percent."""
    return averaged(records, lambda r: 100 * r[part]["accuracy"] if part in r else None, 2)


def parameters(records: list[dict[str, Any]]) -> str:
    """How many parameters the runs trained, word vectors aside."""
    key = "parameters_without_embeddings"
    counts = sorted({record[key] for record in records if key in record})
    return ", ".join(f"{count:,}" for count in counts) or "-"


def milliseconds(records: list[dict[str, Any]]) -> str:
    """The mean time of a step, in milliseconds."""
    values = [r["seconds_per_step"] for r in records if r.get("seconds_per_step")]
    return f"{1000 * np.mean(values):.1f}" if values else "-"
