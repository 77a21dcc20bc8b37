"""The files of a run: the lock, metrics.jsonl, and the names by which a run is recognised."""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from gatedjax._utils.json import to_json
from gatedjax._utils.write import list_partials, naming, write_text

LOCK = ".lock"
TRAIN_LOCK = ".train.lock"
"""Name of the lock of `gatedjax train`, which writes into the folder before and after `fit`."""
_OF_FIT = ("config.json", "environment.json", "metrics.jsonl")
_FILES = (
    *_OF_FIT,
    *("results.json", "seconds", "seconds.json"),
    *("vocabulary.json", "characters.json", "classes.json", "bpe.json"),
)
_TEXTS = re.compile(r"(train|validation|test)-(\d+|words|tags)\.ids")
_FOLDERS = {
    "checkpoints": re.compile(r"removed|\d+(\.orbax-checkpoint-tmp.*)?"),
    "checkpoints-bad": re.compile(r"\d+(-\d+)?"),
}
"""The folders in a work folder, and the names of the files that a run writes into each."""
_HELD: "weakref.WeakSet[WorkdirLock]" = weakref.WeakSet()


class WorkdirBusy(RuntimeError):
    """Raised if another run is writing into the workdir."""


class WorkdirLost(RuntimeError):
    """Raised if the workdir was removed, moved or replaced during the run."""


