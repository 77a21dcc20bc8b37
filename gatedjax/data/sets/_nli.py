"""Pairs of sentences: the first entails the second, contradicts it, or neither.

SICK (Marelli et al. 2014, SemEval): tab-separated columns under a header. SNLI (Bowman et al.
2015): a JSON object per line; pairs without a majority label have the label "-" and are left out,
as in all published results.
"""

import json

from gatedjax.data.files._lines import FileRows, LineError, read_lines
from gatedjax.data.files._paths import AnyPath, Files
from gatedjax.data.files._source import Example
from gatedjax.data.sets._declaration import (
    DataSet,
    Record,
    SetOptions,
    TfdsForm,
    by_lines,
    number_records,
)
from gatedjax.data.text._tokenize import tokenize

CLASSES = ("entailment", "neutral", "contradiction")
NO_LABEL = -1

_SICK_COLUMNS = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")

_SICK_FILES = {
    "train": "SICK_train.txt",
    "validation": "SICK_trial.txt",
    "test": "SICK_test_annotated.txt",
}
_SICK_ARCHIVES = {part: f"{name[:-4].lower()}.zip" for part, name in _SICK_FILES.items()}
_SICK_URL = "https://alt.qcri.org/semeval2014/task1/data/uploads/"
_SNLI_FILES = {
    "train": "snli_1.0_train.jsonl",
    "validation": "snli_1.0_dev.jsonl",
    "test": "snli_1.0_test.jsonl",
}
_SNLI_URL = "https://nlp.stanford.edu/projects/snli/snli_1.0.zip"


def parse_sick(line: str) -> tuple[int, tuple[str, str] | None]:
    """Parses a line of SICK; returns (class, (first sentence, second sentence))."""
    columns = line.split("\t")
    # The header gets a content of None, and `read_sick` leaves it out, so that the line numbers do
    # not change.
    if tuple(columns) == _SICK_COLUMNS:
        return 0, None
    if len(columns) != len(_SICK_COLUMNS):
        raise LineError(f"{len(columns)} columns; wanted {', '.join(_SICK_COLUMNS)}")
    first, second, label = columns[1].strip(), columns[2].strip(), columns[4].strip().lower()
    if not first or not second:
        raise LineError("an empty sentence")
    if label not in CLASSES:
        raise LineError(f"unknown label {columns[4][:40]!r}; labels are {', '.join(CLASSES)}")
    return CLASSES.index(label), (first, second)


def parse_snli(line: str) -> tuple[int, tuple[str, str]]:
    """Parses a JSON line of SNLI; returns (class, (first sentence, second sentence))."""
    try:
        data = json.loads(line)
        label, first, second = data["gold_label"], data["sentence1"], data["sentence2"]
    except (ValueError, KeyError, TypeError) as error:
        raise LineError(f"not an object with gold_label and two sentences: {error!r}") from error
    # JSON may have a number or null in the place of a text.
    if not isinstance(first, str) or not isinstance(second, str) or not first or not second:
        raise LineError("an empty sentence")
    # The pair is well formed, so it is counted as skipped and not as malformed.
    if label == "-":
        return NO_LABEL, (first, second)
    if label not in CLASSES:
        raise LineError(f"unknown label {str(label)[:40]!r}; labels are {', '.join(CLASSES)}")
    return CLASSES.index(label), (first, second)


def read_sick(path: AnyPath, part: str) -> FileRows:
    """Reads a file of SICK without its header, the line with the names of the columns."""
    rows = read_lines(path, parse_sick)
    pairs = tuple(row for row in rows.rows if row.content is not None)
    return FileRows(pairs, rows.quarantine, counted=rows.lines - (len(rows.rows) - len(pairs)))


def _sentences(record: Record) -> tuple[str, str]:
    return record["premise"].decode(), record["hypothesis"].decode()


def count_skipped(rows: FileRows, options: SetOptions) -> dict[str, int]:
    """Counts the pairs without a gold label, which give no example: reason -> count."""
    count = sum(row.label == NO_LABEL for row in rows.rows)
    return {"no gold label": count} if count else {}


def examples(rows: FileRows, base: int, options: SetOptions) -> list[Example]:
    """Returns the examples of pairs; pairs without a gold label give none."""
    return [
        {
            "tokens": tokenize(row.content[0]),
            "hypothesis": tokenize(row.content[1]),
            "label": row.label,
            "example_id": base + row.index,
        }
        for row in rows.rows
        if row.label != NO_LABEL
    ]


DECLARED = (
    DataSet(
        name="sick",
        official={"train": 4_500, "validation": 500, "test": 4_927},
        where=f"{_SICK_URL} ({', '.join(_SICK_ARCHIVES.values())}; or unpacked)",
        files=Files(
            _SICK_FILES,
            tops=("sick", ""),
            url=_SICK_URL,
            archives=_SICK_ARCHIVES,
        ),
        read_rows=read_sick,
        examples=examples,
        classes=CLASSES,
        tfds=TfdsForm(
            description="SICK: pairs of sentences that entail, contradict, or neither "
            "(SemEval-2014).",
            features={"premise": str, "hypothesis": str, "label": CLASSES},
        ),
    ),
    DataSet(
        name="snli",
        official={"train": 550_152, "validation": 10_000, "test": 10_000},
        where=f"{_SNLI_URL} (unpacked)",
        files=Files(
            _SNLI_FILES,
            tops=("snli", "snli_1.0", "snli/snli_1.0", ""),
            url=_SNLI_URL,
        ),
        read_rows=by_lines(parse_snli),
        examples=examples,
        classes=CLASSES,
        skipped=count_skipped,
        tfds_rows=lambda records, part: number_records(records, _sentences, "snli"),
    ),
)
