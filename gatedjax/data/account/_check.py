"""The check of a data set: an account of all raw lines, and statistics of its texts."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from gatedjax.data.account._compare import (
    Overlap,
    SplitTexts,
    Text,
    compare,
    conflicting,
    describe,
    read_texts,
)
from gatedjax.data.files._lines import FileRow, FileRows
from gatedjax.data.files._paths import AnyPath
from gatedjax.data.files._source import Quarantined, ReadReport
from gatedjax.data.sets._all import resolve
from gatedjax.data.sets._declaration import ID_BASE, DataSet, Embedded
from gatedjax.data.sets._split import hold_out
from gatedjax.data.tfds import _prepared


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileAccount(ReadReport):
    """The account of the lines of a raw file, or of the texts or images of a part: lines = used +
    number set aside + sum of skipped.
    """

    part: str
    file: str
    official: int | None = None
    unit: str = "lines"
    missing: bool = False
    error: str | None = None

    @property
    def problem(self) -> str | None:
        """The first fault of the account as a message; None if there is none."""
        total = self.used + sum(self.skipped.values()) + len(self.quarantine)
        # The error comes first, because the counts of a file that could not be read have no
        # meaning.
        if self.error is not None:
            return self.error
        if self.lines != total:
            return f"{self.file}: {self.lines:,} {self.unit} were read, {total:,} are accounted for"
        if self.spans is not None and not self.spans.reconciles:
            return f"{self.file}: not every span is accounted for: {self.spans}"
        # Lines that were skipped on purpose are well formed, so a file of only such lines is no
        # fault.
        if total == len(self.quarantine):
            return f"{self.file}: no usable line; gatedjax.data.load refuses it"
        return None


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of `check` about a data set; `conflicting` counts texts with several labels."""

    name: str
    origin: str
    files: tuple[FileAccount, ...]
    splits: tuple[SplitTexts, ...]
    overlaps: tuple[Overlap, ...]
    conflicting: int

    @property
    def quarantine(self) -> tuple[Quarantined, ...]:
        """The lines of all files that were set aside, with the reasons."""
        return tuple(q for file in self.files for q in file.quarantine)

    @property
    def problems(self) -> tuple[str, ...]:
        """The faults of the accounts: the messages of `FileAccount.problem` that are not None."""
        return tuple(file.problem for file in self.files if file.problem is not None)


def check(
    name: str,
    *,
    manual_dir: str | Path | None = None,
    data_dir: str | Path | None = None,
    examples: int = 3,
) -> Report:
    """Reads all lines of a data set and reports on them, without downloading or writing. A raw file
    that is missing or damaged is one of the `problems` of the report, and no error.
    """
    declared, options = resolve(name)
    if isinstance(declared, Embedded):
        return _check_embedded(declared, examples)
    reader = _Reader(declared, manual_dir, data_dir)
    accounts, texts = [], {}
    for part in declared.official:
        account, rows = reader.read_part(part)
        part_options = declared.of_part(part, options)
        pieces = {part: rows}
        # The training part is split as `load` does it, so that overlaps of the held-out texts are
        # found.
        if "validation" not in declared.official and part == "train":
            pieces = dict(zip(("train", "validation"), hold_out(declared, rows), strict=True))
        first, ids_per_row = ID_BASE[part], declared.ids_per_row(part_options)
        # The report names places in the files of the user and not ids of examples.
        places = {row.index: reader.place(account, row) for row in rows.rows}
        for split, piece in pieces.items():
            part_examples = declared.examples(piece, first, part_options)
            if rows.rows:
                report = declared.report(rows, piece, part_examples, part_options)
                same = {"lines": account.lines, "quarantine": account.quarantine}
                # The number of lines is from an independent count of the file. The report of the
                # loader would hide a line that it lost.
                account = dataclasses.replace(account, **vars(report) | same)
            place = functools.partial(_of_id, places, first, ids_per_row)
            texts[split] = list(read_texts(part_examples, place))
        accounts.append(account)
    classes = declared.class_names(options)
    return _report(name, reader.origin, accounts, texts, classes, examples)


