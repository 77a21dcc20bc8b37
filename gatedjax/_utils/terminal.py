"""Text on its way to a person: names from elsewhere are shown as they are, and steer nothing.

A folder may be called "[/b]", and an array or a member of an archive may have an escape code in its
name. All that gatedjax prints goes through here.
"""

import contextlib
import functools
import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from types import EllipsisType
from typing import IO, TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# Control and format characters, halves of surrogate pairs (from file names that are not UTF-8).
_BAD = ("Cc", "Cf", "Cs")
# Joiners (ZWNJ, ZWJ) are format characters that some scripts and emoji need.
_JOINERS = "\u200c\u200d"


def clean(word: str) -> str:
    """The word on one line, without control characters (which could steer a terminal)."""
    flat = " ".join(str(word).split())
    return "".join("\ufffd" if _bad(c) else c for c in flat)


def printable(text: str) -> str:
    r"""The text with control characters as Python writes them ("\x1b"); line breaks stay."""
    if text.isprintable():
        return text
    return "".join(_escaped(c) if _bad(c) and c not in "\n\t" else c for c in text)


def _bad(character: str) -> bool:
    return unicodedata.category(character) in _BAD and character not in _JOINERS


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def escape_unencodable(stream: object) -> None:
    r"""Makes a stream write what its encoding does not have as Python writes it ("\xef").

    A program must not end because its output goes to a file or a terminal in another encoding. An
    error handler that the user has asked for, as with PYTHONIOENCODING=ascii:replace, stays.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return
    # Python's own handler in the C locale, which hands bytes of file names on and refuses letters
    of_locale = stream.errors == "surrogateescape" and not stream.encoding.lower().startswith("utf")
    if stream.errors == "strict" or of_locale:
        stream.reconfigure(errors="backslashreplace")


UNREAD = 141
"""Status of a program whose reader has gone: 128 + SIGPIPE, as a shell says of those it ends."""


@contextlib.contextmanager
def while_read(stream: TextIO | None) -> Iterator[None]:
    """Hands over what the block writes; where the reader has gone, the program ends.

    A reader that goes (`head` that has enough, `less` that was left) is no error to speak of.

    Args:
      stream: standard output or standard error; None where a program has none (`>&-`).

    Raises:
      SystemExit: of status `UNREAD`, if nobody reads the stream.
    """
    if stream is None:
        yield
        return
    escape_unencodable(stream)
    try:
        try:
            yield
        finally:
            stream.flush()
    except BrokenPipeError:
        _end_unread(stream)


def _end_unread(stream: IO[str]) -> NoReturn:
    # the interpreter must not flush into it either
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(UNREAD)


def say(
    *values: Any, file: TextIO | EllipsisType | None = ..., end: str = "\n", flush: bool = True
) -> None:
    """As `print`, with `printable` applied to what is printed; see `while_read`.

    Characters that the encoding of the stream does not have are written as Python writes them.

    Args:
      *values: what to print; `str` is applied to them.
      file: where to (default: standard output); None, which `sys.stderr` may be, is nowhere.
      end: what follows.
      flush: hand it over at once; without it, for very many lines, once there is a block of them.
    """
    stream = sys.stdout if isinstance(file, EllipsisType) else file
    if stream is None:
        return
    escape_unencodable(stream)
    try:
        print(printable(" ".join(map(str, values))), end=end, file=stream, flush=flush)
    except BrokenPipeError:
        _end_unread(stream)


def new_console(*, stderr: bool = False) -> "Console":
    """A rich console that takes strings as they are: no markup, no emoji codes, no escape codes.

    Args:
      stderr: print to standard error.
    """
    escape_unencodable(sys.stderr if stderr else sys.stdout)
    return _console_class()(stderr=stderr, markup=False, emoji=False)


@functools.cache
def _console_class() -> type:
    from rich.console import Console  # not needed by who only wants the functions above

    class PlainConsole(Console):
        """Every string that is printed, in a table or outside, comes through `render_str`."""

        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(printable(text), **options)

        def on_broken_pipe(self) -> None:
            _end_unread(self.file)

    return PlainConsole
