"""How records become cells of tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.core.collapse import COLLAPSED, collapsed
from experiments.core.records import NOT_RUN, averaged
from experiments.core.comparison import ONE_SEED, K, p_text
from experiments.core.text import correctness
from experiments.ga_reader import paper
from gatedjax import analysis


def percent(records: list[dict[str, Any]], part: str) -> str:
    """Mean and deviation over the seeds of the accuracy of a part, in percent."""
    return averaged(records, lambda r: 100 * r[part]["accuracy"] if part in r else None, 2)


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


Pair = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def one_sided_texts(pairs: Mapping[K, Pair]) -> dict[K, str]:
    """One-sided p-values by seed with the counts that they rest on, corrected together.

    Args:
      pairs: (reader, the one that it may be better than) of every cell of a table's column.

    Returns:
      The cells: without a p where the two have one seed in common, or a run collapsed.
    """
    found = {key: one_sided(*pair) for key, pair in pairs.items()}
    lost = {key: any(map(collapsed, (*first, *second))) for key, (first, second) in pairs.items()}
    tested = {key: tests for key, tests in found.items() if len(tests) > 1 and not lost[key]}
    p_values = iter(analysis.holm([t.p_value for tests in tested.values() for _, t in tests]))
    texts = {}
    for key, tests in found.items():
        counts = [f"({t.b} : {t.c})" for _, t in tests]
        if key in tested:
            texts[key] = ", ".join(f"{p_text(next(p_values))} {count}" for count in counts)
        elif not tests:
            texts[key] = NOT_RUN
        else:
            texts[key] = COLLAPSED if lost[key] else f"{ONE_SEED} {counts[0]}"
    return texts
