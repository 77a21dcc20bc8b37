"""The choice of padded lengths."""

import numpy as np
from numpy.typing import ArrayLike


def plan_buckets(lengths: ArrayLike, max_buckets: int) -> tuple[int, ...]:
    """Chooses padded lengths that minimise the total of padded tokens.

    Each text is padded to the smallest edge that is long enough; each edge costs a compilation. The
    result is optimal: with the distinct lengths l_1 < ... < l_U and n_i texts up to l_i, the least
    total for the first j lengths with k edges is

        best(k, j) = min over i < j of best(k - 1, i) + (n_j - n_i) l_j,

    which takes O(max_buckets U^2).

        >>> plan_buckets([3, 3, 4, 9], max_buckets=2)
        (4, 9)

    Args:
      lengths: int [n], each at least 1.
      max_buckets: the largest number of edges.

    Returns:
      Ascending edges, which are lengths of texts; the last is the longest. There are fewer than
      max_buckets if more would not reduce the padding.

    Raises:
      ValueError: if there are no lengths, a length is below 1, or max_buckets < 1.
    """
    lengths = np.asarray(lengths)
    if max_buckets < 1:
        raise ValueError(f"max_buckets must be at least 1, got {max_buckets}")
    if lengths.size == 0 or lengths.min() < 1:
        raise ValueError(
            f"lengths must not be empty, and each length must be at least 1, got {lengths!r:.80}"
        )
    sizes, counts = np.unique(lengths, return_counts=True)
    covered = np.concatenate([[0], np.cumsum(counts)])  # texts up to the first j lengths
    distinct = len(sizes)
    best = np.full(distinct + 1, np.inf)
    best[0] = 0.0
    choices = []
    for _ in range(min(max_buckets, distinct)):
        previous, best = best, np.full(distinct + 1, np.inf)
        # The cost of no lengths is 0 with any number of edges, so that a plan may have fewer edges.
        best[0] = 0.0
        choice = np.zeros(distinct + 1, int)
        for j in range(1, distinct + 1):
            totals = previous[:j] + (covered[j] - covered[:j]) * float(sizes[j - 1])
            choice[j] = int(np.argmin(totals))
            best[j] = totals[choice[j]]
        choices.append(choice)
    edges, j = [], distinct
    for choice in reversed(choices):
        # The best plan may need fewer edges than are allowed.
        if j == 0:
            break
        edges.append(int(sizes[j - 1]))
        j = choice[j]
    return tuple(reversed(edges))
