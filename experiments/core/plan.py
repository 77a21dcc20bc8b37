"""What `reproduce` would train: the missing runs of the tables, by value and by cost."""

import contextlib
import dataclasses
import functools
import importlib
import io
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.core.command import check_settings, options_of, record_elsewhere
from experiments.core.kinds import Config, Json, Record
from experiments.core.paper import Cell, Figure, Job, Paper, Table
from experiments.core.records import RESULTS, alive, differences, read_json
from gatedjax.data._load import Found, looking
from gatedjax.training.log import processor

VALUES = (
    "verdict",
    "second seed",
    "table",
    "second seed of a table",
    "further seed",
    "figure",
)
"""Kinds of missing runs, the most valuable first.

The first run of a system that a table compares with another; the run that makes two seeds of its
one, before which there is no verdict; the same two for systems that nothing is compared with; more
seeds; what only a figure shows. Of one kind the cheapest is first."""

OPTIONS = {
    "num_steps": "train.num_steps",
    "eval_every": "train.eval_every",
    "learning_rate": "train.optimizer.learning_rate",
    "batch_size": "data.batch_size",
    "fraction": "data.fraction",
    "max_doc_len": "data.max_doc_len",
    "hidden": "model.hidden",
    "note": "data.note",
}
"""Options of the commands for tables, and what they set in the configuration of every run."""

TWIN = "the same run has a record"
"""The source of the cost of what need not be trained again."""
Kind = tuple[str, str]
"""Of hardware: (platform, model of the processor or of the accelerator)."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """Seconds of a whole run, None if nothing is known, and where they come from.

    `kind` is that of the records they come from, None without.
    """

    seconds: float | None
    source: str
    kind: Kind | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """A missing run.

    Attributes:
      job: the command that makes it.
      cell: its data and variant, with the configuration of its seed alone.
      seed: of it.
      value: one of `VALUES`.
      workdir: where it is trained.
      cost: of the whole run.
      done: steps that a checkpoint in `workdir` has.
    """

    job: Job
    cell: Cell
    seed: int
    value: str
    workdir: Path
    cost: Cost
    done: int = 0

    @property
    def name(self) -> str:
        """PAPER/DATA/VARIANT/SEED."""
        return f"{self.job.paper.name}/{self.cell.data}/{self.cell.variant}/{self.seed}"

    @property
    def config(self) -> Config:
        """Its configuration."""
        return self.cell.configs[self.seed]

    @property
    def steps(self) -> int:
        """Of the whole run; one that stops early has fewer."""
        return self.config.train.num_steps

    @property
    def record(self) -> Path:
        """Where its record will be."""
        return self.job.store.path(self.cell.data, self.cell.variant, self.seed)

    @property
    def is_over(self) -> bool:
        """Whether it has a record, perhaps one that says that it diverged."""
        return self.job.store.is_over(self.cell.data, self.cell.variant, self.seed)

    @property
    def left(self) -> float | None:
        """Seconds that are left of it."""
        whole = self.cost.seconds
        return None if whole is None else whole * max(0.0, 1 - self.done / max(1, self.steps))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Runs to make, in their order, and cells that cannot be: (PAPER/DATA/VARIANT, why)."""

    tasks: Sequence[Task]
    left_out: Sequence[tuple[str, str]]
    present: int
    """Runs that have a record."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a plan is asked for: the papers, and options that every one of their jobs gets."""

    papers: Sequence[Paper]
    seeds: int
    results: Path
    runs: Path
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of the command for tables: data_dir, manual_dir, embeddings, num_steps, cpu_devices."""


# hardware ---------------------------------------------------------------------------------------

_ASK = "import jax; d = jax.devices()[0]; print(d.platform); print(d.device_kind)"


@functools.cache
def hardware_here() -> Kind:
    """The kind of this machine; asked in a process of its own, which gives the device free."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, text=True, check=True, timeout=300
    )
    platform, kind = done.stdout.splitlines()[-2:]
    return (platform, processor() if platform == "cpu" else kind)


def kind_of(record: Record) -> Kind:
    """The kind that made a record; records that are older than the question name no processor."""
    found = record.get("hardware", {})
    platform = str(found.get("platform", ""))
    name = found.get("processor") if platform == "cpu" else found.get("device")
    return (platform, str(name or "of unknown model"))


