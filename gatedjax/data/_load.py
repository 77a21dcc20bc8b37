"""`load`: a data set by name, from prepared TFDS files, from raw files, or made here."""

import dataclasses
import difflib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from gatedjax.data.account._statistics import stratified_split
from gatedjax.data.files import _idx, _unpack
from gatedjax.data.files._lines import AnyPath, Rows
from gatedjax.data.files._source import Example, ReadReport, Source, SourceInfo
from gatedjax.data.sets import (
    _ag_news,
    _images,
    _imdb,
    _polarity,
    _probing,
    _ptb,
    _sst,
    _trec,
    _two_facts,
)
from gatedjax.data.sets._cloze_sets import CLOZE_SETS
from gatedjax.data.sets._images import ImageSource
from gatedjax.data.sets._sentence_sets import SENTENCE_SETS
from gatedjax.data.sets._set import Set
from gatedjax.data.text._stream import TokenStream
from gatedjax.data.text._tokenize import tokenize
from gatedjax.data.tfds import _prepared

_LOG = logging.getLogger("gatedjax.data")

SPLITS = ("train", "validation", "test", "train_full")
HELD_OUT = 0.1
SPLIT_SEED = 20_200_820
"""Fixed, so that "validation" means the same examples in every run."""
ID_BASE = {"train": 0, "validation": 100_000_000, "test": 200_000_000}

ALIASES: dict[str, tuple[str, dict[str, str]]] = {
    "sst1": ("sst", {"granularity": "fine"}),
    "sst2": ("sst", {"granularity": "binary"}),
    "sst1_phrases": ("sst", {"granularity": "fine", "level": "train_phrase"}),
    "sst2_phrases": ("sst", {"granularity": "binary", "level": "train_phrase"}),
    "imdb": ("imdb_reviews", {}),
    "ag_news": ("ag_news_subset", {}),
}
FAMILIES: dict[str, tuple[str, dict[str, str]]] = {
    "cbt": ("kind", {"NE": "cbt_ne", "CN": "cbt_cn"}),
    "cnn_dm_cloze": ("paper", {"cnn": "cnn_cloze", "daily_mail": "daily_mail_cloze"}),
    "wdw": ("kind", {"strict": "wdw_strict", "relaxed": "wdw_relaxed"}),
}
"""Names of several sets of one kind: the option that chooses, and its values, the default first."""


@dataclasses.dataclass(frozen=True)
class Embedded:
    """A data set that needs no files."""

    origin: str
    sizes: Mapping[str, int]
    source: Callable[[str], Source]
    """Split -> source."""
    unit: str = "lines"
    """What an example is, in reports."""


class _Lazy(Sequence[Example]):
    """Texts that are tokenised when first asked for, then kept."""

    def __init__(self, rows: Rows, base: int) -> None:
        self._rows = rows.rows
        self._base = base
        self._made: list[Example | None] = [None] * len(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index):
        example = self._made[index]
        if example is None:
            row = self._rows[index]
            example = {
                "tokens": tokenize(row.content),
                "label": row.label,
                "example_id": self._base + row.index,
                "text": row.content,
            }
            self._made[index] = example
        return example


def _by_name(module: Any) -> Callable[[Path, str], tuple[AnyPath | None, str]]:
    def files(manual_dir: Path, part: str) -> tuple[AnyPath | None, str]:
        name = module.FILES[part]
        return module.find(manual_dir, part), f"{name} (or {name}.gz)"

    return files


def _image_set(name: str, classes: tuple[str, ...]) -> Set:
    return Set(
        official=_images.OFFICIAL,
        unit="images",
        where=f"{_images.URLS[name]} (four idx files)",
        files=functools.partial(_images.find, name),
        read=_images.read,
        count=_idx.count,
        examples=lambda rows, base, o: _images.columns(rows, base),
        classes=lambda o: classes,
        hold_out=_images.hold_out,
        source=_images.source,
    )


