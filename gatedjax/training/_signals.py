"""Handlers for the signals that stop a run."""

import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGINT)
_LISTENING: "weakref.WeakSet[Signals]" = weakref.WeakSet()


class Signals:
    """A context that records SIGTERM and SIGINT; a second signal has its usual effect."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self.received: int | None = None
        self._on_first = on_first
        self._before: dict[int, Any] = {}
        self._bell: socket.socket | None = None

    def __enter__(self) -> "Signals":
        # Python allows only the main thread to set signal handlers.
        if threading.current_thread() is threading.main_thread():
            ear, self._bell = socket.socketpair()
            # `set_wakeup_fd` requires a socket that does not block.
            self._bell.setblocking(False)
            # Python runs handlers only between two instructions of the main thread, which may wait
            # minutes for a compilation or a device; so a thread calls `on_first`.
            self._listener = threading.Thread(target=self._listen, args=(ear,), daemon=True)
            self._listener.start()
            self._old_bell = signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
            _LISTENING.add(self)
            for number in STOPPING:
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.received = number
        # The previous handler returns at once, so that a second signal can end a run that hangs.
        signal.signal(number, self._before[number])

    def _listen(self, ear: socket.socket) -> None:
        """Reads the numbers of incoming signals from a socket until its other end is closed."""
        is_reported = False
        with ear:
            while heard := ear.recv(64):
                # Another program in this process, such as an event loop, may wait for the same
                # bytes.
                if self._old_bell != -1:
                    os.write(self._old_bell, heard)
                if not is_reported and set(heard) & set(STOPPING):
                    is_reported = True
                    self._on_first()

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._bell is not None:
            signal.set_wakeup_fd(self._old_bell)
            # Closing this end makes `recv` of the thread return an empty result, which ends the
            # thread.
            self._bell.close()
            self._bell = None
            self._listener.join()


def _be_silent_in_child() -> None:
    # A signal to a forked worker must not stop the run.
    for signals in list(_LISTENING):
        if signals._bell is not None:
            signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_be_silent_in_child)
