"""Parts that the commands share: how one is called, and how it refuses."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from gatedjax._terminal import say
from gatedjax._version import __version__


def program() -> str:
    """What the user typed before the name of a command: the console script, or the module."""
    return "gatedjax" if Path(sys.argv[0]).stem == "gatedjax" else "python -m gatedjax"


def reason(error: BaseException) -> str:
    """The message of an error; one of the system names the file, not the number of the error."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        places = [str(p) for p in (error.filename, error.filename2) if p is not None]
        return f"{' and '.join(places)}: {error.strerror}"
    return str(error)


def fail(message: str) -> NoReturn:
    """Prints an error and exits with status 2, as for any wrong command line."""
    say(f"error: {message}", file=sys.stderr)
    sys.exit(2)


@contextlib.contextmanager
def refusals(options: Mapping[str, str]) -> Iterator[None]:
    """Turns the errors of a command's work into `fail`.

    Args:
      options: what the library says, and what it is called by the command; what ends with ": "
        only at the start of a message.
    """
    try:
        yield
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        message = reason(error)
        for argument, option in options.items():
            if not argument.endswith(": ") or message.startswith(argument):
                message = message.replace(argument, option)
        fail(message)


def show_version(args: Sequence[str]) -> None:
    """Prints the version and exits if that was asked for."""
    if "--version" in args:
        say(f"gatedjax {__version__}")
        sys.exit(0)
