"""Labelled texts in JSON lines, in fastText's format, and in a folder with a folder per class."""

import collections
import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from gatedjax.text._lines import LONGEST, TextFile
from gatedjax.text._table import EMPTY, Aside, Cells, Columns, check_names, fault, match_names

PREFIX = "__label__"
# fastText splits only at these spaces; Unicode's other spaces are characters of a label.
_SPACE = r" \t\v\f\r\n"
_LABEL = re.compile(rf"(?<![^{_SPACE}]){PREFIX}([^{_SPACE}]*)[{_SPACE}]*")
# Only the first lines are searched for names and labels, because a large file takes long to read.
_LOOK = 100
_PARTS = {"train", "test", "dev", "val", "valid", "validation"}


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    # JSON allows a name twice, and Python would silently take the last value.
    if len(value) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"names must be different, got {twice[:40]!r} more than once")
    return value


DECODER = json.JSONDecoder(object_pairs_hook=_object)
"""A decoder of JSON that refuses an object with a name that occurs twice."""


def _parse(line: str) -> dict[str, object] | str:
    """Returns the JSON object of a line as a dict, or a text with the reason why it is unusable."""
    try:
        value = DECODER.decode(line)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.colno}"
    except RecursionError:
        return "not JSON that can be read: it is nested too deep"
    except ValueError as error:  # A repeated name, or a number of 5,000 digits.
        return f"not JSON that can be read: {error}"
    return value if isinstance(value, dict) else f"not an object but a {type(value).__name__}"


def _lines(file: TextFile) -> Iterator[tuple[int, str | None, str]]:
    """Yields (number, reason why the line cannot be used or None, text) for each line."""
    for number, line in file.lines():
        text = line.rstrip("\r\n")
        yield number, EMPTY if not text.strip() else file.fault(line), text


@dataclasses.dataclass(frozen=True)
class JsonLines:
    """A text file with a JSON object in each line, with columns by name."""

    file: TextFile

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.file.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that occur in the first hundred objects."""
        names: dict[str, None] = {}
        for _, problem, text in itertools.islice(_lines(self.file), _LOOK):
            value = problem or _parse(text)
            names |= {} if isinstance(value, str) else dict.fromkeys(value)
        return tuple(names)

    def check(self, columns: Columns) -> None:
        """Raises ValueError if the file is empty, or the first objects lack a column."""
        if next(self.file.lines(), None) is None:
            raise ValueError(f"{self.name} must have a labelled text, got an empty file")
        if names := self.names:
            check_names(self.name, names, columns)

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields the values of each line in `columns` as `Cells`: (file, line, values)."""
        names = match_names(self.names, columns)
        for number, problem, text in _lines(self.file):
            value = problem or _parse(text)
            if isinstance(value, str):
                yield Aside(self.name, number, value)
            else:
                yield self.name, number, [value.get(name) for name in names]


@dataclasses.dataclass(frozen=True)
class FastText:
    """A text file in the format of fastText: a text with labels "__label__NAME" in each line."""

    file: TextFile
    names: tuple[str, ...] | None = None  # the columns have no names

    @property
    def name(self) -> str:
        """The path of the file."""
        return self.file.name

    def check(self, columns: Columns) -> None:
        """Raises ValueError for pairs, and for a file that is empty or lacks labels."""
        _one_text(self.name, "a .txt file", columns)
        first = [text for _, _, text in itertools.islice(_lines(self.file), _LOOK)]
        if not first:
            raise ValueError(f"{self.name} must have a labelled text, got an empty file")
        if columns.label is not None and not any(PREFIX in text for text in first):
            raise ValueError(
                f"{self.name}: a .txt file must have labels as {PREFIX}NAME, got none in its first "
                f"{len(first)} lines: add them, or give a table with a header the ending .csv or "
                ".tsv"
            )

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields text and labels of each line as `Cells`: (file, line, (text, labels))."""
        for number, problem, text in _lines(self.file):
            labels = _LABEL.findall(text)
            required = columns.label is not None and columns.target != "labels"
            if problem is None and required and not labels:
                problem = f"no {PREFIX}NAME"
            if problem is not None:
                yield Aside(self.name, number, problem)
                continue
            yield self.name, number, (_LABEL.sub("", text).strip(), labels)


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder with a folder per class; each .txt file is a text. Files are sorted by name."""

    path: Path
    encoding: str
    names: tuple[str, ...] | None = None  # the columns have no names

    @property
    def name(self) -> str:
        """The path of the folder."""
        return str(self.path)

    def check(self, columns: Columns) -> None:
        """Raises ValueError if there are no folders or texts, or the columns are those of pairs."""
        _one_text(self.name, "a folder", columns)
        expected = "a folder with .txt files for each class"
        inner = [path.name for path in self.path.iterdir() if _is_class(path)]
        if columns.label is not None and not inner:
            raise ValueError(f"{self.path} must have {expected}, got no folder")
        # A data set with folders such as train and test would otherwise be learned as two classes.
        if inner and {name.lower() for name in inner} <= _PARTS:
            parts = ", ".join(sorted(inner))
            raise ValueError(
                f"{self.path}: its folders must be classes, got the parts {parts}: give the path "
                "of a part"
            )
        if not any(isinstance(row, tuple) for row in self.rows(columns)):
            raise ValueError(f"{self.path} must have {expected}, got no usable text")

    def rows(self, columns: Columns) -> Iterator[Cells | Aside]:
        """Yields text and label of each file as `Cells`: (file, 1, (text, label))."""
        for path in sorted(self.path.iterdir()):
            if _is_class(path):
                # The files are sorted, because the order of a file system differs between machines.
                # Hidden files, such as .DS_Store, are no texts.
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
        """Returns (file, 1, (text, label)) for a file, or an `Aside` if it cannot be used."""
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
        # The message names the line, so the position of the bad character is looked up.
        if problem := fault(text, self.encoding):
            at = next((i for i, c in enumerate(text) if c == "\0" or 0xD800 <= ord(c) < 0xE000), 0)
            return Aside(where, 1 + text.count("\n", 0, at), problem)
        return where, 1, (text, label)


def _is_class(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _one_text(name: str, form: str, columns: Columns) -> None:
    if len(columns.inputs) > 1:
        raise ValueError(
            f"{name}: pairs must be in a .csv, .tsv or .jsonl file, got {form}, which has single "
            "texts"
        )
