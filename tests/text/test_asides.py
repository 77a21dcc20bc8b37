"""Lines that are set aside: a few are shown, more of them end the command."""

import json
import re

import pytest

from gatedjax import Tagger, TextClassifier
from gatedjax.__main__ import main
from gatedjax._commands import train
from gatedjax.text._corpus import Numbers, read_corpus
from gatedjax.text._lines import suggest_encoding
from gatedjax.text._read import open_table
from gatedjax.text._tagged import read_tagged
from gatedjax.text._tags import open_sentences


def corpus_of(data, folder, max_aside):
    return read_corpus(
        open_table(data), folder, "train", Numbers(lowercase=True), max_aside=max_aside
    )


@pytest.mark.parametrize(
    ("used", "lost", "max_aside", "fits"),
    [
        (99, 1, 0.01, True),
        (98, 2, 0.01, False),
        (19, 1, 0.01, False),
        (2871, 29, 0.01, True),  # 0.01 * 2900 is below 29
        (3, 1, 0.25, True),
        (9, 0, 0.0, True),
        (9, 1, 0.0, False),
        (1, 9, 1.0, True),
    ],
)
def test_so_many_lines_may_be_set_aside(used, lost, max_aside, fits, tmp_path):
    given = [(f"text {i}", i % 2) for i in range(used)] + [(" ", 0)] * lost
    if fits:
        assert corpus_of(given, tmp_path, max_aside).aside == lost
        return
    with pytest.raises(ValueError, match=f"^rows: {lost} of {used + lost} lines cannot be used"):
        corpus_of(given, tmp_path, max_aside)


def test_the_first_three_reasons_are_said_and_empty_lines_are_nothing_lost(tmp_path):
    path = tmp_path / "a.csv"
    lines = ["", "a,x", "b,y", ",x", "c", "d,", "", "e,", "", "f,y"]
    path.write_text("\n".join(["text,label", *lines, "", ""]))
    with pytest.raises(ValueError) as caught:
        corpus_of(path, tmp_path, 0.01)
    assert str(caught.value) == (
        f"{path}: 4 of 7 lines cannot be used (57.1%, the limit is 1.0%): {path}:5: no text; "
        f"{path}:6: 1 field where the header has 2; {path}:7: no label; max_aside=0.58 leaves "
        "them out"
    )
    assert corpus_of(path, tmp_path, 0.58).aside == 8
    path.write_text("\n".join(["text,label", *["a,x", "b,y"] * 9, "", "", ""]))
    assert corpus_of(path, tmp_path, 0.0).aside == 2


def test_sentences_are_counted_as_sentences(tmp_path):
    sentences = [(["a", "b", "c"], ["X", "Y", "X"])] * 9 + [(["a"], [])]
    options = {"numbers": Numbers(lowercase=False), "longest": 2}
    corpus = read_tagged(open_sentences(sentences), tmp_path, "x", max_aside=0.1, **options)
    assert (len(corpus), corpus.aside) == (18, 1)
    with pytest.raises(
        ValueError, match=r"1 of 10 sentences cannot be used .*:10: 1 words and 0 tag"
    ):
        read_tagged(open_sentences(sentences), tmp_path, "x", max_aside=0.09, **options)


QUOTES = "\u201cgood\u201d caf\u00e9 \u2013 \u20ac5"


