"""The texts that rationales are measured on, the measures of a rationale, and their tests."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._checks import check_lengths
from gatedjax.analysis._significance import holm, least_p_value, paired_bootstrap
from gatedjax.analysis._text import render_table

MEASURES = {
    "comprehensiveness": "comprehensiveness (AOPC)",
    "sufficiency": "sufficiency (AOPC)",
    "needed": "comprehensiveness at the density",
    "enough": "sufficiency at the density",
    "leak": "gate leak",
    "flipped": "labels that the leak changes",
}
"""The fields of `Rationale` that are compared, with their headings in tables."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rationale:
    """Faithfulness of a way to choose words, for N texts and K shares of their words.

    A rationale is the chosen words of a text; `faithfulness` explains the measures. Those of a
    random rationale are means over its draws.

    Attributes:
      by_share: (comprehensiveness, sufficiency), each [K, N].
      comprehensiveness: [N] mean over the shares (AOPC); higher is better.
      sufficiency: [N] mean over the shares (AOPC); lower is better.
      needed: [N] comprehensiveness of a rationale with as many words as have open gates; None
        without gates.
      enough: [N] sufficiency of that rationale; None without gates.
      leak: [N] gate leak; None for a network without `with_gates`.
      flipped: [N] 1 where the predicted class changes with the gate leak, and 0 elsewhere; None for
        a network without `with_gates`.
    """

    by_share: tuple[np.ndarray, np.ndarray]
    comprehensiveness: np.ndarray
    sufficiency: np.ndarray
    needed: np.ndarray | None = None
    enough: np.ndarray | None = None
    leak: np.ndarray | None = None
    flipped: np.ndarray | None = None

    @classmethod
    def of(cls, pairs: np.ndarray, num_shares: int) -> "Rationale":
        """Returns the measures in the pairs [P, 2, N] that `Runner.measure` computes."""
        by_share = pairs[:num_shares, 0], pairs[:num_shares, 1]
        means = (values.mean(axis=0) for values in by_share)
        return cls(by_share, *means, *itertools.chain.from_iterable(pairs[num_shares:]))


class Comparison(NamedTuple):
    """A paired bootstrap test of the model's rationale against another rationale.

    Attributes:
      measure: the field of `Rationale` that is compared.
      against: name of the other rationale.
      difference: mean of the model's rationale minus mean of the other rationale.
      low: lower end of the 95 % interval of the difference.
      high: upper end of the interval.
      p_value: two-sided. If m texts differ, it is at least 2^(1 - m), the least p-value of an exact
        test.
      corrected: the p-value with Holm's correction over all comparisons of the report.
    """

    measure: str
    against: str
    difference: float
    low: float
    high: float
    p_value: float
    corrected: float


@dataclasses.dataclass(frozen=True, eq=False)
class Faithfulness:
    """The faithfulness of a model's rationale and of other rationales for N texts.

    A rationale is a choice of words on which a prediction is said to rest.

    Attributes:
      rows: int [N] rows of the batch that were measured, which excludes rows without words and rows
        with weight 0.
      predicted: int [N] the class that is predicted for the whole text.
      probability: [N] probability of the predicted class.
      density: [N] share of the words that are open; None without gates.
      shares: the K shares of the words.
      rationales: name of a rationale -> its measures, a `Rationale`; "own" is the model's.
      comparisons: a `Comparison` for each measure and each other rationale: the test of the model's
        rationale against it.
    """

    rows: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray
    density: np.ndarray | None
    shares: tuple[float, ...]
    rationales: Mapping[str, Rationale]
    comparisons: tuple[Comparison, ...]

    @property
    def own(self) -> Rationale:
        """The model's rationale, `rationales["own"]`."""
        return self.rationales["own"]

    def mean(self, measure: str, rationale: str = "own") -> float | None:
        """Returns the mean of a measure over the texts, or None if it was not measured.

        Args:
          measure: a field of `Rationale`, such as "comprehensiveness".
          rationale: a name in `rationales`.
        """
        values = getattr(self.rationales[rationale], measure)
        return None if values is None else float(np.mean(values))

    def table(self) -> str:
        """Returns the means of all measures as a Markdown table, a row per rationale.

        A star marks means that differ from the model's rationale with a corrected p-value below
        0.05.
        """
        names = [name for name in MEASURES if getattr(self.own, name) is not None]
        starred = {(c.measure, c.against) for c in self.comparisons if c.corrected < 0.05}
        rows = []
        for rationale in self.rationales:
            stars = ["*" * ((name, rationale) in starred) for name in names]
            means = [f"{self.mean(name, rationale):.4f}" for name in names]
            rows.append([rationale, *map("".join, zip(means, stars, strict=True))])
        return render_table(["rationale", *(MEASURES[name] for name in names)], rows)


def texts_of(batch: Mapping[str, ArrayLike]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns tokens int32 [B, T] (0 at padding), lengths int32 [B], and a mask [B, T] of words."""
    if missing := {"tokens", "lengths"} - batch.keys():
        raise ValueError(f"batch must have {', '.join(sorted(missing))}, got {sorted(batch)}")
    tokens = np.asarray(batch["tokens"])
    if not np.issubdtype(tokens.dtype, np.integer):
        raise TypeError(f"tokens must be integers, got dtype {tokens.dtype}")
    if tokens.ndim != 2:
        raise ValueError(f"tokens must have shape [B, T], got {tokens.shape}")
    lengths, real = check_lengths(batch["lengths"], tokens.shape, "tokens")
    return np.where(real, tokens, 0).astype(np.int32), lengths.astype(np.int32), real


def compare(rationales: Mapping[str, Rationale], samples: int) -> tuple[Comparison, ...]:
    """Tests the model's rationale against each other rationale, by each measure."""
    own_rationale, tests = rationales["own"], []
    for measure, name in itertools.product(MEASURES, rationales):
        values = getattr(own_rationale, measure)
        if name == "own" or values is None:
            continue
        other = getattr(rationales[name], measure)
        test = paired_bootstrap(values, other, samples=samples)
        # The p-value of a bootstrap is too small for few texts.
        p_value = max(test.p_value, least_p_value(values, other))
        tests.append((measure, name, test._replace(p_value=p_value)))
    # All tests of a report are corrected as a family, because its reader looks at all of them.
    corrected = holm([test.p_value for *_, test in tests])
    return tuple(
        Comparison(measure, name, *test, float(p))
        for (measure, name, test), p in zip(tests, corrected, strict=True)
    )
