"""The check of a data set: an account of all raw lines, statistics of its texts, the report."""

import collections
import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gatedjax._utils.terminal import clean, say, say_wrapped, terminal_width
from gatedjax.analysis import render_table
from gatedjax.data import _prepared
from gatedjax.data.files._lines import FileRows
from gatedjax.data.files._source import Example, Quarantined, ReadReport
from gatedjax.data.sets._all import resolve
from gatedjax.data.sets._declaration import ID_BASE, DataSet, Embedded, hold_out

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)


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
        # Lines that were skipped on purpose are well formed, so a file of only such lines is no
        # fault.
        if total == len(self.quarantine):
            return f"{self.file}: no usable line; gatedjax.data.load refuses it"
        return None


class Text(NamedTuple):
    """The fields of a text that are compared and shown."""

    key: bytes  # digest of the lower-cased tokens, and of the query of a cloze question
    label: int
    length: int
    place: str
    text: str


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of `check` about a data set: the accounts of its files, the texts of its splits,
    and the lines that were set aside, of all files.
    """

    name: str
    origin: str
    files: tuple[FileAccount, ...]
    texts: Mapping[str, Sequence[Text]]  # split -> its texts, without splits that have none
    classes: Sequence[str]

    @property
    def quarantine(self) -> tuple[Quarantined, ...]:
        """The lines of all files that were set aside, with the reasons."""
        return tuple(q for file in self.files for q in file.quarantine)

    @property
    def problems(self) -> tuple[str, ...]:
        """The faults of the accounts: the messages of `FileAccount.problem` that are not None."""
        return tuple(file.problem for file in self.files if file.problem is not None)


def check(
    name: str, *, manual_dir: str | Path | None = None, data_dir: str | Path | None = None
) -> Report:
    """Reads all lines of a data set and reports on them, without downloading or writing. A raw file
    that is missing or damaged is one of the `problems` of the report, and no error.
    """
    declared, options = resolve(name)
    texts: dict[str, list[Text]] = {}
    accounts = []
    if isinstance(declared, Embedded):
        same: Any = {"file": declared.origin, "unit": declared.unit}
        for split, size in declared.sizes.items():
            source = declared.source(split)
            count = len(source)
            account = FileAccount(lines=count, used=count, part=split, official=size, **same)
            accounts.append(account)
            texts[split] = list(_texts(source, "id {}".format))
        classes = source.info.class_names
        return Report(declared.name, declared.origin, tuple(accounts), texts, classes)
    folder, origin = _origin(declared, manual_dir, data_dir)
    for part in declared.official:
        account, rows = _read_part(declared, part, folder, data_dir)
        part_options = declared.of_part(part, options)
        pieces = {part: rows}
        # The training part is split as `load` does it, so that overlaps of the held-out texts are
        # found.
        if "validation" not in declared.official and part == "train":
            pieces = dict(zip(("train", "validation"), hold_out(declared, rows), strict=True))
        first, ids_per_row = ID_BASE[part], declared.ids_per_row(part_options)
        # The report names places in the files of the user and not ids of examples.
        file = account.file if folder is None else Path(account.file).name
        places = {row.index: row.file or f"{file}:{row.index + 1}" for row in rows.rows}
        if rows.rows:
            account = dataclasses.replace(account, **vars(declared.report(rows, part_options)))
        for split, piece in pieces.items():
            examples = declared.examples(piece, first, part_options)
            texts[split] = [
                text._replace(place=places[(int(text.place) - first) // ids_per_row])
                for text in _texts(examples, str)
            ]
        accounts.append(account)
    # In this order, and without a split that has no texts and therefore no quantiles.
    texts = {name: texts[name] for name in ("train", "validation", "test") if texts.get(name)}
    return Report(name, origin, tuple(accounts), texts, declared.class_names(options))


def _origin(
    declared: DataSet, manual_dir: str | Path | None, data_dir: str | Path | None
) -> tuple[Path | None, str]:
    """Returns (folder of raw files, None for the prepared set; a description for the report)."""
    nowhere = ""
    if manual_dir is not None:
        folder = Path(manual_dir).expanduser()
        if not folder.is_dir():
            raise FileNotFoundError(f"manual_dir {folder}: there is no such folder")
        missing = []
        for part in declared.official:
            path, looked_for = declared.files.find(folder, part)
            if path is not None:
                return folder, f"raw files in {folder}"
            missing.append(looked_for)
        nowhere = f"no {', '.join(dict.fromkeys(missing))} below manual_dir {folder}, and "
    place = _prepared.builder_of(declared.name, data_dir).data_path
    if not _prepared.is_prepared(declared.name, data_dir):
        raise FileNotFoundError(
            f"data set {declared.name!r}: {nowhere}no prepared set in {place}. The files are at "
            f"{declared.where}; name their folder with --manual-dir."
        )
    return None, f"prepared set in {place}"


def _read_part(
    declared: DataSet, part: str, folder: Path | None, data_dir: str | Path | None
) -> tuple[FileAccount, FileRows]:
    """Returns the account and the rows of a part; no rows if the account has an `error`."""
    account = FileAccount(
        lines=0,
        used=0,
        part=part,
        file=f"{declared.name}, {part}" if folder is None else str(folder),
        official=declared.official[part],
        unit=declared.unit,
    )
    change = dataclasses.replace
    try:
        if folder is None:
            rows = _prepared.read_prepared(declared.name, part, data_dir=data_dir)
        else:
            path, looked_for = declared.files.find(folder, part)
            if path is None:
                error = f"{part}: no {looked_for} in {folder}; the files are at {declared.where}"
                return change(account, file=looked_for, missing=True, error=error), FileRows((), ())
            account = change(account, file=str(path))
            rows = declared.read_rows(path, part)
    # The check reports on all parts, so a part that cannot be read does not end it.
    except (ValueError, OSError) as failure:
        if folder is None:
            raise
        # The report lists the lines that were set aside, so the fault of the whole file becomes
        # line 0.
        fault = Quarantined(account.file, 0, str(failure).removeprefix(f"{account.file}: "))
        account = change(account, quarantine=(fault,), error=f"{part}: {failure}")
        return account, FileRows((), ())
    return change(account, lines=rows.lines, used=len(rows.rows), quarantine=rows.quarantine), rows


def _texts(examples: Sequence[Example], place: Callable[[int], str]) -> Iterator[Text]:
    """Converts examples to `Text`s; the label of a cloze question is the status of its answer."""
    for index in range(len(examples)):
        example = examples[index]
        label = example["status" if "status" in example else "label"]
        where = place(example["example_id"])
        if "image" in example:
            rows, columns = example["image"].shape
            content, length = example["image"].tobytes(), rows
            shown = f"{rows} x {columns} pixels"
        else:
            # One document may have several queries.
            words = (*example.get("query", ()), *example["tokens"])
            joined = " ".join(words).lower()
            # Texts from JSON may contain lone surrogates, which UTF-8 refuses by default.
            content, length = joined.encode("utf-8", "surrogatepass"), len(example["tokens"])
            shown = joined[:120]  # Reports show only the start of a text.
        # Digests take less memory than texts.
        key = hashlib.blake2b(content, digest_size=16).digest()
        yield Text(key, label, length, where, shown)


def count_conflicts(texts: Sequence[Text]) -> int:
    """Returns the number of distinct texts that occur with more than one label in `texts`."""
    labels = collections.defaultdict(set)
    for text in texts:
        if text.length:  # empty texts do not count as repetitions
            labels[text.key].add(text.label)
    return sum(len(of_text) > 1 for of_text in labels.values())


def count_repeated(texts: Sequence[Text]) -> int:
    """Returns the number of texts that occurred before in the split; empty texts do not count."""
    full = [text.key for text in texts if text.length]
    return len(full) - len(set(full))


def length_quantiles(texts: Sequence[Text]) -> list[int]:
    """Returns the 0, 5, 25, 50, 75, 95, 99 and 100 % quantiles of the lengths, in tokens."""
    lengths = [text.length for text in texts]
    return [int(q) for q in np.quantile(lengths, QUANTILES, method="inverted_cdf")]


def list_overlap(first: Sequence[Text], second: Sequence[Text]) -> list[tuple[Text, Text]]:
    """Returns the texts of `second` that are also in `first`, each with the first one there."""
    known: dict[bytes, Text] = {}
    for text in first:
        if text.length:
            known.setdefault(text.key, text)
    return [(known[text.key], text) for text in second if text.key in known]


_EXAMPLES = 3


def print_report(report: Report, limit: int) -> None:
    """Prints the report of a data set, with at most `limit` of the quarantined lines."""
    say_wrapped(f"{report.name}: {report.origin}\n")
    _print_files(report)
    _print_quarantine(report, limit)
    _print_texts(report)
    _print_overlaps(report)
    for problem in report.problems:
        say_wrapped(f"FAILED: {problem}")


def _show(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    say(render_table(headers, rows, width=terminal_width()))


def _print_files(report: Report) -> None:
    """Prints a table of the files of a data set, with the uses of their lines and notes."""
    # Each reason for which lines are left out becomes a column, because files differ in them.
    reasons = list(dict.fromkeys(reason for file in report.files for reason in file.skipped))
    rows, notes = [], []
    for file in report.files:
        skipped = [file.skipped.get(reason, 0) for reason in reasons]
        counts: tuple = (file.lines, file.used, *skipped, len(file.quarantine))
        name = file.file if "(" in file.file else Path(file.file).name
        if file.error is not None:
            # A file that was not read has no counts, and a 0 would look like a result.
            counts = ("missing" if file.missing else "unreadable", *[None] * (len(counts) - 1))
        elif file.official is not None and file.lines != file.official:
            notes.append(
                f"note: {name} has {file.lines:,} {file.unit}, the official file {file.official:,}"
            )
        rows.append((file.part, name, *counts, file.official))
    unit = report.files[0].unit
    left_out = [f"{reason} (left out)" for reason in reasons]
    _show(("part", "file", unit, "used", *left_out, "quarantined", f"official {unit}"), rows)
    if notes:
        say_wrapped("\n".join(notes) + "\n")
    for file in report.files:
        if file.notes:
            text = ", ".join(f"{kind}: {count:,}" for kind, count in file.notes.items())
            say_wrapped(f"Among the used of {file.part}: {text}\n")


def _print_quarantine(report: Report, limit: int) -> None:
    """Prints the first `limit` lines that could not be used, each with its file and the reason."""
    if not report.quarantine:
        return
    say(f"Quarantined: {len(report.quarantine)}")
    for line in report.quarantine[:limit]:
        say_wrapped(f"  {clean(str(line))}")
    hidden = len(report.quarantine) - limit
    if hidden > 0:
        say(f"  ... and {hidden} more (--limit {len(report.quarantine)} shows all)")
    say()


def _print_texts(report: Report) -> None:
    """Prints tables of the texts, the labels and the lengths of each split in a report."""
    splits = report.texts
    if not splits:
        return
    # More splits than official parts mean that validation is a share of the training part.
    if len(splits) > len({file.part for file in report.files}):
        say("train and validation are the official training part: a fixed share is held out.\n")
    lengths = {split: [text.length for text in texts] for split, texts in splits.items()}
    rows = [
        (split, len(texts), lengths[split].count(0), count_repeated(texts), count_conflicts(texts))
        for split, texts in splits.items()
    ]
    _show(("split", "texts", "empty", "repeated", "label conflicts"), rows)
    conflicts = count_conflicts([text for texts in splits.values() for text in texts])
    say_wrapped(
        f"Texts (lower-cased tokens) that have different labels somewhere in the set: {conflicts}\n"
    )
    labels = [Counter(text.label for text in texts) for texts in splits.values()]
    shares = [
        [name, *(cell for n in labels for cell in (n[i], f"{100 * n[i] / n.total():.1f}"))]
        for i, name in enumerate(report.classes)
    ]
    _show(["label", *(cell for split in splits for cell in (split, "%"))], shares)
    names = {0.0: "shortest", 0.5: "median", 1.0: "longest"}
    _show(
        ["tokens", *(names.get(q, f"{100 * q:.0f}%") for q in QUANTILES), "mean"],
        [
            (split, *length_quantiles(texts), f"{np.mean(lengths[split]):.1f}")
            for split, texts in splits.items()
        ],
    )


def _print_overlaps(report: Report) -> None:
    """Prints the texts of a split that another split has too, because they flatter a test."""
    pairs = list(itertools.combinations(report.texts, 2))
    if not pairs:
        return
    say("Overlap (the same lower-cased tokens):")
    for first, second in pairs:
        both, total = list_overlap(report.texts[first], report.texts[second]), report.texts[second]
        say_wrapped(
            f"  {second} texts that are also in {first}: {len(both)} of {len(total)} "
            f"({len(both) / len(total):.2%})"
        )
        for there, here in both[:_EXAMPLES]:
            excerpt = clean(here.text)
            excerpt = excerpt if len(excerpt) <= 60 else f"{excerpt[:57]}..."
            say_wrapped(f"    {here.place} = {there.place}: {excerpt}")
    say()
