"""The runs that the tables lack, in the order in which `reproduce` trains them."""

import contextlib
import dataclasses
import importlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.core import cli
from experiments.core.command import check_settings, options_of
from experiments.core.kinds import Config
from experiments.core.paper import Cell, Figure, Job, Paper, Table
from experiments.core.records import alive, differences
from gatedjax.data._load import FilesFound, looking

VALUES = (
    *("verdict", "second seed", "third seed"),
    *("table", "second seed of a table", "further seed", "figure"),
)
"""The kinds of missing runs, in the order of training. First comes the first run of a system that a
table compares with another, then its second and third run, because no verdict is possible with
fewer. The first two runs of systems without a comparison follow, then more seeds, and last the
systems that only a figure shows."""

OPTIONS = {
    "num_steps": "train.num_steps",
    "eval_every": "train.eval_every",
    "learning_rate": "train.optimizer.learning_rate",
    "batch_size": "data.batch_size",
    "embeddings": "data.embeddings",
    "fraction": "data.fraction",
    "max_doc_len": "data.max_doc_len",
    "hidden": "model.hidden",
    "note": "data.note",
}
"""Options of the commands for tables, and the fields of the configuration that they set."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A run without a record.

    Attributes:
      job: the command for tables that makes the run.
      cell: the cell of the run, with the configuration of this seed only.
      seed: the seed.
      value: a kind of `VALUES`.
    """

    job: Job
    cell: Cell
    seed: int
    value: str

    @property
    def name(self) -> str:
        """The name PAPER/DATA/VARIANT/SEED."""
        return f"{self.job.paper.name}/{self.cell.data}/{self.cell.variant}/{self.seed}"

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.cell.configs[self.seed]

    @property
    def workdir(self) -> Path:
        """The work folder of the run."""
        return self.job.workdir(self.cell, self.seed)

    @property
    def saved_step(self) -> int:
        """The step of the newest checkpoint, 0 without a checkpoint."""
        steps = [p.name for p in (self.workdir / "checkpoints").glob("*") if p.name.isdecimal()]
        return max(map(int, steps), default=0)

    @property
    def is_over(self) -> bool:
        """True if the run has a record, with results or of a run that diverged."""
        return self.job.store.is_over(self.cell.data, self.cell.variant, self.seed)

    def arguments(self) -> list[str]:
        """Returns the command line of the paper's tables that makes only this run."""
        options, default = self.job.options, type(self.job.options)(what=self.job.options.what)
        line = [options.what, "--cell", self.name.partition("/")[2], "--data", self.cell.data]
        for name in (field.name for field in dataclasses.fields(options)):
            value = getattr(options, name)
            if name != "data" and value != getattr(default, name):
                line += [f"--{name.replace('_', '-')}", str(value)]
        return line


@dataclasses.dataclass(frozen=True)
class Plan:
    """The missing runs and the cells that cannot be trained here.

    Attributes:
      tasks: the missing runs in their order.
      left_out: (PAPER/DATA/VARIANT, reason) of each cell that cannot be trained here.
      present: the number of runs that have a record.
    """

    tasks: Sequence[Task]
    left_out: Sequence[tuple[str, str]]
    present: int


def paper_named(name: str) -> Paper:
    """Returns the paper with this package name."""
    paper: Paper = importlib.import_module(f"experiments.{name}.paper").PAPER
    return paper


def make_plan(papers: Sequence[Paper], *, results: Path, runs: Path, **options: Any) -> Plan:
    """Returns the runs that the tables and figures of the papers lack, sorted by `VALUES`.

    Args:
      papers: the papers.
      results: a folder with a folder of records per paper.
      runs: a folder with a folder of work folders per paper.
      **options: options of the commands for tables; a command without such an option ignores it.
    """
    tasks: list[Task] = []
    left_out: list[tuple[str, str]] = []
    present = 0
    for paper in papers:
        kind = options_of(paper)
        names = {field.name for field in dataclasses.fields(kind)}
        values = {k: v for k, v in options.items() if k in names and v is not None}
        values |= {"results": results / paper.name, "runs": runs / paper.name / "tables"}
        jobs = [Job(paper, kind(what=name, **values)) for name in paper.tables]
        store, compared = jobs[0].store, _compared_systems(jobs[0])
        # Each data set of a paper is looked for once, and a cell of two tables is trained once.
        reasons: dict[str, str | None] = {}
        seen: set[tuple[str, str]] = set()
        # Figures come last, so that a cell of a table and a figure counts as a cell of the table.
        for job, cell in _cells(sorted(jobs, key=lambda job: isinstance(job.table, Figure))):
            place = (cell.data, cell.variant)
            if place in seen:
                continue
            seen.add(place)
            missing = [seed for seed in cell.configs if not store.is_over(*place, seed)]
            present += (done := len(cell.configs) - len(missing))
            if missing and cell.data not in reasons:
                reasons[cell.data] = missing_data(paper, cell.configs[missing[0]])
            reason = (reasons[cell.data] or _other_settings(job, cell)) if missing else None
            if reason is not None:
                left_out.append((f"{paper.name}/{cell.data}/{cell.variant}", reason))
                continue
            for seeds, seed in enumerate(missing, done):
                value = value_of(seeds, place in compared, isinstance(job.table, Figure))
                alone = dataclasses.replace(cell, configs={seed: cell.configs[seed]})
                tasks.append(Task(job, alone, seed, value))
    # The sort is stable, so that runs of the same kind stay in the order of the tables.
    return Plan(sorted(tasks, key=lambda task: VALUES.index(task.value)), left_out, present)


