"""The A/A test: seeds of one system against other seeds of the same system, on the records."""

import itertools
import json

import numpy as np
import pytest

from experiments.core.comparison import compare
from experiments.core.records import has_collapsed
from tests.conftest import ROOT

RESULTS = ROOT / "experiments" / "results"
NOMINAL, MOST = 0.05, 0.06


def cells():
    """Records of the cells with four seeds or more, which did not collapse; seeds are renumbered
    by a comparison, because two systems are compared on the seeds that both have."""
    by_cell = {}
    for path in sorted(RESULTS.rglob("runs/*.json")):
        by_cell.setdefault(str(path).rsplit("-seed", 1)[0], []).append(path)
    found = {}
    for name, paths in by_cell.items():
        if len(paths) >= 4:
            records = [json.loads(path.read_text("utf-8")) for path in paths]
            if isinstance(records[0].get("correct"), str) and not any(map(has_collapsed, records)):
                found[name] = records
    return found


def halves(count, size):
    """All unordered pairs of disjoint sets of `size` of `count` seeds."""
    for chosen in itertools.combinations(range(count), 2 * size):
        for first in itertools.combinations(chosen, size):
            if first[0] == chosen[0]:
                yield first, tuple(i for i in chosen if i not in first)


def p_values(size):
    """The p-values of all comparisons of a system with itself, and those over examples alone."""
    tested, over_examples = [], []
    for records in cells().values():
        for first, second in halves(len(records), size):
            a, b = (
                [records[i] | {"seed": seed} for seed, i in enumerate(half)]
                for half in (first, second)
            )
            comparison = compare(a, b)
            tested.append(comparison.test.p_value)
            right = [np.array([[c == "1" for c in r["correct"]] for r in x], float) for x in (a, b)]
            shift = right[0].mean(0) - right[1].mean(0)
            error = shift.std(ddof=1) / np.sqrt(shift.size)
            over_examples.append(abs(shift.mean()) > 1.96 * error)
    return np.array(tested), np.array(over_examples)


@pytest.mark.parametrize("size", [2, 3])
def test_a_system_differs_from_itself_in_at_most_six_percent(size):
    tested, over_examples = p_values(size)
    if size == 2:
        assert len(tested) >= 180  # twelve cells of five seeds
        # the test over examples alone, which was used before, finds twice as many as it should
        assert over_examples.mean() > 0.1
    elif not len(tested):
        pytest.skip("no cell has six seeds")
    assert (tested < NOMINAL).mean() <= MOST
