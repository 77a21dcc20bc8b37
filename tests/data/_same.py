"""What it means that two batches, or two sources, are the same; a line of semantic roles."""

from pathlib import Path

import numpy as np

from gatedjax import data


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Returns whether two batches have the same columns, bit for bit."""
    return a.keys() == b.keys() and all(
        np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a
    )


def assert_same_set(prepared: data.Source, direct: data.Source) -> None:
    """Asserts that a prepared set equals the files that it was made of, in all but their folder."""
    assert list(prepared) == list(direct)
    assert prepared.info == direct.info
    assert prepared.report.lines == direct.report.lines
    assert prepared.report.notes == direct.report.notes
    aside = [[(Path(q.file).name, q.line, q.reason) for q in s.quarantine]
             for s in (prepared, direct)]  # fmt: skip
    assert aside[0] == aside[1]
    assert prepared.report.reconciles


def predicate_row(number: int, word: str, *bits: str, lemma: str = "-") -> str:
    """Returns a line in CoNLL-2012 columns."""
    frameset = "-" if lemma == "-" else "01"
    columns = ["d", "0", str(number), word, "NN", "*", lemma, frameset, "-", "-", "*", *bits, "-"]
    return "  ".join(columns)
