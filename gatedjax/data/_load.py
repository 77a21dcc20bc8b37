"""`load`: a data set by name, from prepared TFDS files, from raw files, or made here."""

import contextlib
import contextvars
import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, overload

from gatedjax.data.files import _unpack
from gatedjax.data.files._lines import Rows
from gatedjax.data.files._source import Source, SourceInfo
from gatedjax.data.sets._all import configured, not_there, one_of, resolve
from gatedjax.data.sets._all import names as names
from gatedjax.data.sets._declaration import ID_BASE, DataSet, Embedded
from gatedjax.data.sets._images import ImageSource
from gatedjax.data.sets._split import HELD_OUT, SPLITS, hold_out
from gatedjax.data.text._stream import TokenStream
from gatedjax.data.tfds import _prepared

_LOG = logging.getLogger("gatedjax.data")
_LOOKING: contextvars.ContextVar[bool] = contextvars.ContextVar("looking", default=False)


class Found(Exception):
    """The files of a data set are there; see `looking`."""


@contextlib.contextmanager
def looking() -> Iterator[None]:
    """Inside, `load` reads and downloads nothing: it raises Found, or says what is missing.

    A caller that would read many files learns so in milliseconds whether the first set that it
    asks for is there.
    """
    token = _LOOKING.set(True)
    try:
        yield
    finally:
        _LOOKING.reset(token)


def _look(declared: DataSet, data_dir: str | Path | None, manual_dir: str | Path | None) -> None:
    """Raises FileNotFoundError unless every official part can be read without a network."""
    prepared = _prepared.is_prepared(declared.name, data_dir)
    if manual_dir is None:
        if not prepared:
            folder = "TFDS's own folder" if data_dir is None else data_dir
            raise FileNotFoundError(
                f"data set {declared.name!r} is not prepared in {folder}; python -m gatedjax data "
                f"prepare {declared.name} does it, or give the folder of its raw files "
                "(manual_dir=...)"
            )
        return
    for part in declared.official:
        path, looked_for = declared.files.find(Path(manual_dir).expanduser(), part)
        if path is None and (data_dir is None or not prepared):
            raise not_there(declared, part, Path(manual_dir).expanduser(), looked_for)


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
    """Loads one split of a data set as a random-access source.

    Sets: `polarity` (made here), `sst` (options granularity="fine"|"binary", level="sentence"|
    "phrase"|"train_phrase"; `sst1` and `sst2` are its fine and binary form), `trec`,
    `imdb_reviews` (`imdb`), `ag_news_subset` (`ag_news`).
    Cloze questions: `cbt_ne`, `cbt_cn` (or `cbt` with the option kind="NE"|"CN"), `cnn_cloze`,
    `daily_mail_cloze` (`cnn_dm_cloze` with paper="cnn"|"daily_mail"), `wdw_strict`, `wdw_relaxed`
    (`wdw` with kind="strict"|"relaxed") and `two_facts` (made here). Their examples have the
    document as "tokens", "query", "candidates", "answer", and in "label" which candidate is the
    answer (-1: none); `source.report.notes` counts absent answers and other oddities.
    Pairs of sentences: `snli`, `sick` ("hypothesis" is the second). Semantic roles: `conll_srl`, an
    example per predicate. Parallel text: `multi30k`, `kftt`, `iwslt14_en_ro`, `wmt14_en_de`
    ("target" is the translation of "text"; option source= the language that is translated). Trees:
    `ewt_trees`. Probes: `senteval_probing` (option task="bigram_shift"|"tree_depth"|
    "top_constituents"|...; each is also a set of its own, `senteval_bigram_shift`), classes by the
    labels of its training part; `word_reordering`, where "insert" and "original" are positions.
    Running text: `ptb`, a `TokenStream` with the vocabulary of its training part. Images: `mnist`,
    `fashion_mnist` and scikit-learn's `digits` (no files needed), an `ImageSource`.

    SST levels: "sentence"; "phrase" is every labelled span of any split, as often as it occurs;
    "train_phrase" is every span of the training trees, sentences included, once per text and
    label as in the common releases, while the other splits are sentences. `sst1_phrases` and
    `sst2_phrases` have that level. The binary form drops neutral spans. `source.report.spans`
    accounts for every span.

    Where the text comes from: the raw files below `manual_dir` if it is given and has them
    (nothing is written); else the TFDS set in `data_dir`, which is downloaded and prepared there
    if it is missing. `sst`, `trec`, `ptb` and the cloze sets need no TensorFlow for that; CNN,
    Daily Mail and Who-did-What cannot be downloaded by a program.

    Splits: "train", "validation", "test". A set without an official validation part (all but
    `sst`, `ptb`, the cloze sets and those made here) has a tenth of its official training part held
    out (see `held_out`), the same in every run and in proportion to the classes; of `mnist` and
    `fashion_mnist` it is the last 5,000 training images. "train_full" is the whole official part.
    `digits` has no official parts: a fifth of it is for testing.

    `example_id` is the line in the official file (images: the position; IMDB: the review in order
    of file names; texts that TFDS prepares itself: the position there) plus 100,000,000 for an
    official validation part and 200,000,000 for test. SST phrases count 4,096 ids a line.

    Args:
      name: of the data set.
      split: "train", "validation", "test" or "train_full".
      data_dir: TFDS folder (default: TFDS's own, ~/tensorflow_datasets).
      manual_dir: folder with the raw files as they are downloaded, plain or .gz, or its parent.
      strict: refuse malformed lines and files of another size than the official ones, instead of
        setting lines aside in `source.quarantine` and naming the size in `source.info.substitute`.
      held_out: share of the official training part that is "validation"; None is a tenth. Only
        for texts without an official validation part.
      unpack_limit: bytes that may come out of one .gz file or one member of an archive; None is
        1 GiB, or what the environment variable GATEDJAX_UNPACK_LIMIT says ("8GiB"). All members of
        an archive that are read together may have 32 times its own size, if that is more.
      **options: of the data set.

    Returns:
      The source. Its `report` accounts for every line.

    Raises:
      ValueError: for an unknown name, split or option; for a file without a usable line, or that
        unpacks to more than the limit; under `strict`, for the first malformed line.
      FileNotFoundError: if the data are not there; the message says where to get them.
    """
    name, options = configured(name, options)
    one_of("data set", name, names())
    one_of("split", split, SPLITS)
    declared, every = resolve(name, options)
    name = declared.name
    fixed = isinstance(declared, Embedded) or "validation" in declared.official
    if held_out is not None:
        if fixed or (isinstance(declared, DataSet) and declared.hold_out is not None):
            raise ValueError(f"held_out must be None for {name!r}: its validation part is fixed")
        if not 0 < held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1, got {held_out}")
    if _LOOKING.get():
        if isinstance(declared, DataSet):
            _look(declared, data_dir, manual_dir)
        raise Found(name)
    if isinstance(declared, Embedded):
        return declared.source(split)

    part = "train" if split == "train_full" or (split == "validation" and not fixed) else split
    read = functools.partial(
        _read, declared, data_dir=data_dir, manual_dir=manual_dir, unpack_limit=unpack_limit
    )
    rows = read(part)
    substitute = _substitute(declared, part, rows)
    _check(declared, part, rows, substitute, strict)

    here = declared.of_part(part, every)
    used = rows
    if not fixed and split in ("train", "validation"):
        used = hold_out(declared, rows, held_out or HELD_OUT)[split == "validation"]
    examples = declared.examples(used, ID_BASE[part], here)
    report = declared.report(rows, used, examples, here)
    if not report.reconciles:
        raise ValueError(f"data set {name!r}, {part}: not everything is accounted for: {report}")
    info = SourceInfo(name, split, declared.class_names(every), substitute)
    return declared.source(examples, info, report, read)