def write(path, texts, encoding):
    """A file of the kind of its name, or a folder, with the texts and two labels."""
    kind = path.suffix
    pairs = [(text, "xy"[i % 2]) for i, text in enumerate(texts)]
    if not kind:
        for i, (text, label) in enumerate(pairs):
            (path / label).mkdir(parents=True, exist_ok=True)
            (path / label / f"{i}.txt").write_text(text, encoding=encoding)
        return path
    line = {
        ".csv": lambda text, label: f"{text},{label}\n",
        ".tsv": lambda text, label: f"{text}\t{label}\n",
        ".jsonl": lambda text, label: json.dumps(
            {"text": text, "label": label}, ensure_ascii=False
        ) + "\n",
        ".txt": lambda text, label: f"__label__{label} {text}\n",
        ".conll": lambda text, label: f"{text.replace(' ', '')} {label}\n\n",
    }[kind]  # fmt: skip
    head = {".csv": "text,label\n", ".tsv": "text\tlabel\n"}.get(kind, "")
    path.write_bytes((head + "".join(line(*pair) for pair in pairs)).encode(encoding))
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.conll", "folder"])
@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_a_file_of_another_encoding_ends_the_training_with_the_encoding(name, encoding, tmp_path):
    quotes = QUOTES if encoding == "cp1252" else "caf\u00e9 \u00a35"
    path = write(tmp_path / name, ["plain", quotes, "also plain", "more"] * 6, encoding)
    kind = Tagger if name == "a.conll" else TextClassifier
    with pytest.raises(ValueError) as caught:
        kind.train(str(path))
    message = str(caught.value)
    assert re.search(r"6 of 24 (lines|sentences) cannot be used \(25\.0%", message)
    assert message.count("not utf-8: byte 0x") == 3
    assert message.endswith(
        "; these bytes are characters of cp1252: --encoding cp1252; max_aside=0.25 leaves them out"
    )
    folder = tmp_path / "ids"
    folder.mkdir()
    if kind is Tagger:
        table = open_sentences(str(path), encoding="cp1252")
        read = read_tagged(
            table, folder, "x", Numbers(lowercase=True), longest=9, max_aside=0
        )  # fmt: skip
    else:
        table = open_table(path, encoding="cp1252")
        read = read_corpus(table, folder, "x", Numbers(lowercase=True), max_aside=0)
    assert len(read) == 24


def test_an_encoding_is_named_where_all_bad_bytes_are_its_characters(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(QUOTES.encode("cp1252") + b"\n\x81\n")
    assert suggest_encoding(path, "utf-8") == ""
    path.write_bytes("plain\ncaf\u00e9\n".encode())
    assert suggest_encoding(path, "utf-8") == ""
    assert suggest_encoding(path, "ascii") == (
        "; these bytes are characters of utf-8: --encoding utf-8"
    )
    path.write_bytes("caf\u00e9\n".encode() + "caf\u00e9\n".encode("cp1252"))
    assert suggest_encoding(path, "utf-8") == (
        "; these bytes are characters of cp1252: --encoding cp1252, but other lines have "
        "characters of utf-8: the file mixes both"
    )
    with pytest.raises(ValueError, match=r"^.* has no labelled text: 1 lines cannot .* cp1252$"):
        corpus_of(write(tmp_path / "b.txt", [QUOTES], "cp1252"), tmp_path, 1.0)


def test_values_in_memory_have_no_encoding(tmp_path):
    rows = [("a", "x"), ("b\udce9", "y")] * 3
    with pytest.raises(ValueError, match=r"rows: 3 of 6 .* byte 0xe9; max_aside=0.50 leaves them"):
        corpus_of(rows, tmp_path, 0.01)


def run(args, capsys):
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return said.err


def test_the_command_ends_and_says_what_to_type(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", ["plain", QUOTES] * 9, "cp1252")
    command = ["train", "a.csv", "--out", "model"]
    said = run(command, capsys)
    assert said.startswith("error: a.csv: 9 of 18 lines cannot be used (50.0%, the limit is 1.0%)")
    assert "--encoding cp1252" in said
    assert said.endswith("; --max-aside 0.50 leaves them out\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    write(tmp_path / "b.csv", [f"plain text {i}" for i in range(18)], "utf-8")
    for part in ("--validation", "--test"):
        assert "a.csv: 9 of 18 lines" in run(
            ["train", "b.csv", "--out", "m", part, "a.csv"], capsys
        )
    for wrong in ("25", "-1", "nan"):
        assert "error: --max-aside must be in [0, 1], got" in run(
            [*command, "--max-aside", wrong], capsys
        )
    asked = []
    monkeypatch.setattr(train, "train_any", lambda *a, max_aside, **b: asked.append(max_aside))
    with pytest.raises(AttributeError):  # nothing is trained
        main([*command, "--max-aside", "0.5"])
    assert asked == [0.5]
