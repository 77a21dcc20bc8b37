"""Signals that ask a run to stop."""

import signal
import threading
from types import FrameType
from typing import Any


class Signals:
    """Remembers SIGTERM and SIGINT while the loop runs; a second one acts as it always did."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.received = number
        signal.signal(number, self._before[number])

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