# costs ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Costs:
    """Seconds per step of the records of a paper: the whole run over its steps.

    Compilation, evaluation and the test are in it. Of several seeds the median counts.
    """

    here: Kind
    rates: dict[tuple[str, str], dict[Kind, float]] = dataclasses.field(default_factory=dict)
    measured: dict[tuple[str, str], tuple[float, int]] = dataclasses.field(default_factory=dict)
    """Seconds per step of a short run by (data, variant), and its steps."""

    @classmethod
    def of(cls, folders: Iterable[Path], here: Kind) -> "Costs":
        """From the records of some folders."""
        each: dict[tuple[str, str], dict[Kind, list[float]]] = {}
        for path in sorted({path for f in folders for path in f.glob("runs/*-seed*.json")}):
            data, _, rest = path.stem.partition("-")
            try:
                record = read_json(path, "steps", "seconds")
            except ValueError:
                continue  # not a training run
            if record["steps"] and record.get("lanes", 1) == 1:
                rates = each.setdefault((data, rest.rpartition("-seed")[0]), {})
                rates.setdefault(kind_of(record), []).append(record["seconds"] / record["steps"])
        median = {k: {h: statistics.median(r) for h, r in v.items()} for k, v in each.items()}
        return cls(here, median)

    def factor(self, other: Kind) -> float | None:
        """How much slower this machine is than another: the median over cells that both ran."""
        both = [r[self.here] / r[other] for r in self.rates.values() if {self.here, other} <= {*r}]
        return statistics.median(both) if both else None

    def _rate(self, data: str, variant: str) -> tuple[float, str, Kind | None] | None:
        rates = self.rates.get((data, variant), {})
        if self.here in rates:
            return rates[self.here], "records, this machine", self.here
        for kind, rate in rates.items():
            factor = self.factor(kind)
            scaled = "not scaled" if factor is None else f"times {factor:.2f}"
            return rate * (factor or 1.0), f"records, {kind[0]} {kind[1]}, {scaled}", kind
        return None

    def cost(self, data: str, variant: str, steps: int) -> Cost:
        """Of a run of so many steps.

        Its own records on this machine tell it, else those on another one, scaled by the cells that
        both ran; else a short run that was measured; else the slowest system on the same data.
        """
        found = self._rate(data, variant)
        if found is None and (data, variant) in self.measured:
            rate, count = self.measured[data, variant]
            found = rate, f"{count} steps measured", None
        if found is None:
            others = {name: self._rate(data, name) for d, name in self.rates if d == data}
            known = {name: one for name, one in others.items() if one is not None}
            if known:
                name = max(known, key=lambda one: known[one][0])
                rate, source, kind = known[name]
                found = rate, f"{source}, of {name}", kind
        if found is None:
            return Cost(None, "unknown")
        rate, source, kind = found
        return Cost(rate * steps, source, kind)


# the plan ---------------------------------------------------------------------------------------


def paper_named(name: str) -> Paper:
    """The value of a paper, by the name of its package."""
    paper: Paper = importlib.import_module(f"experiments.{name}.paper").PAPER
    return paper


def jobs_of(paper: Paper, wanted: Wanted) -> list[Job]:
    """The command of every table and figure of a paper."""
    kind = options_of(paper)
    names = {field.name for field in dataclasses.fields(kind)}
    given = {k: v for k, v in wanted.options.items() if k in names and v is not None}
    given |= {
        "seeds": wanted.seeds,
        "results": wanted.results / paper.name,
        "runs": wanted.runs / paper.name / "tables",
    }
    return [Job(paper, kind(what=name, **given)) for name in paper.tables]


def _compared(job: Job) -> set[tuple[str, str]]:
    """(data, name of records) of all that a section of RESULTS.md compares."""
    paper, store = job.paper, job.store
    found = set()
    tables = [one for one in paper.tables.values() if isinstance(one, Table)]
    for table in [*tables, *paper.sections(store)]:
        if table.pair is None:
            continue
        for place in table.grid(paper, store):
            names = table.pair(*place) or ()
            found |= {(place[0], paper.record_name(place[0], name)) for name in names}
    return found


