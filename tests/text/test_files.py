"""Formats of files: documents, workbooks, compressed files, files without a header, damage."""

import builtins
import bz2
import gzip
import importlib.util
import io
import json
import lzma
import os
import sys
import zipfile

import pytest

from gatedjax._utils.limits import read_limited
from gatedjax.data.files import _unpack
from gatedjax.data.files._unpack import VARIABLE, TooLarge
from gatedjax.text.sources import _formats
from gatedjax.text.sources._conll import open_sentences
from gatedjax.text.sources._lines import TextFile, suggest_encoding
from gatedjax.text.sources._open import infer_task, open_table
from gatedjax.text.sources._table import Columns, Record
from tests.refusals import refused

ROWS = [("a fine film", "good"), ("a dull , flat film", "bad")]
CSV = "text,label\n" + "".join(f'"{text}",{label}\n' for text, label in ROWS)


def read(data, columns=None, **options):
    """(text, label) of each row that is used."""
    table = open_table(data, columns, **options)
    rows = list(table)
    assert rows == list(table)  # a second pass is the first
    assert all(isinstance(row, Record) for row in rows), rows
    return [(*row.inputs, row.label) for row in rows]


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# tables ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["Text,Label", "TEXT,label", " text , LABEL "])
def test_names_of_columns_match_in_any_case(write, header):
    path = write("a.csv", CSV.replace("text,label", header, 1))
    assert read(path) == ROWS
    assert read({"Text": [t for t, _ in ROWS], "Label": [c for _, c in ROWS]}) == ROWS
    assert read([{"TEXT": t, "Label": c} for t, c in ROWS]) == ROWS
    lines = write("a.jsonl", "".join(json.dumps({"Text": t, "LABEL": c}) + "\n" for t, c in ROWS))
    assert read(lines) == ROWS


def test_the_exact_name_wins_and_two_alike_names_are_refused(write):
    assert read(write("a.csv", "Text,text,label\nno,yes,good\n")) == [("yes", "good")]
    path = write("b.csv", "Text,TEXT,label\nno,yes,good\n")
    refused(lambda: open_table(path), "text|--text Text --label label")


def test_a_file_without_a_header_is_read_by_the_names_of_its_columns(write):
    body = CSV.split("\n", 1)[1]
    columns = Columns(header=("text", "label"))
    assert read(write("a.csv", body), columns) == ROWS
    assert read(write("a.tsv", body.replace('"', "").replace(",good", "\tgood")
                      .replace(",bad", "\tbad")), columns) == ROWS  # fmt: skip
    wide = write("b.csv", ";good;a fine film\n8;bad;a dull , flat film\n")
    assert read(wide, Columns(header=("", "label", "text"))) == ROWS
    assert read(write("e.csv", "one, two, three;good\n"), columns) == [("one, two, three", "good")]
    _, short = open_table(write("e.csv", "a fine film,good\nx\n"), columns)
    assert short.reason == "1 field where --columns has 2"
    unread = write("e.csv", b"caf\xe9,good\n"), write("f.csv", '"text" ,label\n')
    refused(lambda: open_table(unread[0], columns), "the first line must be readable|cp1252")
    assert refused(lambda: open_table(unread[1]), "the header").endswith("is written twice")
    refused(lambda: open_table(wide, columns), "3|columns.header|'text', 'label'")
    refused(lambda: open_table(write("a.jsonl", "{}"), columns), "columns.header|leave it out")
    refused(lambda: open_table(wide), "--columns text,label,")
    refused(lambda: Columns(header=("a", "b")), "columns.header|'text'|'label'")
    refused(lambda: Columns(header=()), "columns.header|()")
    assert open_table(write("e.csv", "a text,label\n"), columns)  # the first line is a row
    refused(lambda: open_table(write("e.csv", "Text, LABEL\n"), columns), "left out|'label'")
    unnamed, named = Columns(header=("", "label", "text")), write("e.csv", "id,label,text\n")
    refused(lambda: open_table(named, unnamed), "left out|'label'")


# JSON --------------------------------------------------------------------------------------------


def test_documents_of_json(write):
    rows = [{"text": t, "label": c, "id": 1} for t, c in ROWS]
    for content in (
        json.dumps(rows),
        "\n" + json.dumps([list(row) for row in ROWS], indent=2),
        "".join(json.dumps(row) + "\n" for row in rows),  # lines may end with .json, too
    ):
        assert read(write("a.json", content)) == ROWS


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("[", "a.json:1|must be JSON"),
        ('[{"text": "a",\n "label": }]', "a.json:2|must be JSON"),
        ("[]", "must have a row, got none"),
        ('"text"', "an array of objects|str"),
        ('{"text":\n{"a": [1, 0]}}', "an array of objects|dict"),
        ("[1]", "(text, label)"),
        ('[{"text": "a", "text": "b"}]', "'text'|more than once"),
        ("[" * 100_000, "nested too deep"),
        ('[{"body": "a", "label": 1}]', "'text'|--text body --label label"),
        (b'[{"text": "caf\xe9" "label": 1}]', "--encoding cp1252"),
        ("", "got an empty file"),
    ],
)
def test_documents_that_are_not_read(write, content, parts):
    path = write("a.json", content)
    refused(lambda: list(open_table(path)), parts)


