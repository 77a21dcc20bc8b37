"""The manifest of a checkpoint, with the sizes and hashes of its files and arrays.

A checkpoint may come from an untrusted source. The functions here therefore follow no links, and
open only files that a walk through the folder has found.
"""

import hashlib
import json
import math
import os
import re
import time
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from gatedjax._utils.terminal import printable
from gatedjax.training.identity import describe

NAME = "manifest.json"
_FORMAT = 1
_LARGEST = 256 << 20
# The arrays in a folder may have ROOM + PACKED * (bytes of its files) bytes. The limit is needed,
# because Orbax packs arrays, and 100 KB of packed zeros may unpack to gigabytes. Trained parameters
# shrink by a few per cent.
ROOM = 64 << 20
PACKED = 100
# No code here unpickles, but a pickle in a checkpoint is a sign of an attack and is reported.
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".dill")


class CheckpointDamaged(ValueError):
    """Raised if the files of a checkpoint changed after it was saved, or are incomplete.

    Attributes:
      problems: a list of texts, each of which names a file or array and its fault.
    """

    def __init__(self, folder: Path, problems: list[str]) -> None:
        # The names of files and arrays come from a file and may have control characters.
        self.problems = problems = [printable(problem) for problem in problems]
        suffix = f" (and {len(problems) - 4} more)" if len(problems) > 4 else ""
        super().__init__(
            f"checkpoint {folder.name} is damaged: {'; '.join(problems[:4])}{suffix}; in {folder}"
        )


def leaf_hash(array: np.ndarray) -> str:
    """Returns the SHA-256 of dtype, shape and bytes of an array as 64 hex digits."""
    digest = hashlib.sha256(f"{describe(array)}\n".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _file_hash(path: Path, *, durable: bool = False) -> str:
    with path.open("rb") as file:
        if durable:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Syncs a folder to disk, so that the names in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(folder: Path) -> tuple[dict[str, int], list[str], list[Path]]:
    """Returns the size of each file by path, a line per link or other entry, and the folders."""
    sizes, problems, folders = {}, [], [folder]
    if folder.is_symlink():
        return {}, ["the folder is a link"], []
    # The loop appends to the list that it reads, so that it visits all levels without recursion.
    for current in folders:
        with os.scandir(current) as entries:
            for entry in entries:
                name = Path(entry.path).relative_to(folder).as_posix()
                if entry.is_symlink():
                    problems.append(f"{name} is a link")
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    sizes[name] = entry.stat(follow_symlinks=False).st_size
                else:
                    problems.append(f"{name} is not a plain file")
    return sizes, problems, folders


def _render(content: dict[str, Any]) -> bytes:
    body = {name: value for name, value in content.items() if name != "digest"}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps(body | {"digest": digest}, indent=1, sort_keys=True) + "\n").encode()


