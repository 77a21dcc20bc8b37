"""What became of every raw line of a data set, and what its texts look like."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from gatedjax.data import _load
from gatedjax.data.account._compare import (
    Overlap,
    SplitTexts,
    Text,
    compare,
    conflicting,
    describe,
    read_texts,
)
from gatedjax.data.files._lines import AnyPath, Row, Rows
from gatedjax.data.files._source import Quarantined, SpanCounts
from gatedjax.data.sets import _sst
from gatedjax.data.tfds import _prepared


@dataclasses.dataclass(frozen=True)
class FileAccount:
    """What became of the lines of one raw file; or of the texts of one part, as `unit` says."""

    part: str
    file: str
    lines: int
    used: int = 0
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Well-formed lines left out on purpose: reason -> count."""
    quarantine: tuple[Quarantined, ...] = ()
    official: int | None = None
    unit: str = "lines"
    """What is counted."""
    spans: SpanCounts | None = None
    """What became of the spans, where the examples are spans of the lines."""
    notes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Used, and yet out of the ordinary: what is -> count."""
    missing: bool = False
    """Whether the file is not there (`error` says where to get it)."""
    error: str | None = None
    """Why the file could not be read at all."""

    @property
    def problem(self) -> str | None:
        """What is wrong with the account itself; None if every line is in it."""
        total = self.used + sum(self.skipped.values()) + len(self.quarantine)
        if self.error is not None:
            return self.error
        if self.lines != total:
            return f"{self.file}: {self.lines:,} {self.unit} were read, {total:,} are accounted for"
        if self.spans is not None and not self.spans.reconciles:
            return f"{self.file}: not every span is accounted for: {self.spans}"
        if total == len(self.quarantine):
            return f"{self.file}: no usable line; gatedjax.data.load refuses it"
        return None


@dataclasses.dataclass(frozen=True)
class Report:
    """All that `check` found."""

    name: str
    origin: str
    files: tuple[FileAccount, ...]
    splits: tuple[SplitTexts, ...]
    overlaps: tuple[Overlap, ...]
    conflicting: int
    """Distinct texts that have more than one label anywhere in the set."""

    @property
    def quarantine(self) -> tuple[Quarantined, ...]:
        """Every line that was set aside."""
        return tuple(q for file in self.files for q in file.quarantine)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the account is not complete; empty if every line is in it."""
        return tuple(file.problem for file in self.files if file.problem is not None)


