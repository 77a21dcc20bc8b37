"""`python -m experiments missing`: the runs that the tables lack, as shell commands."""

import contextlib
import dataclasses
import importlib
import io
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.core import cli
from experiments.core.command import check_settings, options_of
from experiments.core.config import Files
from experiments.core.kinds import Config
from experiments.core.paper import Cell, Figure, Job, Paper
from experiments.core.papers import PAPERS
from experiments.core.records import RESULTS, alive, differences
from gatedjax._utils.choices import suggestion
from gatedjax._utils.options import CpuDevices, Unset
from gatedjax._utils.terminal import join_first, render_count, say
from gatedjax.data._load import FilesFound, looking

VALUES = (
    *("verdict", "second seed", "third seed"),
    *("table", "second seed of a table", "further seed", "figure"),
)
"""The kinds of missing runs, in their order. First comes the first run of a system that a table
compares with another, then its second and third run, because no verdict is possible with fewer. The
first two runs of systems without a comparison follow, then more seeds, and last the systems that
only a figure shows."""

OPTIONS = {
    "num_steps": "train.num_steps",
    "eval_every": "train.eval_every",
    "learning_rate": "train.optimizer.learning_rate",
    "batch_size": "data.batch_size",
    "embeddings": "data.embeddings",
    "hidden": "model.hidden",
    "note": "data.note",
}
"""Options of the commands for tables, and the fields of the configuration that they set."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MissingOptions(Files):
    """Prints a shell command for each run that tables and figures lack, the most valuable first.

    Each command trains its run, or resumes it, and writes its record. See docs/reproduce.md.
    """

    papers: tuple[str, ...] = tuple(PAPERS)
    """Papers, by the name of their package."""
    seeds: int = 3
    """Runs per cell, with seeds 0, 1, ..."""
    num_steps: Unset[int] = None
    """Steps per run (default: the steps of the records in the same table, else of the preset)."""
    embeddings: Unset[str] = None
    """File of word vectors (default: that of the records of a data set, else of its preset)."""
    cpu_devices: CpuDevices = 1
    """CPU devices of each run (default: 1); no effect on GPU or TPU."""
    results: Path = RESULTS
    """Folder with records and RESULTS.md in a folder per paper."""
    runs: Path = Path("runs")
    """Folder with the work folders, which are below PAPER/tables."""


@dataclasses.dataclass(frozen=True)
class Missing:
    """A run without a record: `cell` has the configuration of this seed only."""

    job: Job
    cell: Cell
    value: str

    def arguments(self) -> list[str]:
        """Returns the arguments of the paper's command for tables that make only this run."""
        options, default = self.job.options, type(self.job.options)(what=self.job.options.what)
        place = f"{self.cell.data}/{self.cell.variant}/{next(iter(self.cell.configs))}"
        line = [options.what, "--cell", place, "--data", self.cell.data]
        for name in (field.name for field in dataclasses.fields(options)):
            value = getattr(options, name)
            if name != "data" and value != getattr(default, name):
                line += [f"--{name.replace('_', '-')}", str(value)]
        return line

    def command(self, python: str) -> str:
        """Returns the shell command that makes the run."""
        module = f"experiments.{self.job.paper.name}.tables"
        return shlex.join([python, "-m", module, *self.arguments()])


def paper_named(name: str) -> Paper:
    """Returns the paper with this package name."""
    paper: Paper = importlib.import_module(f"experiments.{name}.paper").PAPER
    return paper


