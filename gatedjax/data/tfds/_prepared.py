"""Sets in TFDS form: opened where they are prepared, prepared where they are not."""

import contextlib
import functools
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gatedjax.data.files._lines import LineError, Row, Rows
from gatedjax.data.files._source import Quarantined
from gatedjax.data.sets import (
    _ag_news,
    _cbt,
    _cloze,
    _images,
    _nli,
    _parallel,
    _probing,
    _ptb,
    _question_files,
    _srl,
    _sst,
    _trec,
    _treebank,
)

OURS = {
    "cbt_cn": "CbtCn",
    "cbt_ne": "CbtNe",
    "cnn_cloze": "CnnCloze",
    "conll_srl": "ConllSrl",
    "daily_mail_cloze": "DailyMailCloze",
    "ewt_trees": "EwtTrees",
    "iwslt14_en_ro": "Iwslt14EnRo",
    "kftt": "Kftt",
    "multi30k": "Multi30k",
    "ptb": "Ptb",
    "sick": "Sick",
    "sst": "Sst",
    "trec": "Trec",
    "wdw_relaxed": "WdwRelaxed",
    "wdw_strict": "WdwStrict",
    "word_reordering": "WordReordering",
    "wmt14_en_de": "Wmt14EnDe",
    **dict.fromkeys(map(_probing.set_name, _probing.TASKS), "SentevalProbing"),
}
"""Sets that `gatedjax.data.builders` builds, without TensorFlow; TFDS builds the others."""


def is_prepared(name: str, data_dir: str | Path | None) -> bool:
    """Whether the set lies in `data_dir` in a form that needs no TensorFlow to read."""
    with contextlib.suppress(Exception):
        return builder(name, data_dir).is_prepared()
    return False


def builder(name: str, data_dir: str | Path | None) -> Any:
    """Returns the TFDS builder of a set; ours for the names that we build."""
    import tensorflow_datasets as tfds

    from gatedjax.data import builders

    place = None if data_dir is None else str(Path(data_dir).expanduser())
    if name.startswith(_probing.PREFIX):
        task = name.removeprefix(_probing.PREFIX)
        return builders.SentevalProbing(config=task, data_dir=place, file_format="array_record")
    if name in OURS:
        return getattr(builders, OURS[name])(data_dir=place, file_format="array_record")
    return tfds.builder(name, data_dir=place, file_format="array_record")


def prepare(
    name: str,
    *,
    data_dir: str | Path | None,
    where: str,
    manual_dir: str | Path | None = None,
) -> Any:
    """Prepares a set unless it is prepared already.

    TFDS writes beside the final folder and renames at the end, so a killed preparation leaves
    nothing that looks prepared.

    Args:
      name: TFDS name.
      data_dir: TFDS folder; None is TFDS's own default.
      where: address of the files, for the message.
      manual_dir: folder with all raw files of a set of ours; None downloads them.

    Returns:
      Its builder.

    Raises:
      FileNotFoundError: if the set is neither prepared nor can be downloaded.
      ValueError: if it cannot be prepared from manual_dir.
    """
    made = builder(name, data_dir)
    if made.is_prepared():
        return made
    try:
        config = None
        if manual_dir is None:
            _check_network(name, made)
        else:
            import tensorflow_datasets as tfds

            config = tfds.download.DownloadConfig(manual_dir=str(Path(manual_dir).expanduser()))
        with contextlib.redirect_stdout(io.StringIO()):
            made.download_and_prepare(download_config=config)
    except Exception as error:
        # another process may have finished first
        if not made.is_prepared():
            if manual_dir is not None:
                raise ValueError(
                    f"data set {name!r} could not be prepared in {made.data_path} from {manual_dir}"
                    f": {type(error).__name__}: {error}"
                ) from error
            raise FileNotFoundError(_message(name, made, where, error)) from error
        made = builder(name, data_dir)
    return made


