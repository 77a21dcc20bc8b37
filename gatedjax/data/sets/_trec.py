"""TREC questions (Li and Roth 2002): "COARSE:fine question" in Latin-1, six coarse classes."""

from pathlib import Path

from gatedjax.data.files import _lines as files
from gatedjax.data.files._lines import AnyPath, LineError, Rows, read_lines
from gatedjax.data.files._source import Example

CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
OFFICIAL = {"train": 5452, "test": 500}
FILES = {"train": "train_5500.label", "test": "TREC_10.label"}
URL = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"


def parse(line: str) -> tuple[int, tuple[str, str]]:
    """Parses one question.

    Returns:
      (coarse class, (fine label, the question, words separated by spaces)).

    Raises:
      LineError: for an unknown or missing label.
    """
    # any white space: a tab would else make the first word a part of the label
    label, text = (*line.strip().split(maxsplit=1), "")[:2]
    coarse, colon, fine = label.partition(":")
    if not colon or not fine:
        raise LineError(f"no label: {label[:40]!r} is not COARSE:fine")
    if coarse not in CLASSES:
        raise LineError(f"unknown label {coarse!r}; labels are {', '.join(CLASSES)}")
    return CLASSES.index(coarse), (fine, text)


def folders(manual_dir: Path) -> list[Path]:
    """Where the files may be below manual_dir."""
    return [manual_dir / "trec", manual_dir]


def find(manual_dir: Path, part: str) -> AnyPath | None:
    """Returns the file of a part below manual_dir."""
    return files.find(folders(manual_dir), FILES[part])


def read(path: AnyPath) -> Rows:
    """Reads a file of questions."""
    return read_lines(path, parse, "latin-1")


def examples(rows: Rows, *, base: int) -> list[Example]:
    """Makes examples of questions; `base` is the first example id."""
    return [
        {
            "tokens": tuple(row.content[1].split()),
            "label": row.label,
            "example_id": base + row.index,
            "fine": row.content[0],
        }
        for row in rows.rows
    ]
