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

import tyro

from gatedjax._utils.cli import parse, program, reason
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.types import Tree
from gatedjax.training._verify import DIGESTS, KILL_AT, RESUMES

LONGEST_SAVE_S = 0.2
"""Largest number of seconds between the start of a save and a kill during it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Proves that a killed run continues with the same bits.

    It runs COMMAND once without interruption. Then it runs COMMAND again, kills it with SIGKILL at
    random steps, half of them during a save, and restarts it after each kill. At the end it
    compares digests of parameters, optimiser state, best parameters, data position, the next
    batches, metrics and the record of the run. COMMAND must train with gatedjax.training.fit and
    accept --workdir, which is added to it.

    For example:
    $ gatedjax verify-resume --kills 2 -- python train.py
    """

    kills: int = 4
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


def kill_points(last: int, every: int, count: int, seed: int) -> list[str]:
    """Returns ascending moments for `KILL_AT`: "step:STEP", or "save:STEP:SECONDS" in a save."""
    choose = random.Random(seed)
    # The last step is always saved.
    saves = sorted({*range(every, last + 1, every), last})
    during = choose.sample(saves, min(count // 2, len(saves)))
    steps = choose.sample(range(1, last), min(count - len(during), last - 1))
    points = [(step, f"step:{step}") for step in steps]
    for step in during:
        # A kill during a save is the hardest case, because it leaves an incomplete checkpoint.
        points.append((step, f"save:{step}:{choose.uniform(0, LONGEST_SAVE_S):.4f}"))
    return [text for _, text in sorted(points)]


def _run(command: list[str], workdir: Path, log: Path, **variables: str) -> int:
    """Runs a command, with --workdir added and its output in `log`; returns its exit status."""
    # Variables of an outer test would kill this run at other moments, too.
    environment = {k: v for k, v in os.environ.items() if k not in (DIGESTS, KILL_AT, RESUMES)}
    with log.open("ab") as file:
        return subprocess.run(
            [*command, "--workdir", str(workdir)],
            env=environment | variables,
            stdout=file,
            stderr=file,
            check=False,
        ).returncode


def _report_failure(run_name: str, status: int, log: Path) -> int:
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    say(f"error: {run_name} ended with status {status}:", file=sys.stderr)
    say("\n".join(f"  {line}" for line in tail), file=sys.stderr)
    return 2


def _differences(first: Any, second: Any, name: str = "") -> list[str]:
    """Returns the paths, such as "record.history[0].loss", at which two JSON values differ."""
    if isinstance(first, dict) and isinstance(second, dict):
        keys = sorted(first.keys() | second.keys())
        nested = (_differences(first.get(k), second.get(k), f"{name}.{k}".strip(".")) for k in keys)
        return [line for lines in nested for line in lines]
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [line for i, (a, b) in pairs for line in _differences(a, b, f"{name}[{i}]")]
    # NaN is not equal to itself, but the same NaN in both runs is no difference.
    both_nan = first != first and second != second
    return [] if first == second or both_nan else [name or "value"]


def _leaves(value: Tree) -> int:
    if isinstance(value, dict | list):
        return sum(_leaves(v) for v in (value.values() if isinstance(value, dict) else value))
    return 1


def _digests(path: Path) -> list[dict[str, Tree]]:
    # A run that was killed before its end has written no line.
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _verify(command: list[str], kills: int, seed: int, folder: Path) -> int:
    """Runs a command without and with kills; returns 2 if no run continued, 1 if bits differ."""
    began = time.monotonic()
    target = folder / "unbroken.jsonl"
    log = folder / "unbroken.log"
    status = _run(command, folder / "unbroken", log, **{DIGESTS: str(target)})
    if status:
        return _report_failure("the unbroken run", status, log)
    unbroken = _digests(target)
    if len(unbroken) != 1:
        say(
            f"error: COMMAND must finish one training run of gatedjax.training.fit, but finished "
            f"{len(unbroken)}",
            file=sys.stderr,
        )
        return 2
    last = unbroken[0]["data position"]["step"]
    say(f"unbroken: {last} steps, {time.monotonic() - began:.1f} s")

    config = json.loads((folder / "unbroken" / "config.json").read_text(encoding="utf-8"))
    every = config["train"]["checkpoint_every"]
    log, target = folder / "killed.log", folder / "killed.jsonl"
    resumes = folder / "resumes.txt"
    watched = {DIGESTS: str(target), RESUMES: str(resumes)}
    killed = 0
    for point in kill_points(last, every, kills, seed):
        status = _run(command, folder / "killed", log, **watched, **{KILL_AT: point})
        if status not in (0, -signal.SIGKILL):
            return _report_failure(f"the run killed at {point}", status, log)
        killed += bool(status)
        outcome = "killed" if status else "too late, because the run was finished"
        say(f"{point}: {outcome}")
        # The run has ended, so that it cannot be killed at a later moment.
        if not status:
            break
    # The last kill may have hit the run before its end. Without a further kill it continues to the
    # end.
    if not _digests(target):
        status = _run(command, folder / "killed", log, **watched)
        if status:
            return _report_failure("the last resume", status, log)
    resumed = _digests(target)[-1]
    continued = len(resumes.read_text().splitlines()) if resumes.exists() else 0
    say(f"{killed} kills, {continued} of the starts continued from a checkpoint")
    if not killed or not continued:
        say(
            "error: the test proves nothing, because no start continued from a checkpoint: lower "
            f"checkpoint_every (now {every}), or train longer than {last} steps",
            file=sys.stderr,
        )
        return 2

    wrong = 0
    for name, expected in unbroken[0].items():
        differing = _differences(expected, resumed[name])
        wrong += len(differing)
        verdict = f"equal ({_leaves(expected)} values)" if not differing else "DIFFERENT: "
        say(f"{name}: {verdict}{', '.join(differing[:5])}")
    say("bit-equal" if not wrong else f"NOT equal: {wrong} differences")
    return 1 if wrong else 0


def main(args: list[str]) -> int:
    """Runs the command and returns 0 (the bits are equal), 1 (they differ) or 2 (an error)."""
    options = parse(VerifyOptions, args, f"{program()} verify-resume")
    command = list(options.command)
    if not command:
        say("error: COMMAND must be given, after --", file=sys.stderr)
        return 2
    if options.kills < 1:
        say(f"error: --kills must be at least 1, got {options.kills}", file=sys.stderr)
        return 2
    if any(part == "--workdir" or part.startswith("--workdir=") for part in command):
        say("error: COMMAND must not have --workdir, which is added: leave it out", file=sys.stderr)
        return 2
    # Another Python on the path may not have gatedjax.
    if command[0] in ("python", "python3"):
        command[0] = sys.executable
    say(f"verifying: {shlex.join(command)}")
    try:
        if options.keep is None:
            with tempfile.TemporaryDirectory(prefix="verify-resume-") as folder:
                return _verify(command, options.kills, options.seed, Path(folder))
        if options.keep.exists():
            say(
                f"error: --keep must be a new folder, got {options.keep}, which exists",
                file=sys.stderr,
            )
            return 2
        options.keep.mkdir(parents=True)
        return _verify(command, options.kills, options.seed, options.keep)
    except OSError as error:
        say(f"error: {reason(error)}", file=sys.stderr)
        return 2
