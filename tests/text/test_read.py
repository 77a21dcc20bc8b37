"""Readers of your own text: every line is a record or set aside with its file, line and reason."""

import csv
import gzip
import io
import itertools
import json
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from gatedjax.data import Source, SourceInfo
from gatedjax.data.files._source import Quarantined, ReadReport
from gatedjax.text import _delimited, _lines, _named
from gatedjax.text._read import (
    Aside,
    Columns,
    Record,
    TaggedRecord,
    infer_task,
    open_table,
    open_tags,
)

PAIR = Columns(("premise", "hypothesis"))
TEXTS = Columns(label=None)


@pytest.fixture
def write(tmp_path):
    def write(content, name="reviews.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def read(data, columns=None, **options):
    """What is used as (line, *inputs, label), what is not as (line, reason)."""
    table = open_table(data, columns, **options)
    rows = list(table)
    assert list(table) == rows  # a second pass is the first
    return [
        (row.line, *row.inputs, row.label) if isinstance(row, Record) else (row.line, row.reason)
        for row in rows
    ]


def refused(data, columns=None, error=ValueError, **options):
    with pytest.raises(error) as caught:
        list(open_table(data, columns, **options))
    message = str(caught.value)
    assert not {"\n", "\x1b"} & set(message)
    return message.replace(str(data), "FILE") if len(str(data)) > 3 else message


# tables of fields --------------------------------------------------------------------------------


def test_columns_are_found_by_name_and_labels_are_as_written(write):
    path = write("id,label,text\n7,01,a dull film\n8,1.50,good\n")
    assert read(path) == [(2, "a dull film", "01"), (3, "good", "1.50")]
    assert read(str(path), Columns(("label",), "id")) == [(2, "01", "7"), (3, "1.50", "8")]
    assert read(path, TEXTS) == [(2, "a dull film", None), (3, "good", None)]
    table = open_table(path)
    assert table.name == str(path)
    assert next(iter(table)) == Record(2, ("a dull film",), "01", str(path))


def test_a_record_is_called_by_the_line_where_it_begins(write):
    path = write('text,label\n"two\nlines, ""quoted""",pos\n\n"a\r\nb",neg\nshort\nlast,pos')
    assert read(path) == [
        (2, 'two\nlines, "quoted"', "pos"),
        (4, "empty line"),
        (5, "a\r\nb", "neg"),
        (7, "1 field where the header has 2"),
        (8, "last", "pos"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_every_kind_of_line_end(write, end, name):
    lines = {
        "a.csv": ["text,label", "good,pos", "bad,neg"],
        "a.tsv": ["text\tlabel", "good\tpos", "bad\tneg"],
        "a.jsonl": ['{"text": "good", "label": "pos"}', '{"text": "bad", "label": "neg"}'],
        "a.txt": ["__label__pos good", "__label__neg bad"],
    }[name]
    shift = 1 + (len(lines) == 3)
    path = write(end.join(lines) + end, name)
    assert read(path) == [(shift, "good", "pos"), (shift + 1, "bad", "neg")]


def test_lines_that_cannot_be_used_are_set_aside_with_the_reason(write):
    path = write(
        b"text,label\nok,pos\n,pos\n  ,neg\nno label,\nno label, \na,b,c\nN\0L,pos\n"
        b"caf\xe9,pos\nx\xff,y\xe9\nfin, neg \n"
    )
    assert read(path) == [
        (2, "ok", "pos"),
        (3, "no text"),
        (4, "no text"),
        (5, "no label"),
        (6, "no label"),
        (7, "3 fields where the header has 2"),
        (8, "NUL character"),
        (9, "not utf-8: byte 0xe9"),
        (10, "not utf-8: byte 0xff"),
        (11, "fin", "neg"),
    ]
    aside = [row for row in open_table(path) if isinstance(row, Aside)]
    assert str(aside[2]) == f"{path}:5: no label"
    assert str(Aside("a\x1b[1m.csv", 3, "no text")) == r"a\x1b[1m.csv:3: no text"


def test_a_byte_order_mark_is_no_part_of_the_first_name(write):
    assert read(write("\ufefftext,label\na,b\n")) == [(2, "a", "b")]
    assert read(write('\ufeff{"text": "a", "label": "b"}\n', "a.jsonl")) == [(1, "a", "b")]
    assert read(write("\ufeff__label__b a", "a.txt")) == [(1, "a", "b")]


def test_encodings(write):
    old = write("text,label\ncafé,pos\n".encode("cp1252"))
    assert read(old, encoding="cp1252") == [(2, "café", "pos")]
    assert read(old) == [(2, "not utf-8: byte 0xe9")]
    wide = write("text,label\ncafé,pos\n".encode("utf-16"), "wide.csv")
    assert read(wide, encoding="utf-16") == [(2, "café", "pos")]
    assert "must be utf-8, got utf-16: give --encoding utf-16" in refused(wide)
    bare = write("text,label\ncafé,pos\n".encode("utf-16-le"), "bare.csv")
    assert "bytes; for UTF-16 give --encoding utf-16-le or utf-16-be" in refused(bare)
    assert read(bare, encoding="utf-16-le") == [(2, "café", "pos")]
    widest = write("text,label\ncafé,pos\n".encode("utf-32"), "widest.csv")
    assert "must be utf-8, got utf-32: give --encoding utf-32" in refused(widest)
    assert read(widest, encoding="utf-32") == [(2, "café", "pos")]
    cut = write("text,label\ncafé,pos\n".encode("utf-16") + b"x", "cut.csv")
    assert "must be utf-16, got other bytes in line " in refused(cut, encoding="utf-16")
    header = write("tëxt,label\na,b\n".encode("cp1252"), "header.csv")
    assert refused(header) == (
        "FILE:1: the header cannot be read: not utf-8: byte 0xeb; these bytes are characters of "
        "cp1252: --encoding cp1252"
    )
    header.write_bytes(b"t\x81xt,label\na,b\n")
    assert refused(header).endswith(": not utf-8: byte 0x81; give its encoding with --encoding")
    for wrong in ("utf-9", "hex", "rot13", "a\0b"):
        assert "encoding must be a text encoding of Python" in refused(old, encoding=wrong)


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        ("review,sentiment", None, "columns must include 'text' and 'label', got 'review', "
         "'sentiment': --text review --label sentiment"),
        ("text,sentiment", None, "columns must include 'label', got 'text', 'sentiment': "
         "--text text --label sentiment"),
        ("Text,TEXT,LABEL", None, "--text Text --label LABEL"),
        ("id,txet,labels", None, "--text txet --label labels"),
        ("text,verdict", None, "--text text --label verdict"),
        ("sentence1,sentence2,gold", PAIR, "--text sentence1 sentence2 --label gold"),
        ("review,stars", TEXTS, "got 'review', 'stars': --text review"),
        ("a,b,c", None, "got 'a', 'b', 'c': give the names with --text and --label; the "
         "first line must be the header"),
        ("a dull film,0", None, "'a dull film', '0': give the names with --text and --label; the"),
        ("text", None, "got 'text'; the first line must be the header"),
    ],
)  # fmt: skip
def test_a_column_that_is_not_there_is_named_with_the_likely_one(write, header, columns, message):
    assert message in refused(write(f"{header}\nx{',y' * header.count(',')}\n"), columns)


def test_a_header_names_a_column_once_and_a_long_one_is_not_shown_whole(write):
    assert refused(write("text,label,text, label\na,b,c,d\n")) == (
        "FILE: columns must have different names, got 'label', 'text' more than once"
    )
    assert read(write(",text,,label\n0,a,,b\n")) == [(2, "a", "b")]  # pandas' index, spare commas
    many = refused(write(",".join(f"x{i}" * 40 for i in range(50)) + "\n"))
    assert "and 38 more" in many
    assert len(many) < 900


def test_semicolons_and_tabs_of_a_spreadsheet_are_found(write):
    assert read(write("text;label\na, b;pos\n")) == [(2, "a, b", "pos")]
    assert read(write("text\tlabel\na; b, c\tpos\n")) == [(2, "a; b, c", "pos")]
    assert read(write("text\na; b\n"), TEXTS) == [(2, "a; b", None)]
    assert "got 'review', 'stars': --text review" in refused(write("review;stars\na;b\n"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n"])
def test_names_in_quotes_are_names_by_any_delimiter(write, delimiter, start):
    file = io.StringIO()
    rows = [("text", "label"), ("a, b; c", "x"), ('d "e"', "y")]
    csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    path = write(start + file.getvalue())
    first = 2 + (start == "\n")
    assert read(path) == [(first, "a, b; c", "x"), (first + 1, 'd "e"', "y")]
    named = write(f'"text, full"{delimiter}label\na{delimiter}x\n')
    assert read(named, Columns(("text, full",))) == [(2, "a", "x")]


def test_a_header_in_wrong_quotes_is_refused_with_the_reason(write):
    assert refused(write('"text" ,label\na,x\n')) == (
        "FILE:1: the header cannot be read: text after a field in quotes: a quote inside such a "
        "field is written twice"
    )


def test_nothing_to_read(write):
    assert refused(write("")) == "FILE must have a labelled text, got an empty file"
    assert refused(write("\ufeff")) == "FILE must have a labelled text, got an empty file"
    assert refused(write("\n\n")) == "FILE must have a labelled text, got an empty file"
    assert refused(write("text,label\n")) == "FILE must have a row after the header, got none"
    assert refused(write("text,label")) == "FILE must have a row after the header, got none"
    for name in ("a.jsonl", "a.txt"):
        assert refused(write("", name)) == "FILE must have a labelled text, got an empty file"
        assert refused(write("\ufeff", name)) == "FILE must have a labelled text, got an empty file"


def test_a_quote_that_nothing_closes_costs_one_line(write):
    path = write('text,label\na,pos\n"b,neg\nc,pos\n"d, ""e""",neg\n"f,pos\ng,neg\n')
    wrong = "a quote inside such a field is written twice"
    assert read(path) == [
        (2, "a", "pos"),
        (3, f"text after a field in quotes, which closes in line 5: {wrong}"),
        (4, "c", "pos"),
        (5, 'd, "e"', "neg"),
        (6, "a quote opens a field here that no quote closes"),
        (7, "g", "neg"),
    ]
    assert read(write('text,label\n"a" b,pos\nc "d" e,neg\n')) == [
        (2, f"text after a field in quotes: {wrong}"),
        (3, 'c "d" e', "neg"),
    ]


def test_quotes_between_tabs_need_mean_nothing(write):
    path = write(
        'text\tlabel\n"a\tpos\n"b" he said\tneg\nc"\tpos\n"d\te"\tneg\n"f\ng"\tpos\n"h\tneg\n',
        "a.tsv",
    )
    assert read(path) == [
        (2, '"a', "pos"),
        (3, '"b" he said', "neg"),
        (4, 'c"', "pos"),
        (5, "d\te", "neg"),
        (6, "f\ng", "pos"),
        (8, '"h', "neg"),
    ]
    # quotes that would make one text of three lines
    assert read(write('text\tlabel\n"a\tpos\nb\tneg\nc"\tpos\n', "a.tsv")) == [
        (2, '"a', "pos"),
        (3, "b", "neg"),
        (4, 'c"', "pos"),
    ]


def test_quotes_that_never_add_up_end_and_keep_little(write, monkeypatch):
    monkeypatch.setattr(_lines, "LONGEST", 1 << 12)
    monkeypatch.setattr("gatedjax.text._delimited.LONGEST", 1 << 12)
    # every line closes the field of the one before it and opens another
    path = write("text,label\n" + 'x","y\n' * 50_000)
    assert "quotes around fields must be closed" in refused(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_quote_that_nothing_closes_does_not_hold_the_file(write, monkeypatch, name):
    monkeypatch.setattr(_delimited, "LONGEST", 1 << 12)
    delimiter = "\t" if name == "a.tsv" else ","
    lines = ["text,label", '"a,b', *["some words of a film,pos"] * 30_000, '"c\nd",neg']
    path = write("\n".join(lines).replace(",", delimiter), name)
    tracemalloc.start()
    try:
        used = 0
        for row in open_table(path):
            used += isinstance(row, Record)
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()
    assert used == 30_001 + (name == "a.tsv")
    assert row.inputs == ("c\nd",)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_what_a_writer_of_csv_wrote_is_read_as_it_was(write, name):
    generator = random.Random(0)
    delimiter = "\t" if name == "a.tsv" else ","
    pieces = ["a", "é", '"', ",", "\n", "\r\n", " ", "#", ";"]
    rows = [
        ("x" + "".join(generator.choices(pieces, k=generator.randrange(12))), str(i))
        for i in range(500)
    ]
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerows([("text", "label"), *rows])
    lines = [2 + sum(text.count("\n") + 1 for text, _ in rows[:i]) for i in range(500)]
    expected = [(line, *row) for line, row in zip(lines, rows, strict=True)]
    assert read(write(file.getvalue(), name)) == expected


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_no_line_is_lost_whatever_the_quotes(write, name):
    generator = random.Random(1)
    delimiter = "\t" if name == "a.tsv" else ","
    for _ in range(100):
        body = "".join(generator.choices(["a", '"', delimiter, "\n"], k=80)) + "\n"
        path = write(f"text{delimiter}label\n{body}", name)
        found = list(_delimited._records(_lines.TextFile(path), delimiter))
        ends = [line for line, _ in found[1:]] + [2 + body.count("\n")]
        for (line, fields), end in zip(found, ends, strict=True):
            # a record has the lines of its fields; what is set aside for its quotes has one
            inside = 0 if isinstance(fields, str) else sum(one.count("\n") for one in fields)
            assert end - line == 1 + inside


def test_a_field_of_10_mb_is_a_text_and_a_line_may_not_be_a_file(write, monkeypatch):
    size = 10_000_000
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


def test_packed_files_are_read_and_held_to_the_limit(write, monkeypatch):
    for name, content in (
        ("a.csv.gz", "text,label\na,b\n"),
        ("a.TSV.gz", "text\tlabel\na\tb\n"),
        ("a.jsonl.gz", '\n{"text": "a", "label": "b"}'),
        ("a.txt.gz", "\n__label__b a"),
    ):
        assert read(write(content, name))[-1] == (2, "a", "b")
    path = write("text,label\n" + "aaaa,bb\n" * 100_000, "big.csv.gz")
    assert len(read(path)) == 100_000
    path.write_bytes(path.read_bytes()[:-20])
    assert "FILE: truncated or damaged compressed file" in refused(path)
    monkeypatch.setenv("GATEDJAX_UNPACK_LIMIT", "100KB")
    bomb = write("text,label\n" + "a,b\n" * 1_000_000, "bomb.csv.gz")
    assert "unpacks to more than" in refused(bomb)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "an image (PNG)"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image (JPEG)"),
        (b"PK\x03\x04\x14\0", "its name must end with .zip, or .xlsx for a workbook"),
        (b"\x28\xb5\x2f\xfd\x24\x0b", "its name must end with .zst"),
        (gzip.compress(b"text,label\n", mtime=0), "its name must end with .gz"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (bytes(range(256)) * 20, "control characters"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
def test_a_file_that_is_no_text_is_refused_whole(write, content, what, name):
    message = refused(write(content, name))
    assert "FILE must be a text file, got " in message
    assert what in message


def test_one_nul_does_not_make_a_short_file_binary(write):
    assert read(write("text,label\nN\0,x\n\0\0\0,y\nz,z")) == [
        (2, "NUL character"),
        (3, "NUL character"),
        (4, "z", "z"),
    ]


def test_endings_and_paths_that_are_not_read(write, tmp_path):
    known = "must end with .csv, .tsv, .tab, .json, .jsonl, .ndjson, .txt (each also with "
    for name in ("a.doc", "a.psv", "a.feather", "a"):
        assert known in refused(write("x", name))
    assert "got '.xls'; save the workbook as .xlsx or .csv" in refused(write("x", "a.xls"))
    assert "for the tagger" in refused(write("a B\n", "a.conll"))
    write("text,label\na,b\n", "reviews.csv")
    missing = refused(str(tmp_path / "revews.csv"), error=FileNotFoundError)
    assert missing == f"FILE: there is no such file; did you mean {tmp_path / 'reviews.csv'}?"
    for odd in ("x" * 5000, "a\0b.csv", "a dull , lifeless film", "\x1b[31mred.csv"):
        assert "there is no such file" in refused(odd, error=FileNotFoundError)
    for empty in ("", " "):
        assert "must be a path or the name of a data set" in refused(empty)
    assert "no data set of this name" in refused("trecc", error=FileNotFoundError)


# other files -------------------------------------------------------------------------------------


def test_json_lines_keep_the_kind_of_a_label(write):
    path = write(
        '{"text": "a", "label": 3, "x": [1]}\n{"label": 0.5, "text": "b"}\n'
        '{"text": "c\\nd \\u00e9", "label": true}\n{"text": "e", "label": " 1"}\n',
        "a.ndjson",
    )
    rows = read(path)
    assert rows == [(1, "a", 3), (2, "b", 0.5), (3, "c\nd é", True), (4, "e", "1")]
    assert [type(row[-1]) for row in rows] == [int, float, bool, str]


def test_json_lines_that_cannot_be_used(write):
    lines = {
        '{"text": "a", "label": "b"}': None,
        "": "empty line",
        "[1, 2]": "not an object but a list",
        '"text"': "not an object but a str",
        "null": "not an object but a NoneType",
        '{"text": "a", "label": null}': "no label",
        '{"text": "a"}': "no label",
        '{"label": "b"}': "no text",
        '{"text": {"a": {}}, "label": "b"}': "text must be a text, got dict {'a': {}}",
        '{"text": ["a"], "label": "b"}': "text must be a text, got list ['a']",
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
        '{"text": "a", "label": ' + "9" * 5000 + "}": "not JSON that can be read: Exceeds the",
        "[" * 100_000: "not JSON that can be read: it is nested too deep",
    }
    found = read(write("\n".join(lines), "a.jsonl"))
    assert [row[0] for row in found] == list(range(1, len(lines) + 1))
    assert found[0] == (1, "a", "b")
    for row, reason in zip(found[1:], list(lines.values())[1:], strict=True):
        assert reason in row[1]
    renamed = write('\n[]\n{"review": "a", "stars": 1}\n', "b.jsonl")
    assert refused(renamed).endswith("'review', 'stars': --text review --label stars")


def test_lines_of_fasttext(write):
    path = write(
        "__label__pos  a dull film\nno label\n__label__a __label__b two\n__label__ nameless\n"
        "__label__pos\nat the end __label__neg\nx__label__y z\n\n__label__1\ttab\n",
        "a.txt",
    )
    assert read(path) == [
        (1, "a dull film", "pos"),
        (2, "no __label__NAME"),
        (3, "two", ("a", "b")),
        (4, "no label"),
        (5, "no text"),
        (6, "at the end", "neg"),
        (7, "no __label__NAME"),
        (8, "empty line"),
        (9, "tab", "1"),
    ]
    assert read(path, TEXTS)[:3] == [
        (1, "a dull film", None),
        (2, "no label", None),
        (3, "two", None),
    ]
    expected = "must have labels as __label__NAME, got none in its first 2 lines"
    assert expected in refused(write("a\nb\n", "b.txt"))
    assert "pairs must be in a .csv, .tsv or .jsonl file, got a .txt file" in refused(path, PAIR)


def test_a_folder_per_class(write, tmp_path, monkeypatch):
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(sorted(listed(self), reverse=True)))
    top = tmp_path / "films"
    for name, content in {
        "pos/b.txt": "good\nindeed\n", "pos/a.txt": b"\xef\xbb\xbffirst", "pos/deep/c.txt": "deep",
        "neg/0.txt": "bad", "neg/1.txt": b"two\nlines \xe9", "neg/2.md": "x", "neg/3.txt": " \n",
        "neg/.DS_Store": "x", "urls.txt": "x", ".hidden/a.txt": "x", "neg/4.txt": b"a\n\nb\0",
    }.items():  # fmt: skip
        write(content, f"films/{name}")
    rows = list(open_table(top))
    assert [row for row in rows if isinstance(row, Record)] == [
        Record(1, ("bad",), "neg", f"{top}/neg/0.txt"),
        Record(1, ("first",), "pos", f"{top}/pos/a.txt"),
        Record(1, ("good\nindeed\n",), "pos", f"{top}/pos/b.txt"),
        Record(1, ("deep",), "pos", f"{top}/pos/deep/c.txt"),
    ]
    assert [str(row).removeprefix(f"{top}/") for row in rows if isinstance(row, Aside)] == [
        "neg/1.txt:2: not utf-8: byte 0xe9",
        "neg/2.md:1: not a .txt file",
        "neg/3.txt:1: no text",
        "neg/4.txt:3: NUL character",
        "urls.txt:1: not in the folder of a class",
    ]
    assert len(read(top, encoding="cp1252")) == len(rows)


def test_folders_that_are_not_one_per_class(write, tmp_path):
    wanted = "must have a folder with .txt files for each class"
    (tmp_path / "none").mkdir()
    assert refused(tmp_path / "none") == f"FILE {wanted}, got no folder"
    write("x", "flat/a.txt")
    assert "got no folder" in refused(tmp_path / "flat")
    assert read(tmp_path / "flat", TEXTS) == [(1, "x", None)]
    write("x", "images/cats/a.png")
    assert "got no usable text" in refused(tmp_path / "images")
    for part in ("train", "test"):
        write("x", f"whole/{part}/pos/a.txt")
    assert "its folders must be classes, got the parts test, train" in refused(tmp_path / "whole")


# in memory ---------------------------------------------------------------------------------------


def test_rows_in_memory():
    assert read([("a", "x"), ["b", 1], np.array(["c", "y"])]) == [
        (1, "a", "x"),
        (2, "b", 1),
        (3, "c", "y"),
    ]
    assert read((row for row in [("a", "b", 0)]), PAIR) == [(1, "a", "b", 0)]
    assert read(["a", None, "c", 5], TEXTS) == [
        (1, "a", None),
        (2, "no text"),
        (3, "c", None),
        (4, "must be a text or (text,), got a int"),
    ]
    assert read([("a", "x"), ("b",), "c", (None, "x"), ("d", None), ("e", float("nan"))]) == [
        (1, "a", "x"),
        (2, "must be (text, label), got a tuple of 1 value"),
        (3, "must be (text, label), got a str"),
        (4, "no text"),
        (5, "no label"),
        (6, "no label"),
    ]
    assert read([("a", "x")], TEXTS) == [(1, "a", None)]
    assert read(np.array(["a", "b"]), TEXTS) == [(1, "a", None), (2, "b", None)]
    table = open_table([("", "x")])
    assert [str(row) for row in table] == ["rows:1: no text"]


def test_dicts_and_columns_in_memory():
    rows = [{"text": "a", "label": np.int64(3)}, {"text": "b"}, 5, {"text": b"c", "label": b"x"}]
    assert read(rows) == [(1, "a", 3), (2, "no label"), (3, "not a dict but a int"), (4, "c", "x")]
    assert type(read(rows)[0][-1]) is int
    found = read({"text": np.array(["a", "b"]), "label": np.array([True, False]), "z": 1})
    assert found == [(1, "a", True), (2, "b", False)]
    assert [type(value) for value in found[0]] == [int, str, bool]
    assert "columns must have the same length, got 'text' 1, 'label' 2" in refused(
        {"text": ["a"], "label": [1, 2]}
    )
    assert "column 'text' must be a list or array, got a str" in refused(
        {"text": "a", "label": "b"}
    )
    assert "must have one dimension" in refused({"text": np.zeros((2, 2)), "label": [1, 2]})
    assert "--text review --label y" in refused({"review": ["a"], "y": [1]})


@pytest.mark.parametrize("data", [[], (), {"text": [], "label": []}, iter(())])
def test_no_rows_in_memory(data):
    assert "must have a row, got none" in refused(data)


def test_values_of_no_known_kind_are_refused_at_once():
    assert refused(["a", "b"]) == (
        "rows must be (text, label), a dict of columns or a frame, got a str"
    )
    assert "(premise, hypothesis, label)" in refused([("a", "b")], PAIR)
    for data in (5, None, b"abc"):
        assert "data must be a path, the name of a data set" in refused(data, error=TypeError)
    for wrong in (("text", "label"), ((), "label"), (("a", "a"), None), (("a",), "a")):
        with pytest.raises(ValueError, match="columns must be a tuple of names"):
            Columns(*wrong)


class PandasLike:
    """A frame of which a column is taken by its name, as of pandas and polars."""

    def __init__(self, *columns):
        self.columns = [name for name, _ in columns]
        self._data = dict(columns)

    def __getitem__(self, name):
        return self._data[name]


class NAType:
    """As pandas.NA: no comparison of it is true or false."""

    def __eq__(self, other):
        return self

    __ne__ = __eq__
    __hash__ = None

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


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
    frame = PandasLike(
        ("text", ["a", NAType(), "c", float("nan")]), (0, "wxyz"), ("label", [1, 2, NAType(), 3])
    )
    assert read(frame) == [(1, "a", 1), (2, "no text"), (3, "no label"), (4, "no text")]
    numbered = PandasLike((0, ["a"]), (1, ["b"]))
    assert read(numbered, Columns(("0",), "1")) == [(1, "a", "b")]
    twice = PandasLike(("text", []), ("text", []), ("label", []))
    assert "got 'text' more than once" in refused(twice)

    class Lazy(PandasLike):
        def collect(self):
            pass

    assert "call .collect()" in refused(Lazy(("text", ["a"])), error=TypeError)


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

    facts = {"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}
    columns = {"n": [1, 2, 3, 4], "text": ["a", None, "c", " d"], "label": [1, 0, -1, 0]}
    named = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps(facts)})
    plain = pa.table(columns | {"label": pa.array(["x", "y", None, "y"]).dictionary_encode()})
    path = tmp_path / f"a{end}"
    save = parquet.write_table if end == ".parquet" else feather.write_feather
    for table, labels in ((named, ("pos", "neg")), (plain, ("x", "y"))):
        save(table, path)
        wanted = [(1, "a", labels[0]), (2, "no text"), (3, "no label"), (4, " d", labels[1])]
        assert read(path) == read(table) == wanted
        assert read(path, Columns(("text",), None))[::3] == [(1, "a", None), (4, " d", None)]
    assert infer_task(path) == "text"
    assert _lines.suggest_encoding(path, "utf-8") == ""
    assert "columns must include 'x', got 'n', 'text', 'label'" in refused(path, Columns(("x",)))
    assert "must have a row, got none" in refused(plain.slice(0, 0))
    path.write_bytes(path.read_bytes()[:-9])
    assert refused(path).startswith("FILE must be data that pyarrow can read, got damaged data")
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    assert refused(path) == "FILE needs pyarrow: pip install pyarrow"


@pytest.mark.parametrize(
    "facts",
    ["[]", "null", "3", "{", "[" * 100_000, "\udc80", '{"info": []}', '{"info": {"features": [1]}}',
     '{"info": {"features": {"label": 1}}}', '{"info": {"features": {"label": {"names": 2}}}}',
     '{"info": {"features": {"label": {"names": [1, 2]}}}}'],
)  # fmt: skip
@pytest.mark.parametrize("end", [".parquet", ".arrow"])
def test_a_description_of_another_form_names_no_classes(end, facts, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    metadata = {"huggingface": facts.encode("utf-8", "surrogateescape")}
    table = pa.table({"text": ["a", "b"], "label": [1, 0]}).replace_schema_metadata(metadata)
    path = tmp_path / f"a{end}"
    (parquet.write_table if end == ".parquet" else feather.write_feather)(table, path)
    assert read(path) == read(table) == [(1, "a", 1), (2, "b", 0)]


def test_no_package_is_imported_to_read_a_file(write):
    path = write("text,label\na,b\n")
    heavy = "{'jax', 'flax', 'pyarrow', 'pandas', 'polars', 'sklearn', 'datasets', "
    heavy += "'tensorflow_datasets'}"
    program = (
        "import sys; from gatedjax.text._read import open_table; "
        f"print(len(list(open_table({str(path)!r}))), {heavy} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("1 set()\n", "")


# by name -----------------------------------------------------------------------------------------


def test_a_set_of_gatedjax_by_name():
    rows = read("polarity")
    assert len(rows) > 100
    assert {row[-1] for row in rows} == {"negative", "positive"}
    assert all(isinstance(row[1], str) and " " in row[1] for row in rows)
    assert read("polarity", split="test") != rows
    assert "columns must include 'review', got 'text', 'label'" in refused(
        "polarity", Columns(("review",))
    )


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
    monkeypatch.setattr(_named, "load", lambda name, split: sources[name])
    assert infer_task("snli") == "pair"
    rows = list(open_table("snli", PAIR))
    assert rows == [
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
def test_a_set_of_tfds_by_name(tmp_path, monkeypatch):
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

    build = OwnTextForTests
    monkeypatch.setattr(tfds, "builder", lambda name, **k: build(data_dir=tmp_path, **k))
    monkeypatch.setattr(tfds, "list_builders", lambda **k: ["own_text_for_tests"])
    expected = [(1, "café", "p"), (2, "no text")]
    assert read("tfds:own_text_for_tests") == read("own_text_for_tests") == expected
    assert "and split must exist in TFDS, got 'FILE' and 'dev': " in refused(
        "tfds:own_text_for_tests", split="dev"
    )
    assert "columns must include 'x', got 'text', 'label'" in refused(
        "tfds:own_text_for_tests", Columns(("x",))
    )
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    assert "no data set of this name" in refused("own_text_for_tests", error=FileNotFoundError)
    assert "pip install tensorflow-datasets" in refused("tfds:own_text_for_tests")


# what the data are for ---------------------------------------------------------------------------


def test_the_task_is_known_by_the_names(write):
    assert infer_task(write("text,label\na,b\n")) == "text"
    assert infer_task(write("id;hypothesis;premise\n1;a;b\n")) == "pair"
    assert infer_task(write('{"premise": "a", "hypothesis": "b"}\n', "a.jsonl")) == "pair"
    for name in ("a.conll", "a.CONLLU.gz", "a.iob", "a.bio", "a.conllu"):
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
    table = open_tags(path, **options)
    rows = list(table)
    assert list(table) == rows
    return [
        (row.line, " ".join(row.words), " ".join(row.tags))
        if isinstance(row, TaggedRecord)
        else (row.line, row.reason)
        for row in rows
    ]


def test_sentences_with_a_tag_a_word(write):
    path = write(
        "-DOCSTART- -X- O O\n\n# a comment\nThe DT B-NP O\n# SYM I-NP O\n#film NN I-NP B-X\n\n\n"
        "EU NNP B-NP B-ORG\nrejects VBZ\n\nlast NN B-NP O",
        "a.conll",
    )
    ragged = "2 columns where the first word of the sentence has 4"
    assert tags(path) == [(4, "The # #film", "O O B-X"), (10, ragged), (12, "last", "O")]
    assert tags(path, tag=1)[0] == (4, "The # #film", "DT SYM NN")
    assert tags(path, word=1, tag=2)[2] == (12, "NN", "B-NP")
    assert tags(path, tag=7)[2] == (12, "4 columns, not a word (column 0) and a tag (column 7)")
    assert tags(path, word=3)[2] == (12, "4 columns, not a word (column 3) and a tag (column -1)")
    first = next(iter(open_tags(str(path))))
    assert first == TaggedRecord(4, ("The", "#", "#film"), ("O", "O", "B-X"), str(path))


def test_tags_of_universal_dependencies(write):
    path = write(
        "# text = im Haus\n1-2\tim\t_\t_\n1\tin\tin\tADP\n2\tdem d\tder\tDET\n2.1\tx\tx\tX\n\n"
        "1\t#\t#\tSYM\n\n",
        "a.conllu.gz",
    )
    assert tags(path) == [(3, "in dem d", "ADP DET"), (7, "#", "SYM")]


def test_sentences_that_cannot_be_used(write, monkeypatch):
    path = write(
        b"\xef\xbb\xbfa\tX\r\n\r\nb\t\r\n\r\nalone\n\ncaf\xe9 X\nd X\n\ne\0 X\n\nf X\n \ng X\n",
        "a.iob",
    )
    assert tags(path) == [
        (1, "a", "X"),
        (3, "an empty word or tag"),
        (5, "1 column, not a word (column 0) and a tag (column -1)"),
        (7, "not utf-8: byte 0xe9"),
        (10, "NUL character"),
        (12, "f", "X"),
        (14, "g", "X"),
    ]
    assert tags(path, encoding="cp1252")[3] == (7, "café d", "X X")
    monkeypatch.setattr("gatedjax.text._tags.LONGEST", 3)
    assert tags(write("a X\n" * 5 + "\nb X\n", "b.bio")) == [
        (4, "more than 3 words without an empty line"),
        (7, "b", "X"),
    ]
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        open_tags(path.with_name("no.conll"))
    with pytest.raises(ValueError, match="got an empty file"):
        open_tags(write("", "empty.conll"))


@pytest.mark.parametrize(
    ("lines", "sentences"),
    [
        # "#" is a word where other lines have its tag, and a comment elsewhere
        ("# O|at O|Rome B-LOC||I O|# O||# O||", ["#/O at/O Rome/B-LOC", "I/O #/O", "#/O"]),
        ("# newdoc|I O||# 12|in O|# O||# 2.5|b O|", ["I/O", "in/O #/O", "b/O"]),
        ("# text = # O|a O||#|b O||# id 3 O|c O|", ["a/O", "b/O", "c/O"]),
        ("# O|Rome B-LOC|", ["#/O Rome/B-LOC"]),  # no other line has the tag, whose form is clear
        ("-DOCSTART- O|# a new one|a O|", ["a/O"]),
        ("# SYM X|a DT O||5 CD O|# SYM X|", ["#/X a/O", "5/O #/X"]),
        ("# ##|a DT|", "1: '# ##' is a comment, or the word '#' with a tag that no other line has"),
        (
            "a DT||# HASH|a DT|",
            "3: '# HASH' is a comment, or the word '#' with a tag that no other",
        ),
        # other spaces than these are characters of a word
        ("10\u00a0000 CD|\u3000x CD|", ["10\u00a0000/CD x/CD"]),
    ],
)
def test_a_first_word_may_be_the_sign_of_a_comment(lines, sentences, write):
    found = list(open_tags(write(lines.replace("|", "\n"), "a.conll")))
    if isinstance(sentences, str):
        (aside,) = [one for one in found if isinstance(one, Aside)]
        assert f"{aside.line}: {aside.reason}".startswith(sentences)
        return
    shown = [" ".join(map("/".join, zip(one.words, one.tags, strict=True))) for one in found]
    assert shown == sentences


def test_a_column_of_words_alone_may_have_the_sign_of_a_comment(write):
    path = write("#\nat\nRome\n\n# a comment\nI\n#\n", "a.conll")
    assert [one.words for one in open_tags(path, tagged=False)] == [("#", "at", "Rome"), ("I", "#")]


# memory ------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_file(tmp_path):
    text = "a quiet film , " * 60
    for name, head, line in (
        ("a.csv", "text,label\n", f'"{text}\n{text}",pos\n'),
        ("a.jsonl", "", json.dumps({"text": text * 2, "label": 1}) + "\n"),
    ):
        path, count = tmp_path / name, 20_000_000 // len(line)
        with path.open("w") as file:
            file.write(head)
            file.writelines(itertools.repeat(line, count))
        tracemalloc.start()
        try:
            assert sum(isinstance(row, Record) for row in open_table(path)) == count
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()
