"""Recognition and removal of the files that a run writes into its work folder."""

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from gatedjax._utils.write import remove_leftovers
from gatedjax.training.lock import LOCK, WorkdirLock

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
    "checkpoints": re.compile(r"\d+(\.(partial|removed|orbax-checkpoint-tmp).*)?"),
    "checkpoints-bad": re.compile(r"\d+(-\d+)?"),
    "profile": re.compile("plugins"),
    "tensorboard": re.compile(r"events\.out\.tfevents\..*"),
}
"""The folders in a work folder, and the names of the files that a run writes into each."""


def is_run(workdir: Path) -> bool:
    """Returns True if the folder `workdir` has a lock file of `fit` or of `gatedjax train`."""
    return any(os.path.lexists(workdir / name) for name in (LOCK, TRAIN_LOCK))


def foreign_files(workdir: Path) -> list[str]:
    """Returns the entries of a folder that has no lock file of a run; [] if it has one."""
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
            remove_leftovers(workdir / name)
            _unlink(workdir / name)
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
                path = path.rename(path.with_name(f"{path.name}.removed"))
            shutil.rmtree(path, ignore_errors=True)
        else:
            _unlink(path)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _unlink(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
