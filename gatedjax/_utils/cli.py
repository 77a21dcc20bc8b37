"""Functions that the commands share, for parsing options and for error messages."""

import contextlib
import functools
import io
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

# Words in messages of the library that are no name of an option, and the options for them.
_WORDS = {
    "columns must be a tuple of names of texts and a different name of the label": (
        "--text and --label must be names of different columns"
    ),
    "columns.inputs must": "--text must",
    "columns.header": "--columns",
    "as threshold ": "as --threshold ",
    "as order ": "as --order ",
    "(manual_dir=...)": "(gatedjax data prepare NAME --manual-dir DIR)",
}
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


def status_of(run: Callable[[], int], *damage: type[Exception]) -> int:
    """Runs a command and returns its exit status; an error is printed and gives 2, and 1 if it is
    of a class in `damage`.
    """
    errors: tuple[type[Exception], ...] = (ImportError, OSError, TypeError, ValueError, *damage)
    try:
        return run()
    except BrokenPipeError:
        raise  # `while_read` ends the program without a message
    except errors as error:
        say(f"error: {reason(error)}", file=sys.stderr)
        return 1 if isinstance(error, damage) else 2


@contextlib.contextmanager
def refusals(words: Mapping[str, str], kind: Any = None) -> Iterator[None]:
    """Prints errors of the library in the block with `fail`, see `name_options`."""
    try:
        yield
    except BrokenPipeError:
        raise  # `while_read` ends the program without a message
    except (ValueError, OSError, RuntimeError, ImportError, MemoryError, OverflowError) as error:
        # A MemoryError has no message.
        message = reason(error) or f"{type(error).__name__}: a size is too large"
        fail(name_options(message, words, kind))


def name_options(message: str, words: Mapping[str, str], kind: Any = None) -> str:
    """Returns a message of the library with the options of the dataclass `kind` in place of the
    arguments that it names; `words` has the exceptions.
    """
    # None cannot be typed.
    message = message.replace(" must be None", " must be left out")
    for argument, option in {**words, **({} if kind is None else _WORDS)}.items():
        if not argument.endswith(": ") or message.startswith(argument):
            # "states must" is not a part of "test_states must" or "--states must".
            pattern = rf"(?<![\w-]){re.escape(argument)}"
            # A backslash in a replacement would be an escape.
            message = re.sub(pattern, option.replace("\\", r"\\"), message)
    if kind is None:
        return message
    from gatedjax._utils.options import arguments

    for name, option in arguments(kind).items():
        message = re.sub(rf"(?<![\w.-]){name}=True\b", option, message)
        message = re.sub(rf"(?<![\w.-]){name}=('([\w-]+)')?", rf"{option} \2", message)
        # A name of a single word, as "label", may be a word of the sentence.
        place = rf"^{name}(?= must\b)" if "_" not in name else rf"(?<![\w./-]){name}(?![\w./-])"
        message = re.sub(place, option, message)
    return message


def parse(
    kind: type[C],
    args: Sequence[str],
    prog: str,
    *,
    words: str | None = None,
    elsewhere: Callable[[str], str | None] = lambda name: None,
    **tyro_options: Any,
) -> C:
    """Parses the options of a command within the limits of its fields. `words` is the field of
    words allowed after options, and `elsewhere` returns the message about an option that another
    form of the command has.
    """
    # These are imported here, because `gatedjax --version` needs none of them and they load slowly.
    import dataclasses

    import tyro

    from gatedjax._utils.fields import check_limits
    from gatedjax._utils.options import described_fields, unknown_option

    # Words after "--" are no options, so no rule for options is applied to them.
    end = args.index("--") if "--" in args else len(args)
    ahead = _attach_values(args[:end])
    if "--version" in ahead:
        show_version()
    read = functools.partial(tyro.cli, kind, prog=prog, registry=described_fields(), **tyro_options)
    if any(word in _HELP for word in ahead):
        _show_help(read, kind)
    # A misspelt option is named before tyro misses a required option.
    if message := unknown_option(kind, ahead, elsewhere):
        fail(message)
    options, unknown = read(args=[*ahead, *args[end:]], return_unknown_args=True)
    if unknown:
        if words is None:
            fail(f"unexpected argument {unknown[0]!r}")
        given = (*(getattr(options, words) or ()), *unknown)
        options = dataclasses.replace(options, **{words: given})
    with refusals({}, kind):
        check_limits(options)
    return options


def _show_help(read: Callable[..., Any], kind: Any) -> NoReturn:
    """Prints the help of tyro, with lines no wider than the terminal, and exits."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    output = io.TextIOWrapper(io.BytesIO(), encoding, errors="backslashreplace")
    # No other words, because the help of tyro leaves out options that are given.
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        read(args=["--help"])
    output.seek(0)
    say(_wrap_lines(_with_words_last(output.read(), kind)), end="")
    sys.exit(0)


def parse_command(commands: Mapping[str, type], args: Sequence[str], prog: str, about: str) -> Any:
    """Parses the options of the command that the first argument names."""
    from gatedjax._utils.options import option_names

    texts = {}
    for name, kind in commands.items():
        options = ", ".join(option_names(kind))
        first = " ".join(str(kind.__doc__).partition("\n\n")[0].split())
        texts[name] = f"{first} Options: {options}." if options else first
    name = choose({"commands": texts}, args, prog, about)
    return parse(commands[name], args[1:], f"{prog} {name}")


def choose(
    groups: Mapping[str, Mapping[str, str]],
    args: Sequence[str],
    prog: str,
    about: str = "",
    *,
    options: Mapping[str, str] | None = None,
) -> str:
    """Returns the first argument, the name of a command, or prints help, version or an error.
    `groups` maps a title to the commands under it, with a text for each.
    """
    name = args[0] if args else ""
    commands = [name for group in groups.values() for name in group]
    if name in commands:
        return name
    width = max(map(len, commands)) + 4
    lines = [f"usage: {prog} COMMAND ...", *(("", _wrap_lines(about)) if about else ())]
    common = {
        "-h, --help": "show this list; after a command, show its options",
        "--version": "show the version",
    }
    for title, group in {**groups, "options": {**common, **(options or {})}}.items():
        indent = 14 if title == "options" else width
        lines += ["", f"{title}:"]
        lines += [_wrap_lines(f"  {n:<{indent - 2}}{text}", indent) for n, text in group.items()]
    if not args or name in _HELP:
        say("\n".join(lines))
        sys.exit(0 if args else 2)
    if name == "--version":
        show_version()
    fail(f"unknown command {name!r}.{suggestion(name, commands)} Commands: {', '.join(commands)}.")


def show_version() -> NoReturn:
    """Prints the version and exits."""
    say(f"gatedjax {__version__}")
    sys.exit(0)


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
    from gatedjax._utils.options import positional_names

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
