"""`python -m experiments reproduce`: trains the runs that the tables lack, several at once."""

import collections
import dataclasses
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Literal

from experiments.core import cli
from experiments.core.papers import PAPERS
from experiments.core.plan import Plan, Task, make_plan, paper_named
from experiments.core.records import RESULTS
from experiments.core.verify import verify
from gatedjax._utils.choices import suggestion
from gatedjax._utils.cpu import usable_cores
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import new_console, printable, say
from gatedjax.training.lock import WorkdirLock

WORDS = {**cli.TABLE_OPTIONS, "another workdir": "another folder (--results DIR)"}
"""Phrases in messages of the library, and the options that replace them."""
GRACE = 120.0
"""Seconds for a run to save itself after SIGTERM; a step or a compilation may be in progress."""
POLL = 0.2
"""Seconds between two checks of the processes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Trains the runs that the tables lack: comparisons first, then second seeds, more seeds and
    figures. Ctrl-C stops it, and the same command continues. See docs/plan.md."""

    papers: tuple[str, ...] = tuple(PAPERS)
    """Papers, by the name of their package."""
    hours: float = 8.0
    """Time limit; runs that are in progress at its end are saved."""
    workers: Unset[int] = None
    """Number of runs at the same time (default: the number of cores, on an accelerator 1)."""
    plan: Literal["run", "show"] = "run"
    """"run" makes the runs; "show" only prints the plan."""
    verify: Unset[str] = None
    """Train this recorded run again, PAPER/DATA/VARIANT/SEED, and compare its first losses."""
    seeds: int = 3
    """Runs per cell, with seeds 0, 1, ..."""
    num_steps: Unset[int] = None
    """Steps per run, with --verify the steps that are compared (default: the steps of the records
    in the same table, else of the preset; with --verify 50)."""
    data_dir: Unset[str] = None
    """Folder with prepared TFDS data sets."""
    manual_dir: Unset[str] = None
    """Folder with the raw files, to work without a network."""
    embeddings: Unset[str] = None
    """File of word vectors (default: that of the records of a data set, else of its preset)."""
    results: Path = RESULTS
    """Folder with records and RESULTS.md in a folder per paper."""
    runs: Path = Path("runs")
    """Folder with the work folders, which are below PAPER/tables."""


def _parse_options(args: Sequence[str]) -> ReproduceOptions:
    """Reads the options; exits with status 2 if a value cannot be used."""
    options = cli.parse_many(ReproduceOptions, list(args), "python -m experiments reproduce")
    cli.check_counts(options, "workers")
    if not options.hours > 0:
        cli.fail(f"--hours must be above 0, got {options.hours:g}")
    for name in options.papers or ("",):
        if name not in PAPERS:
            hint = suggestion(name, PAPERS)
            cli.fail(f"--papers: unknown paper {name!r}.{hint} Papers: {', '.join(PAPERS)}.")
    return options


def default_platform() -> str:
    """Returns JAX's platform from another process, because this one must leave the device free."""
    ask = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    process = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=300)
    return process.stdout.split()[-1]


def show(plan: Plan) -> None:
    """Prints the missing runs in their order, and the cells that are left out with the reason."""
    say(f"{len(plan.tasks)} runs are missing, {plan.present} have a record")
    width = max((len(task.name) for task in plan.tasks), default=0)
    for number, task in enumerate(plan.tasks, 1):
        saved = f", {task.saved_step} saved" if task.saved_step else ""
        steps = f"{task.config.train.num_steps} steps{saved}"
        say(f"{number:>4}  {task.name:<{width}}  {task.value:<22}  {steps}")
    reasons: dict[str, list[str]] = {}
    for name, reason in plan.left_out:
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        ending = f" and {len(names) - 3} more" if len(names) > 3 else ""
        say(f"left out: {', '.join(names[:3])}{ending}: {reason}")


def command_of(task: Task) -> list[str]:
    """Returns the command that makes a run in a separate process."""
    module = f"experiments.{task.job.paper.name}.paper"
    worker = [sys.executable, "-m", "experiments.core.worker", str(os.getpid()), module]
    return [*worker, *task.arguments()]


def make_run(task: Task, stop: threading.Event) -> tuple[str, str]:
    """Makes a run in a process, which saves itself and ends when `stop` is set.

    Args:
      task: the run.
      stop: the event.

    Returns:
      "done", "stopped" (the same command continues it) or "failed", and the reason.
    """
    log = task.workdir.parent / "logs" / f"{task.workdir.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # The log is appended to, because a run may be continued several times.
    with log.open("ab") as file:
        process = subprocess.Popen(
            command_of(task),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            # Several processes may share an accelerator, so none may reserve all of its memory.
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ},
            start_new_session=True,  # Ctrl-C reaches only this process, which stops each run
        )
    while process.poll() is None and not stop.wait(POLL):
        pass
    if is_told := process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            # A run that does not end in time is killed; it continues from its last checkpoint.
            process.kill()
            process.wait()
    if task.is_over:
        return "done", ""
    # A run that saved itself after SIGTERM ends with status 0 and has no record.
    if is_told or process.returncode in (0, 130, -signal.SIGINT, -signal.SIGTERM):
        return "stopped", f", saved at step {task.saved_step}"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return "failed", f": {printable(next((x for x in reversed(lines) if x.strip()), ''))}"


