"""Recursive ROAR: a network is trained again on texts without the words that are said to matter.

    x_0 = the texts;  m_k = a network trained on x_k
    x_{k+1} = x_k with the top q_{k+1} of all words masked, ranked by the importance of m_k

Words that were masked once stay so. Where the importance is faithful, the m_k lose more than where
random words are masked, and RACU tells how much more, see `racu`. Deletions from the texts of a
network that stays as it is are in `faithfulness`: they show it texts that are unlike its own.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._faithfulness import texts_of

ROAR_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Of the words; those of Madsen et al."""
Texts = Mapping[str, Mapping[str, Any]]
"""Arrays of the texts by split: "tokens" [N, T], "lengths" [N], and what else they have."""
Fit = Callable[[float, list[Texts]], Sequence[tuple[Any, float]]]
"""(share, texts of every seed) -> (network, performance on test) of every seed."""
Importance = Callable[[Any, Mapping[str, Any]], ArrayLike]
"""(network, texts of a split) -> scores [N, T]."""


@dataclasses.dataclass(frozen=True, eq=False)
class Racu:
    """What `racu` returns.

    Attributes:
      values: [S] of every seed; NaN where masking all words costs nothing.
      mean: over the seeds.
      low: lower end of the interval; None for one seed.
      high: upper end.
    """

    values: np.ndarray
    mean: float
    low: float | None
    high: float | None


