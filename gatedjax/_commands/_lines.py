"""Reading of lines of standard input, and writing of JSON lines."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gatedjax._utils.json import to_json
from gatedjax._utils.terminal import say
from gatedjax._utils.write import open_atomic

Write = Callable[[Any], object]
Line = tuple[Sequence[str] | None, str]
"""The texts of a line and "", or None and the reason why the line cannot be used."""
STANDARD_INPUT = "-"
"""The word that stands for standard input in place of texts or of a file."""


def read_piped(encoding: str) -> Iterator[Line]:
    """Yields ([text], "") for each line of standard input, or (None, reason)."""
    from gatedjax.text._lines import check_encoding, limited_lines, line_fault

    codec = check_encoding(encoding)
    # A line with bytes in another encoding gets an error, and the remaining lines are read.
    sys.stdin.reconfigure(encoding=codec, errors="surrogateescape")  # type: ignore[union-attr]
    for line in limited_lines(sys.stdin):
        problem = line_fault(line, encoding)
        yield ([line.rstrip("\r\n")], "") if problem is None else (None, problem)


def json_line(value: Any, encoding: str = "utf-8") -> str:
    """Returns a value as a line of JSON; what a terminal or the encoding cannot show is escaped."""
    text = to_json(value, ensure_ascii=False)
    # JSON allows some characters that a terminal obeys, such as U+009B.
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _escape(c) for c in text)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(c if c.isascii() else _escape(c) for c in text)
    return text


def say_json(value: Any, *, flush: bool = True) -> None:
    """Prints a value as a line of JSON, in the encoding of standard output."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    say(json_line(value, encoding), flush=flush)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def in_turns(texts: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Splits texts into tuples of `count` texts each, in their order; the last may be shorter."""
    return [tuple(texts[i : i + count]) for i in range(0, len(texts), count)]


@contextlib.contextmanager
def lines_to(path: Path | None) -> Iterator[Write]:
    """Yields a function that writes a value as a line of JSON."""
    if path is None:
        # A pipe is flushed when its buffer is full, because a flush for each line takes longer than
        # the line; a user at a terminal waits for each line.
        yield lambda value: say_json(value, flush=sys.stdout.isatty())
        return
    with open_atomic(path) as file:
        yield lambda value: file.write(f"{json_line(value)}\n".encode())
