"""TREC questions (Li and Roth 2002): "COARSE:fine question" in Latin-1, six coarse classes."""

from gatedjax.data.files._lines import FileRow, LineError
from gatedjax.data.files._paths import Files
from gatedjax.data.files._source import Example
from gatedjax.data.sets._declaration import DataSet, TfdsForm, by_lines, lazily

CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
OFFICIAL = {"train": 5452, "test": 500}
FILES = {"train": "train_5500.label", "test": "TREC_10.label"}
URL = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"


def parse(line: str) -> tuple[int, tuple[str, str]]:
    """Parses a line "COARSE:fine QUESTION"; returns (class, (fine label, question))."""
    # Any white space separates, because a tab would join the first word to the label.
    label, text = (*line.strip().split(maxsplit=1), "")[:2]
    coarse, colon, fine = label.partition(":")
    if not colon or not fine:
        raise LineError(f"no label: {label[:40]!r} is not COARSE:fine")
    if coarse not in CLASSES:
        raise LineError(f"unknown label {coarse!r}; labels are {', '.join(CLASSES)}")
    return CLASSES.index(coarse), (fine, text)


def _example(row: FileRow, example_id: int) -> Example:
    fine, text = row.content
    tokens = tuple(text.split())
    return {"tokens": tokens, "label": row.label, "example_id": example_id, "fine": fine}


DECLARED = (
    DataSet(
        name="trec",
        official=OFFICIAL,
        where=f"{URL} (train_5500.label, TREC_10.label)",
        files=Files(FILES, tops=("trec", ""), url=URL),
        read_rows=by_lines(parse, "latin-1"),
        examples=lazily(_example, once=True),
        classes=CLASSES,
        tfds=TfdsForm(
            description="TREC questions with coarse and fine labels, in the order of the official "
            "files.",
            version="2.0.0",
            registered=False,  # TFDS has a `trec` 1.0.0 of its own
            features={"label-coarse": CLASSES, "label-fine": str, "text": str},
        ),
    ),
)
