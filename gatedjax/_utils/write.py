"""Atomic writing of files and folders, and writing into devices and pipes.

A process that is killed while it writes leaves a hidden file or folder next to its target. A
process that is alive has a lock on it, so that the next write to the same target can remove the
hidden files without a lock.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from gatedjax._utils.lost_signals import settle_signals

# Errors of systems and file systems that cannot exchange two names. EPERM comes from containers
# that refuse unknown system calls.
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
# The numbers of fcntl.h and of linux/fs.h, which Python does not have.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_PARTIAL, _OLD = "partial", "old"
# The most bytes of white space before the first character of a file, which an editor may add.
_SPACE = 64


def check_place(
    path: Path | None, *, inputs: Iterable[str | Path | None] = (), begins: bytes = b""
) -> None:
    """Raises OSError if a file cannot be written, before its content is computed: if its folder is
    missing, it is one of `inputs`, or it does not begin with `begins`, so that no such command
    wrote it.
    """
    if path is None:
        return
    target = _replaceable(path)
    for place in (path, target):
        if place is not None and not place.parent.is_dir():
            raise FileNotFoundError(
                f"{place.parent}: there is no such folder: create it for {place.name}"
            )
    if target is None or not target.is_file():
        return
    for name in inputs:
        if name is not None and os.path.exists(name) and os.path.samefile(target, name):
            raise FileExistsError(
                f"{path} must be another file than {name}, which the command reads: give the name "
                "of a new file"
            )
    with target.open("rb") as file:
        start = file.read(len(begins) + _SPACE).lstrip().lower()
    if start and not start.startswith(begins):
        raise FileExistsError(
            f"{path} exists, and is no file that this command wrote: move it away, or give the "
            "name of a new file"
        )


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the name `path` of a file or folder to an OSError of the block that has no name.

    The system gives no name for reading and writing, for example on a full disk.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that is replaced at the end of the block; after an error the old file stays. A
    link leads to its file; into a device, a pipe or the file of standard output it is written.
    """
    target = _replaceable(path)
    if target is None:
        with naming(path), _open_existing(path) as stream:
            yield stream
        return
    remove_leftovers(target)
    partial, descriptor = _new(target, _new_file)
    try:
        with naming(path), open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
            settle_signals()
            # The file is renamed before it is closed, because closing it releases the lock.
            os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: bytes) -> None:
    """Writes the bytes `content` to a file, so that a reader sees the old or the new content."""
    with open_atomic(path) as file:
        file.write(content)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder that replaces `target` and its files at the end of the block. Without
    an exchange in one step the old folder is moved away first; after a kill `recover` restores it.
    """
    recover(target)
    partial, descriptor = _new(target, _open_new_folder)
    try:
        with naming(target):
            yield partial
            settle_signals()
            _put(partial, target)
    except BaseException:
        _remove(partial)
        raise
    finally:
        os.close(descriptor)


def recover(target: Path) -> None:
    """Restores a folder that a killed process had moved away, and removes leftover files."""
    for place in _leftovers(target, _OLD):
        with _unless_in_use(place) as is_free:
            if is_free and not target.exists():
                with contextlib.suppress(OSError):
                    os.replace(place, target)
    remove_leftovers(target)


def remove_leftovers(target: Path) -> None:
    """Removes the hidden files and folders that killed processes left next to a target."""
    for place in (*_leftovers(target, _PARTIAL), *_leftovers(target, _OLD)):
        with _unless_in_use(place) as is_free:
            if is_free:
                _remove(place)


def _replaceable(path: Path) -> Path | None:
    """Returns the file to replace, links resolved; None for a device, a pipe or an open stream."""
    target = Path(os.path.realpath(path))
    try:
        status = path.stat()
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f"{path} must be a file, got a folder")
    if not stat.S_ISREG(status.st_mode) or _standard_stream(status) is not None:
        return None
    # A removed file that is still open can be reached only through /proc, not by its name.
    return target if target.exists() and os.path.samestat(target.stat(), status) else None


def _standard_stream(status: os.stat_result) -> int | None:
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), status):
                return descriptor
    return None


def _open_existing(path: Path) -> BinaryIO:
    """Opens a device, a pipe, or the file of standard output or error, to write bytes into it."""
    descriptor = _standard_stream(path.stat())
    if descriptor is None:
        return open(path, "wb", opener=lambda name, _: os.open(name, os.O_WRONLY))
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # The descriptor is copied, because its position in the file is after the printed text.
    return open(os.dup(descriptor), "wb")


def _new(target: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    while True:
        place = _beside(target, _PARTIAL)
        descriptor = make(place)
        _lock(descriptor, wait=True)
        if _leads_to(place, descriptor):
            return place, descriptor
        os.close(descriptor)  # another process removed it as a leftover before it was locked


def _beside(target: Path, kind: str) -> Path:
    # Next to the target, because only within a file system can a file be renamed in a single step.
    return target.with_name(f".{target.name}.{kind}-{secrets.token_hex(8)}")


def _leftovers(target: Path, kind: str) -> list[Path]:
    name = re.compile(rf"\.{re.escape(target.name)}\.{kind}-[0-9a-f]{{16}}")
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        return [Path(entry.path) for entry in entries if name.fullmatch(entry.name)]
    return []


def _new_file(place: Path) -> int:
    # The umask decides who may read it. Files of `tempfile` are readable only by their owner.
    return os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def _open_new_folder(place: Path) -> int:
    place.mkdir()
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _lock(descriptor: int, *, wait: bool = False) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _leads_to(place: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(place.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _unless_in_use(place: Path) -> Iterator[bool]:
    """Yields True if no process writes the hidden file or folder `place`, else False."""
    try:
        # O_NONBLOCK is set, because a pipe of this name would block until it has a writer.
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        yield _lock(descriptor) and _leads_to(place, descriptor)
    finally:
        os.close(descriptor)


def _remove(place: Path) -> None:
    with contextlib.suppress(OSError):
        if place.is_dir() and not place.is_symlink():
            for file in place.iterdir():
                file.unlink()
            place.rmdir()
        else:
            place.unlink()


def _put(partial: Path, target: Path) -> None:
    """Renames the folder `partial` to `target`, and removes the old folder of that name."""
    if not target.exists():
        os.replace(partial, target)
        return
    try:
        _exchange(partial, target)
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        _put_in_turns(partial, target)
    else:
        _remove(partial)


def _exchange(first: Path, second: Path) -> None:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = (os.fsencode(first), os.fsencode(second))
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first), None, str(second))


def _put_in_turns(partial: Path, target: Path) -> None:
    """Moves the old folder `target` away, then renames the folder `partial` to `target`."""
    old = _beside(target, _OLD)
    # The lock stays on the folder when it is renamed.
    descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, wait=True)
        try:
            os.replace(target, old)
            os.replace(partial, target)
        except BaseException:
            if old.exists() and not target.exists():
                os.replace(old, target)
            raise
        _remove(old)
    finally:
        os.close(descriptor)
