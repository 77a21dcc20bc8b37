"""The benchmark of closed words in folds."""

import math

import numpy as np
import pytest

from experiments.benchmarks import lexicon_folds


def test_equal_texts_are_in_one_fold_and_folds_differ_by_one_text_at_most():
    first = np.array([number % 7 for number in range(40)] + [3])
    folds = lexicon_folds.draw_folds(first, 3)
    assert all(len({*folds[k:40:7]}) == 1 for k in range(7))
    assert folds[40] == folds[3]
    assert np.bincount(folds[:7]).tolist() == [3, 2, 2]


def test_the_mean_of_two_sets_has_the_error_of_independent_texts():
    rows = [
        {"loss": {d: {"mean": mean, "error": error} for d in ("0.5", "0.3")}}
        for mean, error in ((1.0, 0.3), (2.0, 0.4))
    ]
    assert lexicon_folds.summarise(rows)["0.5"] == {"mean": 1.5, "error": pytest.approx(0.25)}


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    path = tmp_path_factory.mktemp("folds") / "films.csv"
    lines = [f"{word} film {n},{word}" for n in range(12) for word in ("dull", "fine")]
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def test_each_text_is_predicted_once_and_the_page_has_the_table(films, tmp_path):
    page = tmp_path / "page.md"
    begin, end = lexicon_folds._harness.marks(lexicon_folds.COMMAND)
    page.write_text(f"{begin}\nold\n{end}\n")
    options = lexicon_folds.Options(sets=(f"films={films}",), folds=3, docs=page)
    (row,) = lexicon_folds.main(options)
    assert row["texts"] == 24
    assert row["accuracy"] == {"1.0": 1.0, "0.5": 1.0, "0.3": row["accuracy"]["0.3"]}
    lost = 100 * (1 - row["accuracy"]["0.3"])
    assert row["loss"]["0.3"]["mean"] == pytest.approx(lost)
    share = lost / 100
    error = 100 * math.sqrt(share * (1 - share) / 23)
    assert row["loss"]["0.3"]["error"] == pytest.approx(error)
    assert "| films | 24 | 1.0000 | 1.0000 |" in page.read_text()


def test_a_single_fold_and_a_set_without_a_name_are_refused(films):
    with pytest.raises(ValueError, match=r"folds must be at least 2, got 1"):
        lexicon_folds.main(lexicon_folds.Options(sets=(f"films={films}",), folds=1))
    with pytest.raises(ValueError, match=r"sets must be NAME=FILE, got 'films.csv'"):
        lexicon_folds.main(lexicon_folds.Options(sets=("films.csv",)))