def racu(shares: ArrayLike, measure: ArrayLike, random: ArrayLike, *, level: float = 0.95) -> Racu:
    """The relative area between the curve of an importance and that of random words.

        RACU = sum_i dx_i (d_i + d_{i+1}) / sum_i dx_i (e_i + e_{i+1})
        d_i = random_i - measure_i,  e_i = random_i - random_I,  dx_i = x_{i+1} - x_i

    with i over the shares x and I the last of them, 1 in the paper. It is 0 for random words, 1 for
    an importance whose first words are all that there is, and negative where random words matter
    more. The interval is Student's, over the seeds: mean +- t s / sqrt(S).

    Args:
      shares: [K] of the words that are masked, increasing, in [0, 1].
      measure: [K] or [K, S] performance by share and seed; higher is better.
      random: likewise, of the same networks with random words masked.
      level: of the interval.

    Reference: Madsen et al. 2021, "Evaluating the Faithfulness of Importance Measures in NLP by
      Recursively Masking Allegedly Important Tokens and Retraining", section 4.2.
    Deviation: the paper's interval is that of the logit of (RACU + 1) / 2, which a RACU below -1
      or above 1 does not have.
    """
    x = _shares(shares)
    if len(x) < 2:
        raise ValueError(f"shares must be two or more, got {len(x)}")
    if not 0 < level < 1:
        raise ValueError(f"level must be inside (0, 1), got {level}")
    curves = []
    for name, given in {"measure": measure, "random": random}.items():
        array = np.asarray(given, np.float64)
        if array.ndim not in (1, 2) or len(array) != len(x) or array.size == 0:
            raise ValueError(
                f"{name} must have shape [{len(x)}] or [{len(x)}, S], got {array.shape}"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite")
        curves.append(array.reshape(len(x), -1))
    one, other = curves
    if one.shape != other.shape:
        raise ValueError(
            f"measure and random must be of as many seeds, got {one.shape[1]} and {other.shape[1]}"
        )
    area = lambda y: 0.5 * np.diff(x) @ (y[1:] + y[:-1])  # noqa: E731
    whole = area(other - other[-1])
    # relative, because a metric may have any unit; the rest of a flat curve is rounding
    positive = whole > 1e-12 * np.max(np.abs(other), axis=0) * (x[-1] - x[0])
    values = np.where(positive, area(other - one) / np.where(positive, whole, 1), np.nan)
    count, mean = len(values), float(values.mean())
    if count == 1:
        return Racu(values, mean, None, None)
    half = _student(level, count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return Racu(values, mean, mean - half, mean + half)


def mask_top(
    tokens: ArrayLike,
    lengths: ArrayLike,
    scores: ArrayLike,
    share: float,
    *,
    already: ArrayLike | None = None,
    mask_id: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Masks the words with the highest scores, so that a share of all words of a text is masked.

    Of a text of n words floor(share n) are masked. Those that were masked already count and stay,
    even where they are more; of equal scores the earlier word comes first.

    Args:
      tokens: int [N, T].
      lengths: int [N], of the texts.
      scores: [N, T] importance; that of padding and of masked words is not read.
      share: of the words, in [0, 1].
      already: bool [N, T] words that are masked; None is none.
      mask_id: what stands in their place.

    Returns:
      The tokens, with 0 at padding, and which words are masked.
    """
    words, sizes, real = texts_of({"tokens": tokens, "lengths": lengths})
    ranked = np.asarray(scores, np.float64)
    masked = np.zeros(words.shape, bool) if already is None else np.asarray(already)
    for name, array in {"scores": ranked, "already": masked}.items():
        if array.shape != words.shape:
            raise ValueError(
                f"{name} must have shape {words.shape}, that of tokens, got {array.shape}"
            )
    if masked.dtype != bool:
        raise TypeError(f"already must be bool, got dtype {masked.dtype}")
    if not 0 <= share <= 1:
        raise ValueError(f"share must be in [0, 1], got {share}")
    masked = masked & real
    if np.isnan(ranked[real & ~masked]).any():
        raise ValueError("scores must not be NaN at a word")
    # the last key decides first: words before padding, then masked ones, then high scores
    order = np.lexsort((np.where(real, -ranked, 0), ~masked, ~real), axis=1)
    places = np.argsort(order, axis=1)
    count = np.floor(np.round(share * sizes, 9)).astype(int)
    masked = masked | real & (places < count[:, None])
    return np.where(masked, mask_id, words).astype(words.dtype), masked


def roar(
    texts: Texts,
    fit: Fit,
    importance: Importance | Literal["random"],
    *,
    shares: Sequence[float] = ROAR_SHARES,
    seeds: int = 1,
    first_seed: int = 0,
    mask_id: int = 1,
) -> np.ndarray:
    """The performance of networks that are trained again without what was important to the last.

    `fit` is called once for every share, in their order, with the texts of all seeds, so that it
    can train them side by side (`gatedjax.training.fit_lanes`). At share 0 it gets the texts as
    they are, at share 1 nothing but masks: those networks are the same for every importance.

    Args:
      texts: by split, with all of which `fit` works: "tokens" int [N, T], "lengths" int [N].
        "example_id" keys random words (row numbers if absent); other columns are handed on.
      fit: from a share and a list with the texts of every seed to a list of (network, performance
        on the test texts), one for each seed; networks are what `importance` takes.
      importance: from a network and the texts of one split to scores [N, T], as `rationale_scores`
        gives them; "random" draws them anew for every seed and share.
      shares: of the words, increasing, in [0, 1], from 0 on.
      seeds: S, how many networks are trained for every share.
      first_seed: of the random words; those of the next seed are those of the next network.
      mask_id: what stands in the place of masked words.

    Returns:
      [K, S] performance by share and seed.

    Reference: Madsen et al. 2021, as `racu`, section 4.1.
    Deviations: without a word of its own the mask is the unknown word.
    """
    steps = _shares(shares)
    if steps[0] != 0:
        raise ValueError(f"shares must begin with 0, got {steps[0]}")
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if not texts:
        raise ValueError("texts must have a split")
    if isinstance(importance, str) and importance != "random":
        raise ValueError(f"importance must be a function or 'random', got {importance!r}")
    now: list[Texts] = [dict(texts) for _ in range(seeds)]
    masked = [
        {name: np.zeros(np.shape(one["tokens"]), bool) for name, one in texts.items()} for _ in now
    ]
    curve = []
    for place, share in enumerate(steps):
        found = list(fit(float(share), list(now)))
        if len(found) != seeds:
            raise ValueError(
                f"fit must return a network for each of {seeds} seeds, got {len(found)}"
            )
        curve.append([float(performance) for _, performance in found])
        if place + 1 == len(steps):
            break
        for seed, (network, _) in enumerate(found):
            later = {}
            for number, (name, one) in enumerate(now[seed].items()):
                if isinstance(importance, str):
                    scores = _random(one, first_seed + seed, place, number)
                else:
                    scores = np.asarray(importance(network, one))
                tokens, masked[seed][name] = mask_top(
                    one["tokens"],
                    one["lengths"],
                    scores,
                    float(steps[place + 1]),
                    already=masked[seed][name],
                    mask_id=mask_id,
                )
                later[name] = {**one, "tokens": tokens}
            now[seed] = later
    return np.array(curve)


def _random(texts: Mapping[str, Any], *key: int) -> np.ndarray:
    """Scores [N, T]; those of an example are the same in any place."""
    from gatedjax.analysis import _passes  # JAX: not before it is needed

    size, width = np.shape(texts["tokens"])
    ids = np.asarray(texts.get("example_id", np.arange(size)))
    return _passes.random_scores(_passes.key_of(*key), ids, width, 1)[0]


def _shares(shares: ArrayLike) -> np.ndarray:
    given = np.asarray(shares, np.float64)
    if given.ndim != 1 or not given.size:
        raise ValueError(f"shares must have shape [K], got {given.shape}")
    inside = (given >= 0) & (given <= 1)
    if not inside.all() or (np.diff(given) <= 0).any():
        raise ValueError(f"shares must increase in [0, 1], got {given.tolist()}")
    return given


def _student(level: float, freedom: int) -> float:
    """t with P(|T| < t) = level, T Student's with so many degrees of freedom.

    Reference: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.
    """

    def inside(angle: float) -> float:
        """P(|T| < sqrt(freedom) tan(angle))."""
        cosine, odd = math.cos(angle), freedom % 2
        term, total = (cosine if odd else 1.0), 0.0
        for k in range(1 if odd else 0, freedom - 1, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        found = math.sin(angle) * total
        return (found + angle) * 2 / math.pi if odd else found

    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)
