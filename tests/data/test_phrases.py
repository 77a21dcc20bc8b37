"""SST phrases: every labelled span of the training trees is an example, a repeat, or neutral."""

import re

import pytest

from gatedjax import data
from gatedjax.__main__ import main
from gatedjax.data.sets import _sst

GOOD = "(3 (2 (2 A) (3 good)) (2 (2 film) (2 .)))"
TWICE = "(1 (2 A) (1 (2 film) (1 (2 not) (3 good))))"
NEUTRAL = "(2 (2 A) (2 film))"


@pytest.fixture
def trees(tmp_path):
    folder = tmp_path / "sst" / "trees"
    folder.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (folder / f"{name}.txt").write_text(f"{GOOD}\n{TWICE}\n{NEUTRAL}\n", encoding="utf-8")
    return folder


def pairs(source):
    return [(" ".join(x["tokens"]), x["label"]) for x in source]


def test_every_training_span_is_there_once_with_its_label(trees):
    source = data.load("sst1_phrases", "train", manual_dir=trees)
    assert pairs(source) == [
        ("A good film .", 3),
        ("A good", 2),
        ("A", 2),
        ("good", 3),
        ("film .", 2),
        ("film", 2),
        (".", 2),
        ("A film not good", 1),
        ("film not good", 1),
        ("not good", 1),
        ("not", 2),
        ("A film", 2),
    ]
    assert source.report.reconciles
    assert source.info.class_names == _sst.FINE
    assert source[1]["tree"] == "(2 (2 A) (3 good))"
    # the id says where the first of the repeats is
    assert [x["example_id"] for x in source][:8] == [0, 1, 2, 3, 4, 5, 6, 4096]


def test_repeated_spans_are_kept_on_request(trees):
    source = data.load("sst1", "train", manual_dir=trees, level="phrase")
    assert len(source) == 7 + 7 + 3
    once = data.load("sst1", "train", manual_dir=trees, level="train_phrase")
    assert list(dict.fromkeys(pairs(source))) == pairs(once)


def test_binary_phrases_leave_out_neutral_spans_and_say_how_many(trees):
    source = data.load("sst2_phrases", "train", manual_dir=trees)
    assert pairs(source) == [
        ("A good film .", 1),
        ("good", 1),
        ("A film not good", 0),
        ("film not good", 0),
        ("not good", 0),
    ]
    assert source.report.skipped == {"neutral": 1}  # the tree without any polarity
    assert source.report.reconciles
    # no differently from the spans as they are, with the neutral ones taken out
    every = data.load("sst2", "train", manual_dir=trees, level="phrase")
    assert len(every) == 6


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("name", ["sst1", "sst2"])
def test_validation_and_test_are_sentences_only(trees, name, split):
    source = data.load(f"{name}_phrases", split, manual_dir=trees)
    assert list(source) == list(data.load(name, split, manual_dir=trees))


def test_words_that_differ_in_case_are_two_texts(trees):
    (trees / "train.txt").write_text("(3 (2 a) (2 A))\n(3 (2 a) (2 A))\n", encoding="utf-8")
    source = data.load("sst1_phrases", "train", manual_dir=trees)
    assert pairs(source) == [("a A", 3), ("a", 2), ("A", 2)]


def test_a_text_with_two_labels_is_two_examples(trees):
    (trees / "train.txt").write_text("(3 (2 fine) (4 fine))\n", encoding="utf-8")
    source = data.load("sst1_phrases", "train", manual_dir=trees)
    assert pairs(source) == [("fine fine", 3), ("fine", 2), ("fine", 4)]


def test_trees_with_one_or_three_children_are_used_as_they_are(trees):
    lines = "(3 (2 A) (3 good) (2 film))\n(4 (3 (3 good)))\n(3 good)\n"
    (trees / "train.txt").write_text(lines, encoding="utf-8")
    source = data.load("sst1_phrases", "train", manual_dir=trees)
    assert pairs(source) == [("A good film", 3), ("A", 2), ("good", 3), ("film", 2), ("good", 4)]
    assert source.quarantine == ()


def test_the_commands_know_the_phrases(trees, capsys):
    (trees / "train.txt").write_text(f"{GOOD}\n(3 (2 A)\n{TWICE}\n", encoding="utf-8")
    (trees / "test.txt").write_text("(2 (2 FILM) (2 .))\n", encoding="utf-8")
    assert main(["data", "check", "sst1_phrases", "--manual-dir", str(trees)]) == 0
    out = capsys.readouterr().out
    assert "train.txt:2: unbalanced brackets" in out
    assert "test.txt:1 = train.txt:1: film ." in out  # a phrase within a line of train
    assert re.search(r"\| train +\| +11 \|", out)
    assert re.search(r"\| validation +\| +3 \|", out)
    assert main(["data", "check", "sst2_phrases", "--manual-dir", str(trees)]) == 0
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert "sst1_phrases (fine, train_phrase)" in out
    assert {"sst1_phrases", "sst2_phrases"} <= set(data.names())