def _of_id(places: Mapping[int, str], first: int, ids_per_row: int, example_id: int) -> str:
    return places[(example_id - first) // ids_per_row]


class _Reader:
    """A reader of parts of a data set: raw files if manual_dir has any, else the prepared set."""

    def __init__(
        self, declared: DataSet, manual_dir: str | Path | None, data_dir: str | Path | None
    ) -> None:
        self._name, self._declared = declared.name, declared
        self._data_dir = data_dir
        self._raw = False
        if manual_dir is not None:
            self._folder = folder = Path(manual_dir).expanduser()
            if not folder.is_dir():
                raise FileNotFoundError(f"manual_dir {folder}: there is no such folder")
            self._raw = any(self._find(part) for part in declared.official)
            self.origin = f"raw files in {folder}"
        if not self._raw:
            if not _prepared.is_prepared(declared.name, data_dir):
                self._raise_missing(manual_dir)
            self.origin = (
                f"prepared set in {_prepared.builder_of(declared.name, data_dir).data_path}"
            )

    def _find(self, part: str) -> bool:
        try:
            return self._declared.files.find(self._folder, part)[0] is not None
        except ValueError:  # a damaged archive, whose fault `read_part` reports
            return True

    def _raise_missing(self, manual_dir: str | Path | None) -> None:
        declared, nowhere = self._declared, ""
        if manual_dir is not None:
            files = [declared.files.find(self._folder, part)[1] for part in declared.official]
            names = ", ".join(dict.fromkeys(files))
            nowhere = f"no {names} below manual_dir {self._folder}, and "
        place = _prepared.builder_of(self._name, self._data_dir).data_path
        raise FileNotFoundError(
            f"data set {self._name!r}: {nowhere}no prepared set in {place}. The files are at "
            f"{declared.where}; name their folder with --manual-dir."
        )

    def read_part(self, part: str) -> tuple[FileAccount, FileRows]:
        """Returns the account and the rows of a part; no rows if the account has an `error`."""
        declared, file_name = self._declared, f"{self._name}, {part}"
        rows, lines, missing, error = FileRows((), ()), 0, False, None
        # The lines of a prepared set cannot be counted again, because its raw files may be gone.
        if not self._raw:
            rows = _prepared.read_prepared(self._name, part, data_dir=self._data_dir)
            lines = rows.lines
        else:
            file_name = str(self._folder)
            try:
                path, looked_for = declared.files.find(self._folder, part)
                if path is None:
                    missing = True
                    error = (
                        f"{part}: no {looked_for} in {file_name}; the files are at {declared.where}"
                    )
                    file_name = looked_for
                else:
                    file_name = str(path)
                    rows = declared.read_rows(path, part)
                    lines = _recount(path, rows, declared)
            # The check reports on all parts, so a part that cannot be read does not end it.
            except (ValueError, OSError) as failure:
                error = f"{part}: {failure}"
                # The report lists the lines that were set aside, so the fault of the whole file
                # becomes line 0.
                fault = Quarantined(file_name, 0, str(failure).removeprefix(f"{file_name}: "))
                rows, lines = FileRows((), (fault,)), 0
        account = FileAccount(
            part=part,
            file=file_name,
            lines=lines,
            used=len(rows.rows),
            quarantine=rows.quarantine,
            official=declared.official[part],
            unit=declared.unit,
            missing=missing,
            error=error,
        )
        return account, rows if error is None else FileRows((), ())

    def place(self, account: FileAccount, row: FileRow) -> str:
        if row.file:
            return row.file
        name = Path(account.file).name if self._raw else account.file
        return f"{name}:{row.index + 1}"


def _recount(path: AnyPath, rows: FileRows, declared: DataSet) -> int:
    """Returns the number of lines of a raw file, counted independently of the reader."""
    # Rows of these sets are not lines, so that their numbers cannot be compared with line numbers.
    if not declared.by_line:
        return declared.count(path)
    folder = isinstance(path, Path) and path.is_dir()
    if folder or any(row.file for row in rows.rows):
        return rows.lines  # texts are not lines; the reader counted them before parsing
    places = [row.index + 1 for row in rows.rows] + [q.line for q in rows.quarantine]
    lines = declared.count(path)
    # Equal numbers do not suffice, because a line that is counted twice could hide a lost line.
    if sorted(places) != list(range(1, len(places) + 1)):
        raise ValueError(
            f"{path}: each line must be accounted for once, got {len(places) - len(set(places))} "
            "lines twice"
        )
    return lines


def _check_embedded(declared: Embedded, examples: int) -> Report:
    """Returns the report on a data set without files, such as the generated set "polarity"."""
    accounts, texts = [], {}
    for split, size in declared.sizes.items():
        source = declared.source(split)
        n, origin = len(source), declared.origin
        accounts.append(
            FileAccount(n, n, part=split, file=origin, official=size, unit=declared.unit)
        )
        texts[split] = list(read_texts(source, "id {}".format))
    classes = source.info.class_names
    return _report(declared.name, declared.origin, accounts, texts, classes, examples)


def _report(
    name: str,
    origin: str,
    accounts: Sequence[FileAccount],
    texts: Mapping[str, Sequence[Text]],
    classes: Sequence[str],
    examples: int,
) -> Report:
    """Returns the report for the accounts of all parts and the texts of each split."""
    # A split without texts is left out, because its lengths would have no quantiles.
    splits = [split for split in ("train", "validation", "test") if texts.get(split)]
    pairs = [("train", "validation"), ("train", "test"), ("validation", "test")]
    return Report(
        name=name,
        origin=origin,
        files=tuple(accounts),
        splits=tuple(describe(split, texts[split], classes) for split in splits),
        overlaps=tuple(
            compare(a, b, texts, examples) for a, b in pairs if a in splits and b in splits
        ),
        conflicting=conflicting([text for split in splits for text in texts[split]]),
    )