def missing_runs(
    paper: Paper, results: Path, runs: Path, options: Mapping[str, Any]
) -> tuple[list[Missing], dict[str, list[str]]]:
    """Returns the runs that a paper's tables and figures lack, and the cells that are left out.
    `options` are options of the command for tables; a paper without such an option ignores it. The
    cells are DATA/VARIANT under the reason why they cannot be trained here."""
    kind = options_of(paper)
    names = {field.name for field in dataclasses.fields(kind)}
    values = {name: value for name, value in options.items() if name in names}
    values |= {"results": results / paper.name, "runs": runs / paper.name / "tables"}
    jobs = [Job(paper, kind(what=name, **values)) for name in paper.tables]
    store, compared = jobs[0].store, _compared_systems(jobs[0])
    missing: list[Missing] = []
    left_out: dict[str, list[str]] = {}
    # Each data set of a paper is looked for once, and a cell of two tables is listed once.
    reasons: dict[str, str | None] = {}
    seen: set[tuple[str, str]] = set()
    # Figures come last, so that a cell of a table and a figure counts as a cell of the table.
    for job, cell in _cells(sorted(jobs, key=lambda job: isinstance(job.table, Figure))):
        place = (cell.data, cell.variant)
        seeds = [seed for seed in cell.configs if not store.is_over(*place, seed)]
        if place in seen or not seeds:
            continue
        seen.add(place)
        if cell.data not in reasons:
            reasons[cell.data] = missing_data(paper, cell.configs[seeds[0]])
        if reason := reasons[cell.data] or _other_settings(job, cell):
            left_out.setdefault(reason, []).append("/".join((paper.name, *place)))
            continue
        for number, seed in enumerate(seeds, len(cell.configs) - len(seeds)):
            value = value_of(number, place in compared, isinstance(job.table, Figure))
            alone = dataclasses.replace(cell, configs={seed: cell.configs[seed]})
            missing.append(Missing(job, alone, value))
    return missing, left_out


def value_of(seeds: int, is_compared: bool, is_figure: bool) -> str:
    """Returns the kind of the next run of a cell with `seeds` runs, see `VALUES`."""
    if is_figure:
        return "figure"
    kinds = VALUES[:3] if is_compared else VALUES[3:5]
    return kinds[seeds] if seeds < len(kinds) else "further seed"


def missing_data(paper: Paper, config: Config) -> str | None:
    """Returns the reason why a run cannot have its data or word vectors here, or None. The files
    are only looked for: none is read or downloaded."""
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
    try:
        check_settings(job, cell)
    except ValueError as error:
        return f"other settings: {str(error).partition('; ')[0]}"
    return None


def _compared_systems(job: Job) -> set[tuple[str, str]]:
    """Returns (data, name of records) of the systems that a comparison of RESULTS.md needs."""
    paper, store = job.paper, job.store
    return {
        (data, paper.record_name(data, name))
        for table in [*paper.tables.values(), *paper.sections(store)]
        if table.pair is not None
        for data, variant in table.grid(paper, store)
        for name in table.compared(data, variant)
    }


def _cells(jobs: Sequence[Job]) -> Iterator[tuple[Job, Cell]]:
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
    set."""
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


def _python() -> str:
    """Returns "python" if the shell starts this interpreter by that name, else its path."""
    found = shutil.which("python")
    is_same = found is not None and os.path.realpath(found) == os.path.realpath(sys.executable)
    # Two virtual environments may link the same interpreter.
    is_same = is_same and Path(found or "").parent == Path(sys.executable).parent
    return "python" if is_same else sys.executable


def main(args: Sequence[str]) -> int:
    """Prints the commands on stdout, and what is left out on stderr; returns the exit status."""
    options = cli.parse_many(MissingOptions, list(args), "python -m experiments missing")
    for name in options.papers or ("",):
        if name not in PAPERS:
            hint = suggestion(name, PAPERS)
            cli.fail(f"--papers: unknown paper {name!r}.{hint} Papers: {', '.join(PAPERS)}.")
    missing: list[Missing] = []
    left_out: dict[str, list[str]] = {}
    with cli.refusals(cli.TABLE_OPTIONS):
        for name in dict.fromkeys(options.papers):
            paper = paper_named(name)
            runs, reasons = missing_runs(paper, options.results, options.runs, vars(options))
            missing += runs
            for reason, cells in reasons.items():
                left_out.setdefault(reason, []).extend(cells)
    for reason, cells in left_out.items():
        say(f"left out: {join_first(cells, 3)}: {reason}", file=sys.stderr)
    say(f"missing: {render_count(len(missing), 'run')}", file=sys.stderr)
    if not missing and left_out:
        cli.fail("nothing can be trained: every missing cell is left out, see above")
    # The sort is stable, so that runs of the same kind stay in the order of the tables.
    missing.sort(key=lambda run: VALUES.index(run.value))
    python = _python()
    for run in missing:
        # `say` would wrap a line, and a shell reads each line as a command.
        sys.stdout.write(f"{run.command(python)}\n")
    return 0
