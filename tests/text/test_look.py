"""`gatedjax look`: the survey of a file against counts of the test, its problems, and no JAX."""

import json

import pytest

from gatedjax.__main__ import main
from gatedjax.text.corpus import _corpus
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import Columns
from tests.text._own import TEXTS, refused, write_csv

ROWS = [
    *[(f"a dull film number{i} http://t.co/{i}", "bad") for i in range(20)],
    *[(f"a fine film number{i} @ann", "good") for i in range(19)],
    ("a fine film number0 @ann", "bad"),
    ("电影好看", "good"),
    ("lonely", "rare"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "reviews.csv", ROWS, ("Text", "Label"))
    return tmp_path


def look(*args):
    return main(["look", *args])


def looked(capsys, *args, status=0):
    """The JSON object of the command."""
    assert look(*args, "--json") == status
    return json.loads(capsys.readouterr().out)


def test_the_survey_has_the_counts_of_the_file(here, capsys):
    report = looked(capsys, "reviews.csv")
    assert report["columns"] == {"names": ["Text", "Label"], "text": ["Text"], "label": "Label"}
    assert report["texts"] == len(ROWS)
    assert report["classes"] == [["bad", 21], ["good", 20], ["rare", 1]]
    assert report["features"] == {"links": 20, "@user": 20}
    assert report["duplicates"] | {"copies": 1, "conflicts": 1} == report["duplicates"]
    assert report["duplicates"]["examples"] == [[[22, "good"], [41, "bad"]]]
    assert set(report["scripts"]) == {"Latin", "Han"}
    assert sum(report["scripts"].values()) == pytest.approx(1)
    assert (report["model"], report["tokens"]["kind"]) == ("lexicon", "social")
    assert report["words"]["max_len"] is None
    assert report["problems"] == []
    # the split is that of the training
    corpus, _ = _corpus.read_training(open_table(here / "reviews.csv"), lowercase=True)
    training, validation = map(len, _corpus.split_training(corpus, 0.1))
    split = {"single_text_classes": ["rare"], "training": training, "validation": validation}
    assert report["split"] | split == report["split"]
    words = looked(capsys, "reviews.csv", "--tokens", "words")
    assert (words["model"], words["tokens"]["kind"]) == ("lexicon", "words")
    social = looked(capsys, "reviews.csv", "--tokens", "social")
    assert social["tokens"]["sample"] == ["a", "dull", "film", "number0", "http://t.co"]
    assert social["words"]["quantiles"]["longest"] == 5


def test_a_share_that_is_shown_as_zero_is_left_out(here, capsys):
    write_csv(here / "long.csv", [("word " * 4000 + "好", "a"), *TEXTS])
    assert 0 < looked(capsys, "long.csv")["scripts"]["Han"] < 0.0005
    look("long.csv")
    assert "letters: Latin 100.0%\n" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_header_of_a_second_file_is_set_aside_by_its_reason(here, capsys, mark):
    one = mark + write_csv(here / "one.csv", TEXTS).read_text()
    (here / "both.csv").write_text(one + one)
    line = len(TEXTS) + 2
    for name, reasons in (("one.csv", {}), ("both.csv", {"repeats the header": 1})):
        report = looked(capsys, name)
        assert report["aside"]["reasons"] == reasons
        assert [label for label, _ in report["classes"]] == ["bad", "good"]
    assert report["aside"]["first"] == [f"both.csv:{line}: repeats the header"]
    assert report["texts"] == 2 * len(TEXTS)
    # The line has no data, so that it does not count against --max-aside.
    assert main(["train", "both.csv", "--out", "model", "--max-aside=0", "--share=0.5"]) == 0
    assert f"1 line set aside, as both.csv:{line}: repeats the header\n" in capsys.readouterr().err


def test_a_row_that_only_resembles_the_header_is_a_text(here, capsys):
    rows = [*TEXTS, ("text", "bad"), ("Text", "label"), ("other", "label")]
    write_csv(here / "rows.csv", rows)
    assert looked(capsys, "rows.csv")["texts"] == len(rows)
    # Words in a single column may be any words.
    (here / "words.csv").write_text("text\nfilm\ntext\n")
    table = open_table("words.csv", Columns(("text",), None))
    assert [row.inputs for row in table] == [("film",), ("text",)]


def test_lines_set_aside_are_counted_by_reason(here, capsys):
    text = "text,label\n" + "a,x\nb,y\nc,x\nd,y\n" * 10 + ",x\n,y\nc\n"
    (here / "a.csv").write_text(text)
    report = looked(capsys, "a.csv", status=1)
    assert report["aside"]["lines"] == 3
    assert report["aside"]["reasons"] == {"no text": 2, "1 field where the header has 2": 1}
    assert report["aside"]["first"][0] == "a.csv:42: no text"
    (problem,) = report["problems"]
    assert "3 of 43 lines cannot be used" in problem
    assert "--max-aside 0.07 leaves them out" in problem
    assert looked(capsys, "a.csv", "--max-aside=0.07")["problems"] == []


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("a,x\nb,x\n", "at least two classes for a classifier, got only 'x'"),
        ("a,x\nb,y\n", "a class with two different texts"),
        ("".join(f"t{i},{i / 7}\n" for i in range(9)), "got 9 different labels among 9"),
    ],
)
def test_data_that_cannot_be_trained_are_described_with_the_problem(here, content, part, capsys):
    (here / "a.csv").write_text(f"text,label\n{content}")
    report = looked(capsys, "a.csv", status=1)
    assert report["texts"] == content.count("\n")
    assert any(part in problem for problem in report["problems"]), report["problems"]
    assert look("a.csv") == 1
    assert "training would stop: a.csv" in capsys.readouterr().out


