"""A lock on a workdir, because two runs in it would mix their checkpoints and metrics."""

import contextlib
import errno
import fcntl
import json
import os
import socket
import warnings
import weakref
from pathlib import Path

from gatedjax._utils.json import to_json

LOCK = ".lock"
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

    def release(self) -> None:
        """Releases the lock; a second call has no effect."""
        if self._file is not None:
            # The file stays, because another run may have opened it just before.
            os.ftruncate(self._file, 0)
            self._drop()

    def _drop(self) -> None:
        if self._file is not None:
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
        lock._drop()


os.register_at_fork(after_in_child=_drop_in_child)