SETS: dict[str, Set] = {
    "sst": Set(
        official=_sst.OFFICIAL,
        where=f"{_sst.URL} (as it is, or unpacked)",
        files=_by_name(_sst),
        read=lambda path, part: _sst.read(path),
        examples=lambda rows, base, o: _sst.examples(rows, base=base, **o),
        classes=lambda o: _sst.BINARY if o["granularity"] == "binary" else _sst.FINE,
        options={"granularity": ("fine", "binary"), "level": _sst.LEVELS},
        of_part=_sst.of_part,
        spans=lambda rows, made, o: _sst.spans(rows, made, **o),
        skipped=_sst.skipped,
    ),
    "trec": Set(
        official=_trec.OFFICIAL,
        where=f"{_trec.URL} (train_5500.label, TREC_10.label)",
        files=_by_name(_trec),
        read=lambda path, part: _trec.read(path),
        examples=lambda rows, base, o: _trec.examples(rows, base=base),
        classes=lambda o: _trec.CLASSES,
    ),
    "imdb_reviews": Set(
        official=_imdb.OFFICIAL,
        unit="reviews",
        where=_imdb.URL,
        files=lambda folder, part: (_imdb.find(folder), f"{_imdb.ARCHIVE} or a folder aclImdb"),
        read=_imdb.read,
        examples=lambda rows, base, o: _Lazy(rows, base),
        classes=lambda o: _imdb.CLASSES,
    ),
    "ag_news_subset": Set(
        official=_ag_news.OFFICIAL,
        unit="rows",
        where=_ag_news.URL,
        files=_by_name(_ag_news),
        read=lambda path, part: _ag_news.read(path),
        examples=lambda rows, base, o: _Lazy(rows, base),
        classes=lambda o: _ag_news.CLASSES,
    ),
    "ptb": Set(
        official=_ptb.OFFICIAL,
        where=f"{_ptb.URL} (as it is, or unpacked)",
        files=_by_name(_ptb),
        read=lambda path, part: _ptb.read(path),
        examples=lambda rows, base, o: _ptb.sentences(rows, base=base),
        classes=lambda o: _ptb.CLASSES,
        source=_ptb.stream,
    ),
    "mnist": _image_set("mnist", _images.DIGITS),
    "fashion_mnist": _image_set("fashion_mnist", _images.FASHION),
    **CLOZE_SETS,
    **SENTENCE_SETS,
}
EMBEDDED = {
    "digits": Embedded(
        "part of scikit-learn (the [images] extra)",
        _images.DIGITS_SIZES,
        lambda split: _images.digits(
            split,
            base=ID_BASE["test" if split == "test" else "train"],
            fraction=HELD_OUT,
            seed=SPLIT_SEED,
        ),
        unit="images",
    ),
    "two_facts": Embedded(
        "made by gatedjax",
        _two_facts.SIZES,
        lambda split: _two_facts.source("train" if split == "train_full" else split),
        unit="questions",
    ),
    "polarity": Embedded(
        "made by gatedjax",
        _polarity.SIZES,
        lambda split: _polarity.source("train" if split == "train_full" else split),
    ),
}


def names() -> tuple[str, ...]:
    """Returns the names that `load` knows."""
    return tuple(sorted([*EMBEDDED, *SETS, *ALIASES, *FAMILIES]))


