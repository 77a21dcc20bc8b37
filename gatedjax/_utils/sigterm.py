"""SIGTERM as an exception, so that a program removes its temporary files before it ends."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

STATUS = 128 + signal.SIGTERM
"""The exit status of a program that SIGTERM has ended, as in a shell."""


class Terminated(SystemExit):
    """Raised when SIGTERM comes in a block of `raise_on_sigterm`; its `code` is 143."""


@contextlib.contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM raise `Terminated` in the block, as Ctrl-C raises KeyboardInterrupt."""
    # Python allows no handler in other threads.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def default_sigterm() -> Iterator[None]:
    """Undoes `raise_on_sigterm` in the block, in which SIGTERM ends the process at once."""
    # Python runs a handler only between two instructions, so a long compilation would not end.
    if signal.getsignal(signal.SIGTERM) != _terminate:
        yield
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(STATUS)