def test_rows_of_a_document_that_cannot_be_used_are_set_aside(write):
    path = write("a.json", b'[{"text": "caf\xe9", "label": 1}, {"text": "b", "label": 1}, 3]')
    first, second, third = open_table(path)
    assert str(first).endswith("a.json:1: not Unicode: byte 0xe9")
    assert second.label == 1
    assert third.reason == "not a dict but a int"
    assert "--encoding cp1252" in suggest_encoding(path, "Unicode")
    first, second, _ = open_table(path, encoding="cp1252")
    assert first.inputs == ("café",)


def test_a_document_that_is_too_large_is_refused(write, monkeypatch):
    monkeypatch.setattr(_formats, "MOST_TEXT_BYTES", 20)
    path = write("a.json", json.dumps([list(row) for row in ROWS]))
    refused(lambda: open_table(path), "20|.jsonl")


# compressed files --------------------------------------------------------------------------------


def zipped(content, names=("reviews.csv",)):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


def zstd(content):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.compress(content, "zstd", asbytes=True)


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


@pytest.mark.parametrize("ending", PACK)
def test_compressed_files_are_the_files_inside(write, ending):
    assert read(write(f"a.csv{ending}", PACK[ending](CSV.encode()))) == ROWS
    document = json.dumps([list(row) for row in ROWS]).encode()
    assert read(write(f"a.JSON{ending.upper()}", PACK[ending](document))) == ROWS
    tags = open_sentences(write(f"a.conllu{ending}", PACK[ending](b"1\tin\t_\tADP\n")))
    assert [sentence.words for sentence in tags] == [("in",)]


def test_a_zip_file_has_a_single_file(write):
    assert read(write("a.zip", zipped(CSV, ["__MACOSX/._r.csv", "r/reviews.csv", ".x"]))) == ROWS
    assert infer_task(write("t.zip", zipped("in O\n", ["a.conll"]))) == "tags"
    for names, parts in (((), "0|none"), (("a.csv", "b.csv"), "2|'a.csv', 'b.csv'|unpack it")):
        path = write("b.zip", zipped(CSV, names))
        refused(lambda path=path: open_table(path), f"a single file|{parts}")
    refused(lambda: open_table(write("c.zip", zipped("", ["a.doc"]))), "'.doc'")
    refused(lambda: open_table(write("d.zip", zipped("x", ["a.xlsx"]))), ".xlsx|unpack it first")


