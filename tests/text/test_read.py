"""Readers of your own text: every line is a record or set aside with its file, line and reason."""

import csv
import itertools
import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from gatedjax.data import Source, SourceInfo
from gatedjax.data.files._source import Quarantined, ReadReport
from gatedjax.text import Columns
from gatedjax.text.sources import _csv, _lines, _open
from gatedjax.text.sources._conll import TaggedRecord, open_sentences
from gatedjax.text.sources._open import infer_task, open_table
from gatedjax.text.sources._table import Aside, Record

PAIR = Columns(("premise", "hypothesis"))
TEXTS = Columns(label=None)


@pytest.fixture
def write(tmp_path):
    def write(content, name="reviews.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def shown(row):
    """(line, *inputs, label) of a record, (line, reason) of a line set aside."""
    used = isinstance(row, Record)
    return (row.line, *row.inputs, row.label) if used else (row.line, row.reason)


def read(data, columns=None, **options):
    table = open_table(data, columns, **options)
    rows = list(table)
    assert list(table) == rows  # a second pass is the first
    return [shown(row) for row in rows]


def refused(data, columns=None, error=ValueError, **options):
    with pytest.raises(error) as caught:
        list(open_table(data, columns, **options))
    message = str(caught.value)
    assert not {"\n", "\x1b"} & set(message)
    return message.replace(str(data), "FILE") if len(str(data)) > 3 else message


# files -------------------------------------------------------------------------------------------

TWICE = "a quote inside such a field is written twice"
FILES = {
    "columns are found by name and labels are as written": (
        "a.csv", "id,label,text\n7,01,a dull film\n8,1.50,good\n",
        [(2, "a dull film", "01"), (3, "good", "1.50")],
    ),
    "a record is called by the line where it begins": (
        "a.csv",
        'text,label\n"two\nlines, ""quoted""",pos\n\n"a\r\nb",neg\nshort\nlast,pos',
        [(2, 'two\nlines, "quoted"', "pos"), (4, "empty line"), (5, "a\r\nb", "neg"),
         (7, "1 field where the header has 2"), (8, "last", "pos")],
    ),
    "lines that cannot be used are set aside with the reason": (
        "a.csv",
        b"text,label\nok,pos\n,pos\n  ,neg\nno label,\nno label, \na,b,c\nN\0L,pos\n"
        b'caf\xe9,pos\nx\xff,y\xe9\n"q\n\xe9",pos\nfin, neg \n',
        [(2, "ok", "pos"), (3, "no text"), (4, "no text"), (5, "no label"), (6, "no label"),
         (7, "3 fields where the header has 2"), (8, "NUL character"),
         (9, "not utf-8: byte 0xe9"), (10, "not utf-8: byte 0xff"), (11, "not utf-8: byte 0xe9"),
         (13, "fin", "neg")],
    ),
    "a quote that nothing closes costs one line": (
        "a.csv", 'text,label\na,pos\n"b,neg\nc,pos\n"d, ""e""",neg\n"f,pos\ng,neg\n',
        [(2, "a", "pos"),
         (3, f"text after a field in quotes, which closes in line 5: {TWICE}"),
         (4, "c", "pos"), (5, 'd, "e"', "neg"),
         (6, "a quote opens a field here that no quote closes"), (7, "g", "neg")],
    ),
    "text after a field in quotes": (
        "a.csv", 'text,label\n"a" b,pos\nc "d" e,neg\n',
        [(2, f"text after a field in quotes: {TWICE}"), (3, 'c "d" e', "neg")],
    ),
    "semicolons": ("a.csv", "text;label\na, b;pos\n", [(2, "a, b", "pos")]),
    "bars": ("a.csv", "text|label\na, b|pos\n", [(2, "a, b", "pos")]),
    "tabs": ("a.csv", "text\tlabel\na; b, c\tpos\n", [(2, "a; b, c", "pos")]),
    "an index of pandas and spare commas": ("a.csv", ",text,,label\n0,a,,b\n", [(2, "a", "b")]),
    "quotes between tabs need mean nothing": (
        "a.tsv",
        'text\tlabel\n"a\tpos\n"b" he said\tneg\nc"\tpos\n"d\te"\tneg\n"f\ng"\tpos\n"h\tneg\n',
        [(2, '"a', "pos"), (3, '"b" he said', "neg"), (4, 'c"', "pos"), (5, "d\te", "neg"),
         (6, "f\ng", "pos"), (8, '"h', "neg")],
    ),
    "quotes that would make one text of three lines": (
        "a.tsv", 'text\tlabel\n"a\tpos\nb\tneg\nc"\tpos\n',
        [(2, '"a', "pos"), (3, "b", "neg"), (4, 'c"', "pos")],
    ),
    "labels of JSON": (
        "a.ndjson",
        '{"text": "a", "label": 3, "x": [1]}\n{"label": 0.5, "text": "b"}\n'
        '{"text": "c\\nd \\u00e9", "label": true}\n{"text": "e", "label": " 1"}\n',
        [(1, "a", 3), (2, "b", 0.5), (3, "c\nd é", True), (4, "e", "1")],
    ),
    "labels of fastText": (
        "a.txt",
        "__label__pos  a dull film\nno label\n__label__a __label__b two\n__label__ nameless\n"
        "__label__pos\nat the end __label__neg\nx__label__y z\n\n__label__1\ttab\n",
        [(1, "a dull film", "pos"), (2, "no __label__NAME"), (3, "two", ("a", "b")),
         (4, "no label"), (5, "no text"), (6, "at the end", "neg"), (7, "no __label__NAME"),
         (8, "empty line"), (9, "tab", "1")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_files_are_read_line_by_line(write, case):
    name, content, rows = FILES[case]
    found = read(write(content, name))
    assert found == rows
    assert [type(row[-1]) for row in found] == [type(row[-1]) for row in rows]


def test_records_and_lines_aside_name_their_file(write):
    path = write("text,label\na dull film,01\nno label,\n")
    assert list(open_table(path)) == [
        Record(2, ("a dull film",), "01", str(path)),
        Aside(str(path), 3, "no label"),
    ]
    assert str(Aside("a\x1b[1m.csv", 3, "no text")) == r"a\x1b[1m.csv:3: no text"
    assert read(str(path), Columns(("label",), "text"))[0] == (2, "01", "a dull film")
    assert read([("x", ["a", 1, True, "a"])]) == [(1, "x", ("a", 1, True))]
    assert read(path, TEXTS)[1] == (3, "no label", None)
    of_lines = write('text\n"a\nb"\nc\n', "a.tsv")
    assert read(of_lines, TEXTS) == [(2, "a\nb", None), (4, "c", None)]
    fast = write("__label__a __label__b two\nplain\n", "a.txt")
    assert read(fast, TEXTS) == [(1, "two", None), (2, "plain", None)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_every_line_end_and_a_byte_order_mark(write, start, end, name):
    lines = {
        "a.csv": ["text,label", "good,pos", "bad,neg"],
        "a.tsv": ["text\tlabel", "good\tpos", "bad\tneg"],
        "a.jsonl": ['{"text": "good", "label": "pos"}', '{"text": "bad", "label": "neg"}'],
        "a.txt": ["__label__pos good", "__label__neg bad"],
    }[name]
    shift = 1 + (len(lines) == 3)
    path = write(start + end.join(lines) + end, name)
    assert read(path) == [(shift, "good", "pos"), (shift + 1, "bad", "neg")]


@pytest.mark.parametrize(
    ("written", "encoding", "found"),
    [
        ("cp1252", "cp1252", None),
        ("cp1252", "utf-8", [(2, "not utf-8: byte 0xe9")]),
        ("utf-16", "utf-16", None),
        ("utf-16", "utf-8", "must be utf-8, got utf-16: give --encoding utf-16"),
        ("utf-16-le", "utf-16-le", None),
        ("utf-16-le", "utf-8", "bytes; for UTF-16 give --encoding utf-16-le or utf-16-be"),
        ("utf-32", "utf-32", None),
        ("utf-8-sig", "UTF8", None),
        ("utf-32", "utf-8", "must be utf-8, got utf-32: give --encoding utf-32"),
        *(("utf-8", name, "encoding must be a text encoding of Python")
          for name in ("utf-9", "hex", "rot13", "a\0b")),
    ],
)  # fmt: skip
def test_encodings(write, written, encoding, found):
    path = write("text,label\ncafé,pos\n".encode(written))
    if isinstance(found, str):
        assert found in refused(path, encoding=encoding)
    else:
        assert read(path, encoding=encoding) == (found or [(2, "café", "pos")])


HEADERS = [
    ("review,sentiment", None, "FILE: columns must include 'text' and 'label', got 'review', "
     "'sentiment': --text review --label sentiment"),
    ("text,sentiment", None, "columns must include 'label', got 'text', 'sentiment': "
     "--text text --label sentiment"),
    ("Text,TEXT,LABEL", None, "--text Text --label LABEL"),
    ("id,txet,labels", None, "--text txet --label labels"),
    ("text,verdict", None, "--text text --label verdict"),
    ("Text,My  Label", Columns(label="my label"), "--text Text --label 'My  Label'"),
    ("sentence1,sentence2,gold", PAIR, "--text sentence1 sentence2 --label gold"),
    ("review,stars", TEXTS, "got 'review', 'stars': --text review"),
    ("review;stars", None, "got 'review', 'stars': --text review"),
    ("a,b,c", None, "got 'a', 'b', 'c': give the names with --text and --label; the "
     "first line must be the header"),
    ("a dull film,0", None, "'a dull film', '0': give the names with --text and --label; the"),
    ("text", None, "got 'text'; the first line must be the header"),
    ("text,label,text, label", None, "FILE: columns must have different names, got 'label', "
     "'text' more than once"),
    ('"text" ,label', None, f"FILE:1: the header must be readable: text after a field in quotes: "
     f"{TWICE}"),
    ("tëxt,label".encode("cp1252"), None, "FILE:1: the header must be readable: not utf-8: byte "
     "0xeb; these bytes are characters of cp1252: --encoding cp1252"),
    (b"t\x81xt,label", None, ": not utf-8: byte 0x81; give its encoding with --encoding"),
    (",".join(f"x{i}" * 40 for i in range(50)), None, "and 38 more"),
]  # fmt: skip


@pytest.mark.parametrize(("header", "columns", "message"), HEADERS)
def test_a_header_that_does_not_fit_is_refused_with_the_options_to_type(
    write, header, columns, message
):
    header = header if isinstance(header, bytes) else header.encode()
    row = b"x" + b",y" * header.count(b",") + b";y" * header.count(b";")
    said = refused(write(header + b"\n" + row + b"\n"), columns)
    assert message in said
    assert len(said) < 900


EMPTY = "FILE must have a labelled text, got an empty file"
NOTHING = {
    "": [EMPTY] * 3,
    "\ufeff": [EMPTY, "FILE must have a row, got none", "FILE must have a row, got none"],
    "\n\n": [EMPTY],
    "text,label\n": ["FILE must have a row after the header, got none"],
    "text,label": ["FILE must have a row after the header, got none"],
}


@pytest.mark.parametrize("content", NOTHING)
def test_nothing_to_read(write, content):
    for name, message in zip(("a.csv", "a.jsonl", "a.txt"), NOTHING[content], strict=False):
        assert refused(write(content, name)) == message


BINARY = {
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR": "an image (PNG)",
    b"PK\x03\x04\x14\0": "its name must end with .zip, or .xlsx for a workbook",
    b"\x1f\x8b\x08\0\0\0\0\0": "its name must end with .gz",
    b"PAR1\x15\x04": "a Parquet file",
    bytes(range(256)) * 20: "control characters",
}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("content", BINARY, ids=BINARY.values())
def test_a_file_that_is_no_text_is_refused_whole(write, content, name):
    message = refused(write(content, name))
    assert "FILE must be a text file, got " in message
    assert BINARY[content] in message


def test_one_nul_does_not_make_a_short_file_binary(write):
    aside = [(2, "NUL character"), (3, "NUL character")]
    assert read(write("text,label\nN\0,x\n\0\0\0,y\nz,z")) == [*aside, (4, "z", "z")]


def test_endings_and_paths_that_are_not_read(write, tmp_path):
    known = "must end with .csv, .tsv, .tab, .json, .jsonl, .ndjson, .txt (each also with "
    for name in ("a.doc", "a.psv", "a.feather", "a"):
        assert known in refused(write("x", name))
    assert "got '.xls'; save the workbook as .xlsx or .csv" in refused(write("x", "a.xls"))
    assert refused(write("x", "a.gz")).endswith("got no ending")
    assert "for the tagger" in refused(write("a B\n", "a.conll"))
    write("text,label\na,b\n", "reviews.csv")
    missing = refused(str(tmp_path / "revews.csv"), error=FileNotFoundError)
    assert missing == f"FILE: there is no such file; did you mean {tmp_path / 'reviews.csv'}?"
    for odd in ("x" * 5000, "a\0b.csv", "a dull , lifeless film", "\x1b[31mred.csv"):
        assert "there is no such file" in refused(odd, error=FileNotFoundError)
    for empty in ("", " "):
        assert "must be a path or the name of a data set" in refused(empty)
    assert "no data set of this name" in refused("trecc", error=FileNotFoundError)


def test_json_lines_that_cannot_be_used(write):
    lines = {
        '{"text": "a", "label": "b"}': None,
        "": "empty line",
        "[1, 2]": "not an object but a list",
        "null": "not an object but a NoneType",
        '{"text": "a", "label": null}': "no label",
        '{"text": "a"}': "no label",
        '{"label": "b"}': "no text",
        '{"text": {"a": {}}, "label": "b"}': "text must be a text, got dict {'a': {}}",
        '{"text": 5, "label": "b"}': "text must be a text, got int 5",
        '{"text": "a", "label": []}': "label must be a label or several, got an empty list",
        '{"text": "a", "label": ["b", {}]}': "label must be a text or a number, got dict {}",
        '{"text": "a", "label": ["b", null]}': "no label",
        '{"text": "a", "label": NaN}': "no label",
        '{"text": "a", "label": Infinity}': "label must be finite, got inf",
        '{"text": "a", "text": "b", "label": 1}': "names must be different, got 'text' more than",
        '{"text": "a\\ud800", "label": 1}': "half of a surrogate pair: U+D800",
        '{"text": "a\\u0000", "label": 1}': "NUL character",
        '{"text": "a", "label": 1': "not JSON: Expecting ',' delimiter at character 25",
        '{"text": "a"} {"label": 1}': "not JSON: Extra data at character 15",
        '{"text": "a", "label": ' + "9" * 5000 + "}": "not JSON: Exceeds the",
        "[" * 100_000: "not JSON: nested too deep",
    }
    found = read(write("\n".join(lines), "a.jsonl"))
    assert [row[0] for row in found] == list(range(1, len(lines) + 1))
    assert found[0] == (1, "a", "b")
    for row, reason in zip(found[1:], list(lines.values())[1:], strict=True):
        assert reason in row[1]
    renamed = write('\n[]\n{"review": "a", "stars": 1}\n', "b.jsonl")
    assert refused(renamed).endswith("'review', 'stars': --text review --label stars")
    fast = write("a\nb\n", "b.txt")
    assert "labels as __label__NAME, got none in its first 2 lines" in refused(fast)
    assert "got a source of single texts" in refused(fast, PAIR)


# limits ------------------------------------------------------------------------------------------


def test_quotes_that_never_add_up_end_and_keep_little(write, monkeypatch):
    assert len(read(write("text,label\n" + 'x","y\n' * 30))) == 30  # in a small file there is time
    monkeypatch.setattr(_lines, "LONGEST", 1 << 12)
    monkeypatch.setattr(_csv, "LONGEST", 1 << 12)
    # every line closes the field of the one before it and opens another
    path = write("text,label\n" + 'x","y\n' * 20_000)
    assert "quotes around fields must be closed" in refused(path)


TEXT = "a quiet film , " * 60
BLOCKS = {
    "a.csv": ("text,label\n", f'"{TEXT}\n{TEXT}",pos\n'),
    "a.jsonl": ("", json.dumps({"text": TEXT * 2, "label": 1}) + "\n"),
    "quote.csv": ('text,label\n"a,b\n', "some words of a film,pos\n"),
    "quote.tsv": ('text\tlabel\n"a\tb\n', "some words of a film\tpos\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, name):
    """Nor with a quote that nothing closes, in the files of that name."""
    monkeypatch.setattr(_csv, "LONGEST", 1 << 12)
    head, line = BLOCKS[name]
    count = (800_000 if name[0] == "a" else 250_000) // len(line)
    path = tmp_path / name
    with path.open("w") as file:
        file.write(head)
        file.writelines(itertools.repeat(line, count))
    tracemalloc.start()
    try:
        used = sum(isinstance(row, Record) for row in open_table(path))
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()
    assert used == count + (name == "quote.tsv")  # between tabs a quote is text


def test_a_field_of_3_mb_is_a_text_and_a_line_may_not_be_a_file(write, monkeypatch):
    size = 3_000_000
    before = csv.field_size_limit()
    big = "x" * size
    path = write(f'text,label\n{big},pos\n"{big}\n{big}",neg\nlast,pos\n')
    found = read(path)
    assert [row[0] for row in found] == [2, 3, 5]
    assert [len(row[1]) for row in found] == [size, 2 * size + 1, 4]
    assert csv.field_size_limit() >= before
    line = json.dumps({"text": big, "label": 1})
    assert len(read(write(line, "a.jsonl"))[0][1]) == size
    monkeypatch.setattr(_lines, "LONGEST", 1000)
    for name, head, first in (("a.csv", "text,label\n", 2), ("a.txt", "", 1)):
        path = write(f"{head}{big[:5000]}__label__x,a\n__label__pos good,pos\n", name)
        aside, used = read(path)
        assert aside == (first, "longer than 1,000 characters")
        assert used[0] == first + 1


# folders -----------------------------------------------------------------------------------------


def test_a_folder_per_class(write, tmp_path, monkeypatch):
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(sorted(listed(self), reverse=True)))
    monkeypatch.setattr(_lines, "LONGEST", 12)
    top = tmp_path / "films"
    for name, content in {
        "pos/b.txt": "good\nindeed\n", "pos/a.TXT": b"\xef\xbb\xbffirst", "pos/deep/c.txt": "deep",
        "neg/0.txt": "bad", "neg/1.txt": b"two\nlines \xe9", "neg/2.md": "x", "neg/3.txt": " \n",
        "neg/.DS_Store": "x", "urls.txt": "x", ".hidden/a.txt": "x", "neg/4.txt": b"a\n\nb\0",
        "neg/5.txt": "x" * 13,
    }.items():  # fmt: skip
        write(content, f"films/{name}")
    rows = list(open_table(top))
    assert [row for row in rows if isinstance(row, Record)] == [
        Record(1, ("bad",), "neg", f"{top}/neg/0.txt"),
        Record(1, ("first",), "pos", f"{top}/pos/a.TXT"),
        Record(1, ("good\nindeed\n",), "pos", f"{top}/pos/b.txt"),
        Record(1, ("deep",), "pos", f"{top}/pos/deep/c.txt"),
    ]
    assert [str(row).removeprefix(f"{top}/") for row in rows if isinstance(row, Aside)] == [
        "neg/1.txt:2: not utf-8: byte 0xe9",
        "neg/2.md:1: not a .txt file",
        "neg/3.txt:1: no text",
        "neg/4.txt:3: NUL character",
        "neg/5.txt:1: longer than 12 bytes",
        "urls.txt:1: not in the folder of a class",
    ]
    assert len(read(top, encoding="cp1252")) == len(rows)


def test_folders_that_are_not_one_per_class(write, tmp_path):
    (tmp_path / "none").mkdir()
    wanted = "FILE must have a folder with .txt files for each class, got no folder"
    assert refused(tmp_path / "none") == wanted
    write("x", "flat/a.txt")
    assert refused(tmp_path / "flat") == wanted
    assert read(tmp_path / "flat", TEXTS) == [(1, "x", None)]
    write("x", "images/cats/a.png")
    assert read(tmp_path / "images") == [(1, "not a .txt file")]
    for part in ("Train", "test"):
        write("x", f"whole/{part}/pos/a.txt")
    assert "its folders must be classes, got the parts Train, test" in refused(tmp_path / "whole")


# in memory ---------------------------------------------------------------------------------------

NAN = float("nan")
IN_MEMORY = [
    ([("a", "x"), ["b", 1], np.array(["c", "y"])], None, [(1, "a", "x"), (2, "b", 1),
                                                          (3, "c", "y")]),
    ([("a", "b", 0)], PAIR, [(1, "a", "b", 0)]),
    (["a", None, "c", 5], TEXTS, [(1, "a", None), (2, "no text"), (3, "c", None),
                                  (4, "must be a text or (text,), got a int")]),
    ([("a", "x"), ("b",), "c", (None, "x"), ("d", None), ("e", NAN)], None,
     [(1, "a", "x"), (2, "must be (text, label), got a tuple of 1 value"),
      (3, "must be (text, label), got a str"), (4, "no text"), (5, "no label"), (6, "no label")]),
    (np.array(["a", "b"]), TEXTS, [(1, "a", None), (2, "b", None)]),
    ([{"text": "a", "label": np.int64(3)}, {"text": "b"}, 5, {"text": b"c", "label": b"x"},
      {"text": b"\xe9"}], None, [(1, "a", 3), (2, "no label"), (3, "not a dict but a int"),
                                 (4, "c", "x"), (5, "not Unicode: byte 0xe9")]),
    ({"text": np.array(["a", "b"]), "label": np.array([True, False]), "z": 1}, None,
     [(1, "a", True), (2, "b", False)]),
]  # fmt: skip


@pytest.mark.parametrize(("data", "columns", "rows"), IN_MEMORY)
def test_values_in_memory(data, columns, rows):
    found = read(data, columns)
    assert found == rows
    assert [list(map(type, row)) for row in found] == [list(map(type, row)) for row in rows]
    assert [str(row) for row in open_table([("", "x")])] == ["rows:1: no text"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "must have a row, got none"),
        ({"text": [], "label": []}, "must have a row, got none"),
        (iter(()), "must have a row, got none"),
        ({"text": ["a"], "label": [1, 2]}, "columns must have the same length, got 'text' 1, "
         "'label' 2"),
        ({"text": "a", "label": "b"}, "column 'text' must be a list or array, got a str"),
        ({"text": np.zeros((2, 2)), "label": [1, 2]}, "must have one dimension"),
        ({"review": ["a"], "y": [1]}, "--text review --label y"),
        (["a", "b"], "rows must be (text, label), a dict of columns or a frame, got a str"),
    ],
)  # fmt: skip
def test_values_in_memory_that_are_no_rows(data, message):
    assert message in refused(data)


@pytest.mark.parametrize("data", [5, None, b"abc"])
def test_values_of_another_type_are_refused_by_it(data):
    assert "data must be a path, the name of a data set" in refused(data, error=TypeError)


def test_names_of_columns_are_different_names():
    for wrong in (("text", "label"), ((), "label"), (("a", "a"), None), (("a",), "a")):
        with pytest.raises(ValueError, match="columns must be a tuple of names"):
            Columns(*wrong)
    assert "(premise, hypothesis, label)" in refused([("a", "b")], PAIR)


class DatasetLike:
    """As datasets.Dataset: rows are dicts, features know the classes."""

    class ClassLabel:
        names = ("neg", "pos")

    def __init__(self, *rows, names=("text", "label")):
        self.rows, self.column_names = rows, names
        self.features = {"text": object(), "label": self.ClassLabel()}

    def __iter__(self):
        return iter(self.rows)


def test_frames():
    pandas = pytest.importorskip("pandas")
    columns = {"text": ["a", pandas.NaT, "c", NAN], 0: [*"wxyz"], "label": [1, 2, pandas.NA, 3]}
    frame = pandas.DataFrame(columns, dtype=object)
    assert read(frame) == [(1, "a", 1), (2, "no text"), (3, "no label"), (4, "no text")]
    assert read(pandas.DataFrame([["a", "b"]]), Columns(("0",), "1")) == [(1, "a", "b")]
    twice = pandas.DataFrame([["a", "b", "c"]], columns=["text", "text", "label"])
    assert "got 'text' more than once" in refused(twice)
    # as of polars, before its query has run
    lazy = type("Lazy", (), {"columns": ["text"], "collect": None})()
    assert "call .collect()" in refused(lazy, error=TypeError)


def test_data_sets_of_another_package_have_their_classes_by_name():
    data = DatasetLike(
        {"text": "a", "label": 1}, {"text": "b", "label": np.int64(0)}, {"text": "c", "label": -1}
    )
    expected = [(1, "a", "pos"), (2, "b", "neg"), (3, "no label")]
    assert read(data) == expected
    assert read({"train": data, "test": DatasetLike()}) == expected
    assert "must have a row, got none" in refused({"train": DatasetLike()})
    assert "split must be one of 'train', got 'dev'" in refused({"train": data}, split="dev")
    streamed = DatasetLike({"text": "a", "label": 1}, names=None)
    streamed.features = None
    assert read(streamed) == [(1, "a", 1)]


@pytest.mark.parametrize("end", [".parquet", ".arrow"])
def test_files_and_tables_of_arrow(end, tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    path = tmp_path / f"a{end}"
    save = parquet.write_table if end == ".parquet" else feather.write_feather
    columns = {"n": [1, 2, 3, 4], "text": ["a", None, "c", " d"], "label": [1, 0, -1, 0]}
    table = pa.table(columns)

    def described(facts):
        facts = facts if isinstance(facts, str) else json.dumps(facts)
        return table.replace_schema_metadata(
            {"huggingface": facts.encode("utf-8", "surrogateescape")}
        )

    facts = {"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    plain = pa.table(columns | {"label": pa.array(["x", "y", None, "y"]).dictionary_encode()})
    for one, labels in ((described(facts), ("pos", "neg")), (plain, ("x", "y"))):
        save(one, path)
        wanted = [(1, "a", labels[0]), (2, "no text"), (3, "no label"), (4, " d", labels[1])]
        assert read(path) == read(one) == wanted
        assert read(path, Columns(("text",), None))[::3] == [(1, "a", None), (4, " d", None)]
    assert infer_task(path) == "text"
    assert "columns must include 'x', got 'n', 'text', 'label'" in refused(path, Columns(("x",)))
    assert "must have a row, got none" in refused(plain.slice(0, 0))
    # a description of another form names no classes
    for odd in ("[]", "null", "{", "[" * 100_000, "\udc80", {"info": []},
                {"info": {"features": [1]}}, {"info": {"features": {"label": 1}}},
                {"info": {"features": {"label": {"names": 2}}}},
                {"info": {"features": {"label": {"names": [1, 2]}}}}):  # fmt: skip
        save(described(odd), path)
        assert read(path)[3] == read(described(odd))[3] == (4, " d", 0)
    path.write_bytes(path.read_bytes()[:-9])
    assert refused(path).startswith("FILE must be data that pyarrow can read, got damaged data")
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    assert refused(path) == "FILE needs pyarrow: pip install pyarrow"


# by name -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_set_of_gatedjax_by_name():
    rows = read("polarity")
    assert len(rows) > 100
    assert {row[-1] for row in rows} == {"negative", "positive"}
    assert all(isinstance(row[1], str) and " " in row[1] for row in rows)
    assert read("polarity", split="test") != rows
    assert "columns must include 'review', got 'text', 'label'" in refused(
        "polarity", Columns(("review",))
    )


def test_a_folder_of_the_user_wins_over_a_set_of_its_name(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = read("demo")
    assert len(rows) == 4735
    assert {row[-1] for row in rows} == {"Alcott", "London", "Stevenson"}
    write("x", "demo/good/a.txt")
    assert read("demo") == [(1, "x", "good")]


def test_a_set_of_gatedjax_may_be_of_pairs_and_has_lines_aside(monkeypatch):
    pair = {"tokens": ("a", "man"), "hypothesis": ("no", "man"), "example_id": 0}
    info = SourceInfo("snli", "test", ("entailment", "neutral"))
    aside = Quarantined("snli.txt", 9, "an empty sentence")
    sources = {
        "snli": Source([pair | {"label": 1}, pair | {"label": -1}], info,
                       ReadReport(lines=3, used=2, quarantine=(aside,))),
        "cbt_ne": Source([{"tokens": ("a",), "query": ("b",), "label": 0}], info),
        "ewt_trees": Source([{"tokens": ("a",), "label": 0}], SourceInfo("ewt_trees", "test", ())),
        "digits": Source([{"image": 0, "label": 0}], info),
    }  # fmt: skip
    monkeypatch.setattr(_open.gdata, "load", lambda name, split: sources[name])
    assert infer_task("snli") == "pair"
    assert list(open_table("snli", PAIR)) == [
        Record(1, ("a man", "no man"), "neutral", "snli"),
        Aside("snli", 2, "no label"),
        Aside("snli.txt", 9, "an empty sentence"),
    ]
    assert "columns must include 'text', got 'premise', 'hypothesis', 'label'" in refused("snli")
    for other in ("cbt_ne", "ewt_trees", "digits"):
        assert "must be a data set of labelled texts" in refused(other)


def test_a_set_of_hugging_face_by_name(monkeypatch):
    asked = []

    class Package:
        @staticmethod
        def load_dataset(path, config, split):
            asked.append((path, config, split))
            if split == "none":
                raise RuntimeError("no such split\nin many lines")
            return DatasetLike({"text": "a", "label": 1})

    monkeypatch.setitem(sys.modules, "datasets", Package)
    assert read("hf:user/imdb") == read("hf:glue:sst2", split="test") == [(1, "a", "pos")]
    assert asked == [("user/imdb", None, "train"), ("glue", "sst2", "test")]
    assert refused("hf:imdb", split="none") == (
        "data and split must exist at Hugging Face, got 'FILE' and 'none': RuntimeError: no such "
        "split"
    )
    assert infer_task("hf:imdb") == "text"
    assert "must be hf:NAME or hf:NAME:CONFIG" in refused("hf:")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refused("hf:imdb") == "FILE needs datasets: pip install datasets"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_set_of_tfds_by_name(tmp_path, monkeypatch, capsys):
    tfds = pytest.importorskip("tensorflow_datasets")

    class OwnTextForTests(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "text": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["n", "p"]),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            yield 0, {"text": "café", "label": 1}
            yield 1, {"text": "", "label": 0}

    build, name = OwnTextForTests, "own_text_for_tests"
    monkeypatch.setattr(tfds, "builder", lambda name, **k: build(data_dir=tmp_path, **k))
    assert read(f"tfds:{name}") == [(1, "café", "p"), (2, "no text")]
    assert capsys.readouterr().out == ""
    said = refused(f"tfds:{name}", split="dev")
    assert "and split must exist in TFDS, got 'FILE' and 'dev': " in said
    said = refused(f"tfds:{name}", Columns(("x",)))
    assert "columns must include 'x', got 'text', 'label'" in said
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    assert "no data set of this name" in refused(name, error=FileNotFoundError)
    assert "pip install tensorflow-datasets" in refused(f"tfds:{name}")


# what the data are for ---------------------------------------------------------------------------


def test_the_task_is_known_by_the_names(write):
    assert infer_task(write("text,label\na,b\n")) == "text"
    assert infer_task(write("id;hypothesis;premise\n1;a;b\n")) == "pair"
    assert infer_task(write("Premise,Hypothesis,Label\na,b,c\n")) == "pair"
    assert infer_task(write('{"premise": "a", "hypothesis": "b"}\n', "a.jsonl")) == "pair"
    for name in ("a.conll", "a.CONLLU", "a.iob", "a.bio", "a.conllu"):
        assert infer_task(write("a B\n", name)) == "tags"
    assert infer_task([("a", "b", 1)]) == "pair"
    assert infer_task([("a", 1)]) == infer_task([]) == infer_task(["abc"]) == "text"
    assert infer_task({"premise": [], "hypothesis": []}) == "pair"
    assert infer_task(write("__label__a b", "a.txt")) == "text"
    assert infer_task(write("b", "films/pos/a.txt").parent.parent) == "text"
    assert read(write("premise,hypothesis,label\na,,c\nx,y,z\n"), PAIR) == [
        (2, "no hypothesis"),
        (3, "x", "y", "z"),
    ]


# tags --------------------------------------------------------------------------------------------


def tags(path, **options):
    table = open_sentences(path, **options)
    rows = list(table)
    assert list(table) == rows
    return [
        (row.line, " ".join(row.words), " ".join(row.tags))
        if isinstance(row, TaggedRecord)
        else (row.line, row.reason)
        for row in rows
    ]


SENTENCES = (
    "-DOCSTART- -X- O O\n\n# a comment\nThe DT B-NP O\n# SYM I-NP O\n#film NN I-NP B-X\n\n\n"
    "EU NNP B-NP B-ORG\nrejects VBZ\n\nlast NN B-NP O"
)
RAGGED = (10, "2 columns where the first word of the sentence has 4")
NOT_BOTH = "4 columns, not a word (column {}) and a tag (column {})"
SPOILT = b"\xef\xbb\xbfa\tX\r\n\r\nb\t \r\n\r\nalone\n\ncaf\xe9 X\nd X\n\ne\0\n\nf X\n \ng X\n"
TAGGED = [
    ("a.conll", SENTENCES, {}, [(4, "The # #film", "O O B-X"), RAGGED, (12, "last", "O")]),
    ("a.conll", SENTENCES, {"tag": 1}, [(4, "The # #film", "DT SYM NN"), RAGGED,
                                        (12, "last", "NN")]),
    ("a.conll", SENTENCES, {"word": 1, "tag": 2}, [(4, "DT SYM NN", "B-NP I-NP I-NP"), RAGGED,
                                                   (12, "NN", "B-NP")]),
    ("a.conll", SENTENCES, {"tag": 7}, [(4, NOT_BOTH.format(0, 7)), (9, NOT_BOTH.format(0, 7)),
                                        (12, NOT_BOTH.format(0, 7))]),
    ("a.conll", SENTENCES, {"word": 3}, [(4, NOT_BOTH.format(3, -1)), (9, NOT_BOTH.format(3, -1)),
                                         (12, NOT_BOTH.format(3, -1))]),
    ("a.CoNLLU", "# text = im Haus\n1-2\tim\t_\t_\n1\tin\tin\tADP\n2\tdem d\tder\tDET\n"
     "2.1\tx\tx\tX\n\n1\t#\t#\tSYM\n\n", {}, [(3, "in dem d", "ADP DET"), (7, "#", "SYM")]),
    ("a.iob", SPOILT, {}, [
        (1, "a", "X"), (3, "an empty word or tag"),
        (5, "1 column, not a word (column 0) and a tag (column -1)"),
        (7, "not utf-8: byte 0xe9"), (10, "NUL character"), (12, "f", "X"), (14, "g", "X")]),
    ("a.iob", SPOILT, {"encoding": "cp1252"}, [
        (1, "ï»¿a", "X"), (3, "an empty word or tag"),
        (5, "1 column, not a word (column 0) and a tag (column -1)"),
        (7, "café d", "X X"), (10, "NUL character"), (12, "f", "X"), (14, "g", "X")]),
    # "#" and a space begin a comment before a sentence, and a word inside of it
    ("a.conll", "# O\nat O\nRome B-LOC\n\nI O\n# O\n\n# O\n\n", {},
     [(2, "at Rome", "O B-LOC"), (5, "I #", "O O")]),
    ("a.conll", "# newdoc\nI O\n\n# 12\nin O\n# O\n", {}, [(2, "I", "O"), (5, "in #", "O O")]),
    ("a.conll", "-DOCSTART- O\n# a new one\na O\n", {}, [(3, "a", "O")]),
    # with a tab it is a word
    ("a.conll", "#\tO\nRome\tB-LOC\n\n#\t##\na\tDT\n", {},
     [(1, "# Rome", "O B-LOC"), (4, "# a", "## DT")]),
    # other spaces than these are characters of a word
    ("a.conll", "10\u00a0000 CD\n\u3000x CD\n", {}, [(1, "10\u00a0000 x", "CD CD")]),
    ("a.conll", "#\nat\nRome\n\n# a comment\nI\n#\n", {"tagged": False},
     [(1, "# at Rome", ""), (6, "I #", "")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "rows"), TAGGED)
def test_sentences_with_a_tag_a_word(write, name, content, options, rows):
    assert tags(write(content, name), **options) == rows


def test_sentences_that_end_nowhere_or_are_not_there(write, monkeypatch):
    path = write("a X\n", "a.conll")
    assert list(open_sentences(str(path))) == [TaggedRecord(1, ("a",), ("X",), str(path))]
    monkeypatch.setattr("gatedjax.text.sources._conll.LONGEST", 3)
    assert tags(write("a X\n" * 5 + "\nb X\n", "b.bio")) == [
        (4, "more than 3 words without an empty line"),
        (7, "b", "X"),
    ]
    for odd, reason in (("no.conll", "there is no such file"), ("", "not a regular file")):
        with pytest.raises(FileNotFoundError, match=reason):
            open_sentences(path.parent / odd)
    with pytest.raises(ValueError, match="got an empty file"):
        open_sentences(write("", "empty.conll"))
