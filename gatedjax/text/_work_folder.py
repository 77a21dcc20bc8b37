"""The folder where the training of a model of texts keeps its files until it is done."""

import contextlib
from pathlib import Path

from gatedjax.training._run_files import TRAIN_LOCK, foreign_files, remove_run
from gatedjax.training.lock import LOCK, WorkdirBusy, WorkdirLock


class WorkFolder:
    """A work folder that one training has to itself, from the reading of texts to the end.

    A context manager. A folder that it has made is removed if training fails before the first
    checkpoint.

    Args:
      path: the folder, which is made with its parents if it is not there.

    Raises:
      FileExistsError: on entering, if the folder holds files and no run made it.
      WorkdirBusy: on entering, if another training has the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: list[Path] = []
        self._lock: WorkdirLock | None = None

    def __enter__(self) -> "WorkFolder":
        for place in reversed((self.path, *self.path.parents)):
            if not place.is_dir():
                self._make(place)
        try:
            if others := foreign_files(self.path):
                raise FileExistsError(
                    f"{self.path} holds {', '.join(others[:5])} and no lock of a run, so no run "
                    "made it: move it away, or use another workdir"
                )
            self._lock = WorkdirLock(self.path, TRAIN_LOCK)
            # another training may have removed the folder before the lock was taken
            self._lock.check()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self.path in self._made and not self._has_checkpoints():
            self.remove()
        self._leave()

    def remove(self) -> str:
        """Removes what the run wrote; returns why the folder is still there, or ""."""
        try:
            others = remove_run(self.path, (LOCK,))
        except WorkdirBusy as error:  # another program calls `fit` with the folder
            return str(error)
        return f"it holds {', '.join(others[:5])}, which no run wrote" if others else ""

    def _make(self, place: Path) -> None:
        try:
            place.mkdir()
        except FileExistsError:
            if not place.is_dir():
                raise
        else:
            self._made.append(place)

    def _has_checkpoints(self) -> bool:
        return (self.path / "checkpoints").exists()

    def _leave(self) -> None:
        """Gives the folder free; folders that were made and are empty go."""
        if self._lock is not None:
            self._lock.release()
        for place in reversed(self._made):
            with contextlib.suppress(OSError):
                place.rmdir()
