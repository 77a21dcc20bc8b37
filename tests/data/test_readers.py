"""The readers of raw files: an item is an example, or set aside with file, line and reason."""

import gzip
import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from gatedjax import data
from tests.data._same import predicate_row


def srl(words):
    """A sentence with its last word as the predicate and the others as its only argument."""
    bits = ["(A0*", *["*"] * (len(words) - 3), "*)"] if len(words) > 2 else ["(A0*)"]
    lines = [predicate_row(i, w, b) for i, (w, b) in enumerate(zip(words, bits, strict=False))]
    return "\n".join([*lines, predicate_row(len(words) - 1, words[-1], "(V*)", lemma="go"), ""])


def cbt(words, query="the XXXXX sat\tcat\t\tcat|dog", count=20):
    lines = [f"{i} {' '.join(words)}" for i in range(1, count + 1)]
    return "\n".join([*lines, f"{count + 1} {query}", ""])


def snli(words, label="neutral"):
    pair = {"gold_label": label, "sentence1": " ".join(words), "sentence2": "b"}
    return json.dumps(pair)


class Format(NamedTuple):
    """A format of raw files."""

    name: str  # of the set
    file: str  # of the training part
    write: Callable[[list[str]], str]
    before: str = ""
    repeats: int = 1  # of the words in an example
    encoding: str = "utf-8"


