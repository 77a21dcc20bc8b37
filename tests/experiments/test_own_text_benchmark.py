"""The benchmarks of labelled texts: their rows, and a run of each command."""

import pytest

from experiments.benchmarks import own_text, vectors
from tests.text._own import TEXTS, write_csv


def _page(path, command):
    begin, end = own_text._harness.marks(command)
    path.write_text(f"{begin}\nold\n{end}\n")
    return path


def test_what_was_not_measured_has_no_cell():
    test = {"accuracy": 0.9, "share": 0.31, "all_words": 0.92, "per_class": [{}, {}],
            "same_answer": {"texts": 5, "equal": 4}, "few_words": {"n": 0}}  # fmt: skip
    report = {"test": test, "baseline": {"test": 0.8}, "seconds": 12.5,
              "data": {"train": {"n": 3000}}}  # fmt: skip
    assert own_text.cells_of(own_text.find_row("mr", report, report)) == [
        *("mr", "3,000", "2", "", "0.800", "", "", "0.920", "0.900", "31%", "0.900"),
        *("80%", "", "12.5"),
    ]


@pytest.mark.slow
def test_the_command_trains_each_model_once(tmp_path):
    path = tmp_path / "films.csv"
    write_csv(path, TEXTS)
    page = _page(tmp_path / "page.md", own_text.COMMAND)
    options = own_text.Options(sets=(f"films={path},{path}",), runs=tmp_path / "runs", docs=page)
    (row,) = own_text.main(options)
    assert row["accuracy"] > 0.9
    assert row["same"] == 1
    assert row["seconds"] > 0
    assert "| films |" in page.read_text()
    assert own_text.main(options) == [row]
    broken = own_text.Options(sets=("x=no.csv,no.csv",), runs=tmp_path / "x")
    with pytest.raises(ValueError, match=r"gatedjax train no\.csv .* failed: .*no\.csv"):
        own_text.main(broken)


def test_vectors_are_measured_with_all_words_and_with_a_share(tmp_path):
    path = tmp_path / "films.csv"
    write_csv(path, TEXTS)
    table = tmp_path / "vectors.txt"
    table.write_text("".join(f"{word} {i} 1\n" for i, word in enumerate(["good", "bad", "film"])))
    page = _page(tmp_path / "page.md", vectors.COMMAND)
    options = vectors.Options(sets=(f"films={path},{path}",), vectors=str(table), docs=page)
    rows = vectors.main(options)
    assert [row["share"] for row in rows] == [1.0, 0.3]
    assert all(scores["with"] > 0.8 for row in rows for scores in row["accuracy"].values())
    assert "→" in page.read_text()