def member(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The set that the name of a family and its option mean, and the other options."""
    if name not in FAMILIES:
        return name, options
    key, known = FAMILIES[name]
    rest = {option: value for option, value in options.items() if option != key}
    chosen = options.get(key, next(iter(known)))
    one_of(key, chosen, list(known))
    return known[chosen], rest


def one_of(what: str, given: object, known: Sequence[str]) -> None:
    """Refuses a name that is not known, with the nearest one that is."""
    if given in known:
        return
    near = difflib.get_close_matches(str(given), known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown {what} {given!r}{hint} Known: {', '.join(known)}.")


def check_options(name: str, spec: Set, options: dict[str, Any]) -> dict[str, str]:
    for key in options:
        one_of(f"option of {name!r}", key, sorted(spec.options))
    full = {key: options.get(key, values[0]) for key, values in spec.options.items()}
    for key, value in full.items():
        one_of(key, value, spec.options[key])
    return full


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
    if name == _probing.NAME:
        name = _probing.set_name(options.pop("task", None))
    one_of("data set", name, names())
    one_of("split", split, SPLITS)
    name, options = member(name, options)
    name, preset = ALIASES.get(name, (name, {}))
    for key, value in preset.items():
        if options.setdefault(key, value) != value:
            raise ValueError(f"{key}={options[key]!r} contradicts the name of the data set")
    own = name in EMBEDDED or "validation" in SETS[name].official or SETS[name].hold_out is not None
    if own and held_out is not None:
        raise ValueError(f"held_out must be None for {name!r}: its validation part is fixed")
    if held_out is not None and not 0 < held_out < 1:
        raise ValueError(f"held_out must be between 0 and 1, got {held_out}")
    if name in EMBEDDED:
        for key in options:
            raise ValueError(f"unknown option {key!r}: {name} has none")
        return EMBEDDED[name].source(split)
    spec = SETS[name]
    chosen = check_options(name, spec, options)
    classes = spec.classes(chosen)

    derived = "validation" not in spec.official
    part = "train" if split == "train_full" or (derived and split == "validation") else split
    chosen = spec.of_part(part, chosen)
    rows = _read(name, spec, part, data_dir, manual_dir, unpack_limit)
    substitute = rows.note
    official = spec.official[part]
    if official is not None and rows.lines != official:
        found = f"{rows.lines:,} {spec.unit} where the official file has {official:,}"
        substitute = found if rows.note is None else f"{rows.note}: {found}"
    if strict and (rows.quarantine or substitute):
        first = rows.quarantine[0] if rows.quarantine else f"{name}, {part}: {substitute}"
        raise ValueError(f"{first} ({len(rows.quarantine)} malformed {spec.unit}; strict=True)")
    if not rows.rows:
        first = f", first {rows.quarantine[0]}" if rows.quarantine else ""
        raise ValueError(f"data set {name!r}, {part}: no usable line{first}")
    if rows.lines != rows.accounted:
        raise ValueError(
            f"data set {name!r}, {part}: {rows.lines:,} lines were read and {rows.accounted:,} are "
            "accounted for; prepare it again or check it with python -m gatedjax data check"
        )
    if rows.quarantine:
        _LOG.warning(
            "%s, %s: %d malformed %s set aside, first %s",
            *(name, part, len(rows.quarantine), spec.unit, rows.quarantine[0]),
        )

    used = rows
    if derived and split in ("train", "validation"):
        used = hold_out(spec, rows, held_out or HELD_OUT)[split == "validation"]
    examples = spec.examples(used, ID_BASE[part], chosen)
    skipped = spec.skipped(rows, chosen)
    report = ReadReport(
        lines=rows.lines,
        used=len(rows.rows) - sum(skipped.values()),
        quarantine=rows.quarantine,
        skipped=skipped,
        spans=spec.spans(used, examples, chosen),
        notes=spec.notes(rows),
    )
    if not report.reconciles:
        raise ValueError(f"data set {name!r}, {part}: not everything is accounted for: {report}")
    info = SourceInfo(name, split, classes, substitute)
    read = functools.partial(
        _read, name, spec, data_dir=data_dir, manual_dir=manual_dir, unpack_limit=unpack_limit
    )
    return spec.source(examples, info, report, read)


def hold_out(spec: Set, rows: Rows, fraction: float = HELD_OUT) -> tuple[Rows, Rows]:
    """Cuts an official training part in (train, validation)."""
    labels = np.array([row.label for row in rows.rows], int)
    if spec.hold_out is None:
        parts = stratified_split(labels, fraction, seed=SPLIT_SEED)
    else:
        parts = spec.hold_out(labels)
    train, validation = (Rows(tuple(rows.rows[i] for i in part), ()) for part in parts)
    return train, validation


def _read(
    name: str,
    spec: Set,
    part: str,
    data_dir: str | Path | None,
    manual_dir: str | Path | None,
    unpack_limit: int | None,
) -> Rows:
    """Reads an official part: raw files if manual_dir has them, else the TFDS set."""
    if manual_dir is not None:
        folder = Path(manual_dir).expanduser()
        path, wanted = spec.files(folder, part)
        if path is not None:
            with _unpack.limited(unpack_limit):
                return spec.read(path, part)
        if data_dir is None or not _prepared.is_prepared(name, data_dir):
            if not folder.is_dir():
                raise FileNotFoundError(f"manual_dir {folder}: there is no such folder")
            raise FileNotFoundError(
                f"data set {name!r}, {part}: no {wanted} in manual_dir {folder} or in its folder "
                f"of the set. The files are at {spec.where}."
            )
    with _unpack.limited(unpack_limit):
        return _prepared.read(name, part, data_dir=data_dir, where=spec.where)
