"""The folder where training stores its files until it ends."""

import contextlib
from pathlib import Path

from gatedjax.training._run_files import TRAIN_LOCK, foreign_files, remove_run
from gatedjax.training.lock import LOCK, WorkdirBusy, WorkdirLock


class WorkFolder:
    """A context manager that reserves a work folder for a training, from the reading of texts on. A
    folder that it created is removed if training fails before the first checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: list[Path] = []
        self._lock: WorkdirLock | None = None

    def __enter__(self) -> "WorkFolder":
        # The parents are created separately, so that a failed training removes exactly the folders
        # that it created.
        for place in reversed((self.path, *self.path.parents)):
            if not place.is_dir():
                self._make(place)
        try:
            if foreign := foreign_files(self.path):
                raise FileExistsError(
                    f"{self.path} holds {', '.join(foreign[:5])} and no lock of a run, so no run "
                    "wrote them: move them away, or use another workdir"
                )
            self._lock = WorkdirLock(self.path, TRAIN_LOCK)
            # Another training may have removed the folder before the lock was acquired.
            self._lock.check()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # After the first checkpoint the folder stays, so that the same command can continue.
        if error is not None and self.path in self._made and not self._has_checkpoints():
            self.remove()
        self._leave()

    def remove(self) -> str:
        """Removes the files of the run, and the folder if it is then empty; returns why it is not,
        or "".
        """
        try:
            foreign = remove_run(self.path, (LOCK,))
        except WorkdirBusy as error:  # Another program calls `fit` with the folder.
            return str(error)
        return f"it holds {', '.join(foreign[:5])}, which no run wrote" if foreign else ""

    def _make(self, place: Path) -> None:
        try:
            place.mkdir()
        except FileExistsError:
            if not place.is_dir():
                raise
        else:
            self._made.append(place)

    def _has_checkpoints(self) -> bool:
        # A save that failed, as on a full disk, leaves the folder of the checkpoints empty.
        return any(path.name.isdigit() for path in (self.path / "checkpoints").glob("*"))

    def _leave(self) -> None:
        if self._lock is not None:
            self._lock.release()
        for place in reversed(self._made):
            with contextlib.suppress(OSError):
                place.rmdir()
