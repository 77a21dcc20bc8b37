"""AG's News (Zhang et al. 2015): rows "class 1-4","title","description" in UTF-8."""

import csv
import html
import re

from gatedjax.data.files._lines import LineError
from gatedjax.data.files._paths import Files
from gatedjax.data.sets._declaration import DataSet, by_lines, lazily, number_records, text_example

CLASSES = ("World", "Sports", "Business", "Sci/Tech")
OFFICIAL = {"train": 120_000, "test": 7_600}

_ENTITY = re.compile(r"[ &]#(\d{2,4});")
_NAMED = re.compile(r" (quot|amp|lt|gt|nbsp|apos);")
# The length of a tag is bounded, so that a single "<" does not drop the text up to a distant ">".
_TAG = re.compile(r"<[^<>]{1,200}>")


def clean(title: str, description: str) -> str:
    """Joins title and description with a space and undoes the damage of the files."""
    # In the files a backslash stands for a line break, and the "&" of an entity became a space, as
    # in "Haiti #39;s".
    text = f"{title} {description}".replace("\\", " ")
    text = _NAMED.sub(r"&\1;", _ENTITY.sub(r"&#\1;", text))
    return _TAG.sub(" ", html.unescape(text)).replace("\0", " ").strip()


def parse(line: str) -> tuple[int, str]:
    """Parses a CSV line (class from 1, title, description); returns (class from 0, text)."""
    try:
        # Without `strict` a line with an unclosed quote would be accepted.
        (row,) = csv.reader([line], strict=True)
    except csv.Error as error:
        raise LineError(f"not CSV: {error}") from error
    if len(row) != 3:
        raise LineError(f"{len(row)} columns; wanted 3 (class, title, description)")
    if row[0] not in ("1", "2", "3", "4"):
        raise LineError(f"unknown label {row[0][:40]!r}; labels are 1 to 4")
    return int(row[0]) - 1, clean(row[1], row[2])


DECLARED = (
    DataSet(
        name="ag_news_subset",
        aliases={"ag_news": {}},
        official=OFFICIAL,
        unit="rows",
        where="https://www.tensorflow.org/datasets/catalog/ag_news_subset (a folder ag_news_csv)",
        files=Files(
            {"train": "train.csv", "test": "test.csv"},
            tops=("ag_news", "ag_news_csv", "ag_news_subset", ""),
            url="https://drive.google.com",
        ),
        read_rows=by_lines(parse),
        # Each example is stored, because tokenising a text takes longer than reading it.
        examples=lazily(text_example, once=True),
        classes=CLASSES,
        tfds_rows=lambda records, part: number_records(
            records,
            lambda r: clean(r["title"].decode(), r["description"].decode()),
            "ag_news_subset",
        ),
    ),
)
