"""`gatedjax verify-resume -- COMMAND`: proves that a killed run continues with the same bits."""

import dataclasses
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro

from gatedjax._utils.cli import parse, program, status_of
from gatedjax._utils.fields import at_least
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say
from gatedjax.training.checkpoint import CheckpointStore

LONGEST_SAVE_S = 0.2  # between the start of a save and a kill during it


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Proves that a killed run continues with the same bits.

    It runs COMMAND once without interruption. Then it runs COMMAND again, kills it with SIGKILL at
    random moments, half of them during a save, and restarts it after each kill. At the end it
    compares the checksums of all arrays of the last checkpoint, its record with the position in the
    data, and metrics.jsonl. COMMAND must train with gatedjax.training.fit and accept --workdir,
    which is added to it.

    For example:
    $ gatedjax verify-resume --kills 2 -- python train.py
    """

    kills: Annotated[int, at_least(1)] = 4
    """The number of kills."""
    seed: int = 0
    """The seed of the moments of the kills."""
    keep: Unset[Path] = None
    """A new folder for the work folders and logs (default: they are removed)."""
    command: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="-- COMMAND ...", help_behavior_hint="(required)"),
    ]
    """The command that trains, after --."""


def kill_points(
    last: int, every: int, count: int, seed: int, interval: float
) -> list[tuple[str, int, float]]:
    """Returns ascending moments: ("save" | "after", STEP, SECONDS), which is the number of seconds
    since the save of a step began, or since it was complete (at most `interval`).
    """
    choose = random.Random(seed)
    # The last step is always saved, and after it there is nothing to kill.
    saves = sorted({*range(every, last + 1, every), last})
    during = choose.sample(saves, min(count // 2, len(saves)))
    after = choose.sample([0, *saves[:-1]], min(count - len(during), len(saves)))
    points = [("after", step, choose.uniform(0, interval)) for step in after]
    # A kill during a save is the hardest case, because it leaves an incomplete checkpoint.
    points += [("save", step, choose.uniform(0, LONGEST_SAVE_S)) for step in during]
    return sorted(points, key=lambda point: (point[1], point[0]))


def _has_come(folder: Path, kind: str, step: int) -> bool:
    """Returns True if the save of a step has begun, or for "after" if it is complete."""
    if not step:
        return (folder / "metrics.jsonl").exists()
    try:
        names = os.listdir(folder / "checkpoints")
    except FileNotFoundError:
        return False
    if kind == "save":
        names = [name.split(".")[0] for name in names]
    # A step may be gone when a newer one is complete.
    return any(name.isdecimal() and int(name) >= step for name in names)


def _run(name: str, command: list[str], folder: Path, log: Path, point: Any = None) -> int:
    """Runs a command, its output in `log`, and kills it at a moment; returns its exit status."""
    with log.open("ab") as file:
        process = subprocess.Popen([*command, "--workdir", str(folder)], stdout=file, stderr=file)
        while point is not None and process.poll() is None:
            if _has_come(folder, *point[:2]):
                time.sleep(point[2])
                # SIGKILL cannot be caught, so that the process dies without cleaning up, as in a
                # power cut.
                process.kill()
                break
            time.sleep(0.001)
        status = process.wait()
    if status in (0, -signal.SIGKILL):
        return status
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    raise ValueError("\n  ".join([f"{name}: it must end with status 0, got {status}:", *tail]))


def _differences(first: Any, second: Any) -> list[str]:
    """Returns the paths, such as "history.0.loss", at which two JSON values differ."""
    old, new = (
        # As texts, because NaN is not equal to itself. What is empty is a value, too.
        {
            jax.tree_util.keystr(path, simple=True, separator="."): repr(value)
            for path, value in jax.tree.leaves_with_path(tree, lambda x: x in (None, [], {}))
        }
        for tree in (first, second)
    )
    return [name for name in old | new if old.get(name) != new.get(name)]


# Fields of metrics.jsonl that differ from run to run, because they are times and speeds.
_CLOCK = ("time", "steps_per_s", "tokens_per_s", "compile_s", "padding")


def _outcome(folder: Path) -> dict[str, Any]:
    """Returns the outcome of a run: checksums and record of its last checkpoint, and its log."""
    store = CheckpointStore(folder / "checkpoints")
    step = store.latest()
    if step is None:
        raise ValueError(
            "COMMAND must finish one training run of gatedjax.training.fit in the folder of "
            "--workdir, got a run without a checkpoint"
        )
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [{k: v for k, v in json.loads(x).items() if k not in _CLOCK} for x in lines]
    record = store.record(step)
    progress = {name: record[name] for name in ("step", "runs", "data")}
    return {"steps": store.steps(), **store.checksums(step), "record": progress, "metrics": metrics}


def _verify(command: list[str], kills: int, seed: int, folder: Path) -> int:
    """Runs a command without and with kills; returns 1 if bits differ, else 0."""
    began = time.monotonic()
    if _run("the unbroken run", command, folder / "unbroken", folder / "unbroken.log"):
        raise ValueError("the unbroken run must not be killed, got SIGKILL")
    unbroken, seconds = _outcome(folder / "unbroken"), time.monotonic() - began
    last = unbroken["record"]["step"]
    say(f"unbroken: {last} steps, {seconds:.1f} s")

    config = json.loads((folder / "unbroken" / "config.json").read_text(encoding="utf-8"))
    every = config["train"]["checkpoint_every"]
    # Compilation takes the greater part of a short run.
    interval = seconds / 2 * every / max(last, every)
    log, work = folder / "killed.log", folder / "killed"
    killed = continued = 0
    for point in [*kill_points(last, every, kills, seed, interval), None]:
        continued += CheckpointStore(work / "checkpoints").latest() is not None
        name = "{} {} + {:.3f} s".format(*point) if point else "the last start"
        status = _run(name, command, work, log, point)
        killed += bool(status)
        say(f"{name}: {'killed' if status else 'ended'}")
        if not status:  # it cannot be killed at a later moment
            break
    say(f"{killed} kills, {continued} of the starts continued from a checkpoint")
    if not killed or not continued:
        raise ValueError(
            "a start must continue from a checkpoint, got none, so that the test proves nothing: "
            f"lower checkpoint_every (now {every}), or train longer than {last} steps"
        )

    wrong, resumed = 0, _outcome(work)
    for name, expected in unbroken.items():
        differing = _differences(expected, resumed[name])
        wrong += len(differing)
        say(f"{name}: {'equal' if not differing else 'DIFFERENT: '}{', '.join(differing[:5])}")
    say("bit-equal" if not wrong else f"NOT equal: {wrong} differences")
    return int(bool(wrong))


def _start(options: VerifyOptions) -> int:
    command = list(options.command)
    if not command:
        raise ValueError("COMMAND must be given, after --")
    if any(part == "--workdir" or part.startswith("--workdir=") for part in command):
        raise ValueError("COMMAND must not have --workdir, which is added: leave it out")
    # Another Python on the path may not have gatedjax.
    if command[0] in ("python", "python3"):
        command[0] = sys.executable
    say(f"verifying: {shlex.join(command)}")
    if options.keep is None:
        with tempfile.TemporaryDirectory(prefix="verify-resume-") as folder:
            return _verify(command, options.kills, options.seed, Path(folder))
    if options.keep.exists():
        raise ValueError(f"--keep must be a new folder, got {options.keep}, which exists")
    options.keep.mkdir(parents=True)
    return _verify(command, options.kills, options.seed, options.keep)


def main(args: list[str]) -> int:
    """Runs the command and returns 0 (the bits are equal), 1 (they differ) or 2 (an error)."""
    options = parse(VerifyOptions, args, f"{program()} verify-resume")
    return status_of(lambda: _start(options))
