"""The texts that rationales are measured on, and the measures of a rationale."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._checks import check_lengths

MEASURES = ("comprehensiveness", "sufficiency", "needed", "enough", "leak", "flipped")
"""The fields of `Rationale` with a number for each text."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rationale:
    """Faithfulness of a way to choose words, for N texts and K shares of their words.

    A rationale is the chosen words of a text. The measures of a random rationale are means over its
    draws. The gate leak compares the text, read with only the gates of the rationale open, with the
    rationale alone, read with all gates open: it is the absolute difference of the probabilities of
    the predicted class, and 0 if closed words have no influence. Comprehensiveness is the
    probability of the predicted class minus its probability without the rationale; sufficiency is
    the same difference for the text of the rationale only.

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
    """

    rows: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray
    density: np.ndarray | None
    shares: tuple[float, ...]
    rationales: Mapping[str, Rationale]

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


def join(parts: Sequence[Rationale]) -> Rationale:
    """Joins the measures of parts of the texts."""
    fields: dict[str, Any] = {}
    for name in MEASURES:
        values = [getattr(part, name) for part in parts]
        fields[name] = None if values[0] is None else np.concatenate(values)
    both = [np.concatenate([part.by_share[i] for part in parts], axis=1) for i in (0, 1)]
    return Rationale((both[0], both[1]), **fields)