class WorkdirLock:
    """A lock on a workdir (flock of `.lock`), which the system releases when the process ends."""

    def __init__(self, workdir: str | Path, name: str = LOCK) -> None:
        self.path = Path(workdir).absolute() / name
        # A link in the place of the lock file is refused, because its target would be emptied
        # below.
        self._file: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        self._opened = _inode(os.fstat(self._file))
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 1000, 0)
            os.close(self._file)
            self._file = None
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                warnings.warn(
                    f"{self.path.parent} is on a file system without locks ({error.strerror}); "
                    "a second run in it is not prevented: start none there until this run ends",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise WorkdirBusy(
                f"{self.path.parent} is being written by another run ({_describe_holder(holder)}). "
                "Wait for it, stop it, or use another workdir."
            ) from None
        os.ftruncate(self._file, 0)
        holder = to_json({"pid": os.getpid(), "host": socket.gethostname()}).encode() + b"\n"
        # The content serves only the message to a second run. The lock itself is the flock, which
        # the system releases even after SIGKILL. A full disk must not prevent that the files of a
        # run are removed, for which they are locked too.
        with contextlib.suppress(OSError):
            os.pwrite(self._file, holder, 0)
        _HELD.add(self)

    def check(self) -> None:
        """Raises WorkdirLost if the path leads to another folder now; call before writing to it."""
        try:
            # The path is looked up again, because the open descriptor still works after the folder
            # was moved or removed.
            inode = _inode(os.stat(self.path, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            inode = None
        if inode != self._opened:
            fate = "is gone" if inode is None else "is another folder now"
            raise WorkdirLost(
                f"{self.path.parent} {fate}: it was removed, moved or replaced while this run was "
                "writing into it. Stopped; nothing more is saved there."
            )

    def release(self, *, empties: bool = True) -> None:
        """Releases the lock; a second call has no effect."""
        if self._file is not None:
            # The file stays, because another run may have opened it just before.
            if empties:
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None


def _inode(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def _describe_holder(holder: bytes) -> str:
    try:
        content = json.loads(holder)
        return f"process {int(content['pid'])} on {str(content['host'])!r}"
    except (ValueError, KeyError, TypeError):
        return "its name is not written yet"  # it has opened the file and not yet written to it


def _drop_in_child() -> None:
    # A forked worker shares the lock, and would keep the lock after the run was killed.
    for lock in list(_HELD):
        lock.release(empties=False)


os.register_at_fork(after_in_child=_drop_in_child)


class MetricsLog:
    """The file metrics.jsonl; `begin`, not the constructor, is the first to change it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: list[tuple[int, str]] | None = None
        self._file: TextIO | None = None
        if not path.exists():
            return
        self._found = []
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            text = line.decode("utf-8", errors="replace")
            try:
                record = json.loads(text)
            except (ValueError, RecursionError):
                continue  # it is the incomplete last line of a killed run
            step = record.get("step") if isinstance(record, dict) else None
            if type(step) is not int:
                raise ValueError(
                    f"{path}, line {number}: a line must be an object with an integer 'step', got "
                    f"{text[:80]!r}: correct or remove the line. The file was not changed"
                )
            self._found.append((step, text))

    def begin(self, restored_step: int | None) -> None:
        """Opens the file, without its lines after the restored step, or empty for None."""
        if restored_step is not None and self._found is None:
            warnings.warn(
                f"{self.path} is gone: the metrics up to step {restored_step} are lost, and a new "
                "file goes on after it",
                RuntimeWarning,
                stacklevel=2,
            )
        # Lines after the restored step are dropped, because the run writes them again. The file is
        # replaced as a whole, so that a crash leaves the old lines or the new ones.
        last = -1 if restored_step is None else restored_step
        lines = [f"{line}\n" for step, line in self._found or () if step <= last]
        write_text(self.path, "".join(lines))
        self._found = None  # a long run has many lines
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, line: dict[str, Any]) -> None:
        """Appends a line; NaN and infinities become null."""
        if self._file is not None:
            with naming(self.path):
                self._file.write(to_json(line) + "\n")
                self._file.flush()

    def sync(self) -> None:
        """Makes the lines survive a power cut, because the next checkpoint relies on them."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            # After an error of `write` the line is still in the buffer, and closing writes it.
            with naming(self.path):
                self._file.close()


def is_run(workdir: Path) -> bool:
    """Returns True if the folder `workdir` has a lock file of `fit` or of `gatedjax train`."""
    return any(os.path.lexists(workdir / name) for name in (LOCK, TRAIN_LOCK))


def foreign_files(workdir: Path) -> list[str]:
    """Returns the entries of a folder that has no lock file of a run; [] if it has a lock file."""
    return [] if not workdir.is_dir() or is_run(workdir) else sorted(os.listdir(workdir))


def check_workdir(workdir: Path, names: Sequence[str] = _OF_FIT) -> None:
    """Raises FileExistsError if a run in this folder would overwrite files that no run wrote."""
    if is_run(workdir) or (workdir / "checkpoints").is_dir():
        return
    if foreign := [name for name in names if os.path.lexists(workdir / name)]:
        raise FileExistsError(
            f"{workdir} holds {', '.join(foreign)} and no lock of a run, so no run wrote them: "
            "move them away, or use another workdir"
        )


def mark_run(workdir: Path) -> None:
    """Marks the folder `workdir` as that of a run before `fit` locks it: creates the lock file."""
    check_workdir(workdir, _FILES)
    (workdir / LOCK).touch()


def remove_run(workdir: Path, locks: tuple[str, ...] = (LOCK, TRAIN_LOCK)) -> list[str]:
    """Removes the files of a run, and its folder if empty; returns the names of other files."""
    if not workdir.is_dir():
        return []
    if foreign := foreign_files(workdir):
        raise FileExistsError(
            f"{workdir} holds {', '.join(foreign[:5])} and no lock of a run, so it is not "
            "removed: move it away"
        )
    # All locks are acquired before the first file is removed, so that a busy folder stays whole.
    with contextlib.ExitStack() as stack:
        for name in locks:
            stack.callback(WorkdirLock(workdir, name).release)
        for name in _FILES:
            for path in (workdir / name, *list_partials(workdir / name)):
                _unlink(path)
        for path in list(workdir.iterdir()):
            if _TEXTS.fullmatch(path.name):
                _unlink(path)
        # Only names that a run writes are removed, so that files of the user in these folders stay.
        for name, inside in _FOLDERS.items():
            _remove_contents(workdir / name, inside)
        # The locks are removed last, because they mark files that are left over if this is killed.
        for name in (LOCK, TRAIN_LOCK):
            _unlink(workdir / name)
    with contextlib.suppress(OSError):
        workdir.rmdir()
    return sorted(os.listdir(workdir)) if workdir.is_dir() else []


def _remove_contents(folder: Path, inside: re.Pattern[str]) -> None:
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in list(folder.iterdir()):
        if not inside.fullmatch(path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            if path.name.isdigit():  # half removed, it would count as damaged
                path = path.rename(path.with_name(f"{path.name}.orbax-checkpoint-tmp"))
            shutil.rmtree(path, ignore_errors=True)
        else:
            _unlink(path)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _unlink(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
