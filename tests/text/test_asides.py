"""Lines that are set aside: a few are shown, more of them end the command."""

import json
import re

import pytest

from gatedjax import Tagger, TextClassifier
from gatedjax.text.corpus._corpus import Numbers, read_corpus
from gatedjax.text.corpus._tagged import read_tagged
from gatedjax.text.sources._conll import open_sentences
from gatedjax.text.sources._lines import suggest_encoding
from gatedjax.text.sources._open import open_table


def corpus_of(data, max_aside):
    return read_corpus(open_table(data), Numbers(lowercase=True), max_aside=max_aside)


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
def test_so_many_lines_may_be_set_aside(used, lost, max_aside, fits):
    given = [(f"text {i}", i % 2) for i in range(used)] + [(" ", 0)] * lost
    if fits:
        assert corpus_of(given, max_aside).asides.count == lost
        return
    with pytest.raises(ValueError, match=f"^rows: {lost} of {used + lost} lines cannot be used"):
        corpus_of(given, max_aside)


def test_the_first_three_reasons_are_said_and_empty_lines_are_nothing_lost(tmp_path):
    path = tmp_path / "a.csv"
    lines = ["", "a,x", "b,y", ",x", "c", "d,", "", "e,", "", "f,y"]
    path.write_text("\n".join(["text,label", *lines, "", ""]))
    with pytest.raises(ValueError) as caught:
        corpus_of(path, 0.01)
    assert str(caught.value) == (
        f"{path}: 4 of 7 lines cannot be used (57.1%, must be at most 1.0%): {path}:5: no text; "
        f"{path}:6: 1 field where the header has 2; {path}:7: no label; max_aside=0.58 leaves "
        "them out"
    )
    assert corpus_of(path, 0.58).asides.count == 8
    path.write_text("\n".join(["text,label", *["a,x", "b,y"] * 9, "", "", ""]))
    assert corpus_of(path, 0.0).asides.count == 2


def test_sentences_are_counted_as_sentences():
    sentences = [(["a", "b", "c"], ["X", "Y", "X"])] * 9 + [(["a"], [])]
    options = {"numbers": Numbers(lowercase=False), "longest": 2}
    corpus = read_tagged(open_sentences(sentences), max_aside=0.1, **options)
    assert (len(corpus), corpus.asides.count) == (18, 1)
    with pytest.raises(
        ValueError, match=r"1 of 10 sentences cannot be used .*:10: 1 words and 0 tag"
    ):
        read_tagged(open_sentences(sentences), max_aside=0.09, **options)


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
        ".jsonl": lambda text, label: json.dumps(
            {"text": text, "label": label}, ensure_ascii=False
        ) + "\n",
        ".txt": lambda text, label: f"__label__{label} {text}\n",
        ".conll": lambda text, label: f"{text.replace(' ', '')} {label}\n\n",
    }[kind]  # fmt: skip
    lines = ["text,label\n" * (kind == ".csv"), *(line(*pair) for pair in pairs)]
    path.write_bytes("".join(lines).encode(encoding))
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt", "a.conll", "folder"])
def test_a_file_of_another_encoding_ends_the_training_with_the_encoding(name, tmp_path):
    path = write(tmp_path / name, ["plain", QUOTES, "also plain", "more"] * 6, "cp1252")
    kind = Tagger if name == "a.conll" else TextClassifier
    with pytest.raises(ValueError) as caught:
        kind.train(str(path))
    message = str(caught.value)
    assert re.search(r"6 of 24 (lines|sentences) cannot be used \(25\.0%", message)
    assert message.count("not utf-8: byte 0x") == 3
    assert message.endswith(
        "; these bytes are characters of cp1252: --encoding cp1252; max_aside=0.25 leaves them out"
    )
    if kind is Tagger:
        table = open_sentences(str(path), encoding="cp1252")
        read = read_tagged(table, Numbers(lowercase=True), longest=9, max_aside=0)
    else:
        table = open_table(path, encoding="cp1252")
        read = read_corpus(table, Numbers(lowercase=True), max_aside=0)
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
    # the bytes of the second line are characters of both, those of the first only of cp1252
    path.write_bytes("caf\u00e9\n".encode("cp1252") + "caf\u00e9\n".encode())
    assert suggest_encoding(path, "ascii").endswith("cp1252: --encoding cp1252")
    with pytest.raises(
        ValueError, match=r"^.* must have a labelled text, got none: 1 line cannot .* cp1252$"
    ):
        corpus_of(write(tmp_path / "b.txt", [QUOTES], "cp1252"), 1.0)


def test_values_in_memory_have_no_encoding():
    rows = [("a", "x"), ("b\udce9", "y")] * 3
    with pytest.raises(ValueError, match=r"rows: 3 of 6 .* byte 0xe9; max_aside=0.50 leaves them"):
        corpus_of(rows, 0.01)
