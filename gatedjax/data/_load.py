"""`load`: a data set by name, from prepared TFDS files, from raw files, or generated."""

import contextlib
import contextvars
import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, overload

from gatedjax.data import _prepared
from gatedjax.data.files import _unpack
from gatedjax.data.files._lines import FileRows
from gatedjax.data.files._paths import Found
from gatedjax.data.files._source import Source, SourceInfo
from gatedjax.data.sets._all import check_known, not_there, resolve
from gatedjax.data.sets._all import names as names
from gatedjax.data.sets._declaration import HELD_OUT, ID_BASE, SPLITS, DataSet, Embedded, hold_out
from gatedjax.data.sets._images import ImageSource
from gatedjax.data.sets._ptb import TokenStream

_LOG = logging.getLogger("gatedjax.data")
# A context variable reaches `load` through all functions between, without an argument of each.
_LOOKING: contextvars.ContextVar[bool] = contextvars.ContextVar("looking", default=False)


class FilesFound(Exception):
    """Raised by `load` inside a `looking` block if the files of the data set exist."""


@contextlib.contextmanager
def looking() -> Iterator[None]:
    """Makes `load` raise `FilesFound` or FileNotFoundError without reading, inside a `with` block.
    A command checks in this way, in milliseconds, that its first data set exists.
    """
    token = _LOOKING.set(True)
    try:
        yield
    finally:
        _LOOKING.reset(token)


def _look(declared: DataSet, data_dir: str | Path | None, manual_dir: str | Path | None) -> None:
    """Raises FileNotFoundError unless all official parts can be read without a network."""
    if manual_dir is None and not _prepared.is_prepared(declared.name, data_dir):
        folder = "TFDS's own folder" if data_dir is None else data_dir
        raise FileNotFoundError(
            f"data set {declared.name!r} is not prepared in {folder}; python -m gatedjax data "
            f"prepare {declared.name} does it, or give the folder of its raw files "
            "(manual_dir=...)"
        )
    for part in declared.official:
        _find(declared, part, data_dir, manual_dir)


def _find(
    declared: DataSet, part: str, data_dir: str | Path | None, manual_dir: str | Path | None
) -> Found | None:
    """Returns the raw file of a part, or None if the prepared set is read instead."""
    if manual_dir is None:
        return None
    folder = Path(manual_dir).expanduser()
    path, looked_for = declared.files.find(folder, part)
    # Raw files that are named but missing are an error. Only a prepared set that is named too
    # replaces them, so that no download begins by surprise.
    if path is None and (data_dir is None or not _prepared.is_prepared(declared.name, data_dir)):
        raise not_there(declared, part, folder, looked_for)
    return path


