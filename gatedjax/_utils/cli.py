"""Functions that the commands share, for parsing options and for error messages."""

import contextlib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gatedjax._utils.choices import suggestion
from gatedjax._utils.terminal import say
from gatedjax._version import __version__

C = TypeVar("C")

RAW_FILES = {"(manual_dir=...)": "(gatedjax data prepare NAME --manual-dir DIR)"}
"""Replacements for `refusals` in commands that have no option for a folder of raw files."""
# More devices wait for each other until XLA times out and ends the process.
_MOST_DEVICES = 128
_HELP = ("-h", "--help", "--help-all")


def program() -> str:
    """Returns the words before the name of a command: "gatedjax" or "python -m gatedjax"."""
    return "gatedjax" if Path(sys.argv[0]).stem == "gatedjax" else "python -m gatedjax"


def reason(error: BaseException) -> str:
    """Returns the message of an error as text, "FILE: message" for an OSError with a file."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        places = [str(p) for p in (error.filename, error.filename2) if p is not None]
        return f"{' and '.join(places)}: {error.strerror}"
    return str(error)


def fail(message: str) -> NoReturn:
    """Prints an error and exits with status 2, the status for a wrong command line."""
    say(f"error: {message}", file=sys.stderr)
    sys.exit(2)


@contextlib.contextmanager
def refusals(options: Mapping[str, str]) -> Iterator[None]:
    """Prints errors of the library in the block with `fail`, with its words replaced by options."""
    try:
        yield
    except BrokenPipeError:
        raise  # `while_read` ends the program without a message
    except (ValueError, OSError, RuntimeError, ImportError, MemoryError, OverflowError) as error:
        # A MemoryError has no message.
        message = reason(error) or f"{type(error).__name__}: a size is too large"
        # None cannot be typed.
        message = message.replace(" must be None", " must be left out")
        for argument, option in options.items():
            if not argument.endswith(": ") or message.startswith(argument):
                # "states must" is not a part of "test_states must" or "--states must".
                words = rf"(?<![\w-]){re.escape(argument)}"
                # A backslash in a replacement would be an escape.
                message = re.sub(words, option.replace("\\", r"\\"), message)
        fail(message)


def check_devices(count: int | None) -> None:
    """Ends the command with an error if the value of `--cpu-devices` is out of range."""
    if count is not None and count < 1:
        fail(f"--cpu-devices must be at least 1, got {count}")
    if count is not None and count > _MOST_DEVICES:
        fail(f"--cpu-devices must be at most {_MOST_DEVICES}, got {count}")


def parse(
    kind: type[C], args: Sequence[str], prog: str, *, words: str | None = None, **tyro_options: Any
) -> C:
    """Parses the options of a command; `words` is the field of words allowed after options."""
    # These are imported here, because `gatedjax --version` needs none of them and they load slowly.
    import dataclasses

    import tyro

    from gatedjax._utils.cli_errors import is_option, message_of, unknown_option
    from gatedjax._utils.options import joined_docstrings

    def refuse(event: Any) -> None:
        with contextlib.suppress(AttributeError):  # tyro then prints its message in a frame
            if message := message_of(event, kind, ahead):
                fail(message)

    # Words after "--" are no options, so no rule for options is applied to them.
    ahead, trailing = _split(args)
    if "--version" in ahead:
        show_version()
    if wants_help := any(word in _HELP for word in ahead):
        # Other words are dropped, because the help of tyro leaves out options that are given.
        ahead, trailing = ["--help"], []
    ahead = _attach_values(ahead)
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    # tyro prints its help itself, so the text is caught and wrapped before it is printed.
    output = io.TextIOWrapper(io.BytesIO(), encoding, errors="backslashreplace")
    try:
        with contextlib.redirect_stdout(output), _on_parse_error(refuse):
            options, unknown = tyro.cli(
                kind,
                prog=prog,
                args=[*ahead, *trailing],
                return_unknown_args=True,
                registry=joined_docstrings(),
                **tyro_options,
            )
    except SystemExit:
        output.seek(0)
        text = output.read()
        say(_wrap_lines(_with_words_last(text, kind)) if wants_help else text, end="")
        raise
    if not unknown:
        return _decode(options)
    # Words after "--" are no options, also if they begin with a dash, so they are not searched for
    # a wrong option.
    literal = len(trailing) - 1 if trailing and unknown[1 - len(trailing) :] == trailing[1:] else 0
    if option := next(filter(is_option, unknown[: len(unknown) - literal]), None):
        fail(unknown_option(kind, option))
    if words is None:
        fail(f"unexpected argument {unknown[0]!r}")
    given = (*(getattr(options, words) or ()), *unknown)
    return _decode(dataclasses.replace(options, **{words: given}))


def _decode(options: C) -> C:
    """Returns a dataclass of options with its texts decoded from UTF-8.

    Python decodes a command line in the encoding of the locale, and keeps bytes that it does not
    have as halves of surrogate pairs. Names of files stay, because Python opens them in this form.
    """
    import dataclasses

    changes: dict[str, Any] = {}
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        value = getattr(options, field.name)
        words = value if isinstance(value, tuple) else (value,)
        decoded = tuple(_decode_word(word) if isinstance(word, str) else word for word in words)
        if decoded != words:
            changes[field.name] = decoded if isinstance(value, tuple) else decoded[0]
    return dataclasses.replace(options, **changes) if changes else options  # type: ignore[type-var]


def _decode_word(word: str) -> str:
    try:
        word.encode()
    except UnicodeEncodeError:
        # A word with other halves of pairs is not of a command line.
        with contextlib.suppress(UnicodeEncodeError):
            if not os.path.lexists(word):
                return os.fsencode(word).decode("utf-8", "surrogateescape")
    return word


def parse_command(commands: Mapping[str, type], args: Sequence[str], prog: str, about: str) -> Any:
    """Parses the options of the command that the first argument names."""
    from gatedjax._utils.cli_errors import option_names

    texts = {}
    for name, kind in commands.items():
        options = ", ".join(option_names(kind))
        first = " ".join(str(kind.__doc__).partition("\n\n")[0].split())
        texts[name] = f"{first} Options: {options}." if options else first
    name = choose(texts, args, prog, about)
    return parse(commands[name], args[1:], f"{prog} {name}")


def choose(
    commands: Mapping[str, str],
    args: Sequence[str],
    prog: str,
    about: str = "",
    *,
    options: Mapping[str, str] | None = None,
) -> str:
    """Returns the first argument, the name of a command, or prints help, version or an error."""
    name = args[0] if args else ""
    if name in commands:
        return name
    width = max(map(len, commands)) + 4
    lines = [f"usage: {prog} COMMAND ...", *(("", _wrap_lines(about)) if about else ())]
    lines += ["", "commands:"]
    lines += [
        _wrap_lines(f"  {command:<{width - 2}}{commands[command]}", width) for command in commands
    ]
    lines += ["", "options:", "  -h, --help  show this list; after a command, show its options"]
    lines += ["  --version   show the version"]
    lines += [_wrap_lines(f"  {name:<10}  {text}", 14) for name, text in (options or {}).items()]
    usage = "\n".join(lines)
    if not args or name in _HELP:
        say(usage)
        sys.exit(0 if args else 2)
    if name == "--version":
        show_version()
    fail(f"unknown command {name!r}.{suggestion(name, commands)} Commands: {', '.join(commands)}.")


def show_version() -> NoReturn:
    """Prints the version and exits."""
    say(f"gatedjax {__version__}")
    sys.exit(0)


def _split(args: Sequence[str]) -> tuple[list[str], list[str]]:
    end = args.index("--") if "--" in args else len(args)
    return list(args[:end]), list(args[end:])


def _on_parse_error(hook: Callable[[Any], None]) -> contextlib.AbstractContextManager[None]:
    # It is not public: a tyro without it prints its message in a frame, with the same status.
    try:
        from tyro._errors import on_parse_error
    except ImportError:
        return contextlib.nullcontext()
    return on_parse_error(hook)


def _attach_values(words: Sequence[str]) -> list[str]:
    """Returns a command line in which values that begin with "-" are attached to their options."""
    out: list[str] = []
    for word in words:
        # A value with a space cannot be an option, so a dash at its beginning belongs to the text.
        follows = out and out[-1].startswith("--") and "=" not in out[-1]
        if follows and word.startswith("-") and len(word.split()) > 1:
            out[-1] += f"={word}"
        else:
            out.append(word)
    return out


def _with_words_last(text: str, kind: Any) -> str:
    """Moves the positional words of the usage, such as "-- COMMAND ...", behind the options."""
    from gatedjax._utils.cli_errors import positional_names

    lines, blank, remainder = text.partition("\n\n")
    usage = " ".join(lines.split())
    for name in positional_names(kind):
        head, found, tail = usage.partition(f" {name} ")
        if found and tail:
            usage = f"{head} {tail} {name}"
    return usage + blank + remainder


def _wrap_lines(text: str, indent: int = 0) -> str:
    """Returns a help text with the lines wrapped that are wider than the terminal."""
    width = shutil.get_terminal_size().columns
    lines: list[str] = []
    # tyro puts two empty lines before a paragraph that does not begin with a letter.
    for line in text.replace("\n\n\n", "\n\n").split("\n"):
        following = " " * (7 if line.startswith("usage: ") else indent)
        wrap = textwrap.TextWrapper(width, subsequent_indent=following, break_on_hyphens=False)
        lines += wrap.wrap(line) if len(line) > width else [line]
    return "\n".join(lines)
