"""Parts that the commands share: how one is called, and how it refuses."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from gatedjax._utils.terminal import say
from gatedjax._version import __version__

RAW_FILES = {"(manual_dir=...)": "(gatedjax data prepare NAME --manual-dir DIR)"}
"""For `refusals` of a command that cannot be given a folder of raw files itself."""
# More of them wait for each other until XLA gives up and ends the process.
_MOST_DEVICES = 128


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
    except BrokenPipeError:
        raise  # `while_read` ends the program without a word
    except (ValueError, OSError, RuntimeError, ImportError, MemoryError, OverflowError) as error:
        message = reason(error) or f"{type(error).__name__}: a size is too large"
        for argument, option in options.items():
            if not argument.endswith(": ") or message.startswith(argument):
                message = message.replace(argument, option)
        fail(message)


def check_devices(count: int | None) -> None:
    """Refuses a number of `--cpu-devices` that no run could use; None is passed."""
    if count is not None and count < 1:
        fail(f"--cpu-devices must be at least 1, got {count}")
    if count is not None and count > _MOST_DEVICES:
        fail(f"--cpu-devices must be at most {_MOST_DEVICES}, got {count}")


def show_version(args: Sequence[str]) -> None:
    """Prints the version and exits if that was asked for."""
    if "--version" in args:
        say(f"gatedjax {__version__}")
        sys.exit(0)