FORMATS = {
    "sst": Format("sst", "train.txt", lambda ws: f"(3 {' '.join(f'(2 {w})' for w in ws)})"),
    "trec": Format(
        "trec", "train_5500.label", lambda ws: f"NUM:dist {' '.join(ws)}", encoding="latin-1"
    ),
    "ag_news": Format("ag_news", "train.csv", lambda ws: f'"3","{ws[0]}","{" ".join(ws[1:])}"'),
    "sick": Format(
        "sick",
        "SICK_train.txt",
        lambda ws: f"1\t{' '.join(ws)}\tb\t4.5\tNEUTRAL",
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n",
    ),
    "snli": Format("snli", "snli_1.0_train.jsonl", snli),
    "trees": Format(
        "ewt_trees", "ewt.train.trees", lambda ws: f"(TOP {' '.join(f'(NN {w})' for w in ws)})"
    ),
    "probe": Format("senteval_tree_depth", "tree_depth.txt", lambda ws: f"tr\t7\t{' '.join(ws)}"),
    "srl": Format("conll_srl", "conll2012.train.conll", srl, "#begin document (d); part 000\n"),
    "cbt": Format("cbt_ne", "cbtest_NE_train.txt", cbt, repeats=20),
}
WORDS = ["a", "good", "film"]
# Format -> (bad item, number of its bad line from 0, a part of the reason).
BAD = {
    "sst": [
        ("(3 (2 A) (3 good)", 0, "unbalanced brackets: 1 not closed"),
        ("(3 (2 A) (3 good)))", 0, "unbalanced brackets: one closes"),
        ("(7 (2 A) (3 good))", 0, "unknown label '7'; labels are 0 to 4"),
        ("(3 (2 A) (2 \u00a0))", 0, "a node without words"),
        ("(3 (2 A)) (2 B)", 0, "after the end"),
        ("((2 A) (3 B))", 0, "no label"),
        ("(3 (2 A B))", 0, "more than a word"),
        ("(3 (2 A (2 B)))", 0, "both a word and a child"),
        ("A good film .", 0, "text outside the brackets"),
    ],
    "trec": [
        ("no label", 0, "no label: 'no' is not COARSE:fine"),
        ("DESC: What ?", 0, "no label"),
        ("FOO:x What ?", 0, "unknown label 'FOO'; labels are ABBR"),
        ("LOC:city Where ?\rNUM:date When ?", 0, "carriage return inside the line"),
    ],
    "ag_news": [
        ('"5","a","b"', 0, "unknown label '5'; labels are 1 to 4"),
        ('"1","a"', 0, "2 columns; wanted 3"),
        ('"1","a","b', 0, "not CSV"),
    ],
    "sick": [
        ("3\tA dog\tA cat\t4.5", 0, "4 columns; wanted pair_ID"),
        ("3\tA dog\t \t4.5\tNEUTRAL", 0, "an empty sentence"),
        ("3\tA\tB\t4\tMAYBE", 0, "unknown label 'MAYBE'; labels are"),
    ],
    "snli": [
        ('{"gold_label": "maybe"', 0, "not an object with"),
        ("[1]", 0, "not an object with"),
        (snli(["a"], "maybe"), 0, "unknown label 'maybe'"),
        (snli([]), 0, "an empty sentence"),
        (snli(["a"]).replace('"a"', "3"), 0, "an empty sentence"),
        (snli(["a"]).replace('"b"', "null"), 0, "an empty sentence"),
    ],
    "trees": [
        ("(TOP (NN a)", 0, "1 not closed"),
        ("(TOP (NN a)))", 0, "text after the end"),
        (")", 0, "one closes that was not opened"),
        ("(TOP (NN a b))", 0, "not in a node of its own"),
        ("(TOP (NP ))", 0, "a node without words"),
        ("(NN a)", 0, "a word without a tree"),
        ("(TOP ( a))", 0, "a node without words"),
        ("a", 0, "not in a node of its own"),
    ],
    "probe": [
        ("xx\t7\tNo such split", 0, "unknown split 'xx'; splits are tr"),
        ("tr\t7", 0, "2 columns; wanted split, label, sentence"),
        ("tr\t\tNo label", 0, "an empty label or sentence"),
    ],
    "srl": [
        (f"{predicate_row(0, 'He')}\nd 0 1 goes\n", 1, "4 columns; wanted at least 12"),
        (f"{predicate_row(0, 'a', '*')}\n{predicate_row(1, 'b')}\n", 1, "the sentence began with"),
        (f"{predicate_row(0, 'a')}\n{predicate_row(2, 'b')}\n", 1, "word number '2'; wanted 1"),
        (f"{predicate_row(0, 'a', '*')}\n", 0, "no predicate (V) in column 12"),
        (f"{predicate_row(0, 'a', '(V*)')}\n", 0, "0 predicates with a frameset, 1 columns"),
        (f"{predicate_row(0, 'a', '(A0*')}\n{predicate_row(1, 'b', '(V*)', lemma='b')}\n", 0,
         "the argument V begins inside A0"),
        (f"{predicate_row(0, 'a', '*)')}\n", 0, "an argument ends that did not begin"),
        (f"{predicate_row(0, 'a', '(V*', lemma='b')}\n", 0, "the argument V does not end"),
        (f"{predicate_row(0, 'a', 'A0')}\n", 0, "'A0' is not a bracket"),
    ],
    "cbt": [
        (cbt(WORDS, "nobody sat\tcat\t\tcat"), 20, "the query has no XXXXX"),
        (cbt(WORDS, "\tcat\t\tcat"), 20, "the query is empty"),
        (cbt(WORDS, "XXXXX\t\t\tcat"), 20, "there is no answer"),
        (cbt(WORDS, "XXXXX\tcat\t\t"), 20, "there are no candidates"),
        (cbt(WORDS, "XXXXX\tcat\t\tcat||hen"), 20, "candidate 2 is empty"),
        (cbt([""]), 0, "the document is empty"),
        (cbt(WORDS, "XXXXX sat\tcat"), 20, "2 fields between tabs"),
        (cbt(WORDS, count=18), 18, "19 lines where a question has 21"),
        (cbt(WORDS).partition("\n")[2], 0, "line 1 of a question begins with '2'"),
        (cbt(WORDS) + "22 more\n", 21, "22 lines where a question has 21"),
        (cbt(WORDS).replace("3 a", "3 \xe9", 1).encode("latin-1"), 2, "not utf-8: byte 0xe9"),
    ],
}  # fmt: skip
ANYWHERE = [
    (b"caf\xe9", "not utf-8: byte 0xe9"),
    (b"a\0b", "NUL character"),
    (b"(3 a)\r(2 b)", "carriage return inside the line"),
]
BAD_ROWS = [(name, *row) for name, rows in BAD.items() for row in rows]
BAD_ROWS += [("sst", raw, 0, reason) for raw, reason in ANYWHERE] + [("sst", "", 0, "empty line")]


