"""Files of drawn rows and bytes: rows written and read are the rows, and no line is lost."""

import csv
import io
import itertools
import json

import pytest

from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import Record
from tests.text.test_read import read, shown
from tests.text.test_read import write as write  # a fixture

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

DRAWN = hypothesis.settings(
    max_examples=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
# "\u2028" and the like are characters of a text, and only a table may have a line break in one
PLAIN = st.text(st.sampled_from("aé\"',;|\t #{}[]:\\_-.天\u2028\u00a0\U0001f600"), max_size=12)
BROKEN = st.text(st.sampled_from('aé",;|\n\r #'), max_size=12)
NAMES = st.sampled_from(["pos", "neg", "01", "1.50", "a b"])


def write_rows(name, rows):
    """The content of a file with these (text, label)."""
    if name == "a.jsonl":
        return "".join(
            json.dumps({"text": t, "label": c}, ensure_ascii=False) + "\n" for t, c in rows
        )
    if name == "a.json":
        return json.dumps(rows)
    if name == "a.txt":
        return "".join(f"__label__{label} {text}\n" for text, label in rows)
    file = io.StringIO()
    mark = {"a.csv": ",", "b.csv": ";", "a.tsv": "\t"}[name]
    csv.writer(file, delimiter=mark).writerows([("text", "label"), *rows])
    return file.getvalue()


@pytest.mark.parametrize("name", ["a.csv", "b.csv", "a.tsv", "a.jsonl", "a.json", "a.txt"])
@hypothesis.given(data=st.data())
@DRAWN
def test_rows_written_and_read_are_the_rows(write, name, data):
    texts = BROKEN if name in ("a.csv", "a.tsv") else PLAIN
    rows = data.draw(st.lists(st.tuples(texts.map("x{}".format), NAMES), min_size=1))
    if name == "a.txt":  # outer spaces are no part of such a text, and spaces end a label
        rows = [(text.strip(), label.replace(" ", "_")) for text, label in rows]
    found = read(write(write_rows(name, rows), name))
    assert [row[1:] for row in found] == rows
    if name.endswith((".csv", ".tsv")):  # a record is called by its first line
        heights = [
            len(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")) for text, _ in rows
        ]
        assert [row[0] for row in found] == [2 + sum(heights[:i]) for i in range(len(rows))]


@pytest.mark.parametrize("name", ["a.csv", "b.csv", "a.tsv", "a.jsonl", "a.txt"])
@hypothesis.given(body=st.lists(st.sampled_from(
    [b"a", b'"', b",", b";", b"\t", b"\n", b"\r\n", b"\r", b" ", b"\xe9", b"\xff", b"{", b"}"]
), max_size=80))  # fmt: skip
@DRAWN
def test_no_line_is_lost_whatever_the_bytes(write, name, body):
    mark = {"a.csv": b",", "b.csv": b";", "a.tsv": b"\t"}.get(name, b"")
    last = {"a.jsonl": b'{"text": "last", "label": "pos"}', "a.txt": b"__label__pos last"}
    head = b"text" + mark + b"label\n" if mark else b""
    begin = head + b"".join(body) + b"\n"
    lines = begin.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
    rows = list(open_table(write(begin + last.get(name, b"last" + mark + b"pos"), name)))
    assert shown(rows[-1]) == (lines + 1, "last", "pos")
    starts = [row.line for row in rows]
    if not mark:
        assert starts == [*range(1, lines + 2)]
        return
    assert starts[0] == 2
    for row, after in itertools.pairwise(rows):
        # a record has the lines of its cells, and a quote that closes nowhere costs one line
        inner = "".join([*row.inputs, row.label]) if isinstance(row, Record) else ""
        height = 1 + inner.replace("\r\n", "\n").replace("\r", "\n").count("\n")
        is_known = isinstance(row, Record) or row.reason.startswith(("a quote", "text after"))
        assert after.line - row.line == height if is_known else after.line > row.line
