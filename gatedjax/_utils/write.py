"""Writes files and folders whole or not at all, and writes into devices and pipes.

A process that is killed while it writes leaves a hidden file or folder beside its target. A living
process holds a lock on it, so that the next write to the same target can remove the others.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

# Errors of a system or a file system that cannot exchange two names; EPERM is that of a container
# which refuses system calls that it does not know.
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_PARTIAL, _OLD = "partial", "old"


def check_place(path: Path | None) -> None:
    """Refuses a file that could not be written, before the work whose result it is to hold.

    Args:
      path: the file; None, for which nothing is written, is passed.

    Raises:
      FileNotFoundError: if its folder, or that of the file that a link leads to, is not there.
      IsADirectoryError: if the path is a folder.
    """
    if path is None:
        return
    target = _replaceable(path)
    for place in (path, target):
        if place is not None and not place.parent.is_dir():
            raise FileNotFoundError(f"no folder {place.parent} for {place.name}")


@contextlib.contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that is replaced when the block ends; an error leaves the old one.

    A link stays, and the file that it leads to is replaced. A device, a pipe and the file that
    standard output or standard error goes to are not replaced: they are written into.

    Args:
      path: the file; it and its folder are those of `check_place`.
    """
    target = _replaceable(path)
    if target is None:
        with _open_existing(path) as stream:
            yield stream
        return
    remove_leftovers(target)
    partial, descriptor = _new(target, _new_file)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
            # before the file is closed, because closing it releases the lock
            os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: bytes) -> None:
    """Writes a file in one step, as `open_atomic` does."""
    with open_atomic(path) as file:
        file.write(content)


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder that takes the place of `target` when the block ends.

    The two folders are exchanged in one step where the system can. Elsewhere the old folder is
    moved away first; if the process is killed before the new folder is in place, `recover` brings
    the old folder back.

    Args:
      target: the folder, not a link. If it exists, its files are removed at the end; the caller
        must have made sure that nobody needs them.
    """
    recover(target)
    partial, descriptor = _new(target, _open_new_folder)
    try:
        yield partial
        _put(partial, target)
    except BaseException:
        _remove(partial)
        raise
    finally:
        os.close(descriptor)


def recover(target: Path) -> None:
    """Brings a folder back that a killed process had moved away, and removes what it left.

    Args:
      target: see `new_folder`.
    """
    for place in _leftovers(target, _OLD):
        with _unless_in_use(place) as is_free:
            if is_free and not target.exists():
                with contextlib.suppress(OSError):
                    os.replace(place, target)
    remove_leftovers(target)


def remove_leftovers(target: Path) -> None:
    """Removes what killed processes left beside a file or folder that they were writing."""
    for place in (*_leftovers(target, _PARTIAL), *_leftovers(target, _OLD)):
        with _unless_in_use(place) as is_free:
            if is_free:
                _remove(place)


def _replaceable(path: Path) -> Path | None:
    """Returns the path, behind all links, of the file to replace; None where there is none.

    Raises:
      IsADirectoryError: if the path is a folder.
    """
    target = Path(os.path.realpath(path))
    try:
        status = path.stat()
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f"{path} is a folder, a file is wanted")
    if not stat.S_ISREG(status.st_mode) or _standard_stream(status) is not None:
        return None
    # a removed file that a process still has open can be reached through /proc alone
    return target if target.exists() and os.path.samestat(target.stat(), status) else None


def _standard_stream(status: os.stat_result) -> int | None:
    """Returns the descriptor of standard output or standard error, if the file is one of them."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), status):
                return descriptor
    return None


def _open_existing(path: Path) -> BinaryIO:
    descriptor = _standard_stream(path.stat())
    if descriptor is None:
        return open(path, "wb", opener=lambda name, _: os.open(name, os.O_WRONLY))
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # a copy of the descriptor, because its position in the file is that of what was printed
    return open(os.dup(descriptor), "wb")


def _new(target: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Makes a hidden file or folder beside `target`, and returns it with its locked descriptor."""
    while True:
        place = _beside(target, _PARTIAL)
        descriptor = make(place)
        _lock(descriptor, wait=True)
        if _leads_to(place, descriptor):
            return place, descriptor
        os.close(descriptor)  # it was taken for a leftover before it was locked


def _beside(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{kind}-{secrets.token_hex(8)}")


def _leftovers(target: Path, kind: str) -> list[Path]:
    name = re.compile(rf"\.{re.escape(target.name)}\.{kind}-[0-9a-f]{{16}}")
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        return [Path(entry.path) for entry in entries if name.fullmatch(entry.name)]
    return []


def _new_file(place: Path) -> int:
    # the umask decides who may read it; files of `tempfile` are for their owner alone
    return os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def _open_new_folder(place: Path) -> int:
    place.mkdir()
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _lock(descriptor: int, *, wait: bool = False) -> bool:
    """Locks an open file or folder; False if another process holds it, or there are no locks."""
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
    """Yields whether nobody writes a hidden file or folder, which is locked during the block."""
    try:
        # O_NONBLOCK because a pipe of this name would wait for somebody who writes into it
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        yield _lock(descriptor) and _leads_to(place, descriptor)
    finally:
        os.close(descriptor)


def _remove(place: Path) -> None:
    """Removes a file, or a folder with its files; a folder with folders in it is left."""
    with contextlib.suppress(OSError):
        if place.is_dir() and not place.is_symlink():
            for file in place.iterdir():
                file.unlink()
            place.rmdir()
        else:
            place.unlink()


def _put(partial: Path, target: Path) -> None:
    """Gives a folder the name of another one, which is removed."""
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


def _exchange(one: Path, other: Path) -> None:
    """Exchanges two names in one step, as renameat2 of Linux does."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = (os.fsencode(one), os.fsencode(other))
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def _put_in_turns(partial: Path, target: Path) -> None:
    old = _beside(target, _OLD)
    # the lock stays with the folder when its name changes
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
