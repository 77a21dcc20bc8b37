"""Preparation and reading of data sets in TFDS form."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gatedjax._utils.missing import TFDS, missing
from gatedjax.data.files._lines import FileRow, FileRows
from gatedjax.data.files._source import Quarantined
from gatedjax.data.sets._all import SETS
from gatedjax.data.sets._declaration import Record

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder


def is_prepared(name: str, data_dir: str | Path | None) -> bool:
    """Returns True if the data set is prepared in `data_dir` in a form that needs no TensorFlow."""
    # Any error, such as a missing package, means that the set is not prepared.
    with contextlib.suppress(Exception):
        return builder_of(name, data_dir).is_prepared()
    return False


def builder_of(name: str, data_dir: str | Path | None) -> "DatasetBuilder":
    """Returns the TFDS builder of a data set, from gatedjax or from TFDS."""
    place = None if data_dir is None else str(Path(data_dir).expanduser())
    declared = SETS[name]
    if declared.tfds is None:
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise ImportError(missing(f"data set {name!r} needs", TFDS)) from error
        return tfds.builder(name, data_dir=place, file_format="array_record")
    from gatedjax.data.builders import BUILDERS

    return BUILDERS[declared.builder](
        config=declared.config or None, data_dir=place, file_format="array_record"
    )


def downloads_of(builder: "DatasetBuilder") -> Path:
    """Returns TFDS's folder of downloads, which is in data_dir."""
    # data_path is data_dir/name/[config/]version.
    path = Path(builder.data_path)
    return next(p for p in path.parents if p.name == builder.name).with_name("downloads")


def prepare(
    name: str, *, data_dir: str | Path | None, manual_dir: str | Path | None = None
) -> "DatasetBuilder":
    """Prepares a data set unless it is already prepared, and returns its TFDS builder."""
    builder = builder_of(name, data_dir)
    if builder.is_prepared():
        return builder
    try:
        config = None
        if manual_dir is None:
            _check_network(name, builder)
        else:
            import tensorflow_datasets as tfds

            config = tfds.download.DownloadConfig(manual_dir=str(Path(manual_dir).expanduser()))
        # TFDS renames a temporary folder at the end, so that an interrupted preparation does not
        # look prepared. It prints its progress to standard output, where commands write results.
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare(download_config=config)
    except Exception as error:
        # Another process may have prepared the set in the meantime.
        if not builder.is_prepared():
            if manual_dir is not None:
                raise ValueError(
                    f"data set {name!r} could not be prepared in {builder.data_path}: manual_dir "
                    f"must have its raw files, got {str(manual_dir)!r} ({type(error).__name__}: "
                    f"{error})"
                ) from error
            raise FileNotFoundError(_message(name, builder, error)) from error
        builder = builder_of(name, data_dir)
    return builder


def read_prepared(name: str, part: str, *, data_dir: str | Path | None) -> FileRows:
    """Reads an official part, such as "train", of a data set that TFDS prepared."""
    prepared = prepare(name, data_dir=data_dir)
    source = prepared.as_data_source(part)
    records: Sequence[Record] = source.__getitems__(list(range(len(source))))
    declared = SETS[name]
    if declared.tfds is None:
        assert declared.tfds_rows is not None
        return declared.tfds_rows(records, part)
    account = (prepared.info.metadata or {}).get(part) or {}
    rows = [FileRow(int(record["index"]), *declared.tfds.to_row(record)) for record in records]
    return FileRows(
        tuple(sorted(rows, key=lambda row: row.index)),
        tuple(Quarantined(*aside) for aside in account.get("quarantine", ())),
        counted=account.get("lines"),
        note=account.get("note"),
    )


def _check_network(name: str, builder: "DatasetBuilder") -> None:
    """Raises an error at once if the download does not answer; TFDS would retry for minutes."""
    host = SETS[name].files.url
    if host is None:
        raise FileNotFoundError("it has no download")
    import requests

    if (downloads_of(builder) / builder.name).is_dir():
        return  # the finished downloads may suffice
    with requests.head(host, timeout=10):
        pass


def _message(name: str, builder: "DatasetBuilder", error: Exception) -> str:
    """Returns the message for a data set that cannot be prepared because of `error`."""
    text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    message = (
        f"data set {name!r} is not prepared in {builder.data_path} and could not be downloaded "
        f"({text}). Without a network: get the files from {SETS[name].where} on "
        "another machine and name their folder (manual_dir=...)."
    )
    if isinstance(error, ImportError) or "tensorflow" in str(error).lower():
        message += f" {missing('To prepare this set, TFDS needs', 'tensorflow-cpu')}."
    return message