def value_of(seeds: int, is_compared: bool, is_figure: bool) -> str:
    """Returns the kind of the next run of a cell, see `VALUES`.

    Args:
      seeds: the number of runs that the cell has.
      is_compared: True if a table compares the system with another.
      is_figure: True if only a figure shows the system.
    """
    if is_figure:
        return "figure"
    kinds = VALUES[:3] if is_compared else VALUES[3:5]
    return kinds[seeds] if seeds < len(kinds) else "further seed"


def missing_data(paper: Paper, config: Config) -> str | None:
    """Returns the reason why a run cannot have its data or word vectors here, or None.

    The files are only looked for: none is read or downloaded.
    """
    try:
        with looking():
            paper.experiment(config)
        return None
    # `FilesFound` means that the files exist and that no part of them was read.
    except FilesFound:
        return None
    except (OSError, ValueError, ImportError) as error:
        text = f"no data: {error}"
    for argument, option in cli.TABLE_OPTIONS.items():
        text = text.replace(argument, option)
    return text


def _other_settings(job: Job, cell: Cell) -> str | None:
    """Returns the setting in which records of the cell differ from the run, or None."""
    try:
        check_settings(job, cell)
    except ValueError as error:
        return f"other settings: {str(error).partition('; ')[0]}"
    return None


def _compared_systems(job: Job) -> set[tuple[str, str]]:
    """Returns (data, name of records) of the systems that a comparison of RESULTS.md needs."""
    paper, store = job.paper, job.store
    tables = [table for table in paper.tables.values() if isinstance(table, Table)]
    return {
        (data, paper.record_name(data, name))
        for table in [*tables, *paper.sections(store)]
        if table.pair is not None
        for data, variant in table.grid(paper, store)
        for name in table.pair(data, variant) or ()
    }


def _cells(jobs: Sequence[Job]) -> Iterator[tuple[Job, Cell]]:
    """Yields the cells of the jobs, each with a job that has the options of its records."""
    for job, data in ((full_job, data) for full_job in jobs for data in full_job.data):
        # The messages of a table about systems that it leaves out belong to its command.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            options = dataclasses.replace(job.options, data=(data,))
            same = Job(job.paper, dataclasses.replace(options, **_recorded_options(job, data)))
            cells = list(same.cells())
        yield from ((same, cell) for cell in cells)


def _recorded_options(job: Job, data: str) -> Mapping[str, Any]:
    """Returns options that the records of a table on a data set share and the presets do not have.

    A missing run takes them, because it must be comparable with the existing records. Runs that
    collapsed are ignored. A table without records takes the word vectors of the records of its data
    set.
    """
    paper, store = job.paper, job.store
    # The options in `owned` are left out, because they make separate rows and other tables refuse
    # them.
    free = {
        name: path
        for name, path in OPTIONS.items()
        if name not in job.options.owned and getattr(job.options, name, "") is None
    }
    values: dict[str, set[Any]] = {name: set() for name in free}
    only = Job(paper, dataclasses.replace(job.options, data=(data,)))
    for cell in only.cells():
        settings = paper.recorded(next(iter(cell.configs.values())))
        for record in alive(store.read(data, cell.variant)):
            other = differences(record["config"], settings)
            changes = {difference.field: difference.recorded for difference in other}
            for name, path in free.items():
                values[name].add(changes.get(path))
    if values.get("embeddings") == set():  # the table has no records
        files = {
            record["config"].get("data", {}).get("embeddings") for record in store.any_of(data)
        }
        values["embeddings"] = files
    # An option on which the records disagree is left to the preset, because no value fits all of
    # them.
    same = {name: next(iter(choices)) for name, choices in values.items() if len(choices) == 1}
    return {name: value for name, value in same.items() if value is not None}