def _with_vectors(job: Job, data: str) -> Job:
    """The job with the file of word vectors that the records of the data have, if they are one.

    Records of one cell must be of one file; without this the preset's name would be asked for.
    """
    if getattr(job.options, "embeddings", "") is not None:
        return job
    files = set()
    for folder in {job.store.folder, RESULTS / job.paper.name}:
        for path in folder.glob(f"runs/{data}-*-seed*.json"):
            files.add(read_json(path, *job.store.keys)["config"].get("data", {}).get("embeddings"))
    one = files.pop() if len(files) == 1 else None
    return Job(job.paper, dataclasses.replace(job.options, embeddings=one)) if one else job


def _as_recorded(job: Job, data: str) -> Job:
    """The job with the options that the records of its cells were made by, where they agree.

    A row that is missing is of the same budget as those that stand beside it. Records that
    collapsed say nothing of what their table is to have.
    """
    paper, store = job.paper, job.store
    # an option that tables own makes rows of its own there, and the other tables refuse it
    free = {
        name: path
        for name, path in OPTIONS.items()
        if name not in paper.owned and getattr(job.options, name, "") is None
    }
    values: dict[str, set[Any]] = {name: set() for name in free}
    for cell in job.cells():
        wanted = paper.recorded(next(iter(cell.configs.values())))
        for record in alive(store.read(data, cell.variant)):
            other = {
                one.field: one.recorded
                for one in differences(record["config"], wanted, store.default(data))
            }
            for name, path in free.items():
                values[name].add(other.get(path))
    same = {name: one for name, found in values.items() if len(found) == 1 for one in found}
    given = {name: one for name, one in same.items() if one is not None}
    return Job(paper, dataclasses.replace(job.options, **given)) if given else job


def _cells(job: Job) -> list[tuple[Job, Cell]]:
    found = []
    quiet = io.StringIO()  # what a table leaves out it says when it is asked for
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        for data in job.data:
            one = _with_vectors(job, data)
            one = Job(one.paper, dataclasses.replace(one.options, data=(data,)))
            one = _as_recorded(one, data)
            found += [(one, cell) for cell in one.cells()]
    return found


def why_no_data(paper: Paper, config: Config) -> str | None:
    """Why the data of a configuration cannot be had here, or None: nothing is read or fetched."""
    try:
        with looking():
            paper.experiment(config)
    except Found:
        return None
    except (OSError, ValueError, ImportError) as error:
        return str(error)
    return None


def _progress(workdir: Path) -> int:
    """Steps of the newest checkpoint of a work folder."""
    steps = [p.name for p in (workdir / "checkpoints").glob("*") if p.name.isdecimal()]
    return max(map(int, steps), default=0)


def value_of(seeds: int, compared: bool, figure: bool) -> str:
    """The kind of a run of a cell that will have so many seeds before it."""
    if figure:
        return "figure"
    if seeds > 1:
        return "further seed"
    return VALUES[seeds if compared else 2 + seeds]


def costs_of(
    paper: Paper, wanted: Wanted, measured: Json | None = None, here: Kind | None = None
) -> Costs:
    """What is known of the costs of a paper's runs; the arguments are those of `make_plan`."""
    folders = {wanted.results / paper.name, RESULTS / paper.name}
    costs = Costs.of(folders, here or hardware_here())
    for name, one in (measured or {}).items():
        owner, data, variant = name.split("/", 2)
        if owner == paper.name:
            costs.measured[data, variant] = (one[0], one[1])
    return costs