def read(form, folder, items, **options):
    """Writes the items as the training part of a set, and reads it."""
    content = b"\n".join(item if isinstance(item, bytes) else item.encode(form.encoding)
                         for item in items)  # fmt: skip
    (folder / form.file).write_bytes(form.before.encode() + content + b"\n")
    return data.load(form.name, "train_full", manual_dir=folder, **options)


def without_ids(source):
    return [example | {"example_id": 0} for example in source]


@pytest.mark.parametrize(("name", "bad", "line", "reason"), BAD_ROWS)
def test_a_bad_item_is_set_aside_with_file_line_and_reason(name, bad, line, reason, tmp_path):
    form = FORMATS[name]
    good = form.write(WORDS)
    whole = read(form, tmp_path, [good, good])
    source = read(form, tmp_path, [good, bad, good])
    (found,) = source.quarantine
    first = form.before.count("\n") + good.count("\n") + 2
    assert found.line == first + line
    assert found.file == str(tmp_path / form.file)
    assert reason in found.reason
    assert without_ids(source) == without_ids(whole)
    # The number of an example is its place in the file, also behind a bad item.
    one, two = (example["example_id"] for example in whole)
    assert [example["example_id"] for example in source] == [one, 2 * two - one]
    assert source.report.lines == whole.report.lines + 1
    assert source.report.reconciles
    with pytest.raises(ValueError, match=r":\d+: .*strict"):
        read(form, tmp_path, [good, bad, good], strict=True)


@pytest.mark.parametrize(
    ("name", "limit", "most"), [("sst", "_MAX_NODES", 3), ("srl", "IDS_PER_SENTENCE", 1)]
)
def test_more_examples_than_an_item_has_ids_are_set_aside(name, limit, most, tmp_path, monkeypatch):
    monkeypatch.setattr(f"gatedjax.data.sets._{name}.{limit}", most)
    with pytest.raises(ValueError, match=r"no usable line, first .*; at most \d are supported"):
        read(FORMATS[name], tmp_path, [FORMATS[name].write(WORDS)])


@pytest.mark.parametrize("name", FORMATS)
def test_rows_that_are_written_are_the_rows_that_are_read(name, tmp_path, np_rng):
    form = FORMATS[name]
    letters = list("abcé") + ["電"] * (form.encoding == "utf-8")
    rows = [
        ["".join(np_rng.choice(letters, np_rng.integers(1, 6))) for _ in range(size)]
        for size in np_rng.integers(2, 9, 20)
    ]
    (tmp_path / f"{form.file}.gz").touch()  # the plain file comes first
    source = read(form, tmp_path, map(form.write, rows))
    assert [list(example["tokens"]) for example in source] == [row * form.repeats for row in rows]
    assert source.quarantine == ()
    plain = list(source)
    # A byte-order mark, lines of Windows, no line break at the end and gzip change nothing.
    path = tmp_path / form.file
    content = path.read_bytes().rstrip(b"\n").replace(b"\n", b"\r\n")
    path.unlink()
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + content))
    assert list(data.load(form.name, "train_full", manual_dir=tmp_path)) == plain


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FORMATS)
def test_no_line_is_lost_whatever_the_bytes(name, seed, tmp_path):
    form, rng = FORMATS[name], np.random.default_rng(seed)
    good = form.write(WORDS).encode()
    # Pieces of the format come further into its parser than bytes of any kind.
    pieces = [bytes([byte]) for byte in b'()0123 \t\r",:{}[]*-\0\xe9|'] + good.split(b" ")
    lines = [b"".join(rng.choice(np.array(pieces, object), rng.integers(0, 9))) for _ in range(150)]
    source = read(form, tmp_path, [good, *lines, good])
    assert source.report.reconciles
    if not good.endswith(b"\n"):
        is_train = [not line.startswith((b"va\t", b"te\t")) for line in lines]
        assert source.report.lines == 2 + sum(is_train)
        numbers = [aside.line for aside in source.quarantine]
        assert len(set(numbers)) == len(numbers)