@pytest.mark.parametrize("ending", [*PACK, ".zip"])
@pytest.mark.parametrize("damage", ["cut", "empty", "foreign"])
def test_damaged_files_are_refused_in_a_line(write, ending, damage):
    whole = ("text,label\n" + "".join(f"text {i} {i * i},{i % 2}\n" for i in range(3000))).encode()
    packed = zipped(whole) if ending == ".zip" else PACK[ending](whole)
    content = {"cut": packed[: len(packed) // 2], "empty": b"", "foreign": b"text,label\n"}[damage]
    path = write(f"a.csv{ending}", content)
    message = refused(lambda: list(open_table(path)), str(path))
    assert "\n" not in message
    assert "damaged" in message or (damage == "empty" and "got an empty file" in message)


def test_a_wrong_encoding_inside_is_no_damage(write):
    path = write("a.csv.gz", gzip.compress("text,label\na,b\n".encode("utf-16") + b"x"))
    refused(lambda: list(open_table(path, encoding="utf-16")), "must be utf-16")


def test_a_zip_file_with_a_damaged_directory_is_refused(write):
    packed = bytearray(zipped(CSV))
    packed[packed.index(b"PK\x01\x02") + 6] = 250  # the version that is needed to unpack
    refused(lambda: open_table(write("a.zip", bytes(packed))), "a.zip|damaged")


@pytest.mark.parametrize("ending", [*PACK, ".zip"])
def test_files_that_unpack_to_too_much_are_refused(write, ending, monkeypatch):
    monkeypatch.setenv(VARIABLE, "100KB")
    content = b"text,label\n" + b"a,b\n" * 30_000
    path = write(f"a.csv{ending}", zipped(content) if ending == ".zip" else PACK[ending](content))
    refused(lambda: list(open_table(path)), "unpacks to more than 100,000 bytes", TooLarge)


def without(monkeypatch, *names):
    """Makes the import of packages fail."""

    def fail(real):
        def load(name, *args, **kwargs):
            if name.partition(".")[0] in names:
                raise ImportError(name)
            return real(name, *args, **kwargs)

        return load

    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            monkeypatch.delitem(sys.modules, name)
    for place, name in ((builtins, "__import__"), (importlib, "import_module")):
        monkeypatch.setattr(place, name, fail(getattr(place, name)))


def test_a_missing_package_is_named_with_the_command_that_installs_it(write, monkeypatch):
    packed = write("a.csv.zst", zstd(CSV.encode()))
    book = write("a.xlsx", zipped("x"))
    arrow = write("a.parquet", b"PAR1")
    without(monkeypatch, "compression", "zstandard", "pyarrow", "openpyxl")
    refused(lambda: open_table(packed), "pip install zstandard")
    refused(lambda: open_table(book), "pip install openpyxl")
    refused(lambda: open_table(arrow), "pip install pyarrow")


def test_every_reader_of_zstd_gives_the_same_bytes(write, monkeypatch):
    content = CSV.encode() * 2000
    path = write("a.csv.zst", zstd(content) + zstd(b"x,y\n"))  # two frames
    have = [name for name in ("zstandard", "pyarrow") if importlib.util.find_spec(name)]
    for name in have:
        with monkeypatch.context() as patch:
            without(patch, "compression", *({"zstandard", "pyarrow"} - {name}))
            with _unpack.open_compressed(path) as file:
                assert file.read() == content + b"x,y\n", name


# workbooks and Arrow -----------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")

    def book(name, *sheets):
        # as other programs write it: a row ends with its last cell
        workbook = openpyxl.Workbook(write_only=True)
        for number, rows in enumerate(sheets):
            sheet = workbook.create_sheet(f"S{number}")
            for row in rows:
                sheet.append(row)
        workbook.save(tmp_path / name)
        return tmp_path / name

    return book


def test_the_first_sheet_of_a_workbook_with_cells(book):
    rows = [(0, text, 1, label) for text, label in ROWS]
    assert read(book("a.xlsx", [(None, "Text", None, "Label"), *rows])) == ROWS
    rows = [("x", 3), ("y", True)]
    path = book("b.xlsx", [], [(" ",), ("text", "label"), *rows], [("x", 4)] * 3)
    assert read(path) == rows
    assert open_table(path).name == f"{path} [S1]"
    path = book("c.xlsx", ROWS)
    assert read(path, Columns(header=("text", "label"))) == ROWS
    refused(lambda: open_table(path, Columns(header=("text", "label", ""))), "all 2 columns|3")


def test_rows_of_a_workbook_have_their_numbers(book):
    rows = [("text", "label"), ("x", "a", 1), (" ",), (7, "a"), ("y",), ("z", "b"), ("=A2", "b")]
    table = open_table(book("a.xlsx", rows))
    assert [(row.line, getattr(row, "reason", "")) for row in table] == [
        (2, ""), (3, "empty line"), (4, "text must be a text, got int 7"), (5, "no label"), (6, ""),
        (7, "no text"),  # the value of a formula is that which the program stored
    ]  # fmt: skip


def test_workbooks_that_are_not_read(book, write, monkeypatch):
    for path, parts in (
        (book("a.xlsx", []), "a.xlsx|empty"),
        (book("b.xlsx", [("text", "label")]), "must have a row after the header"),
        (book("c.xlsx", [("a", "b"), ("c", "d")]), "'text'|'a', 'b'"),
        (write("d.xlsx", b"no workbook"), "d.xlsx|must be a workbook"),
        (write("e.xlsx", zipped("x", ["a.xml"])), "e.xlsx|must be a workbook"),
    ):
        refused(lambda path=path: open_table(path), parts)
    path = book("f.xlsx", [("text", "label"), *[("x" * 50, "a")] * 4000])
    monkeypatch.setenv(VARIABLE, "100KB")
    monkeypatch.setattr(_unpack, "RATIO", 1)
    refused(lambda: open_table(path), "unpacks to more than 100,000 bytes", TooLarge)


def test_arrow_streams_and_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"Text": [t for t, _ in ROWS], "label": [c for _, c in ROWS]})
    for name, new in (("s", pyarrow.ipc.new_stream), ("f", pyarrow.ipc.new_file)):
        path = tmp_path / f"{name}.arrow"
        with path.open("wb") as file, new(file, table.schema) as writer:
            writer.write_table(table)
        assert read(path) == ROWS
    broken = tmp_path / "b.arrow"
    broken.write_bytes(b"\xff\xff\xff\xff\x10\0\0\0nonsense nonsense")
    refused(lambda: open_table(broken), "b.arrow|damaged")
    stream = bytearray((tmp_path / "s.arrow").read_bytes())
    offset = stream.rindex(len(ROWS[0][1]).to_bytes(4, "little"), 0, stream.rindex(b"goodbad"))
    stream[offset : offset + 4] = (1 << 30).to_bytes(4, "little")
    broken.write_bytes(stream)
    refused(lambda: list(open_table(broken)), "b.arrow|damaged")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that fails")
def test_a_file_that_cannot_be_read_is_named(tmp_path):
    link = tmp_path / "data.csv"
    link.symlink_to("/proc/self/mem")
    for read in (lambda: list(TextFile(link, "utf-8").lines()), lambda: read_limited(link)):
        with pytest.raises(OSError, match=r"data\.csv"):
            read()
