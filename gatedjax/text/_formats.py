"""Labelled texts in JSON lines, in fastText's format, and in a folder with a folder per class."""

import collections
import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from gatedjax.text._lines import LONGEST, TextFile
from gatedjax.text._table import EMPTY, Aside, Cells, Columns, check_names, fault

PREFIX = "__label__"
# fastText splits only at these spaces; Unicode's other spaces are characters of a label.
_SPACE = r" \t\v\f\r\n"
_LABEL = re.compile(rf"(?<![^{_SPACE}]){PREFIX}([^{_SPACE}]*)[{_SPACE}]*")
_LOOK = 100
_PARTS = {"train", "test", "dev", "val", "valid", "validation"}


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the name {twice[:40]!r} is there twice")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _parse(line: str) -> dict[str, object] | str:
    """Returns the JSON object of a line as a dict, or a text why it cannot be used."""
    try:
        value = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.colno}"
    except RecursionError:
        return "not JSON that can be read: it is nested too deep"
    except ValueError as error:  # A repeated name, or a number of 5,000 digits.
        return f"not JSON that can be read: {error}"
    return value if isinstance(value, dict) else f"not an object but a {type(value).__name__}"


def _lines(file: TextFile) -> Iterator[tuple[int, str | None, str]]:
    """Yields (number, reason, text) for each line of a file.

    The number is counted from 1. The reason says why the line cannot be used; it is None for a
    usable line.
    """
    for number, line in file.lines():
        text = line.rstrip("\r\n")
        yield number, EMPTY if not text.strip() else file.fault(line), text


@dataclasses.dataclass(frozen=True)
class JsonLines:
    """A file with a JSON object in each line."""

    file: TextFile

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.file.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the first hundred objects."""
        names: dict[str, None] = {}
        for _, problem, text in itertools.islice(_lines(self.file), _LOOK):
            value = problem or _parse(text)
            names |= {} if isinstance(value, str) else dict.fromkeys(value)
        return tuple(names)

    def check(self, columns: Columns) -> None:
        """Raises ValueError if the file is empty, or the first objects lack a column."""
        if next(self.file.lines(), None) is None:
            raise ValueError(f"{self.name}: the file is empty")
        if names := self.names:
            check_names(self.name, names, columns)

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields the `Cells` of each line, or an `Aside` with the reason why it cannot be used."""
        for number, problem, text in _lines(self.file):
            value = problem or _parse(text)
            if isinstance(value, str):
                yield Aside(self.name, number, value)
            else:
                yield self.name, number, [value.get(name) for name in columns.wanted]


@dataclasses.dataclass(frozen=True)
class FastText:
    """A file with a text in each line; the word "__label__NAME" in the line is its label."""

    file: TextFile
    names: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.file.name

    def check(self, columns: Columns) -> None:
        """Raises ValueError for pairs, and for a file that is empty or lacks labels."""
        _one_text(self.name, "a .txt file", columns)
        first = [text for _, _, text in itertools.islice(_lines(self.file), _LOOK)]
        if not first:
            raise ValueError(f"{self.name}: the file is empty")
        if columns.label is not None and not any(PREFIX in text for text in first):
            raise ValueError(
                f"{self.name}: no {PREFIX}NAME in its first {len(first)} lines, which is how a "
                ".txt file has labels; a table with a header is .csv or .tsv"
            )

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields text and label of each line as `Cells`, or an `Aside` if it cannot be used."""
        for number, problem, text in _lines(self.file):
            labels = _LABEL.findall(text)
            if problem is None and columns.label is not None and len(labels) != 1:
                problem = f"{len(labels)} labels, not one" if labels else f"no {PREFIX}NAME"
            if problem is not None:
                yield Aside(self.name, number, problem)
                continue
            yield self.name, number, (_LABEL.sub("", text).strip(), *labels)


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder with a folder per class; each .txt file is a text. Files are sorted by name."""

    path: Path
    encoding: str
    names: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self.path)

    def check(self, columns: Columns) -> None:
        """Raises ValueError without folders or texts, or if the folders are named after parts."""
        _one_text(self.name, "a folder", columns)
        expected = "a folder of texts has a folder per class with .txt files"
        inner = [path.name for path in self.path.iterdir() if _is_class(path)]
        if columns.label is not None and not inner:
            raise ValueError(f"{self.path}: there is no folder in it; {expected}")
        if inner and {name.lower() for name in inner} <= _PARTS:
            parts = ", ".join(sorted(inner))
            raise ValueError(f"{self.path}: its folders are parts, not classes ({parts}): give one")
        if not any(isinstance(row, tuple) for row in self.rows(columns)):
            raise ValueError(f"{self.path}: there is no text that can be used in it; {expected}")

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields text and label of each file as `Cells`, or an `Aside` if it cannot be used."""
        for path in sorted(self.path.iterdir()):
            if _is_class(path):
                for file in sorted(path.rglob("*")):
                    if not file.is_dir() and not file.name.startswith("."):
                        yield self._row(file, path.name)
            elif not path.name.startswith("."):
                unlabelled = columns.label is None
                yield (
                    self._row(path, "")
                    if unlabelled
                    else Aside(str(path), 1, "not in the folder of a class")
                )

    def _row(self, path: Path, label: str) -> Cells | Aside:
        where = str(path)
        if not path.is_file():
            return Aside(where, 1, "not a regular file")
        if path.suffix.lower() != ".txt":
            return Aside(where, 1, "not a .txt file")
        try:
            if path.stat().st_size > LONGEST:
                return Aside(where, 1, f"longer than {LONGEST:,} bytes")
            text = "".join(line for _, line in TextFile(path, self.encoding).lines())
        except (OSError, ValueError) as error:
            return Aside(where, 1, str(error))
        if problem := fault(text, self.encoding):
            at = next((i for i, c in enumerate(text) if c == "\0" or 0xD800 <= ord(c) < 0xE000), 0)
            return Aside(where, 1 + text.count("\n", 0, at), problem)
        return where, 1, (text, label)


def _is_class(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _one_text(name: str, form: str, columns: Columns) -> None:
    if len(columns.inputs) > 1:
        raise ValueError(f"{name}: {form} has one text a line, not pairs: use .csv, .tsv or .jsonl")
