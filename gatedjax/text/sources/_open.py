"""Opening labelled texts: a file, a folder, a data set by name, or values in memory."""

import difflib
import os
from pathlib import Path
from typing import Literal

from gatedjax._utils.terminal import clean
from gatedjax.data.files._unpack import ENDS as COMPRESSED
from gatedjax.data.files._unpack import inner_name
from gatedjax.text.sources import _formats
from gatedjax.text.sources._conll import ENDS as TAGS
from gatedjax.text.sources._csv import MARKS, open_csv
from gatedjax.text.sources._lines import TextFile, check_encoding
from gatedjax.text.sources._memory import ARROW, open_arrow, open_values
from gatedjax.text.sources._named import open_named
from gatedjax.text.sources._table import Columns, Source, Table, find_columns
from gatedjax.text.sources._workbook import ENDS as WORKBOOKS
from gatedjax.text.sources._workbook import open_workbook

_TEXTS = {
    ".json": _formats.open_json,
    ".jsonl": _formats.open_json_lines,
    ".ndjson": _formats.open_json_lines,
    ".txt": _formats.open_fast_text,
}


def open_table(
    data: object, columns: Columns | None = None, *, encoding: str = "utf-8", split: str = "train"
) -> Table:
    """Opens labelled texts: a path of a file or a folder, a data set by name ("demo",
    "hf:NAME[:CONFIG]", "tfds:NAME", or a name of `gatedjax.data.load`), or values in memory. The
    table can be read several times.
    """
    columns = source_columns = Columns() if columns is None else columns
    source = _open(data, encoding, split, columns.header)
    # These checks are the same for all formats; the rows check their values themselves.
    if source.single and len(columns.inputs) > 1:
        raise ValueError(
            f"{source.name}: pairs must be in a .csv, .tsv or .jsonl file, got a source of single "
            "texts"
        )
    if source.names is not None:
        source_columns = find_columns(source.name, source.names, columns, headed=source.headed)
    if next(source.rows(source_columns), None) is None:
        place = " after the header" * source.headed
        raise ValueError(f"{source.name} must have a row{place}, got none")
    return Table(source.name, source, columns, source_columns)


def infer_task(
    data: object, *, encoding: str = "utf-8", header: tuple[str, ...] | None = None
) -> Literal["text", "pair", "tags"]:
    """Infers the kind of model: "tags" for the endings of CoNLL files, "pair" if there are columns
    premise and hypothesis or rows of three values, else "text".
    """
    if isinstance(data, str | os.PathLike) and _ending(Path(os.fsdecode(data))) in TAGS:
        return "tags"
    source = _open(data, encoding, "train", header)
    names = {name.strip().casefold() for name in source.names or ()}
    return "pair" if source.width == 3 or {"premise", "hypothesis"} <= names else "text"


def _ending(path: Path) -> str:
    # A folder may have any name, and a .zip file that does not exist has no members.
    is_packed = path.suffix.lower() in COMPRESSED and os.path.isfile(path)
    return Path((inner_name(path) if is_packed else path.name).lower()).suffix


def _open(data: object, encoding: str, split: str, header: tuple[str, ...] | None) -> Source:
    """Opens the source by its kind or the ending of its name."""
    check_encoding(encoding)
    location = os.fsdecode(data) if isinstance(data, str | os.PathLike) else None
    path = Path(location or "")
    ending = "" if location is None or os.path.isdir(path) else _ending(path)
    if header is not None and ending not in (*MARKS, *WORKBOOKS):
        raise ValueError(
            f"columns.header must be None except for {', '.join((*MARKS, *WORKBOOKS))} files "
            f"without a header, got {header!r} for {location or 'values in memory'}: leave it out"
        )
    if location is None:
        return open_values(data, split)
    if not location.strip():
        raise ValueError(f"data must be a path or the name of a data set, got {location!r}")
    if not os.path.exists(location):
        # A file wins over a data set of the same name, and a `Path` never names a data set.
        source = open_named(location, split) if isinstance(data, str) else None
        if source is None:
            raise FileNotFoundError(_describe_missing(location))
        return source
    if os.path.isdir(path):
        return _formats.open_folder(path, encoding)
    if ending in (*ARROW, *WORKBOOKS):
        if path.suffix.lower() in COMPRESSED:
            raise ValueError(
                f"{path} must not be compressed, got a {ending} file inside: unpack it first"
            )
        return open_arrow(location, path) if ending in ARROW else open_workbook(path, header)
    file = TextFile(path, encoding)
    if ending in MARKS:
        file.check()
        return open_csv(file, ending, header)
    if ending not in _TEXTS:
        hint = "; files of tags are for the tagger" if ending in TAGS else ""
        if ending == ".xls":
            hint = "; save the workbook as .xlsx or .csv"
        raise ValueError(
            f"{path}: a file of texts must end with {', '.join((*MARKS, *_TEXTS))} (each also with "
            f"{', '.join(COMPRESSED)}), {', '.join((*ARROW, *WORKBOOKS))}, or be a folder with a "
            f"folder per class, got {repr(ending) if ending else 'no ending'}{hint}"
        )
    file.check()
    return _TEXTS[ending](file)


def _describe_missing(location: str) -> str:
    """Returns the message for a path that does not exist, with a similar name of its folder."""
    path = Path(location)
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        siblings = []
    matches = difflib.get_close_matches(path.name, siblings, n=1)
    hint = f"; did you mean {clean(str(path.parent / matches[0]))}?" if matches else ""
    kind = "file" if path.suffix or os.sep in location else "file, and no data set of this name"
    return f"{clean(location[:200])}: there is no such {kind}{hint}"