@overload
def load(name: Literal["ptb"], split: str, **options: Any) -> TokenStream: ...
@overload
def load(
    name: Literal["mnist", "fashion_mnist", "digits"], split: str, **options: Any
) -> ImageSource: ...
@overload
def load(
    name: str,
    split: str,
    *,
    data_dir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    strict: bool = False,
    held_out: float | None = None,
    unpack_limit: int | None = None,
    **options: Any,
) -> Source: ...
def load(
    name: str,
    split: str,
    *,
    data_dir: str | Path | None = None,
    manual_dir: str | Path | None = None,
    strict: bool = False,
    held_out: float | None = None,
    unpack_limit: int | None = None,
    **options: Any,
) -> Source:
    """Loads a split of a data set as a random-access source.

        >>> source = load("polarity", "test")
        >>> len(source), source.info.class_names
        (1000, ('negative', 'positive'))

    Sets: `polarity` (generated), `demo` (sentences of three authors, in the package), `sst`
    (options granularity="fine"|"binary", level="sentence"|"phrase"|"train_phrase"; `sst1` and
    `sst2` are its fine and binary form), `trec`, `imdb_reviews` (`imdb`), `ag_news_subset`
    (`ag_news`).
    Cloze questions: `cbt_ne`, `cbt_cn` (or `cbt` with the option kind="NE"|"CN"), `cnn_cloze`,
    `daily_mail_cloze` (`cnn_dm_cloze` with paper="cnn"|"daily_mail"), `wdw_strict`, `wdw_relaxed`
    (`wdw` with kind="strict"|"relaxed") and `two_facts` (generated). Their examples have the
    document as "tokens", "query", "candidates", "answer", and "label", the index of the answer
    among the candidates (-1 if it is none); `source.report.notes` counts absent answers.
    Pairs of sentences: `snli`, `sick` ("hypothesis" is the second). Semantic roles: `conll_srl`, an
    example per predicate. Parallel text: `multi30k`, `kftt`, `iwslt14_en_ro`, `wmt14_en_de`
    ("target" is the translation of "text"; option source= the language that is translated). Trees:
    `ewt_trees`. Probes: `senteval_probing` (option task="bigram_shift"|"tree_depth"|
    "top_constituents"|...; also by names such as `senteval_bigram_shift`), with the labels of the
    training part as classes; `word_reordering`, where "insert" and "original" are positions.
    Running text: `ptb`, a `TokenStream` with the vocabulary of its training part. Images: `mnist`,
    `fashion_mnist` and scikit-learn's `digits` (no files needed), an `ImageSource`.

    SST levels: "sentence"; "phrase" is all labelled spans, repetitions included; "train_phrase" is
    all spans of the training trees, sentences included, without repetitions of text and label as in
    the common releases, while the other splits are sentences. `sst1_phrases` and `sst2_phrases`
    have that level. The binary form drops neutral spans.

    Sources of the text: the raw files below `manual_dir` if they exist there (no file is written);
    else the TFDS set in `data_dir`, which is downloaded and prepared there if it is missing. `sst`,
    `trec`, `ptb` and the cloze sets need no TensorFlow for that; CNN, Daily Mail and Who-did-What
    cannot be downloaded by a program.

    Splits: "train", "validation", "test". If a set has no official validation part (all but `sst`,
    `ptb`, the cloze sets and generated sets), a tenth of the official training part is held out
    (see `held_out`), the same in all runs and stratified by class; for `mnist` and `fashion_mnist`
    it is the last 5,000 training images. "train_full" is the whole official training part.
    `digits` has no official parts: a fifth is used for testing.

    `example_id` is the line in the official file (images: the position; IMDB: the review in order
    of file names; texts that TFDS prepares itself: the position there) plus 100,000,000 for an
    official validation part and 200,000,000 for test. SST phrases count 4,096 ids a line.

    Args:
      name: a data set, alias or family from `names()`.
      split: "train", "validation", "test" or "train_full".
      data_dir: TFDS folder (default: TFDS's own, ~/tensorflow_datasets).
      manual_dir: folder with the raw files as they are downloaded, plain or .gz, or its parent;
        None reads the TFDS set.
      strict: refuse malformed lines and files of another size than the official ones, instead of
        setting lines aside in `source.quarantine` and naming the size in `source.info.substitute`.
      held_out: share of the official training part that is "validation"; None is a tenth. Only
        for texts without an official validation part.
      unpack_limit: the largest number of bytes that a .gz file or a member of an archive may unpack
        to; None is 1 GiB, or the value of the environment variable GATEDJAX_UNPACK_LIMIT ("8GiB").
        The members of an archive together may unpack to 32 times its size, if that is more.
      **options: options of this data set, which the list above has in parentheses.

    Returns:
      The source. Its `report` accounts for all lines.

    Raises:
      ValueError: for an unknown name, split or option; for a file without a usable line, or that
        unpacks to more than the limit; under `strict`, for the first malformed line.
      FileNotFoundError: if the files do not exist; the message names their address.
    """
    declared, every = resolve(name, options)
    check_known("split", split, SPLITS)
    name = declared.name
    fixed = isinstance(declared, Embedded) or "validation" in declared.official
    if held_out is not None:
        if fixed or (isinstance(declared, DataSet) and declared.hold_out is not None):
            raise ValueError(f"held_out must be None for {name!r}: its validation part is fixed")
        if not 0 < held_out < 1:
            raise ValueError(f"held_out must be in (0, 1), got {held_out}")
    # The arguments are checked before this point, so that a wrong option is also reported if the
    # caller only looks for files.
    if _LOOKING.get():
        if isinstance(declared, DataSet):
            _look(declared, data_dir, manual_dir)
        raise FilesFound(name)
    if isinstance(declared, Embedded):
        return declared.source(split)

    # A set without an official validation part holds texts of the training part out.
    part = "train" if split == "train_full" or (split == "validation" and not fixed) else split
    read_part = functools.partial(
        _read_part, declared, data_dir=data_dir, manual_dir=manual_dir, unpack_limit=unpack_limit
    )
    rows = read_part(part)
    substitute = _substitute(declared, part, rows)
    # The rows are checked before they are divided, because the official numbers count the whole
    # part.
    _check(declared, part, rows, substitute, strict)

    part_options = declared.of_part(part, every)
    used = rows
    if not fixed and split in ("train", "validation"):
        used = hold_out(declared, rows, held_out or HELD_OUT)[split == "validation"]
    examples = declared.examples(used, ID_BASE[part], part_options)
    report = declared.report(rows, part_options)
    # A line that is neither used, skipped nor set aside is a fault of the reader, and its results
    # would be wrong without a sign.
    if not report.reconciles:
        raise ValueError(
            f"data set {name!r}, {part}: not everything is accounted for: each line must be used, "
            f"skipped or set aside, got {report}: prepare it again or check it with python -m "
            "gatedjax data check"
        )
    info = SourceInfo(name, split, declared.class_names(every), substitute)
    return declared.source(examples, info, report, read_part)


