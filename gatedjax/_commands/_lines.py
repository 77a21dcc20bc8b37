"""Lines of JSON that commands write, to a file or to standard output."""

import contextlib
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gatedjax._json import to_json
from gatedjax._terminal import say

Write = Callable[[Any], None]


def json_line(value: Any) -> str:
    """The value on one line; characters that could steer a terminal are escaped, NaN is null."""
    text = to_json(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == " " else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if unicodedata.category(character)[0] not in "CZ":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def in_turns(texts: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """The texts, so many at a time."""
    return [tuple(texts[i : i + count]) for i in range(0, len(texts), count)]


def check_place(path: Path | None) -> None:
    """Refuses a file whose folder is not there, before the work whose result it is to hold."""
    if path is not None and not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} for {path.name}")


@contextlib.contextmanager
def lines_to(path: Path | None) -> Iterator[Write]:
    """A function that writes a value as a line; a file appears whole or not at all."""
    if path is None:
        yield lambda value: say(json_line(value), flush=sys.stdout.isatty())
        return

    def write(value: Any) -> None:
        file.write(json_line(value) + "\n")

    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8") as file:
            yield write
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