def read(name: str, part: str, *, data_dir: str | Path | None, where: str) -> Rows:
    """Reads an official part of a set by index, downloading and preparing the set if need be.

    The arguments and errors are those of `prepare`; part is "train", "validation" or "test".
    """
    made = prepare(name, data_dir=data_dir, where=where)
    source = made.as_data_source(part)
    records = source.__getitems__(list(range(len(source))))
    metadata = made.info.metadata or {}
    return _READERS[name](records, {**(metadata.get(part) or {}), "part": part})


def _check_network(name: str, builder: Any) -> None:
    """Fails at once where nothing can be downloaded: TFDS tries for minutes."""
    host = _HOSTS[name]
    if host is None:
        raise FileNotFoundError("it has no download")
    import requests

    # data_path is data_dir/name/[config/]version
    folder = builder.name
    downloads = next(p for p in Path(builder.data_path).parents if p.name == folder).parent
    if (downloads / "downloads" / folder).is_dir():
        return  # finished downloads may be all that it needs
    with requests.head(host, timeout=10):
        pass


def _message(name: str, builder: Any, where: str, error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    message = (
        f"data set {name!r} is not prepared in {builder.data_path} and could not be downloaded "
        f"({text}). Without a network: get the files from {where} on another machine and name "
        "their folder (manual_dir=...)."
    )
    if isinstance(error, ImportError) or "tensorflow" in str(error).lower():
        message += " Preparing this set through TFDS needs the [prepare] extra (tensorflow-cpu)."
    return message


def _set_aside(metadata: dict[str, Any]) -> tuple[Quarantined, ...]:
    return tuple(Quarantined(f, n, reason) for f, n, reason in metadata.get("quarantine", ()))


def _lines(
    records: list[dict[str, Any]],
    metadata: dict[str, Any],
    row: Callable[[dict[str, Any]], tuple[int, Any]],
) -> Rows:
    rows = [Row(int(record["index"]), *row(record)) for record in records]
    ordered = tuple(sorted(rows, key=lambda r: r.index))
    note = metadata.get("note")
    return Rows(ordered, _set_aside(metadata), counted=metadata.get("lines"), note=note)


def _read_sst(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    return _lines(records, metadata, lambda r: _sst.parse(r["tree"].decode()))


def _read_trec(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    def row(record: dict[str, Any]) -> tuple[int, Any]:
        content = (record["label-fine"].decode(), record["text"].decode())
        return int(record["label-coarse"]), content

    return _lines(records, metadata, row)


def _texts(records: list[dict[str, Any]], text: Callable[[dict[str, Any]], str], name: str) -> Rows:
    rows, quarantine = [], []
    for index, record in enumerate(records):
        try:
            rows.append(Row(index, int(record["label"]), text(record)))
        except (UnicodeDecodeError, LineError) as error:
            quarantine.append(Quarantined(name, index + 1, str(error)))
    return Rows(tuple(rows), tuple(quarantine), counted=len(records))


def _read_imdb(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    return _texts(records, lambda r: r["text"].decode(), "imdb_reviews")


def _read_ag_news(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    def text(record: dict[str, Any]) -> str:
        return _ag_news.clean(record["title"].decode(), record["description"].decode())

    return _texts(records, text, "ag_news_subset")


def _read_ptb(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    return _lines(records, metadata, lambda r: _ptb.parse(r["text"].decode()))


def _read_sick(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    def row(record: dict[str, Any]) -> tuple[int, Any]:
        return int(record["label"]), (record["premise"].decode(), record["hypothesis"].decode())

    return _lines(records, metadata, row)


def _read_snli(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    rows = [
        Row(i, int(r["label"]), (r["premise"].decode(), r["hypothesis"].decode()))
        for i, r in enumerate(records)
    ]
    return Rows(tuple(rows), (), counted=len(records))


def _read_srl(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    return _lines(records, metadata, lambda r: (0, _srl.parse(r["sentence"].decode().split("\n"))))


def _read_trees(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    return _lines(records, metadata, lambda r: _treebank.parse(r["tree"].decode()))


def _read_parallel(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    return _lines(records, metadata, lambda r: (0, (r["source"].decode(), r["target"].decode())))


def _read_probing(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    def row(record: dict[str, Any]) -> tuple[int, Any]:
        return 0, (record["label"].decode(), record["text"].decode())

    return _lines(records, metadata, row)


def _read_reordering(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    def row(record: dict[str, Any]) -> tuple[int, Any]:
        tokens = tuple(record["text"].decode().split())
        return 0, (tokens, int(record["insert"]), int(record["original"]))

    return _lines(records, metadata, row)


def _read_images(name: str, records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    """Puts the images back in the order of the official files, from which the splits are cut.

    TFDS stores examples by the hash of their key, which here is the position in the file.
    """
    from tensorflow_datasets.core import hashing

    part = metadata["part"]
    hash_key = hashing.Hasher(part).hash_key
    places = np.argsort([f"{hash_key(index):032x}" for index in range(len(records))])
    ordered = [records[at] for at in np.argsort(places)]
    labels = np.array([record["label"] for record in ordered], np.uint8)
    if zlib.crc32(labels.tobytes()) != _images.CHECKSUMS[name, part]:
        raise ValueError(
            f"data set {name!r}, {part}: the prepared set does not hold the official images in an "
            "order known to gatedjax; read the raw files with manual_dir=... instead"
        )
    return _images.rows_of([record["image"][..., 0] for record in ordered], labels, name)


def _read_cloze(records: list[dict[str, Any]], metadata: dict[str, Any]) -> Rows:
    def row(record: dict[str, Any]) -> Row:
        made = _cloze.Question(
            record["document"].decode(),
            record["query"].decode(),
            record["answer"].decode(),
            tuple(candidate.decode() for candidate in record["candidates"]),
            int(record["repeated"]),
        )
        return Row(int(record["index"]), made.status, made, record["place"].decode())

    rows = sorted(map(row, records), key=lambda r: r.index)
    return Rows(tuple(rows), _set_aside(metadata), counted=metadata.get("lines"))


_HOSTS: dict[str, str | None] = {
    **dict.fromkeys(("cbt_ne", "cbt_cn"), _cbt.URL),
    **_question_files.URLS,
    **_images.URLS,
    **dict.fromkeys(map(_probing.set_name, _probing.TASKS), _probing.URL),
    **{name: corpus.url for name, corpus in _parallel.CORPORA.items()},
    "conll_srl": None,
    "ewt_trees": None,
    "word_reordering": None,
    "sick": _nli.SICK_URL,
    "snli": _nli.SNLI_URL,
    "ptb": _ptb.URL,
    "sst": _sst.URL,
    "trec": _trec.URL,
    "imdb_reviews": "https://ai.stanford.edu",
    "ag_news_subset": "https://drive.google.com",
}
_READERS: dict[str, Callable[[list[dict[str, Any]], dict[str, Any]], Rows]] = {
    "mnist": functools.partial(_read_images, "mnist"),
    "fashion_mnist": functools.partial(_read_images, "fashion_mnist"),
    **dict.fromkeys(_parallel.CORPORA, _read_parallel),
    **dict.fromkeys(map(_probing.set_name, _probing.TASKS), _read_probing),
    "word_reordering": _read_reordering,
    "conll_srl": _read_srl,
    "ewt_trees": _read_trees,
    "ptb": _read_ptb,
    "sick": _read_sick,
    "snli": _read_snli,
    "sst": _read_sst,
    "trec": _read_trec,
    "imdb_reviews": _read_imdb,
    "ag_news_subset": _read_ag_news,
    **dict.fromkeys(("cbt_ne", "cbt_cn", *_question_files.OFFICIAL), _read_cloze),
}
