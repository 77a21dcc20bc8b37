"""The duration of a run over all the processes that trained it."""

import time
from pathlib import Path

from experiments.core.records import read_json, write_json
from gatedjax.training import CheckpointStore


class Clock:
    """The seconds of a run: in this process, and in earlier processes up to their last checkpoint.

    The steps that a killed process made after its last checkpoint are repeated, so their time is
    not counted twice. Without a checkpoint, or without seconds.json next to it, the clock starts at
    0.

    Args:
      workdir: the work folder of the run.
    """

    def __init__(self, workdir: Path) -> None:
        self._file = workdir / "seconds.json"
        has_checkpoint = CheckpointStore(workdir / "checkpoints").latest() is not None
        has_seconds = has_checkpoint and self._file.exists()
        earlier = read_json(self._file, "seconds")["seconds"] if has_seconds else 0.0
        self._began = time.perf_counter() - earlier

    @property
    def seconds(self) -> float:
        """The seconds of the run until now."""
        return time.perf_counter() - self._began

    def hook(self, event: str, *args: object) -> None:
        """Writes the seconds to the work folder if an event of `fit` is a saved checkpoint. `event`
        is its name, and `args` are the other arguments of the hook of `fit`."""
        if event == "saved":
            write_json(self._file, {"seconds": round(self.seconds, 3)})
