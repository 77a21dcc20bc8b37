"""Pairs of sentences of which the first entails the second, contradicts it, or neither.

SICK (Marelli et al. 2014, SemEval): tab-separated columns under a header. SNLI (Bowman et al.
2015): one JSON object a line; pairs whose annotators did not agree have the label "-" and are left
out, as in all published results.
"""

import json
from pathlib import Path

from gatedjax.data.files import _lines as files
from gatedjax.data.files._lines import AnyPath, LineError, Rows, read_lines
from gatedjax.data.files._source import Example
from gatedjax.data.text._tokenize import tokenize

CLASSES = ("entailment", "neutral", "contradiction")
NO_LABEL = -1

SICK_FILES = {
    "train": "SICK_train.txt",
    "validation": "SICK_trial.txt",
    "test": "SICK_test_annotated.txt",
}
SICK_OFFICIAL = {"train": 4_500, "validation": 500, "test": 4_927}
SICK_URL = "https://alt.qcri.org/semeval2014/task1/data/uploads/"
SICK_ARCHIVES = {
    "train": "sick_train.zip",
    "validation": "sick_trial.zip",
    "test": "sick_test_annotated.zip",
}
_SICK_COLUMNS = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")

SNLI_FILES = {
    "train": "snli_1.0_train.jsonl",
    "validation": "snli_1.0_dev.jsonl",
    "test": "snli_1.0_test.jsonl",
}
SNLI_OFFICIAL = {"train": 550_152, "validation": 10_000, "test": 10_000}
SNLI_URL = "https://nlp.stanford.edu/projects/snli/snli_1.0.zip"


def parse_sick(line: str) -> tuple[int, tuple[str, str] | None]:
    """Parses one line: (class, (first sentence, second sentence)); the header has no sentences.

    Raises:
      LineError: for a line that is not five columns, has an empty sentence, or an unknown label.
    """
    columns = line.split("\t")
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
    """Parses one line; the class of a pair without a gold label is `NO_LABEL`.

    Raises:
      LineError: for a line that is not such an object, or an unknown label.
    """
    try:
        data = json.loads(line)
        label, first, second = data["gold_label"], data["sentence1"], data["sentence2"]
    except (ValueError, KeyError, TypeError) as error:
        raise LineError(f"not an object with gold_label and two sentences: {error!r}") from error
    if not isinstance(first, str) or not isinstance(second, str) or not first or not second:
        raise LineError("an empty sentence")
    if label == "-":
        return NO_LABEL, (first, second)
    if label not in CLASSES:
        raise LineError(f"unknown label {str(label)[:40]!r}; labels are {', '.join(CLASSES)}")
    return CLASSES.index(label), (first, second)


def find_sick(manual_dir: Path, part: str) -> AnyPath | None:
    """Returns the file of a part below manual_dir, unpacked or in the archive as downloaded."""
    folders = [manual_dir / "sick", manual_dir]
    path = files.find(folders, SICK_FILES[part])
    archive = files.find(folders, SICK_ARCHIVES[part])
    return files.in_zip(archive, SICK_FILES[part]) if path is None and archive else path


def find_snli(manual_dir: Path, part: str) -> AnyPath | None:
    """Returns the file of a part below manual_dir."""
    folders = [manual_dir / name for name in ("snli", "snli_1.0", "snli/snli_1.0", "")]
    return files.find(folders, SNLI_FILES[part])


def read_sick(path: AnyPath) -> Rows:
    """Reads a file of SICK; its header is not one of its lines."""
    rows = read_lines(path, parse_sick, "utf-8")
    kept = tuple(row for row in rows.rows if row.content is not None)
    return Rows(kept, rows.quarantine, counted=rows.lines - (len(rows.rows) - len(kept)))


def count_sick(path: AnyPath) -> int:
    """Counts the lines below the header in another way than `read_sick`."""
    header = files.read_bytes(path).startswith(_SICK_COLUMNS[0].encode())
    return files.count_lines(path) - header


def read_snli(path: AnyPath) -> Rows:
    """Reads a file of SNLI."""
    return read_lines(path, parse_snli, "utf-8")


def skipped(rows: Rows) -> dict[str, int]:
    """Pairs that are left out for having no gold label."""
    count = sum(row.label == NO_LABEL for row in rows.rows)
    return {"no gold label": count} if count else {}


def examples(rows: Rows, *, base: int) -> list[Example]:
    """Makes examples of pairs: "tokens" is the first sentence, "hypothesis" the second."""
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
