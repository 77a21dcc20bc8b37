"""A help that fits a screen: `--help` in short, `--help-all` with what every option means."""

import contextlib
import io
import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tyro

from gatedjax._utils.groups import with_grouped_names
from gatedjax._utils.terminal import say, while_read

C = TypeVar("C")
LINES = 60
"""A help of more lines is shortened."""
ALL = "--help-all"
FRAME = re.compile(r"^╭─ (.+?) ─*╮$")
DEFAULT = re.compile(r" ?\(default: [^()]*(?:\([^()]*\)[^()]*)*\)$")


def read(kind: type[C], args: Sequence[str], **more: Any) -> C:
    """The options of a command line, as `tyro.cli` reads them; `--help` in short.

    Args:
      kind: a dataclass of the options.
      args: the command line.
      **more: of `tyro.cli`.
    """
    args = with_grouped_names(args, kind)
    ahead = list(args[: args.index("--")]) if "--" in args else list(args)
    if ALL not in ahead and ("--help" in ahead or "-h" in ahead):
        # frames are drawn in UTF-8 alone
        shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
            tyro.cli(kind, args=args, **more)
        shown.seek(0)
        text = shown.read()
        if text.count("\n") > LINES:
            say(shortened(text))
            sys.exit(0)
    args = ["--help" if one == ALL else one for one in args]
    with while_read(sys.stdout):
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors):
                made: C = tyro.cli(kind, args=args, **more)
        except SystemExit:
            if "Value error" in errors.getvalue().partition("\n")[0]:
                say(f"error: {_value_error(kind, args, more)}", file=sys.stderr)
                errors = io.StringIO()
            raise
        finally:
            sys.stderr.write(errors.getvalue())
    return made


def _value_error(kind: type, args: Sequence[str], more: Mapping[str, Any]) -> str:
    """Returns the message in the frame that tyro draws around a wrong value, on one line."""
    errors, width = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100000"  # a frame would break numbers apart
    try:
        with contextlib.redirect_stderr(errors), contextlib.suppress(SystemExit):
            tyro.cli(kind, args=args, **more)
    finally:
        del os.environ["COLUMNS"]
        if width is not None:
            os.environ["COLUMNS"] = width
    # title, message and the rest; the frame is drawn in ASCII where standard output is not UTF-8
    lines = [line.strip("│╭╮╰╯─- ") for line in _plain(errors.getvalue())]
    begun = itertools.dropwhile(lambda line: line in ("", "Value error"), lines)
    message = " ".join(itertools.takewhile(bool, begun))
    # the name of a group of options is not what anybody typed
    return re.sub(r"^Error parsing (?:(--\S+: )|[^:]*: )", r"\1", message)


def _plain(text: str) -> list[str]:
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n")]


def _groups(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Titles and lines of the frames of a help."""
    title = ""
    inside: list[str] = []
    for line in lines:
        if found := FRAME.match(line):
            title, inside = found.group(1), []
        elif line.startswith("╰"):
            yield title, inside
        elif line.startswith("│"):
            inside.append(line.strip("│")[1:].rstrip())


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options, or positional arguments, and what is said of them."""
    call, words = "", ""
    for line in lines:
        if line[:1].strip() and (line.startswith("-") or re.match(r"[A-Z{\[]\S*(  |$)", line)):
            if call:
                yield call, words
            call, _, words = line.partition("  ")
            words = words.strip()
        elif call:
            words = f"{words} {line.strip()}".strip()
    if call:
        yield call, words


def _in_lines(entries: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """A line for every option; a list of words that an argument may be is in the usage already."""
    calls = [call.replace("{None}|", "") for call, _ in entries]
    column = min(max(map(len, calls)), 34)
    for call, (_, words) in zip(calls, entries, strict=True):
        words = DEFAULT.sub("", words)
        if len(call) > column:
            yield from textwrap.wrap(words, width, initial_indent="  ", subsequent_indent="  ")
            continue
        line = f"  {call:<{column}}  {words}"
        yield line if len(line) <= width else line[: width - 4].rsplit(" ", 1)[0] + " ..."


def _by_name(title: str, entries: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """The names of a group without what they begin with; of a pair of flags the first."""
    group = title.removesuffix(" options")
    names = [call.split()[0].rstrip(",").removeprefix(f"--{group}.") for call, _ in entries]
    yield f"{title}, as --{group}.{names[0]}:" if names else f"{title}:"
    yield from textwrap.wrap(
        ", ".join(names),
        width,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


def shortened(text: str) -> str:
    """A help of frames in a screen: the first options in a line each, the rest by name."""
    width = min(shutil.get_terminal_size().columns, 100)
    lines = _plain(text)
    first = next(i for i, line in enumerate(lines) if FRAME.match(line))
    out = []
    for line in lines[:first]:
        out += textwrap.wrap(line, width) or [""]
    for title, inside in _groups(lines):
        entries = list(_entries(inside))
        if title in ("options", "positional arguments"):
            out += [f"{title}:", *_in_lines(entries, width)]
        else:
            out += _by_name(title, entries, width)
    return "\n".join([*out, "", f"{ALL} says what every option means, and its default."])