def test_several_labels_are_counted_and_refused_for_training(here, capsys):
    (here / "a.txt").write_text("__label__a __label__b x\n__label__a y\n__label__c z\n")
    report = looked(capsys, "a.txt", status=1)
    assert report["several_labels"] == 1
    assert report["classes"] == [["a", 2], ["b", 1], ["c", 1]]
    assert "a.txt:1: label must be a single label" in report["problems"][0]
    assert look("a.txt") == 1
    assert "several labels: 1 text\n" in capsys.readouterr().out


def test_pairs_and_tags(here, capsys):
    (here / "p.csv").write_text(
        "premise,hypothesis,label\n" + "a b,c,x\na,b,y\n" * 4 + f"c,d,x\nd,{'c ' * 401},y\n"
    )
    report = looked(capsys, "p.csv")
    assert report["task"] == "pair"
    assert report["columns"]["text"] == ["premise", "hypothesis"]
    assert report["duplicates"]["copies"] == 6
    assert report["words"]["longer"] == 1
    assert look("p.csv") == 0
    assert "long: 1 text with more than 400 words (--max-len)\n" in capsys.readouterr().out
    (here / "t.conll").write_text("in O\nParis LOC\n\nno O\nto O\n\n")
    report = looked(capsys, "t.conll")
    assert (report["task"], report["texts"]) == ("tags", 2)
    assert report["classes"] == [["O", 3], ["LOC", 1]]
    assert look("t.conll") == 0
    assert "t.conll: 2 sentences, 2 tags\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ("review.csv", "did you mean reviews.csv?"),
        ("bare.csv", "--columns text,label"),
        ("reviews.csv --columns a,b", "'a', 'b'"),
        ("reviews.csv --columns text,label,x", "--columns must name all 2 columns"),
        ("reviews.csv --columns Text,Label", "--columns must be left out"),
        ("reviews.csv --min-class 2", "unknown option --min-class"),
        ("reviews.csv --text Text Label", "columns must include 'label'"),
        ("reviews.csv --word 1", "--word must be left out except for files of tags"),
        ("reviews.csv --titel x", "--titel"),
    ],
)
def test_a_stranger_is_told_in_one_line(here, args, part, capsys):
    (here / "bare.csv").write_text("a fine film,good\na dull film,bad\n")
    assert part in refused(["look", *args.split()], capsys)


def test_a_file_without_a_header(here, capsys):
    (here / "bare.csv").write_text("a fine film,good\na dull film,bad\nnew,bad\nold,good\n")
    assert looked(capsys, "bare.csv", "--columns", "text,label")["texts"] == 4
    assert look("bare.csv", "--columns", "text,label") == 0
    assert "--out model --columns text,label\n" in capsys.readouterr().out


def test_equal_numbers_are_a_single_class_as_in_training(here, capsys):
    labels = {"good": 1, "fine": 1.0, "bad": -1}
    rows = [
        json.dumps({"text": f"{word} film {i}", "label": label})
        for i in range(4)
        for word, label in labels.items()
    ]
    (here / "numbers.jsonl").write_text("\n".join(rows))
    assert looked(capsys, "numbers.jsonl")["classes"] == [[1, 8], [-1, 4]]
    assert main(["train", "numbers.jsonl", "--out", "numbers", "--share", "0.5"]) == 0
    assert "12 texts in 2 classes: 1 8, -1 4" in capsys.readouterr().err
