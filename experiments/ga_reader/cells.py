"""How records become cells of tables."""

from typing import Any

import numpy as np

from experiments.common.records import NOT_RUN, mean_std
from experiments.common.significance import p_text
from experiments.common.text import correctness
from experiments.ga_reader import paper
from gatedjax import analysis


def percent(records: list[dict[str, Any]], part: str) -> str:
    """Mean and deviation over the seeds of the accuracy of a part, in percent."""
    values = [100 * r[part]["accuracy"] for r in records if part in r]
    return mean_std(values, 2) if values else NOT_RUN


def quoted(pair: paper.Pair | None) -> tuple[str, str]:
    """The paper's validation and test accuracy."""
    validation, test = ("-" if v is None else f"{v:.1f}" for v in pair or (None, None))
    return validation, test


def milliseconds(records: list[dict[str, Any]]) -> str:
    """The mean time of a step, in milliseconds."""
    values = [r["seconds_per_step"] for r in records if r.get("seconds_per_step")]
    return f"{1000 * np.mean(values):.1f}" if values else "-"


def parameters(records: list[dict[str, Any]]) -> str:
    """How many parameters the runs trained."""
    counts = sorted({record["parameters"] for record in records})
    return ", ".join(f"{count:,}" for count in counts) or "-"


def one_sided(
    first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> list[tuple[int, analysis.McNemar]]:
    """Exact McNemar tests, by seed, of the hypothesis that the first reader is not better.

    Raises:
      ValueError: if the runs were tested on different questions.
    """
    a, b = ({record["seed"]: record for record in records} for records in (first, second))
    found = []
    for seed in sorted(a.keys() & b.keys()):
        if a[seed]["test_n"] != b[seed]["test_n"]:
            raise ValueError(
                f"records of {a[seed]['data']}, seed {seed}: their test sets differ in size; run "
                "them again with --rerun"
            )
        right, other = correctness([a[seed]])[0], correctness([b[seed]])[0]
        found.append((seed, analysis.mcnemar(right, other, alternative="greater")))
    return found


def one_sided_text(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> str:
    """p-values by seed with the counts that they rest on."""
    tests = one_sided(first, second)
    return ", ".join(f"{p_text(t.p_value)} ({t.b} : {t.c})" for _, t in tests) or NOT_RUN
