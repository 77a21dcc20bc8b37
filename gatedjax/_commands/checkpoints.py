"""`gatedjax checkpoints ls|verify|diff WORKDIR`: lists, verifies and compares checkpoints.

It takes no lock, writes no files and runs on the CPU, so that it can be used during a run.
"""

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro

from gatedjax._utils.cli import parse_command, program, status_of
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say, terminal_width
from gatedjax._utils.types import Tree
from gatedjax.analysis import render_table
from gatedjax.training.checkpoint import CheckpointDamaged, CheckpointStore, saved_settings
from gatedjax.training.identity import flatten


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ls:
    """Lists the step, the time, the size, the best metric and any damage of each checkpoint."""

    workdir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WORKDIR")]
    """The work folder of the run."""


class Verify(Ls):
    """Reads all arrays and compares their checksums. The exit status is 1 if any is damaged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diff(Ls):
    """Shows the arrays and settings in which two checkpoints differ."""

    other: Annotated[Unset[Path], tyro.conf.Positional, tyro.conf.arg(metavar="[OTHER]")] = None
    """The work folder of another run."""
    steps: Annotated[Unset[tuple[int, int]], tyro.conf.arg(metavar="A B")] = None
    """The steps of the checkpoints (default: the newest of each run, or the last two of one)."""
    part: Literal["state", "best"] = "state"
    """The part that is compared: the whole train state, or the best parameters."""


COMMANDS = {"ls": Ls, "verify": Verify, "diff": Diff}


def _open(workdir: Path) -> CheckpointStore:
    store = CheckpointStore(workdir / "checkpoints")
    if not store.directory.is_dir():
        hint = f" Did you mean {workdir.parent}?" if workdir.name == "checkpoints" else ""
        raise FileNotFoundError(
            f"{workdir} must be the work folder of a run, got a folder without checkpoints.{hint}"
        )
    return store


def _show(headers: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    say(render_table(headers, rows, width=terminal_width()), end="")


def _problems(store: CheckpointStore, step: int, error: Exception) -> list[str]:
    """Returns the damage of a checkpoint; [] if it is gone, because a run that goes on removes
    old checkpoints, and this is no damage.
    """
    if not store.folder(step).exists():
        return []
    return error.problems if isinstance(error, CheckpointDamaged) else [str(error)]


def _best(record: dict[str, Tree]) -> str:
    name = saved_settings(record).get("train", {}).get("best_metric")
    found = [
        f"{name} {run['best_metrics'][name]:.6g} (step {run['best_step']})"
        for run in record.get("runs", ())
        if name in run["best_metrics"]
    ]
    return ", ".join(found) or "-"


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _ls(store: CheckpointStore) -> int:
    """Prints a table of the checkpoints of a run; returns the exit status 0."""
    rows = []
    for step in store.steps():
        saved = size = best = "-"
        try:
            best = _best(store.record(step))
            files = [path.stat() for path in _files(store.folder(step))]
            newest = time.localtime(max(file.st_mtime for file in files))
            saved = time.strftime("%Y-%m-%d %H:%M:%S", newest)
            size = f"{sum(file.st_size for file in files):,}"
        except (CheckpointDamaged, FileNotFoundError) as error:
            if not (problems := _problems(store, step, error)):
                continue
            best = f"damaged: {problems[0]}"
        rows.append((step, saved, size, best))
    if rows:
        _show(("step", "saved", "bytes", "best"), rows)
    else:
        say(f"no checkpoints in {store.directory}")
    return 0


def _verify(store: CheckpointStore) -> int:
    """Reads all checkpoints; returns 1 if any is damaged, else 0."""
    rows: list[tuple[Any, ...]] = []
    damaged: list[str] = []
    for step in store.steps():
        try:
            sums = store.checksums(step)
            store.restore(step, **dict.fromkeys(sums))
            files, arrays = len(_files(store.folder(step))), sum(map(len, sums.values()))
            rows.append((step, files, arrays, "good"))
        except (CheckpointDamaged, FileNotFoundError) as error:
            if problems := _problems(store, step, error):
                rows.append((step, "-", "-", "damaged"))
                damaged += [f"checkpoint {step}: {problem}" for problem in problems]
    # A script must not take a folder without checkpoints for a run with good checkpoints.
    if not rows:
        say(f"no checkpoints in {store.directory}", file=sys.stderr)
        return 1
    _show(("step", "files", "arrays", "result"), rows)
    for line in damaged:
        say(line)
    return int(bool(damaged))


def _compare(a: np.ndarray | None, b: np.ndarray | None) -> tuple[str, str, str] | None:
    """Returns texts for both arrays and their greatest difference; None if the bits are equal."""
    first, second = ("nothing" if x is None else f"{x.dtype}{list(x.shape)}" for x in (a, b))
    if a is None or b is None or first != second:
        return first, second, "-"
    # Bytes are compared, because NaN is not equal to itself and 0 equals -0.
    if a.tobytes() == b.tobytes():
        return None
    # Differences of infinities are NaN and are counted below.
    with np.errstate(all="ignore"):
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64))
    unequal = int(np.isnan(distance).sum())
    greatest = f"{np.nanmax(distance):.6g}" if unequal < distance.size else "-"
    return first, second, f"{greatest} ({unequal} NaN)" if unequal else greatest


def _diff(stores: list[CheckpointStore], steps: Sequence[int] | None, part: Any) -> int:
    """Prints the arrays and settings in which two checkpoints differ; returns 0."""
    if steps is None:
        newest = [store.steps()[-2:] for store in stores]
        steps = newest[0] if len(stores) == 1 else [s for two in newest for s in two[-1:]]
        if len(steps) != 2:
            raise FileNotFoundError(
                f"there must be two checkpoints to compare, got the steps {list(steps)} in "
                + " and ".join(str(store.directory) for store in stores)
            )
    pairs = list(zip((stores[0], stores[-1]), steps, strict=True))
    for store, step in pairs:
        if step not in store.steps():
            raise FileNotFoundError(
                f"no checkpoint {step} in {store.directory}: it has {store.steps()}"
            )
    titles = [f"{store.directory.parent.name}/{step}" for store, step in pairs]
    old, new = (store.arrays(step, part) for store, step in pairs)
    names = sorted(old.keys() | new.keys())
    compared = ((name, _compare(old.get(name), new.get(name))) for name in names)
    rows = [(name, *difference) for name, difference in compared if difference is not None]
    if rows:
        _show(("array", *titles, "max abs difference"), rows)
    say(f"{len(names) - len(rows)} identical arrays, {len(rows)} differ")
    before, after = (flatten(saved_settings(store.record(step))) for store, step in pairs)
    changed = [
        (name, repr(before.get(name, "nothing")), repr(after.get(name, "nothing")))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if changed:
        _show(("setting", *titles), changed)
    else:
        say("identical settings")
    return 0


def _run(options: Ls | Verify | Diff) -> int:
    stores = [_open(options.workdir)]
    if isinstance(options, Diff):
        stores += [] if options.other is None else [_open(options.other)]
        return _diff(stores, options.steps, options.part)
    return (_verify if isinstance(options, Verify) else _ls)(*stores)


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status: 0, 1 (damaged checkpoints) or 2 (an error)."""
    about = "Lists, verifies and compares the checkpoints of a work folder."
    options: Ls | Verify | Diff = parse_command(COMMANDS, args, f"{program()} checkpoints", about)
    # Orbax starts a backend of JAX. It must not be the GPU, because the run may be using it.
    jax.config.update("jax_platforms", "cpu")
    return status_of(lambda: _run(options), CheckpointDamaged)
