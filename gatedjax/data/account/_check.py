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
    """The account of the lines of a raw file, or of the texts or images of a part.

    All lines are accounted for: lines = used + number set aside + sum of skipped.

    Attributes:
      part: the official part, such as "train".
      file: the name of its file, for messages.
      official: the published number of lines; None if no number is published.
      unit: the plural noun for the counted items, such as "lines".
      missing: True if the file does not exist (`error` names its address).
      error: the reason why the file could not be read, or None.
      lines: number of lines that were read.
      used: number of lines that give examples.
      quarantine: a `Quarantined` for each line that was set aside, with its number and the reason.
      skipped: lines that were left out on purpose: reason -> count.
      spans: the account of the spans of trees, a `SpanCounts`; None if the examples are not spans.
      notes: unusual lines that are used: reason -> count.
    """

    part: str
    file: str
    official: int | None = None
    unit: str = "lines"
    missing: bool = False
    error: str | None = None

    @property
    def problem(self) -> str | None:
        """The first fault of the account as a message; None if there is none.

        Faults are an error, lost lines or spans, and a file without usable lines.
        """
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
    """The report of `check` about a data set.

    Attributes:
      name: the name of the data set.
      origin: a description of the place of its files.
      files: a tuple with the `FileAccount` of each official part, which counts its lines.
      splits: a tuple with the `SplitTexts` of each split, the statistics of its texts.
      overlaps: a tuple with the `Overlap` of each pair of splits, the texts that both have.
      conflicting: the number of distinct texts with more than one label in the data set.
    """

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
    """Reads all lines of a data set and reports on them, without downloading or writing.

    Args:
      name: a name that `load` accepts.
      manual_dir: folder with the raw files; None reads the prepared set.
      data_dir: TFDS folder, for a prepared set; used if manual_dir is not given or lacks the files.
        None is the default folder of TFDS.
      examples: the largest number of texts to list for each pair of splits that share texts.

    Returns:
      The report. If some files are missing or unreadable, they are in `problems`.

    Raises:
      ValueError: for an unknown name.
      FileNotFoundError: if there are no files to read.
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
    """Returns the location, such as "FILE:LINE", of the example with the id `example_id`.

    A row is a line (or file) of an official part of the data set. `places` maps the index of a row
    to its location. `first` is the first example id of the part, and row i has the `ids_per_row`
    ids from `first` + i * `ids_per_row` on, because a line may give several examples.
    """
    return places[(example_id - first) // ids_per_row]


class _Reader:
    """A reader of parts of a data set: raw files if manual_dir has any, else the prepared set.

    Args:
      declared: a `DataSet`, the declaration of the data set.
      manual_dir: folder with the raw files; None reads the prepared set.
      data_dir: TFDS folder of the prepared set; None is TFDS's own folder.

    Raises:
      FileNotFoundError: if there is no such folder, or neither raw files nor a prepared set.

    Attributes:
      origin: a description of the place of the files.
    """

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
        """Returns True if manual_dir has the raw file of a part, also if the file is damaged.

        `part` is the name of an official part, such as "train".
        """
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
        """Reads an official part such as "train".

        Returns the account of its lines and the rows, which are the well-formed lines. If the part
        cannot be read, the field `error` of the account is the reason, and there are no rows.
        """
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
        """Returns the location of the text of `row`, a parsed line of the part of `account`.

        The location is the file if each text is a file, else "NAME:LINE" with the line from 1. NAME
        is the name of the raw file in `account`, or "SET, PART" for a prepared set.
        """
        if row.file:
            return row.file
        name = Path(account.file).name if self._raw else account.file
        return f"{name}:{row.index + 1}"


def _recount(path: AnyPath, rows: FileRows, declared: DataSet) -> int:
    """Returns the number of lines of a raw file, counted independently of the reader.

    `path` is the file of a part of the data set `declared`, and `rows` the lines that its reader
    parsed or set aside. If the texts of the part are files and not lines, it returns the count of
    the reader. Raises ValueError if `rows` has a line twice, as a row or set aside.
    """
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
    """Returns the report on a data set without files, such as the generated set "polarity".

    `declared` is the declaration of the data set, with its name, splits and examples. `examples` is
    the largest number of texts to list for each pair of splits that share texts.
    """
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
    """Returns the report for the accounts of all parts and the texts of each split.

    `texts` is split -> its texts. `name` is the name of the data set, and `origin` describes the
    place of its files. `classes` are the names of the classes, and `examples` is the number of
    common texts to list per pair of splits.
    """
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
