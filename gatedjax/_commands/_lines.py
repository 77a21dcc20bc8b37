"""Lines of JSON that commands write, to a file or to standard output."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gatedjax._utils.json import to_json
from gatedjax._utils.terminal import say
from gatedjax._utils.write import open_atomic

Write = Callable[[Any], object]


def json_line(value: Any, encoding: str = "utf-8") -> str:
    """Returns the value as JSON on one line; NaN is null.

    Characters that could steer a terminal, or that the encoding does not have, are escaped as JSON
    does it.
    """
    text = to_json(value, ensure_ascii=False)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _escaped(c) for c in text)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(c if c.isascii() else _escaped(c) for c in text)
    return text


def say_json(value: Any, *, flush: bool = True) -> None:
    """Prints a value on one line as JSON that standard output can hold."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    say(json_line(value, encoding), flush=flush)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def in_turns(texts: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """The texts, so many at a time."""
    return [tuple(texts[i : i + count]) for i in range(0, len(texts), count)]


@contextlib.contextmanager
def lines_to(path: Path | None) -> Iterator[Write]:
    """Yields a function that writes a value as a line, in UTF-8 to a file: see `open_atomic`."""
    if path is None:
        yield lambda value: say_json(value, flush=sys.stdout.isatty())
        return
    with open_atomic(path) as file:
        yield lambda value: file.write(f"{json_line(value)}\n".encode())