def _substitute(declared: DataSet, part: str, rows: FileRows) -> str | None:
    official = declared.official[part]
    # Raw lines are counted and not examples, because the official numbers count the lines of the
    # files.
    if official is None or rows.lines == official:
        return rows.note
    counts = f"{rows.lines:,} {declared.unit} where the official file has {official:,}"
    return counts if rows.note is None else f"{rows.note}: {counts}"


def _check(
    declared: DataSet, part: str, rows: FileRows, substitute: str | None, strict: bool
) -> None:
    """Raises ValueError for rows that cannot be used; logs the number of lines set aside."""
    name, unit, aside = declared.name, declared.unit, rows.quarantine
    if strict and (aside or substitute):
        # A malformed line comes first in the message, because it has a line number and a reason.
        first = aside[0] if aside else f"{name}, {part}: {substitute}"
        raise ValueError(
            f"{first}. With strict=True all {unit} must be well formed and official, got "
            f"{len(aside)} malformed {unit}; strict=False sets them aside"
        )
    if not rows.rows:
        first = f", first {aside[0]}" if aside else ""
        raise ValueError(
            f"data set {name!r}, {part}: no usable line{first}; at least one must be well formed"
        )
    if aside:
        _LOG.warning(
            "%s, %s: %d malformed %s set aside, first %s", name, part, len(aside), unit, aside[0]
        )


def _read_part(
    declared: DataSet,
    part: str,
    *,
    data_dir: str | Path | None,
    manual_dir: str | Path | None,
    unpack_limit: int | None,
) -> FileRows:
    """Reads an official part: raw files if manual_dir has them, else the prepared TFDS set."""
    path = _find(declared, part, data_dir, manual_dir)
    with _unpack.limit_unpacking(unpack_limit):
        if path is not None:
            return declared.read_rows(path, part)
        return _prepared.read_prepared(declared.name, part, data_dir=data_dir)