def recosted(tasks: Iterable[Task], planned: Iterable[Task], ended: Sequence[Task]) -> list[Task]:
    """The tasks in their order, with what the runs that ended since the plan tell of their costs.

    A machine may be another than its name says, or busy: what was estimated from records is scaled
    by the median of (what ended runs took) / (what was estimated for them), by the kind of hardware
    of those records. A cell of which a run has ended takes what that took; one of unknown cost what
    the slowest on its data did.

    Args:
      tasks: that wait.
      planned: all tasks, with the estimates of the plan.
      ended: those that have a record by now.
    """
    before = {task.name: task.cost for task in planned}
    took: dict[tuple[str, str], dict[str, list[float]]] = {}
    ratios: dict[Kind, list[float]] = {}
    for task in ended:
        record = read_json(task.record) if task.record.exists() else {}
        was = before[task.name]
        if not record.get("steps") or was.source == TWIN:
            continue  # it diverged, or is the record of a run that was made before
        rate = record["seconds"] / record["steps"]
        cells = took.setdefault((task.job.paper.name, task.cell.data), {})
        cells.setdefault(task.cell.variant, []).append(rate)
        if was.kind is not None and was.seconds:
            ratios.setdefault(was.kind, []).append(rate * task.steps / was.seconds)

    def cost(task: Task) -> Cost:
        was = before[task.name]
        cells = took.get((task.job.paper.name, task.cell.data), {})
        rates = {variant: statistics.median(each) for variant, each in cells.items()}
        if was.source == TWIN:
            return was
        if task.cell.variant in rates:
            return Cost(rates[task.cell.variant] * task.steps, "a run that ended")
        if was.seconds is None and rates:
            name = max(rates, key=lambda one: rates[one])
            return Cost(rates[name] * task.steps, f"a run that ended, of {name}")
        if was.seconds is None or was.kind is None or was.kind not in ratios:
            return was
        ratio = statistics.median(ratios[was.kind])
        return Cost(was.seconds * ratio, f"{was.source}, times {ratio:.2f}", was.kind)

    return [dataclasses.replace(task, cost=cost(task)) for task in tasks]


def make_plan(wanted: Wanted, measured: Json | None = None, here: Kind | None = None) -> Plan:
    """The missing runs of the papers, by `VALUES` and cost.

    Args:
      wanted: the papers and their options.
      measured: PAPER/DATA/VARIANT to [seconds per step, steps], of short runs.
      here: the kind of this machine; asked where it is None.
    """
    tasks: list[Task] = []
    left_out: dict[str, str] = {}
    present = 0
    for paper in wanted.papers:
        costs = costs_of(paper, wanted, measured, here)
        reasons: dict[str, str | None] = {}
        seen: dict[tuple[str, str], None] = {}
        jobs = sorted(jobs_of(paper, wanted), key=lambda job: isinstance(job.table, Figure))
        compared = _compared(jobs[0]) if jobs else set()
        for job in jobs:
            for owner_job, cell in _cells(job):
                place = (cell.data, cell.variant)
                if place in seen:
                    continue
                seen[place] = None
                found = [s for s in cell.configs if owner_job.store.is_over(*place, s)]
                present += len(found)
                missing = [seed for seed in cell.configs if seed not in found]
                if not missing:
                    continue
                if cell.data not in reasons:
                    config = cell.configs[missing[0]]
                    reasons[cell.data] = why_no_data(paper, config)
                why = reasons[cell.data]
                try:
                    check_settings(owner_job, cell)
                except ValueError as error:
                    other = str(error).partition("; ")[0]
                    why = f"other settings: {other}" if why is None else f"no data: {why}"
                else:
                    why = None if why is None else f"no data: {why}"
                if why is not None:
                    left_out[f"{paper.name}/{cell.data}/{cell.variant}"] = why
                    continue
                figure = isinstance(job.table, Figure)
                for count, seed in enumerate(missing, len(found)):
                    value = value_of(count, place in compared, figure)
                    tasks.append(_task(owner_job, cell, seed, value, costs))
    order = {task.name: number for number, task in enumerate(tasks)}

    def key(task: Task) -> tuple[int, float, int]:
        left = float("inf") if task.left is None else task.left
        return VALUES.index(task.value), left, order[task.name]

    return Plan(sorted(tasks, key=key), list(left_out.items()), present)


def _task(job: Job, cell: Cell, seed: int, value: str, costs: Costs) -> Task:
    alone = dataclasses.replace(cell, configs={seed: cell.configs[seed]})
    workdir = job.options.runs / f"{cell.data}-{cell.variant}-seed{seed}"
    cost = costs.cost(cell.data, cell.variant, alone.configs[seed].train.num_steps)
    if record_elsewhere(job, alone, seed, workdir) is not None:
        cost = Cost(0.0, TWIN)
    return Task(job, alone, seed, value, workdir, cost, _progress(workdir))


def last_step(workdir: Path) -> int | None:
    """The step of the last line that a run logged; None before the first."""
    try:
        with (workdir / "metrics.jsonl").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return int(json.loads(line)["step"])
    return None
