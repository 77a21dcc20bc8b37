"""`demo`: sentences of three authors, for a first classifier of texts.

The books are in the public domain; their authors died before 1930:

    Louisa May Alcott (1832-1888)       Little Women (1868-1869)
    Jack London (1876-1916)             White Fang (1906)
    Robert Louis Stevenson (1850-1894)  Treasure Island (1883), Kidnapped (1886)

The file `demo.csv.gz` has sentences of these texts as they are at Project Gutenberg, each with its
author, book and split. They have 10 to 40 words and no names, because the name of a hero would give
the author away. Sentences with digits, with words in capitals, or with insults to peoples are left
out too. Quotation marks stay where a sentence is part narration and part speech; speech that goes
on in the next sentence is closed. The last fifth of each book is for the test, so that a model is
tested on chapters that it has not seen; the tenth before it is for validation, and the beginning
for training.
"""

import csv
import functools
import gzip
import io
from importlib import resources

from gatedjax.data.files._source import Example
from gatedjax.data.sets._declaration import ID_BASE, generate_set
from gatedjax.data.text._tokenize import tokenize

CLASSES = ("Alcott", "London", "Stevenson")
SIZES = {"train": 4735, "validation": 687, "test": 1224}


@functools.cache
def _read_rows() -> dict[str, list[dict[str, str]]]:
    """Returns the rows of each split in the order of the books."""
    packed = resources.files(__package__).joinpath("demo.csv.gz").read_bytes()
    lines = io.StringIO(gzip.decompress(packed).decode("utf-8"), newline="")
    rows: dict[str, list[dict[str, str]]] = {split: [] for split in SIZES}
    for row in csv.DictReader(lines):
        rows[row["split"]].append(row)
    return rows


def make(split: str, index: int) -> Example:
    """Makes example `index` of a split from its row in the file."""
    row = _read_rows()[split][index]
    return {
        "tokens": tokenize(row["text"]),
        "label": CLASSES.index(row["author"]),
        "example_id": ID_BASE[split] + index,
        "text": row["text"],
        "book": row["book"],
    }


DECLARED = (generate_set("demo", SIZES, CLASSES, make, origin="books in the public domain"),)
