"""Printing of text with untrusted names, which must not control the terminal.

A folder may have the name "[/b]", and the name of an array or of an archive member may have an
escape code. All output of gatedjax goes through the functions here.
"""

import contextlib
import functools
import io
import itertools
import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import IO, TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# Control and format characters, and halves of surrogate pairs (from file names that are not UTF-8).
_BAD = ("Cc", "Cf", "Cs")
# Joiners (ZWNJ, ZWJ) are allowed, because some scripts and emoji need them.
_JOINERS = "\u200c\u200d"


def clean(word: str) -> str:
    """Returns the word on a single line, with U+FFFD in place of each control character."""
    # White space comes first, because a line break is a control character too.
    flat = " ".join(str(word).split())
    return "".join("\ufffd" if _bad(c) else c for c in flat)


def render_count(number: int, noun: str) -> str:
    """Returns a number with its noun, which gets an "s" unless the number is 1.

    >>> render_count(1, "line"), render_count(1200, "text")
    ('1 line', '1,200 texts')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def join_first(items: Sequence[str], most: int = 12) -> str:
    """Joins the first items of a list with commas, and says how many follow.

    >>> join_first(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    count = len(items) - most
    return ", ".join(items[:most]) + (f" and {count:,} more" if count > 0 else "")


def printable(text: str) -> str:
    r"""Escapes control characters in a text as Python does ("\x1b"); line breaks stay."""
    if text.isprintable():
        return text
    return "".join(_escape(c) if _bad(c) and c not in "\n\t" else c for c in text)


def count_columns(text: str) -> int:
    """Returns the number of columns that a terminal needs for a text of a single line."""
    # A combining character takes no column, because it is drawn over the character before.
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def cut_columns(text: str, width: int) -> str:
    """Returns the longest beginning of a text that needs at most `width` columns."""
    ends = itertools.accumulate(map(count_columns, text))
    return text[: sum(end <= width for end in ends)]


def measure_width() -> int:
    """Returns the number of columns of the terminal, 80 if there is none."""
    return shutil.get_terminal_size().columns


def terminal_width() -> int | None:
    """Returns the number of columns of the terminal that shows standard output; None in a pipe."""
    return measure_width() if sys.stdout.isatty() else None


def say_wrapped(text: str) -> None:
    """Prints lines that a terminal wraps between words; in a pipe they stay whole."""
    say(wrap(text) if sys.stdout.isatty() else text)


def wrap(text: str) -> str:
    """Breaks the lines that are wider than the terminal between words; rows of tables stay."""
    width = measure_width()
    return "\n".join(part for line in text.split("\n") for part in _break(line, width))


def _break(line: str, width: int) -> Iterator[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    while count_columns(line) > width and not line.startswith("|"):
        part = cut_columns(line, width)
        # A word that is wider than the terminal is broken itself.
        space = line.rfind(" ", len(indent), len(part) + 1)
        end = space if space > len(indent) + 2 else len(part)
        yield line[:end]
        line = f"{indent}  {line[end:].lstrip()}"
    yield line


def _bad(character: str) -> bool:
    return unicodedata.category(character) in _BAD and character not in _JOINERS


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def escape_unencodable(stream: object) -> None:
    r"""Makes a stream escape characters that its encoding lacks, as Python does ("\xef")."""
    if not isinstance(stream, io.TextIOWrapper):
        return
    if stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")


UNREAD = 141
"""The exit status after the reader of a pipe has gone: 128 + SIGPIPE, as in a shell."""


@contextlib.contextmanager
def while_read(stream: TextIO) -> Iterator[None]:
    """Flushes a stream after the block, and ends the program if the reader of a pipe has gone."""
    escape_unencodable(stream)
    try:
        try:
            yield
        finally:
            stream.flush()
    except OSError as error:
        # An error with a name is of a file, unless `say` has named the stream.
        if error.filename is not None:
            raise
        _stop_writing(error, stream)


@contextlib.contextmanager
def replace_missing_streams() -> Iterator[None]:
    """Opens /dev/null in the place of standard streams that are closed (`>&-`), in the block."""
    # Python sets such a stream to None. Its descriptor would go to the next file that is opened,
    # and libraries write messages to that descriptor.
    with contextlib.ExitStack() as stack:
        # In this order, because a file gets the smallest descriptor that is free.
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                stack.callback(setattr, sys, name, None)
                file = stack.enter_context(open(os.devnull, mode, encoding="utf-8"))
                setattr(sys, name, file)
        yield


def _stop_writing(error: OSError, stream: IO[str]) -> None:
    """Handles an error of a stream, such as a full disk; later output to it is lost.

    If the reader has gone, the program ends. A message on standard error is dropped, so that work
    is not lost with it. Any other error is raised again with the name of the stream.
    """
    # The interpreter flushes the stream at its end, which would raise the error again.
    with contextlib.suppress(OSError):  # a stream of another program may have no descriptor
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    if isinstance(error, BrokenPipeError):
        sys.exit(UNREAD)
    if stream is sys.stderr:
        return
    if error.filename is None and error.errno is not None:
        error.filename = "standard output"
    raise error


def say(
    *values: Any, file: TextIO | EllipsisType | None = ..., end: str = "\n", flush: bool = True
) -> None:
    """Prints values like `print`, escaped; ends the program if the reader of the pipe has gone."""
    stream = sys.stdout if isinstance(file, EllipsisType) else file
    if stream is None:
        return
    escape_unencodable(stream)
    try:
        print(printable(" ".join(map(str, values))), end=end, file=stream, flush=flush)
    except OSError as error:
        _stop_writing(error, stream)


def new_console(*, stderr: bool = False) -> "Console":
    """Returns a rich console that prints strings without markup, emoji codes and escape codes."""
    escape_unencodable(sys.stderr if stderr else sys.stdout)
    return _console_class()(stderr=stderr, markup=False, emoji=False)


@functools.cache
def _console_class() -> type:
    from rich.console import Console  # imported here, because most programs do not need it

    class PlainConsole(Console):
        """A rich console that escapes control characters in all strings, also in tables."""

        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(printable(text), **options)

        def print(self, *objects: Any, **options: Any) -> None:
            try:
                super().print(*objects, **options)
            except OSError as error:
                _stop_writing(error, self.file)

        def on_broken_pipe(self) -> None:
            _stop_writing(BrokenPipeError(), self.file)

    return PlainConsole
