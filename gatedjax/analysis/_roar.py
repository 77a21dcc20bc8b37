"""Recursive ROAR: networks are trained again on texts whose most important words are masked.

    x_0 = the texts;  m_k = a network trained on x_k
    x_{k+1} = x_k with the top q_{k+1} of all words masked, ranked by the importance of m_k

Masked words stay masked. If the importance is faithful, the performance of m_k falls faster than if
random words are masked; `racu` computes how much faster. `faithfulness` deletes words from the
texts of a network that is not trained again, and therefore shows it texts that differ from its
training texts.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from gatedjax.analysis._checks import check_numbers, check_scores
from gatedjax.analysis._rationale import texts_of

ROAR_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The shares of masked words in Madsen et al."""
Texts = Mapping[str, Mapping[str, Any]]
"""{split: columns} with the columns "tokens" [N, T], "lengths" [N] and further arrays [N, ...]."""
Fit = Callable[[float, list[Texts]], Sequence[tuple[Any, float]]]
"""(share, texts of each seed) -> (network, performance on the test texts) of each seed."""
Importance = Callable[[Any, Mapping[str, Any]], ArrayLike]
"""(network, columns of a split) -> scores [N, T]."""


@dataclasses.dataclass(frozen=True, eq=False)
class Racu:
    """RACU, the relative area between two curves, of S seeds; the result of `racu`.

    Attributes:
      values: [S] RACU of each seed; NaN where masking all words does not lower the performance.
      mean: mean over the seeds.
      low: lower end of the confidence interval of the mean; None for a single seed.
      high: upper end of the interval; None for a single seed.
    """

    values: np.ndarray
    mean: float
    low: float | None
    high: float | None


def racu(shares: ArrayLike, measure: ArrayLike, random: ArrayLike, *, level: float = 0.95) -> Racu:
    """Computes RACU, the relative area between the curves of random words and of an importance.

        RACU = sum_i dx_i (d_i + d_{i+1}) / sum_i dx_i (e_i + e_{i+1})
        d_i = random_i - measure_i,  e_i = random_i - random_I,  dx_i = x_{i+1} - x_i

    The index i runs over the shares x; I is the last share, 1 in the paper. RACU is 0 if the
    importance is no better than random words, 1 if masking the words that it ranks first lowers the
    performance as much as masking all words, and negative if random words matter more. The interval
    is Student's interval over the seeds: mean +- t s / sqrt(S).

        >>> racu([0.0, 0.5, 1.0], measure=[1.0, 0.5, 0.5], random=[1.0, 0.75, 0.5]).mean
        0.5

    Args:
      shares: [K] the K shares of the words that are masked, increasing, in [0, 1].
      measure: [K] or [K, S] performance by share and by each of S seeds with important words
        masked; higher is better.
      random: performance with random words masked, of the shape of `measure`.
      level: confidence level of the interval.

    Returns:
      RACU of each seed, the mean and its interval.

    Reference: Madsen et al. 2021, "Evaluating the Faithfulness of Importance Measures in NLP by
      Recursively Masking Allegedly Important Tokens and Retraining", section 4.2.
    Deviation: the paper computes the interval of the logit of (RACU + 1) / 2, which is not defined
      for a RACU below -1 or above 1.
    """
    x = _check_shares(shares)
    if len(x) < 2:
        raise ValueError(f"shares must have at least 2 numbers, got {x.tolist()}")
    if not 0 < level < 1:
        raise ValueError(f"level must be inside (0, 1), got {level}")
    curves = []
    for name, performance in {"measure": measure, "random": random}.items():
        array = np.asarray(performance, np.float64)
        if array.ndim not in (1, 2) or len(array) != len(x) or array.size == 0:
            raise ValueError(
                f"{name} must have shape [{len(x)}] or [{len(x)}, S], got {array.shape}"
            )
        check_numbers(name, array)
        curves.append(array.reshape(len(x), -1))
    curve, random_curve = curves
    if curve.shape != random_curve.shape:
        raise ValueError(
            "measure and random must have the same number of seeds, got "
            f"{curve.shape[1]} and {random_curve.shape[1]}"
        )
    area = lambda y: 0.5 * np.diff(x) @ (y[1:] + y[:-1])  # noqa: E731
    full_area = area(random_curve - random_curve[-1])
    # The tolerance is relative because a metric may have any unit. It excludes flat curves: their
    # area is a rounding error.
    has_area = full_area > 1e-12 * np.max(np.abs(random_curve), axis=0) * (x[-1] - x[0])
    values = np.where(
        has_area, area(random_curve - curve) / np.where(has_area, full_area, 1), np.nan
    )
    count, mean = len(values), float(values.mean())
    if count == 1:
        return Racu(values, mean, None, None)
    # SciPy is imported only here, because commands that only print tables start faster without it.
    from scipy import special

    quantile = float(special.stdtrit(count - 1, (1 + level) / 2))
    half = quantile * float(values.std(ddof=1)) / math.sqrt(count)
    return Racu(values, mean, mean - half, mean + half)


