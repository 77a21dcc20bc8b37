"""Ctrl-C and SIGTERM as exceptions, which remove temporary files before a program ends.

Python prints an exception of a callback of the garbage collector, such as that of JAX, and goes on.
KeyboardInterrupt would be lost there, and a command that was told to stop would write its results.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

STATUS = 128 + signal.SIGTERM
"""The exit status of a program that SIGTERM has ended, as in a shell."""

# A moment later the program has left the callback.
_SECONDS = 0.01
_LOST: list[type[BaseException]] = []


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


@contextlib.contextmanager
def raise_lost_signals() -> Iterator[None]:
    """Raises KeyboardInterrupt and `Terminated` again if Python has swallowed them in the block.

    In a thread other than the main thread it has no effect, because Python runs no handler there.
    """
    # Windows has no alarm.
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return
    old_hook, old_handler = sys.unraisablehook, signal.getsignal(signal.SIGALRM)

    def note(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt | Terminated):
            old_hook(unraisable)
            return
        _LOST.append(unraisable.exc_type)
        signal.setitimer(signal.ITIMER_REAL, _SECONDS)

    def raise_again(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is note.__code__:
                # Python swallows the exceptions of this function as well.
                signal.setitimer(signal.ITIMER_REAL, _SECONDS)
                return
            frame = frame.f_back
        settle_signals()

    sys.unraisablehook = note
    signal.signal(signal.SIGALRM, raise_again)
    try:
        yield
        settle_signals()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
        sys.unraisablehook = old_hook
        _LOST.clear()


def settle_signals() -> None:
    """Raises a swallowed KeyboardInterrupt or `Terminated` now, before a result appears."""
    if _LOST:
        raise Terminated(STATUS) if _LOST.pop() is Terminated else KeyboardInterrupt
