"""AGT's claims over the word vectors of all its pages, which have the same test sentences."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from experiments.agt.layer_tables import FULL
from experiments.agt.reported import DATA, NAMES
from experiments.core.claims import Case, scaled
from experiments.core.comparison import SEEDS, last_accuracy
from experiments.core.kinds import Record, Records
from experiments.core.records import Store
from experiments.core.text import correctness
from gatedjax import analysis

Pair = tuple[Records, Records]


def pairs_of(store: Store, reduced: str) -> list[Pair]:
    """Returns the records of AGT and of a reduced network, of their common seeds, for each page. A
    page is the folder of a store or a folder in it, and needs three seeds of both networks."""
    pairs = []
    for folder in (store.folder, *sorted(store.folder.iterdir())):
        page = Store(folder, store.keys)
        first, second = (
            {record["seed"]: record for record in page.all(DATA, name)} for name in (FULL, reduced)
        )
        seeds = sorted(first.keys() & second.keys())
        if len(seeds) >= SEEDS:
            pairs.append(([first[seed] for seed in seeds], [second[seed] for seed in seeds]))
    return pairs


def pooled_test(
    pairs: Sequence[Pair], accuracy: Callable[[Record], float | None]
) -> analysis.TwoWay | None:
    """Tests the difference over the seeds of all pages, in points; None if an accuracy is missing.

    The mean of both networks on a page is subtracted, for each sentence and for the accuracy, so
    that better word vectors are no spread between seeds. The spread has the differences between
    pages: a gain that only some word vectors have is less certain.

    `pairs` has the records of both networks for each page.
    """
    rights: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    means: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for pair in pairs:
        accuracies = [[accuracy(record) for record in records] for records in pair]
        if any(None in row for row in accuracies):
            return None
        of_pair = np.array(accuracies, np.float64)
        right = np.array([correctness(records) for records in pair], np.float64)
        for place in (0, 1):
            rights[place].append(right[place] - right.mean((0, 1)))
            means[place].append(of_pair[place] - of_pair.mean())
    first, second = map(np.concatenate, rights)
    ours, theirs = map(np.concatenate, means)
    return scaled(analysis.two_way_test(first, second, means_a=ours, means_b=theirs), 100)


def pooled_cases(claim: str, store: Store, reduced: str, paper: float | None) -> Iterator[Case]:
    """Yields the case of a claim over all word vectors; none for a folder with one page."""
    pairs = pairs_of(store, reduced)
    if len(pairs) < 2:
        return
    test = pooled_test(pairs, lambda record: float(record["test"]["accuracy"]))
    assert test is not None
    yield Case(
        claim=claim,
        label=f"{NAMES[DATA]}, {len(pairs)} kinds of word vectors",
        seeds=sum(len(first) for first, _ in pairs),
        difference=test.difference,
        test=test,
        last=pooled_test(pairs, last_accuracy),
        paper=paper,
    )
