"""`python -m experiments reproduce`: trains what the tables lack, by value and cost, in a time."""

import contextlib
import dataclasses
import difflib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.live import Live
from rich.measure import Measurement
from rich.table import Table as Screen

from experiments.core import cli
from experiments.core.papers import PAPERS
from experiments.core.plan import (
    Plan,
    Task,
    Wanted,
    hardware_here,
    make_plan,
    paper_named,
    recosted,
)
from experiments.core.pool import Ended, Pool, Worker, measured_rate
from experiments.core.records import RESULTS, read_json, write_json
from experiments.core.verify import verify
from gatedjax._utils.cpu import usable_cores
from gatedjax._utils.terminal import new_console, say
from gatedjax.training.lock import WorkdirLock

WORDS = {**cli.TABLE_OPTIONS, "another workdir": "another folder (--results DIR)"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Trains what the tables lack: comparisons first, then second seeds, more seeds, figures. Stop
    it with Ctrl-C; the same command continues. See docs/plan.md."""

    papers: tuple[str, ...] = tuple(PAPERS)
    """Papers, by the name of their package."""
    hours: float = 8.0
    """Time; runs that are at work when it is up are saved."""
    workers: int | None = None
    """Runs at once (default: one per core, on an accelerator one)."""
    plan: Literal["run", "show"] = "run"
    """"show" only shows the plan."""
    verify: str | None = None
    """Train this recorded run again, PAPER/DATA/VARIANT/SEED, and compare its first losses."""
    seeds: int = 3
    """Runs per cell, with seeds 0, 1, ..."""
    num_steps: int | None = None
    """Steps per run (default: those of the records in the same table, else the preset's); with
    --verify those that are compared (default: 50)."""
    measure: int = 20
    """Steps of a short run where no record tells the cost; 0 measures nothing, as --plan show."""
    data_dir: str | None = None
    """Where prepared TFDS data sets are."""
    manual_dir: str | None = None
    """Folder with the raw files, to work without a network."""
    embeddings: str | None = None
    """File of word vectors (default: that of the records of a data set, else of its preset)."""
    results: Path = RESULTS
    """Records and RESULTS.md, in a folder per paper."""
    runs: Path = Path("runs")
    """Work folders, below PAPER/tables."""


def _check(options: Options) -> None:
    cli.check_counts(options, "workers", "seeds", "num_steps")
    if not options.hours > 0:
        cli.fail(f"--hours must be above 0, got {options.hours:g}")
    if options.measure < 0:
        cli.fail(f"--measure must be at least 0, got {options.measure}")
    for name in options.papers:
        if name not in PAPERS:
            near = difflib.get_close_matches(name, PAPERS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            cli.fail(f"--papers: no paper {name!r}.{hint} Papers: {', '.join(PAPERS)}.")
    if not options.papers:
        cli.fail(f"--papers wants at least one of {', '.join(PAPERS)}")
    for folder, name in ((options.results, "--results"), (options.runs, "--runs")):
        cli.check_folder(folder, name)
        there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
        if options.plan == "run" and options.verify is None and not os.access(there, os.W_OK):
            cli.fail(f"{name} {folder}: {there} cannot be written")
    if options.manual_dir is not None:
        cli.check_folder(options.manual_dir, "--manual-dir", exists=True)


def wanted_of(options: Options) -> Wanted:
    """What the plan is asked for."""
    names = ("data_dir", "manual_dir", "embeddings", "num_steps")
    devices = 1 if hardware_here()[0] == "cpu" else None
    return Wanted(
        papers=[paper_named(name) for name in dict.fromkeys(options.papers)],
        seeds=options.seeds,
        results=options.results,
        runs=options.runs,
        options={name: getattr(options, name) for name in names} | {"cpu_devices": devices},
    )


def duration(seconds: float | None) -> str:
    """Hours and minutes, or seconds of what is short."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def show(console: Any, plan: Plan, options: Options, workers: int) -> None:
    """The plan as a table, what is left out and why, and how much of it fits."""
    screen = Screen(title=f"{len(plan.tasks)} runs are missing, {plan.present} have a record")
    for heading in ("", "run", "value", "steps", "ms/step", "takes"):
        screen.add_column(heading, no_wrap=True)
    for number, task in enumerate(plan.tasks, 1):
        whole = task.cost.seconds
        rate = "?" if whole is None else f"{1e3 * whole / task.steps:.1f}"
        steps = f"{task.done} of {task.steps}" if task.done else str(task.steps)
        cells = (task.name, task.value, steps, rate, duration(task.left))
        screen.add_row(str(number), *cells)
    # a name that is cut off cannot be asked for
    wide = Measurement.get(console, console.options.update(max_width=200), screen)
    console.width = max(console.width, wide.maximum)
    console.print(screen)
    sources: dict[str, list[str]] = {}
    for task in plan.tasks:
        sources.setdefault(task.cost.source, []).append(task.name)
    for source, names in sorted(sources.items(), key=lambda one: -len(one[1])):
        console.print(f"cost of {len(names)} runs, such as {names[0]}: {source}", soft_wrap=True)
    whys: dict[str, list[str]] = {}
    for name, why in plan.left_out:
        whys.setdefault(why, []).append(name)
    for why, cells_of in whys.items():
        more = f" and {len(cells_of) - 3} more" if len(cells_of) > 3 else ""
        console.print(f"left out: {', '.join(cells_of[:3])}{more}: {why}")
    known = sum(task.left or 0 for task in plan.tasks)
    unknown = sum(task.left is None for task in plan.tasks)
    text = f"all of it: {duration(known / workers)} with {workers} at once"
    text += f", and {unknown} runs of unknown cost" if unknown else ""
    console.print(f"{text}; the time is {duration(3600 * options.hours)}")


class View:
    """Tells how runs go: a live table in a terminal, else a line when one begins or ends."""

    def __init__(self, console: Any) -> None:
        self._console = console
        self._live: Live | None = None
        self._last = 0.0

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Shows the table inside."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False) as self._live:
            yield
        self._live = None

    def begun(self, worker: Worker) -> None:
        """A run has begun."""
        start = f" from step {worker.task.done}" if worker.task.done else ""
        self._line(f"begun: {worker.task.name}{start} ({duration(worker.task.left)})")

    def ended(self, one: Ended) -> None:
        """A run has ended."""
        why = f": {one.why}" if one.why else ""
        self._line(f"{one.how}: {one.task.name} after {duration(one.seconds)}{why}")

    def tick(self, pool: Pool) -> None:
        """Time goes by."""
        if self._live is None or time.monotonic() - self._last < 1:
            return
        self._last = time.monotonic()
        screen = Screen(
            title=f"{sum(e.how == 'done' for e in pool.ended)} done, {len(pool.tasks)} to go, "
            f"{duration(max(0.0, pool.left))} left"
        )
        for heading in ("run", "step", "of", "for"):
            screen.add_column(heading)
        for worker in pool.running:
            steps = str(worker.step), str(worker.task.steps)
            screen.add_row(worker.task.name, *steps, duration(time.monotonic() - worker.started))
        self._live.update(screen, refresh=True)

    def _line(self, text: str) -> None:
        console = self._console if self._live is None else self._live.console
        console.print(text)


def write_page(task: Task) -> str | None:
    """Writes RESULTS.md of a task's paper; returns why it could not."""
    try:
        task.job.paper.write(task.job.store)
    except (ValueError, OSError) as error:
        return f"RESULTS.md of {task.job.paper.name} is not written: {error}"
    return None


def _measured(options: Options) -> Path:
    return options.runs / "measured.json"


def _known(options: Options) -> dict[str, Any]:
    path = _measured(options)
    return read_json(path).get("/".join(hardware_here()), {}) if path.exists() else {}


MEASURING = 0.1
"""Of the time, at most so much goes into runs that only tell a cost."""


def measure_unknown(console: Any, plan: Plan, options: Options) -> bool:
    """Measures a short run of cells of unknown cost; returns whether there were some."""
    end = time.monotonic() + MEASURING * 3600 * options.hours
    cells = {t.name.rpartition("/")[0]: t for t in plan.tasks if t.cost.seconds is None}
    for name, task in cells.items():
        if time.monotonic() > end:
            break
        console.print(f"measuring {options.measure} steps: {name}")
        rate = measured_rate(task, options.measure, end - time.monotonic())
        if rate is None:
            continue
        path = _measured(options)
        every = read_json(path) if path.exists() else {}
        every.setdefault("/".join(hardware_here()), {})[name] = [rate, options.measure]
        write_json(path, every)
    return bool(cells)


def reproduce(options: Options) -> int:
    """Plans, shows the plan, and makes the runs; returns the exit status."""
    console = new_console()
    platform, _ = hardware_here()
    workers = options.workers or (usable_cores() if platform == "cpu" else 1)
    wanted = wanted_of(options)
    if options.plan == "show":
        show(console, make_plan(wanted, _known(options)), options, workers)
        return 0
    began = time.monotonic()
    options.results.mkdir(parents=True, exist_ok=True)
    lock = WorkdirLock(options.results)
    try:
        plan = make_plan(wanted, _known(options))
        if options.measure and measure_unknown(console, plan, options):
            plan = make_plan(wanted, _known(options))
        show(console, plan, options, workers)
        if not plan.tasks:
            return _nothing_to_do(plan)
        return _train(console, plan, options, workers, platform == "cpu", began)
    finally:
        lock.release()


def _nothing_to_do(plan: Plan) -> int:
    if plan.left_out:
        cli.fail("nothing can be trained: every missing cell is left out, see above")
    say("nothing is missing")
    return 0


def _train(
    console: Any,
    plan: Plan,
    options: Options,
    workers: int,
    pinned: bool,
    began: float,
) -> int:
    view = View(console)
    problems: list[str] = []

    def on_event(name: str, what: Any) -> None:
        if name == "begun":
            view.begun(what)
        elif name == "tick":
            view.tick(what)
        else:
            view.ended(what)
            if what.how != "done":
                return
            problem = write_page(what.task)
            if problem is not None:
                problems.append(problem)
            # what this run has cost tells what others will
            done = [one.task for one in pool.ended if one.how == "done"]
            pool.tasks[:] = recosted(pool.tasks, plan.tasks, done)

    pool = Pool(list(plan.tasks), workers, 3600 * options.hours, pinned, on_event, began=began)
    with view.open():
        pool.run()
    count = {how: sum(e.how == how for e in pool.ended) for how in ("done", "stopped", "failed")}
    for problem in dict.fromkeys(problems):
        say(f"error: {problem}", file=sys.stderr)
    text = ", ".join(f"{number} {how}" for how, number in count.items())
    say(f"{text}; {len(pool.too_long)} not begun")
    if count["stopped"] or pool.too_long:
        say("the same command continues")
    if pool.signal is not None:  # as of a single run: saved by SIGTERM is no error
        return 130 if pool.signal == signal.SIGINT else 0
    return 1 if count["failed"] or problems else 0


def main(args: Sequence[str]) -> int:
    """The command, with what follows its name; returns the exit status."""
    # TFDS warns of every folder where a set is not prepared yet
    logging.getLogger("absl").setLevel(logging.ERROR)
    options = cli.parse_options(Options, args, "python -m experiments reproduce")
    _check(options)
    with cli.refusals(WORDS):
        if options.verify is not None:
            return verify(options.verify, options)
        try:
            return reproduce(options)
        except KeyboardInterrupt:
            say("stopped ahead of the first run", file=sys.stderr)
            return 130
