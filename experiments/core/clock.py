"""How long a run takes, over all the processes that made it."""

import time
from pathlib import Path

from experiments.core.records import read_json, write_json
from gatedjax.training import CheckpointStore


class Clock:
    """The seconds of a run: those of this process, and of earlier ones up to their last checkpoint.

    What a killed process did after its last checkpoint is done again, and is not counted twice. A
    work folder that is older than this file of its seconds counts from now on.
    """

    def __init__(self, workdir: Path) -> None:
        self._file = workdir / "seconds.json"
        begun = CheckpointStore(workdir / "checkpoints").latest() is not None
        known = begun and self._file.exists()
        earlier = read_json(self._file, "seconds")["seconds"] if known else 0.0
        self._began = time.perf_counter() - earlier

    @property
    def seconds(self) -> float:
        """Until now."""
        return time.perf_counter() - self._began

    def on_event(self, name: str, step: int) -> None:
        """Keeps the seconds with every checkpoint; what `fit` calls."""
        if name == "saved":
            write_json(self._file, {"seconds": round(self.seconds, 3)})
