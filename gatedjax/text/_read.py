"""Opening labelled texts: a file, a folder, a data set by name, or values in memory."""

import difflib
import os
from pathlib import Path
from typing import Literal

from gatedjax._utils.terminal import clean
from gatedjax.data.files._compressed import ENDS as COMPRESSED
from gatedjax.data.files._compressed import inner_name
from gatedjax.text._arrow import ENDS as ARROW
from gatedjax.text._arrow import open_arrow
from gatedjax.text._delimited import ENDS as DELIMITED
from gatedjax.text._delimited import Delimited
from gatedjax.text._documents import Workbook, open_json
from gatedjax.text._formats import FastText, Folder, JsonLines
from gatedjax.text._lines import TextFile, check_encoding
from gatedjax.text._memory import form_of
from gatedjax.text._named import open_named
from gatedjax.text._table import Aside as Aside
from gatedjax.text._table import Columns as Columns
from gatedjax.text._table import Form, Table
from gatedjax.text._table import Label as Label
from gatedjax.text._table import Record as Record
from gatedjax.text._table import parse_header as parse_header
from gatedjax.text._tags import ENDS as _TAGS
from gatedjax.text._tags import TaggedRecord as TaggedRecord
from gatedjax.text._tags import open_tags as open_tags

_ENDS = (*DELIMITED, ".json", ".jsonl", ".ndjson", ".txt")
_WORKBOOKS = (".xlsx", ".xlsm")


def open_table(
    data: object, columns: Columns | None = None, *, encoding: str = "utf-8", split: str = "train"
) -> Table:
    """Opens labelled texts: a path (a .csv, .tsv, .tab, .jsonl, .ndjson, .json, .txt, .parquet,
    .arrow or .xlsx file, the text files perhaps compressed; or a folder with a folder per class), a
    data set by name ("demo", "hf:NAME[:CONFIG]", "tfds:NAME", or a name of `gatedjax.data.load`),
    or values in memory. The table can be read several times.

        >>> table = open_table([("fun", "good"), ("dull", "bad")])
        >>> [record.label for record in table]
        ['good', 'bad']
    """
    columns = Columns() if columns is None else columns
    form = _form(data, encoding, split, columns.header)
    form.check(columns)
    return Table(form, columns)


def infer_task(
    data: object,
    *,
    encoding: str = "utf-8",
    split: str = "train",
    header: tuple[str, ...] | None = None,
) -> Literal["text", "pair", "tags"]:
    """Infers the kind of model: "tags" for the endings of CoNLL files, "pair" if there are columns
    premise and hypothesis, else "text".

        >>> infer_task({"premise": ["a"], "hypothesis": ["b"], "label": [0]})
        'pair'
    """
    if isinstance(data, str | os.PathLike) and _ending(os.fspath(data)) in _TAGS:
        return "tags"
    names = _form(data, encoding, split, header).names or ()
    pair = {"premise", "hypothesis"}
    return "pair" if pair <= {name.strip().casefold() for name in names} else "text"


def _ending(path: str | bytes) -> str:
    location = Path(os.fsdecode(path))
    inner = location.name
    # A folder may have any name, and a .zip file that does not exist has no members.
    if location.suffix.lower() in COMPRESSED and location.is_file():
        inner = inner_name(location)
    return Path(inner.lower()).suffix


def _form(data: object, encoding: str, split: str, header: tuple[str, ...] | None = None) -> Form:
    form = _open(data, encoding, split, header)
    if header is not None and not isinstance(form, Delimited | Workbook):
        raise ValueError(
            f"columns.header must be None except for {', '.join((*DELIMITED, *_WORKBOOKS))} files "
            f"without a header, got {header!r} for {form.name}: leave it out"
        )
    return form


def _open(data: object, encoding: str, split: str, header: tuple[str, ...] | None) -> Form:
    """Chooses the `Form` that reads the data."""
    check_encoding(encoding)
    if not isinstance(data, str | os.PathLike):
        is_table = hasattr(data, "schema") and hasattr(data, "to_batches")
        return open_arrow(data, "table") if is_table else form_of(data, split)
    location = os.fsdecode(data)
    if not location.strip():
        raise ValueError(f"data must be a path or the name of a data set, got {location!r}")
    # A file wins over a data set of the same name, and a `Path` never names a data set.
    named = isinstance(data, str)
    if not os.path.exists(location):
        form = open_named(location, split) if named else None
        if form is None:
            raise FileNotFoundError(_describe_missing(location))
        return form
    path, ending = Path(location), _ending(location)
    if path.is_dir():
        return Folder(path, encoding)
    packed = path.suffix.lower() in COMPRESSED
    if ending in (*ARROW, *_WORKBOOKS):
        if packed:
            raise ValueError(
                f"{path} must not be compressed, got a {ending} file inside: unpack it first"
            )
        if ending in ARROW:
            return open_arrow(path, location)
        return Workbook(path, header)
    if ending not in _ENDS:
        hint = "; files of tags are for the tagger" if ending in _TAGS else ""
        if ending == ".xls":
            hint = "; save the workbook as .xlsx or .csv"
        raise ValueError(
            f"{path}: a file of texts must end with {', '.join(_ENDS)} (each also with "
            f"{', '.join(COMPRESSED)}), {', '.join((*ARROW, *_WORKBOOKS))}, or be a folder with a "
            f"folder per class, got {ending or 'no ending'!r}{hint}"
        )
    file = TextFile(path, encoding)
    file.check()
    if ending in DELIMITED:
        return Delimited(file, ending, header)
    if ending == ".json":
        return open_json(file)
    return FastText(file) if ending == ".txt" else JsonLines(file)


def _describe_missing(location: str) -> str:
    """Returns the message for a path that does not exist, with a similar name of its folder."""
    printed = clean(location[:200])
    path = Path(location)
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        siblings = []
    matches = difflib.get_close_matches(path.name, siblings, n=1)
    hint = f"; did you mean {clean(str(path.parent / matches[0]))}?" if matches else ""
    kind = "file" if path.suffix or os.sep in location else "file, and no data set of this name"
    return f"{printed}: there is no such {kind}{hint}"
