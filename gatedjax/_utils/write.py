"""Atomic writing: a file or folder gets a hidden name next to its target until it is complete.

Then it is renamed. A process that is killed leaves the hidden file or folder `.NAME.partial-...`
behind.
"""

import contextlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

# The most bytes of white space before the first character of a file, which an editor may add.
_SPACE = 64
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2, "/dev/fd/1": 1, "/dev/fd/2": 2}


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
    link leads to its file; a device, a pipe or standard output is written into.
    """
    target = _replaceable(path)
    if target is None:
        with naming(path), _open_stream(path) as stream:
            yield stream
        return
    partial = _beside(target, "partial")
    try:
        # Created by `open`, because files of `tempfile` are readable only by their owner.
        with naming(path), partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: bytes) -> None:
    """Writes the bytes `content` to a file, so that a reader sees the old or the new content."""
    with open_atomic(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Writes a text file like `write_atomic`, and creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder that replaces `target` and its files at the end of the block, by two
    renames. A kill between them leaves the old folder as `.NAME.old-...`.
    """
    partial, old = _beside(target, "partial"), _beside(target, "old")
    partial.mkdir()
    try:
        with naming(target):
            yield partial
        if target.exists():
            os.replace(target, old)
        os.replace(partial, target)
    finally:
        if old.exists() and not target.exists():
            os.replace(old, target)
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _replaceable(path: Path) -> Path | None:
    """Returns the file to replace, links resolved; None for a device, a pipe or an open stream."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} must be a file, got a folder")
    is_stream = str(path) in _STREAMS or (path.exists() and not path.is_file())
    return None if is_stream else Path(os.path.realpath(path))


def _open_stream(path: Path) -> BinaryIO:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # The descriptor is copied, because its position in a file is after the printed text. Without
    # O_CREAT a pipe that has disappeared is not created as a file.
    place = os.dup(_STREAMS[str(path)]) if str(path) in _STREAMS else path
    return open(place, "wb", opener=lambda name, _flags: os.open(name, os.O_WRONLY))


def _beside(target: Path, kind: str) -> Path:
    # Next to the target, because only within a file system can a file be renamed in a single step.
    return target.with_name(f".{target.name}.{kind}-{secrets.token_hex(8)}")


def list_partials(target: Path) -> list[Path]:
    """Returns the hidden files that killed processes left next to a file, and no other files."""
    return list(target.parent.glob(f".{target.name}.partial-{'[0-9a-f]' * 16}"))
