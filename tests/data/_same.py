"""What a prepared set has in common with the files that it was made of: all but their folder."""

from pathlib import Path

from gatedjax import data


def assert_same_set(prepared: data.Source, direct: data.Source) -> None:
    """Asserts that examples, description and account are equal."""
    assert list(prepared) == list(direct)
    assert prepared.info == direct.info
    assert prepared.report.lines == direct.report.lines
    assert prepared.report.notes == direct.report.notes
    assert prepared.report.spans == direct.report.spans
    aside = [[(Path(q.file).name, q.line, q.reason) for q in s.quarantine]
             for s in (prepared, direct)]  # fmt: skip
    assert aside[0] == aside[1]
    assert prepared.report.reconciles