def mask_top(
    tokens: ArrayLike,
    lengths: ArrayLike,
    scores: ArrayLike,
    share: float,
    *,
    already: np.ndarray | None = None,
    mask_id: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Masks the words with the highest scores until floor(share n) of the n words of each text are
    masked; returns (tokens, masked). Words of `already` count and stay masked. Among equal scores
    earlier words come first.
    """
    words, sizes, real = texts_of({"tokens": tokens, "lengths": lengths})
    ranked = check_scores("scores", scores, words.shape)
    masked = np.zeros(words.shape, bool) if already is None else already & real
    if np.isnan(ranked[real & ~masked]).any():
        raise ValueError("scores must be a number at each word, got nan")
    # `lexsort` sorts by the last key first: words before padding, then masked words, then scores.
    order = np.lexsort((np.where(real, -ranked, 0), ~masked, ~real), axis=1)
    places = np.argsort(order, axis=1)
    # A product such as 0.29 * 100 is slightly below the whole number, and would be rounded down too
    # far.
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
    """Measures the performance of networks that are trained again with important words masked.

    The words are masked step by step: the networks of a share rank the words that are masked for
    the next share. `fit` is called once for each share, in ascending order, with the texts of all
    seeds, so that it can train the seeds side by side (`gatedjax.training.fit_lanes`). At share 0
    the texts are unchanged and at share 1 all words are masked, so that these two results do not
    depend on the importance.

        >>> def fit(share, texts_of_seeds):  # trains no network: counts the words without a mask
        ...     counts = [np.sum(texts["test"]["tokens"] > 1) for texts in texts_of_seeds]
        ...     return [(None, count / 4) for count in counts]
        >>> texts = {"test": {"tokens": np.array([[2, 3, 4, 5]]), "lengths": np.array([4])}}
        >>> importance = lambda network, columns: columns["tokens"]
        >>> print(roar(texts, fit, importance, shares=(0.0, 0.5, 1.0)).tolist())
        [[1.0], [0.5], [0.0]]

    Args:
      texts: {split: columns} with all splits that `fit` uses, of which columns are a dict of arrays
        for N texts, padded to T words: "tokens" int [N, T] and "lengths" int [N]. Optional
        "example_id" int [N] are keys of the random words (default: row numbers). Further columns
        are passed to `fit` unchanged.
      fit: a function (share, texts of each seed) -> list of (network, performance on the test
        texts), an entry per seed. `importance` is called with these networks.
      importance: a function (network, columns of a split) -> scores [N, T], for example
        `rationale_scores`; "random" draws new scores for each seed and share.
      shares: K increasing shares of the words in [0, 1]; the first is 0.
      seeds: S, the number of networks that are trained for each share.
      first_seed: seed of the random words of the first network; the next network has the next seed.
      mask_id: the id that replaces masked words.

    Returns:
      [K, S] performance by share and seed.

    Reference: Madsen et al. 2021 (see `racu`), section 4.1.
    Deviation: the vocabularies have no mask, so that the unknown word is the default mask.
    """
    steps = _check_shares(shares)
    if steps[0] != 0:
        raise ValueError(f"shares must begin with 0, got {steps[0]}")
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if not texts:
        raise ValueError(f"texts must have at least one split, got {texts!r}")
    if isinstance(importance, str) and importance != "random":
        raise ValueError(f"importance must be a function or 'random', got {importance!r}")
    # Each seed has separate texts, because its network decides which words are masked.
    now: list[Texts] = [dict(texts) for _ in range(seeds)]
    masked = [
        {name: np.zeros(np.shape(columns["tokens"]), bool) for name, columns in texts.items()}
        for _ in now
    ]
    curve = []
    for place, share in enumerate(steps):
        networks = list(fit(float(share), list(now)))
        if len(networks) != seeds:
            raise ValueError(
                f"fit must return a network for each of the {seeds} seeds, got {len(networks)}"
            )
        curve.append([float(performance) for _, performance in networks])
        # No further networks follow the last share, and an importance may take long to compute.
        if place + 1 == len(steps):
            break
        for seed, (network, _) in enumerate(networks):
            next_texts = {}
            for number, (name, columns) in enumerate(now[seed].items()):
                if isinstance(importance, str):
                    scores = _draw_scores(columns, first_seed + seed, place, number)
                else:
                    scores = np.asarray(importance(network, columns))
                tokens, masked[seed][name] = mask_top(
                    columns["tokens"],
                    columns["lengths"],
                    scores,
                    float(steps[place + 1]),
                    already=masked[seed][name],
                    mask_id=mask_id,
                )
                next_texts[name] = {**columns, "tokens": tokens}
            now[seed] = next_texts
    return np.array(curve)


def _draw_scores(texts: Mapping[str, Any], *key: int) -> np.ndarray:
    # Imported here because `_passes` imports JAX.
    from gatedjax.analysis import _passes

    size, width = np.shape(texts["tokens"])
    ids = np.asarray(texts.get("example_id", np.arange(size)))
    return _passes.random_scores(_passes.make_key(*key), ids, width, 1)[0]


def _check_shares(shares: ArrayLike) -> np.ndarray:
    array = np.asarray(shares, np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"shares must have shape [K], got {array.shape}")
    inside = (array >= 0) & (array <= 1)
    if not inside.all() or (np.diff(array) <= 0).any():
        raise ValueError(f"shares must be increasing numbers in [0, 1], got {array.tolist()}")
    return array
