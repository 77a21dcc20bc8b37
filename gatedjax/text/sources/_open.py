"""Opening labelled texts: a file, a folder, a data set by name, or values in memory."""

import contextlib
import difflib
import functools
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from gatedjax import data as gdata
from gatedjax._utils.missing import TFDS, missing
from gatedjax._utils.terminal import clean
from gatedjax.data.files._source import Source as DataSet
from gatedjax.data.files._unpack import ENDS as COMPRESSED
from gatedjax.data.files._unpack import inner_name
from gatedjax.text.sources import _formats
from gatedjax.text.sources._conll import ENDS as TAGS
from gatedjax.text.sources._csv import MARKS, open_csv
from gatedjax.text.sources._formats import WORKBOOKS, open_workbook
from gatedjax.text.sources._lines import TextFile, check_encoding
from gatedjax.text.sources._memory import ARROW, open_arrow, open_dataset, open_dicts, open_values
from gatedjax.text.sources._table import Aside, Columns, Source, Table, find_columns

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
    found = {name.strip().casefold() for name in source.names or ()}
    return "pair" if source.width == 3 or {"premise", "hypothesis"} <= found else "text"


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
        source = _open_named(location, split) if isinstance(data, str) else None
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


# Data sets by name --------------------------------------------------------------------------------


def _open_named(name: str, split: str) -> Source | None:
    """Opens a data set by its name; None if no data set has it."""
    if name.startswith("hf:"):
        return _open_hugging_face(name, split)
    if name.startswith("tfds:"):
        return _open_tfds(name, split)
    if name not in gdata.names():
        return None
    data = gdata.load(name, split)
    classes = data.info.class_names if isinstance(data, DataSet) else None
    example = data[0] if classes else {}
    if "tokens" not in example or "query" in example:
        raise ValueError(f"data must be a data set of labelled texts, got {name!r}")
    # The column of each text, and its name in an example. The demo is read like a file, because
    # its sentences keep their spaces and capitals.
    keys = {"text": "text" if name == "demo" else "tokens"}
    if "hypothesis" in example:
        keys = {"premise": "tokens", "hypothesis": "hypothesis"}
    shown = "demo (sentences of three authors)" if name == "demo" else name
    rows = functools.partial(_examples, data, keys)
    return open_dicts(shown, rows, (*keys, "label"), {"label": classes})


def _examples(data: DataSet, keys: dict[str, str]) -> Iterator[object]:
    for example in data:
        texts = {
            name: example[key] if key == "text" else " ".join(example[key])
            for name, key in keys.items()
        }
        yield {**texts, "label": example["label"]}
    for aside in data.quarantine:
        yield Aside(aside.file, aside.line, aside.reason)


def _open_hugging_face(name: str, split: str) -> Source:
    path, _, config = name.removeprefix("hf:").partition(":")
    if not path:
        raise ValueError(f"data of Hugging Face must be hf:NAME or hf:NAME:CONFIG, got {name!r}")
    try:
        import datasets
    except ImportError:
        raise ValueError(missing(f"{name} needs", "datasets")) from None
    try:
        data = datasets.load_dataset(path, config or None, split=split)
    except Exception as error:  # The type depends on the hub, the network and the set.
        raise _fault("at Hugging Face", name, split, error) from error
    return open_dataset(name, data)


def _open_tfds(name: str, split: str) -> Source:
    """Opens a data set of TFDS, which is prepared first if necessary."""
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise ValueError(missing(f"{name} needs", TFDS)) from None
    try:
        # A data source reads examples by their number, which needs this format.
        builder = tfds.builder(name.removeprefix("tfds:"), file_format="array_record")
        if not builder.is_prepared():
            # TFDS prints its progress to standard output, where a command writes its result.
            with contextlib.redirect_stdout(io.StringIO()):
                builder.download_and_prepare()
        records = builder.as_data_source(split)
    except Exception as error:  # The type depends on the set, the network and TensorFlow.
        raise _fault("in TFDS", name, split, error) from error
    features = dict(builder.info.features)
    classes = {key: getattr(feature, "names", None) for key, feature in features.items()}
    return open_dicts(
        name, lambda: (records[i] for i in range(len(records))), tuple(features), classes
    )


def _fault(place: str, name: str, split: str, error: Exception) -> ValueError:
    line = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
    return ValueError(f"data and split must exist {place}, got {name!r} and {split!r}: {line}")
