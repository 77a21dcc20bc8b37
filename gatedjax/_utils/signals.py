"""SIGTERM as an exception like that of Ctrl-C, which removes temporary files before the end."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

STATUS = 128 + signal.SIGTERM
"""The exit status of a program that SIGTERM has ended, as in a shell."""


class Terminated(SystemExit):
    """Raised when SIGTERM comes in a block of `raise_on_sigterm`; its `code` is 143."""


def raise_on_sigterm() -> contextlib.AbstractContextManager[None]:
    """Makes SIGTERM raise `Terminated` in the block, as Ctrl-C raises KeyboardInterrupt."""
    return _replace_handler(signal.SIG_DFL, _terminate)


def default_sigterm() -> contextlib.AbstractContextManager[None]:
    """Undoes `raise_on_sigterm` in the block, in which SIGTERM ends the process at once."""
    # Python runs a handler only between two instructions, so a long compilation would not end.
    return _replace_handler(_terminate, signal.SIG_DFL)


@contextlib.contextmanager
def _replace_handler(before: Any, within: Any) -> Iterator[None]:
    # Python allows no handler in other threads; a handler of the user stays.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != before:
        yield
        return
    signal.signal(signal.SIGTERM, within)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(STATUS)