def train(tasks: Sequence[Task], cores: Sequence[int | None], end: float) -> int:
    """Makes the runs in their order, until `end` or a signal.

    Args:
      tasks: the runs.
      cores: a core for each of the runs at the same time, to which the run is bound; None binds it
        to no core.
      end: the value of `time.monotonic` at which the runs are stopped and saved.

    Returns:
      The exit status.
    """
    waiting, running = collections.deque(tasks), dict[str, Task]()
    stop, turn = threading.Event(), threading.Lock()
    count, problems, signals = collections.Counter[str](), dict[str, None](), list[int]()

    def work(core: int | None) -> None:
        if core is not None:  # the processes that this thread starts inherit its core
            os.sched_setaffinity(0, {core})
        while not stop.is_set():
            with turn:
                if not waiting:
                    return
                task = waiting.popleft()
                running[task.name] = task
                saved = f" from step {task.saved_step}" if task.saved_step else ""
                say(f"begun: {task.name}{saved}")
            began = time.monotonic()
            how, why = make_run(task, stop)
            with turn:
                del running[task.name]
                count[how] += 1
                say(f"{how}: {task.name} after {(time.monotonic() - began) / 60:.1f} min{why}")
                # The page is written after each run, so that a stop loses no result.
                if how == "done":
                    try:
                        task.job.paper.write(task.job.store)
                    except (ValueError, OSError) as error:
                        page = f"RESULTS.md of {task.job.paper.name}"
                        problems[f"{page} is not written: {error}"] = None

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    handlers = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    with ThreadPoolExecutor(len(cores)) as pool, new_console().status("") as status:
        try:
            futures = [pool.submit(work, core) for core in cores]
            # The wait is short, because signals and the time limit are checked between two waits.
            while wait(futures, POLL).not_done:
                # A thread ends while runs are waiting only if it has failed.
                failed = waiting and any(future.done() for future in futures)
                if signals or failed or time.monotonic() >= end:
                    stop.set()
                at = [f"{name} at step {task.saved_step}" for name, task in [*running.items()]]
                status.update(f"{len(waiting)} to go; saved: {', '.join(at)}")
        finally:
            stop.set()  # no process may go on after an error
            for number, handler in handlers.items():
                signal.signal(number, handler)
    for future in futures:
        future.result()
    for problem in problems:
        say(f"error: {problem}", file=sys.stderr)
    text = ", ".join(f"{count[how]} {how}" for how in ("done", "stopped", "failed"))
    say(f"{text}; {len(waiting)} not begun")
    if count["stopped"] or waiting:
        say("the same command continues")
    if signals:  # a run that SIGTERM saved is no error in the command of a run either
        return 130 if signals[0] == signal.SIGINT else 0
    return 1 if count["failed"] or problems else 0


def reproduce(options: ReproduceOptions) -> int:
    """Prints the plan and makes the runs; returns the exit status."""
    on_cpu = default_platform() == "cpu"
    end = time.monotonic() + 3600 * options.hours
    names = ("results", "runs", "seeds", "data_dir", "manual_dir", "embeddings", "num_steps")
    values = {name: getattr(options, name) for name in names}
    values |= {"cpu_devices": 1 if on_cpu else None}
    papers = [paper_named(name) for name in dict.fromkeys(options.papers)]
    if options.plan == "show":
        show(make_plan(papers, **values))
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    # Two commands would train the same missing runs.
    lock = WorkdirLock(options.results)
    try:
        # The plan is computed under the lock, because another command may have finished runs until
        # then.
        plan = make_plan(papers, **values)
        show(plan)
        if not plan.tasks and plan.left_out:
            cli.fail("nothing can be trained: every missing cell is left out, see above")
        if not plan.tasks:
            say("nothing is missing")
            return 0
        count = options.workers or (usable_cores() if on_cpu else 1)
        is_bound = on_cpu and hasattr(os, "sched_getaffinity")
        cores = sorted(os.sched_getaffinity(0)) if is_bound else []
        # If there are more runs than cores, the remaining runs are bound to no core.
        return train(plan.tasks, [*cores, *[None] * count][:count], end)
    finally:
        lock.release()


def main(args: Sequence[str]) -> int:
    """Runs the command with the arguments after its name; returns the exit status."""
    # TFDS warns about each folder without a prepared data set, which is no fault here.
    logging.getLogger("absl").setLevel(logging.ERROR)
    options = _parse_options(args)
    with cli.refusals(WORDS):
        try:
            if options.verify is not None:
                return verify(options.verify, options)
            return reproduce(options)
        except KeyboardInterrupt:
            say("stopped", file=sys.stderr)
            return 130