def _substitute(declared: DataSet, part: str, rows: Rows) -> str | None:
    """How the rows differ from the official ones; None if they do not."""
    official = declared.official[part]
    if official is None or rows.lines == official:
        return rows.note
    counts = f"{rows.lines:,} {declared.unit} where the official file has {official:,}"
    return counts if rows.note is None else f"{rows.note}: {counts}"


def _check(declared: DataSet, part: str, rows: Rows, substitute: str | None, strict: bool) -> None:
    """Refuses rows that cannot be used, and says what was set aside."""
    name, unit, aside = declared.name, declared.unit, rows.quarantine
    if strict and (aside or substitute):
        first = aside[0] if aside else f"{name}, {part}: {substitute}"
        raise ValueError(f"{first} ({len(aside)} malformed {unit}; strict=True)")
    if not rows.rows:
        raise ValueError(f"data set {name!r}, {part}: no usable line{rows.first_aside()}")
    if rows.lines != rows.accounted:
        raise ValueError(
            f"data set {name!r}, {part}: {rows.lines:,} lines were read and {rows.accounted:,} are "
            "accounted for; prepare it again or check it with python -m gatedjax data check"
        )
    if aside:
        _LOG.warning(
            "%s, %s: %d malformed %s set aside, first %s", name, part, len(aside), unit, aside[0]
        )


def _read(
    declared: DataSet,
    part: str,
    *,
    data_dir: str | Path | None,
    manual_dir: str | Path | None,
    unpack_limit: int | None,
) -> Rows:
    """Reads an official part: raw files if manual_dir has them, else the TFDS set."""
    name = declared.name
    if manual_dir is not None:
        folder = Path(manual_dir).expanduser()
        path, looked_for = declared.files.find(folder, part)
        if path is not None:
            with _unpack.limited(unpack_limit):
                return declared.read(path, part)
        if data_dir is None or not _prepared.is_prepared(name, data_dir):
            raise not_there(declared, part, folder, looked_for)
    with _unpack.limited(unpack_limit):
        return _prepared.read(name, part, data_dir=data_dir)
