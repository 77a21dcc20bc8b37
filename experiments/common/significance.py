"""Two systems on the same test examples, in numbers and in a sentence."""

import dataclasses
from typing import Any

import numpy as np

from experiments.common.records import train_settings
from experiments.common.text import correctness
from gatedjax import analysis

LEVEL = 0.05
"""Below this p-value a difference counts as shown."""
WINDOW_SAMPLES = 2_000


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two systems on the same test set, seed by seed."""

    seeds: tuple[int, ...]
    bootstrap: analysis.Bootstrap
    exact: tuple[float, ...]
    """p-value of McNemar's test for each seed; none for language models."""
    language: bool
    alike: bool
    """Whether both were trained with the same settings, the network aside."""

    @property
    def better(self) -> bool | None:
        """Whether the first system is better, or None if no difference is shown."""
        if self.bootstrap.p_value >= LEVEL:
            return None
        return (self.bootstrap.difference > 0) != self.language

    def verdict(self, first: str, second: str) -> str:
        """Who beats whom."""
        if self.better is None:
            return f"no difference between {first} and {second} is shown"
        return f"{first} beats {second}" if self.better else f"{second} beats {first}"


def compare(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> Comparison | None:
    """Compares the seeds that both systems have; None if there are none.

    Classifiers: paired bootstrap over the test examples of the correctness averaged over seeds, and
    the exact McNemar test of each pair of runs. Language models: paired bootstrap over the windows
    of the test text of the negative log-likelihood averaged over seeds, in nats per token.

    Args:
      first: records of the first system.
      second: records of the second system.

    Raises:
      ValueError: if the records are of other test sets.
    """
    a, b = ({record["seed"]: record for record in records} for records in (first, second))
    seeds = sorted(a.keys() & b.keys())
    if not seeds:
        return None
    ours, theirs = [a[seed] for seed in seeds], [b[seed] for seed in seeds]
    language = "test_nll" in ours[0]
    alike = all(_settings(x) == _settings(y) for x, y in zip(ours, theirs, strict=True))
    sizes = {len(record["test_nll" if language else "correct"]) for record in (*ours, *theirs)}
    if len(sizes) > 1 or len({record["test_n"] for record in (*ours, *theirs)}) > 1:
        names = [record.get("cell") or record.get("system") for record in (ours[0], theirs[0])]
        raise ValueError(
            f"records of {ours[0]['data']}, {names[0]} and {names[1]}: their test "
            "sets differ in size; run them again with --rerun"
        )
    if language:
        x, y = (np.mean([record["test_nll"] for record in rows], axis=0) for rows in (ours, theirs))
        per_token = len(x) / ours[0]["test_n"]
        boot = analysis.paired_bootstrap(x * per_token, y * per_token, samples=WINDOW_SAMPLES)
        return Comparison(tuple(seeds), boot, (), True, alike)
    right, other = correctness(ours), correctness(theirs)
    boot = analysis.paired_bootstrap(right.mean(axis=0), other.mean(axis=0))
    exact = [analysis.mcnemar(x, y).p_value for x, y in zip(right, other, strict=True)]
    return Comparison(tuple(seeds), boot, tuple(exact), False, alike)


def _settings(record: dict[str, Any]) -> tuple[Any, Any]:
    return record["config"]["data"], train_settings(record["config"])


def p_text(p: float) -> str:
    """A p-value as tables show it."""
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def sentence(data: str, first: str, second: str, found: Comparison | None) -> str:
    """One sentence that says either way what the test found."""
    if found is None:
        return f"{data}, {first} against {second}: not run."
    boot = found.bootstrap
    unit = "nats per token, less is better" if found.language else "accuracy"
    exact = f"; McNemar p {', '.join(map(p_text, found.exact))}" if found.exact else ""
    plural = "seed" if len(found.seeds) == 1 else "seeds"
    return (
        f"{data}: {found.verdict(first, second)}. {first} minus {second}: difference "
        f"{boot.difference:+.4f} ({unit}), 95 % interval [{boot.low:+.4f}, {boot.high:+.4f}], "
        f"p = {boot.p_value:.4f} (bootstrap, {len(found.seeds)} {plural}){exact}."
        + ("" if found.alike else " Their data or training settings differ.")
    )