def check(
    name: str,
    *,
    manual_dir: str | Path | None = None,
    data_dir: str | Path | None = None,
    examples: int = 3,
) -> Report:
    """Reads every line of a data set and reports on it; downloads and writes nothing.

    Args:
      name: any that `load` knows.
      manual_dir: folder with the raw files.
      data_dir: TFDS folder, for a prepared set; used if manual_dir is not given or lacks the files.
      examples: how many overlapping texts to name per pair of splits.

    Returns:
      The report. A file that is missing or unreadable while others are there is in `problems`.

    Raises:
      ValueError: for an unknown name.
      FileNotFoundError: if there is nothing to read.
    """
    _load.one_of("data set", name, _load.names())
    base, _ = _load.member(name, {})
    base, options = _load.ALIASES.get(base, (base, {}))
    if base in _load.EMBEDDED:
        return _check_embedded(base, examples)
    spec = _load.SETS[base]
    chosen = _load.check_options(base, spec, options)
    reader = _Reader(base, spec, manual_dir, data_dir)
    accounts, texts = [], {}
    for part in spec.official:
        account, rows = reader.read(part)
        here = spec.of_part(part, chosen)
        if rows.rows:
            skipped = spec.skipped(rows, here)
            account = dataclasses.replace(
                account, used=account.used - sum(skipped.values()), skipped=skipped
            )
        accounts.append(dataclasses.replace(account, unit=spec.unit, notes=spec.notes(rows)))
        pieces = {part: rows}
        if "validation" not in spec.official and part == "train":
            pieces = dict(zip(("train", "validation"), _load.hold_out(spec, rows), strict=True))
        for split, piece in pieces.items():
            first = _load.ID_BASE[part]
            places = {first + r.index: reader.place(account, r) for r in rows.rows}
            made = spec.examples(piece, first, here)
            per_line = _sst.ids_per_line(here["level"]) if "level" in here else spec.ids_per_row
            if per_line > 1:
                ids = [example["example_id"] for example in made]
                places = {i: places[first + (i - first) // per_line] for i in ids}
                accounts[-1] = dataclasses.replace(
                    accounts[-1], spans=spec.spans(piece, made, here)
                )
            texts[split] = list(read_texts(made, places))
    return _report(name, reader.origin, accounts, texts, spec.classes(chosen), examples)


class _Reader:
    """Raw files where manual_dir has any, else the prepared set."""

    def __init__(
        self,
        name: str,
        spec: _load.Set,
        manual_dir: str | Path | None,
        data_dir: str | Path | None,
    ) -> None:
        self._name, self._spec = name, spec
        self._data_dir = data_dir
        self._raw = False
        if manual_dir is not None:
            self._folder = folder = Path(manual_dir).expanduser()
            if not folder.is_dir():
                raise FileNotFoundError(f"manual_dir {folder}: there is no such folder")
            self._raw = any(self._find(part) for part in spec.official)
            self.origin = f"raw files in {folder}"
        if not self._raw:
            if not _prepared.is_prepared(name, data_dir):
                self._nothing(manual_dir)
            self.origin = f"prepared set in {_prepared.builder(name, data_dir).data_path}"

    def _find(self, part: str) -> bool:
        try:
            return self._spec.files(self._folder, part)[0] is not None
        except ValueError:  # a damaged archive is there; reading it says what is wrong
            return True

    def _nothing(self, manual_dir: str | Path | None) -> None:
        spec = self._spec
        wanted = []
        if manual_dir is not None:
            parts = [spec.files(self._folder, part)[1] for part in spec.official]
            wanted = [f"no {', '.join(dict.fromkeys(parts))} below manual_dir {self._folder}"]
        place = _prepared.builder(self._name, self._data_dir).data_path
        raise FileNotFoundError(
            f"data set {self._name!r}: {''.join(f'{w}, and ' for w in wanted)}no prepared set in "
            f"{place}. The files are at {spec.where}; name their folder with --manual-dir."
        )

    def read(self, part: str) -> tuple[FileAccount, Rows]:
        """Reads a part; what cannot be read is in the account."""
        official = self._spec.official[part]
        if not self._raw:
            rows = _prepared.read(self._name, part, data_dir=self._data_dir, where="")
            return _account(part, f"{self._name}, {part}", rows, rows.lines, official), rows
        nothing = Rows((), ())
        shown = str(self._folder)
        try:
            path, wanted = self._spec.files(self._folder, part)
            if path is None:
                error = f"{part}: no {wanted} in {shown}; the files are at {self._spec.where}"
                return FileAccount(
                    part, wanted, 0, official=official, missing=True, error=error
                ), nothing
            shown = str(path)
            rows = self._spec.read(path, part)
            lines = _recount(path, rows, self._spec)
        except (ValueError, OSError) as failure:
            error = f"{part}: {failure}"
            whole = Quarantined(shown, 0, str(failure).removeprefix(f"{shown}: "))
            account = FileAccount(part, shown, 0, quarantine=(whole,), official=official)
            return dataclasses.replace(account, error=error), nothing
        return _account(part, shown, rows, lines, official), rows

    def place(self, account: FileAccount, row: Row) -> str:
        """Where a text is, for a reader of the report."""
        if row.file:
            return row.file
        name = Path(account.file).name if self._raw else account.file
        return f"{name}:{row.index + 1}"


def _recount(path: AnyPath, rows: Rows, spec: _load.Set) -> int:
    """Counts the lines of a raw file once more, and checks that none stands for another."""
    if not spec.by_line:
        return spec.count(path)
    if any(row.file for row in rows.rows) or path.is_dir():
        return rows.lines  # no line a text: the reader counted them before it read one
    places = [row.index + 1 for row in rows.rows] + [q.line for q in rows.quarantine]
    lines = spec.count(path)
    if sorted(places) != list(range(1, len(places) + 1)):
        raise ValueError(f"{path}: {len(places) - len(set(places))} lines are accounted for twice")
    return lines


def _account(part: str, file: str, rows: Rows, lines: int, official: int | None) -> FileAccount:
    return FileAccount(
        part, file, lines, len(rows.rows), quarantine=rows.quarantine, official=official
    )


def _check_embedded(name: str, examples: int) -> Report:
    accounts, texts = [], {}
    spec = _load.EMBEDDED[name]
    for split, size in spec.sizes.items():
        made = spec.source(split)
        accounts.append(
            FileAccount(split, spec.origin, len(made), len(made), official=size, unit=spec.unit)
        )
        places = {x["example_id"]: f"id {x['example_id']}" for x in made}
        texts[split] = list(read_texts(made, places))
    return _report(name, spec.origin, accounts, texts, made.info.class_names, examples)


def _report(
    name: str,
    origin: str,
    accounts: Sequence[FileAccount],
    texts: Mapping[str, Sequence[Text]],
    classes: Sequence[str],
    examples: int,
) -> Report:
    there = [split for split in ("train", "validation", "test") if texts.get(split)]
    pairs = [("train", "validation"), ("train", "test"), ("validation", "test")]
    return Report(
        name=name,
        origin=origin,
        files=tuple(accounts),
        splits=tuple(describe(split, texts[split], classes) for split in there),
        overlaps=tuple(
            compare(a, b, texts, examples) for a, b in pairs if a in there and b in there
        ),
        conflicting=conflicting([text for split in there for text in texts[split]]),
    )