def write(folder: Path, step: int, leaves: dict[str, dict[str, np.ndarray]]) -> None:
    """Hashes and syncs the files of a complete step, and writes the manifest into its folder."""
    sizes, problems, folders = _walk(folder)
    if problems:
        raise OSError(f"the manifest of {folder} cannot be written: {'; '.join(problems)}")
    content = {
        "format": _FORMAT,
        "step": step,
        "time": round(time.time(), 3),
        "files": {
            name: {"size": size, "sha256": _file_hash(folder / name, durable=True)}
            for name, size in sizes.items()
        },
        "leaves": {
            item: {name: [describe(x), leaf_hash(x)] for name, x in arrays.items()}
            for item, arrays in leaves.items()
        },
    }
    # All files and names must be on disk before the manifest, because the manifest vouches for
    # them.
    for subfolder in reversed(folders):
        sync_folder(subfolder)
    partial = folder / f"{NAME}.partial"
    with partial.open("wb") as file:
        file.write(_render(content))
        file.flush()
        os.fsync(file.fileno())
    # After a crash the manifest is either missing or complete, because a rename is atomic.
    os.replace(partial, folder / NAME)
    sync_folder(folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a step; raises CheckpointDamaged if its digest or form is wrong."""
    path = folder / NAME
    if folder.is_symlink():
        raise CheckpointDamaged(folder, ["the folder is a link"])
    if path.is_symlink() or not path.is_file():
        raise CheckpointDamaged(folder, [f"{NAME} is missing"])
    if path.stat().st_size > _LARGEST:
        raise CheckpointDamaged(folder, [f"{NAME} has more than {_LARGEST} bytes"])
    raw = path.read_bytes()
    try:
        content = json.loads(raw)
        # The bytes are compared, because JSON would ignore some changes, such as a second entry
        # with the same name.
        is_intact = isinstance(content, dict) and _render(content) == raw
    except (ValueError, RecursionError):
        is_intact = False
    if not is_intact:
        raise CheckpointDamaged(folder, [f"{NAME} is not as it was written"])
    problems = _find_faults(content, folder)
    if problems:
        raise CheckpointDamaged(folder, problems)
    return content


def _find_faults(content: dict[str, Any], folder: Path) -> list[str]:
    """Returns a list with a line for each fault in the form of a manifest with a correct digest."""
    if content.get("format") != _FORMAT:
        return [f"{NAME} has format {content.get('format')!r}, wanted {_FORMAT}"]
    if folder.name.isdecimal() and content.get("step") != int(folder.name):
        return [f"{NAME} is that of step {content.get('step')!r}"]
    files, leaves = content.get("files"), content.get("leaves")
    if not isinstance(files, dict) or not isinstance(leaves, dict):
        return [f"{NAME} lists no files or no arrays"]
    problems = []
    for name, entry in files.items():
        path = PurePosixPath(name)
        plain = name == path.as_posix() and not path.is_absolute() and ".." not in path.parts
        if not plain or name in (".", NAME) or "\\" in name or "\0" in name:
            problems.append(f"{NAME} lists {name!r}, which is not a file inside the checkpoint")
        elif path.suffix.lower() in _PICKLES:
            problems.append(f"{name} is a pickle, which no checkpoint of gatedjax has")
        elif not isinstance(entry, dict) or (
            type(entry.get("size")),
            type(entry.get("sha256")),
        ) != (
            int,
            str,
        ):
            problems.append(f"{NAME} has no size and hash for {name!r}")
    for item, arrays in leaves.items():
        if not isinstance(arrays, dict) or not all(
            isinstance(v, list) and len(v) == 2 and all(isinstance(x, str) for x in v)
            for v in arrays.values()
        ):
            problems.append(f"{NAME} has no shapes and hashes for the arrays of {item!r}")
    return problems


def empty_array(entry: str) -> np.ndarray | None:
    """Returns an array of size 0 for its description `entry`, such as "float32[0, 3]"."""
    dtype, _, shape = entry.partition("[")
    if not re.fullmatch(r"(\d{1,9}, ){0,63}\d{1,9}\]", shape):
        return None
    sizes = [int(size) for size in re.findall(r"\d+", shape)]
    try:
        return None if all(sizes) else np.zeros(sizes, dtype)
    except (TypeError, ValueError):
        return None  # a later comparison of the shapes refuses such an entry


def _count_bytes(entry: str) -> int:
    dtype, _, shape = entry.partition("[")
    if not re.fullmatch(r"(\d{1,18}(, \d{1,18}){0,63})?\]", shape):
        return 0  # a later comparison of the shapes refuses such an entry
    try:
        return math.prod(map(int, re.findall(r"\d+", shape))) * np.dtype(dtype).itemsize
    except TypeError:
        return 0


def find_excess(content: dict[str, Any]) -> str | None:
    """Returns a message if the arrays in a manifest are too large for its files; else None. The
    limit is `ROOM` + `PACKED` times the bytes of the files.
    """
    arrays = [entry for entries in content["leaves"].values() for entry in entries.values()]
    declared = sum(_count_bytes(entry[0]) for entry in arrays)
    file_bytes = sum(entry["size"] for entry in content["files"].values())
    if declared <= ROOM + PACKED * file_bytes:
        return None
    return (
        f"its files of {file_bytes:,} bytes declare arrays of {declared:,} bytes, "
        f"more than {ROOM:,} and {PACKED} to one"
    )


def is_complete(folder: Path) -> bool:
    """Returns True if the folder of a step has a good manifest and files with the sizes in it."""
    try:
        return not _sizes(folder, read_manifest(folder)["files"])
    except (CheckpointDamaged, FileNotFoundError):
        return False


def _sizes(folder: Path, files: dict[str, Any]) -> list[str]:
    """Returns a line for each file that is missing, extra or of another size than in `files`."""
    sizes, problems, _ = _walk(folder)
    sizes.pop(NAME, None)
    problems += [f"{name} is missing" for name in sorted(files.keys() - sizes.keys())]
    problems += [f"{name} is not in {NAME}" for name in sorted(sizes.keys() - files.keys())]
    problems += [
        f"{name} has {sizes[name]} bytes, saved were {files[name]['size']}"
        for name in sorted(files.keys() & sizes.keys())
        if sizes[name] != files[name]["size"]
    ]
    return problems


def verify(folder: Path, below: str = "") -> dict[str, Any]:
    """Returns the manifest of a step after checking the hashes of its files, or only `below` a
    folder.
    """
    manifest = read_manifest(folder)
    problems = _sizes(folder, manifest["files"])
    # The cheap checks come first: a file of another size need not be hashed.
    if not problems and (fault := find_excess(manifest)):
        problems = [fault]
    if not problems:
        problems = [
            f"{name} has other bytes than were saved"
            for name, entry in sorted(manifest["files"].items())
            if name.startswith(below) and _file_hash(folder / name) != entry["sha256"]
        ]
    if problems:
        raise CheckpointDamaged(folder, problems)
    return manifest
