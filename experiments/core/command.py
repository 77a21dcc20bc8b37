"""The two commands of a paper: a single run, and tables and figures with the runs they lack."""

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from experiments.core import cli
from experiments.core.curves import hardware, say_differences, software, stop_message
from experiments.core.experiment import Place, Run, run_lanes
from experiments.core.experiment import run as run_one
from experiments.core.kinds import Config, Record, Records
from experiments.core.origins import origin_of
from experiments.core.paper import COMMON, Cell, Job, Paper, TableOptions
from experiments.core.records import DIVERGED, SEED, Difference, differences, saved_record
from experiments.core.summary import join
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.run_files import write_json
from gatedjax._utils.terminal import new_console, say
from gatedjax.training import NonFiniteError
from gatedjax.training.distributed import initialize, is_main
from gatedjax.training.workdir import remove_run

Missing = list[tuple[int, Config]]
"""Seeds and configurations with work folders."""


def _other(job: Job, record: Record, config: Config) -> list[Difference]:
    return differences(record["config"], job.paper.recorded(config))


def check_cells(job: Job, cells: Iterable[Cell]) -> None:
    """Refuses runs that would join records of another kind, before a run is trained or written. A
    record of other settings is only replaced on request, and the records of a cell must have the
    same configuration and the same data when all runs are done. Raises ValueError naming the
    setting, its value in the record and the value in the options."""
    for cell in cells:
        staying = check_settings(job, cell)
        seeds = {record["seed"] for record in staying}
        new = [config for seed, config in cell.configs.items() if seed not in seeds]
        if staying and new:
            substitute = job.paper.experiment(new[0]).substitute
            planned = {"data": staying[0].get("data"), "substitute": substitute}
            old, origin = origin_of(staying[0]), origin_of(planned)
            if old != origin:
                difference = Difference("the origin of the data", old, origin)
                _refuse(cell, staying[0], [difference], False)


def check_settings(job: Job, cell: Cell) -> Records:
    """Returns the records of a cell that are not replaced; reads no data. Raises ValueError if such
    a record has other settings than the run, as in `check_cells`."""
    staying: Records = []
    for record in job.store.read(cell.data, cell.variant):
        seed = record["seed"]
        is_asked = seed in cell.configs
        if is_asked and job.options.rerun:
            continue  # it is replaced
        config = cell.configs[seed] if is_asked else next(iter(cell.configs.values()))
        # A record of another seed is compared too, because the records of a cell are averaged, but
        # its seed may differ.
        conflicts = _other(job, record, config)
        _refuse(
            cell,
            record,
            [conflict for conflict in conflicts if is_asked or conflict.field != SEED],
            is_asked,
        )
        staying.append(record)
    for _, record in () if job.options.rerun else job.store.diverged(cell.data, cell.variant):
        asked_config = cell.configs.get(record["seed"])
        if asked_config is not None:
            _refuse(cell, record, _other(job, record, asked_config), True)
    return staying


def _refuse(cell: Cell, record: Record, conflicts: list[Difference], is_asked: bool) -> None:
    """Raises ValueError if there are differences between a record and a run."""
    if not conflicts:
        return
    first, num_further = conflicts[0], len(conflicts) - 1
    suffix = f" (and {num_further} more)" if num_further else ""
    replace = "--rerun" if is_asked else "--rerun with its seed among --seeds"
    raise ValueError(
        f"{cell.data}, {cell.variant}: the record of seed {record['seed']} has {first.field} "
        f"{first.recorded}, wanted {first.wanted}{suffix}; keep it and give another folder "
        f"(--results DIR), or replace it ({replace})"
    )


def missing_runs(job: Job, cell: Cell) -> Missing:
    """Returns the runs of a cell that have no record yet. If the same run has a record in its
    finished work folder or under the name of another table, that record is copied to the cell. With
    --rerun all runs are missing, and their work folders are removed."""
    missing = []
    for seed, config in cell.configs.items():
        path = job.store.path(cell.data, cell.variant, seed)
        workdir = job.workdir(cell.data, cell.variant, seed)
        if job.options.rerun:
            if workdir.exists():
                remove_workdir(workdir)  # a finished run would be read instead of repeated
        elif job.store.is_over(cell.data, cell.variant, seed):
            continue
        else:
            record = record_elsewhere(job, cell, seed, workdir)
            if record is not None:
                write_json(path, record)
                continue
        missing.append((seed, dataclasses.replace(config, workdir=str(workdir))))
    return missing


def remove_workdir(workdir: Path) -> None:
    """Removes the work folder of a run that is to be repeated. Raises OSError if the folder has
    files that no run wrote; these files remain. Raises WorkdirBusy if a run is writing into it."""
    if foreign := remove_run(workdir):
        raise FileExistsError(
            f"{workdir} must have only files of runs, got {', '.join(foreign[:5])}, which no run "
            "wrote: move it away"
        )


def record_elsewhere(job: Job, cell: Cell, seed: int, workdir: Path) -> Record | None:
    """Returns the record of the same run in its work folder or, for a paper with `twins`, under the
    name of another variant; or None."""
    config, finished = cell.configs[seed], workdir / "results.json"
    if finished.exists():
        record = job.store.load(finished, cell.data)
        if not _other(job, record, config):
            return record
    # A record is read only if none before it is the run's, so that others may be damaged.
    for variant in job.store.variants(cell.data) if job.paper.twins else ():
        other = None if variant == cell.variant else job.store.get(cell.data, variant, seed)
        if other is not None and not _other(job, other, config):
            return other
    return None


def run_of(paper: Paper, config: Config, *, test: bool = True) -> Run:
    """Makes the run of a configuration, or reads it from its finished work folder. `test=False`
    leaves out the test."""
    place = Place(paper.workdir_of(config), paper.recorded(config))
    return run_one(paper.experiment, config, place, test=test)


def _keep(job: Job, cell: Cell, records: Records) -> None:
    """Writes the records of complete runs; exits if a signal ended the last run."""
    for record in records:
        if record["stopped"] != "signal":
            place = cell.data, cell.variant, record["seed"]
            paths = job.store.path(*place), job.store.diverged_path(*place)
            # A run has a record with results or a record of a divergence. The new record is written
            # before the other is removed, so that a crash loses none.
            path, before = reversed(paths) if DIVERGED in record else paths
            write_json(path, saved_record(record))
            before.unlink(missing_ok=True)  # the run has replaced it
    message = stop_message(records[-1])
    if message is not None:
        say(message, file=sys.stderr)
        sys.exit(records[-1]["exit_code"])


def run_cells(job: Job, cells: Iterable[Cell]) -> None:
    """Makes the missing runs of the cells and writes their records; exits if a signal stops a run.
    Raises ValueError as `check_cells`, before the first run."""
    cells = list(cells)
    check_cells(job, cells)
    for cell in cells:
        # Existing records are found first, because they need no lane.
        missing = missing_runs(job, cell)
        seeds = [seed for seed, _ in missing]
        records = job.store.read(cell.data, cell.variant) if missing else []
        # A run that is repeated is compared with its record, else with that of another seed.
        for record in sorted(records, key=lambda record: record["seed"] not in seeds)[:1]:
            say_differences(record)
        for seed, config in _run_together(job, cell, missing):
            say(f"{cell.data}, {cell.variant}, seed {seed}: {config.workdir}")
            try:
                record = run_of(job.paper, config).record
            except NonFiniteError as error:
                record = _make_diverged_record(job, cell, config, error)
            _keep(job, cell, [record])


def _make_diverged_record(job: Job, cell: Cell, config: Config, error: NonFiniteError) -> Record:
    say(f"{cell.data}, {cell.variant}, seed {config.train.seed}: {error}", file=sys.stderr)
    settings = job.paper.recorded(config)
    record: Record = {"config": settings, "seed": config.train.seed, "data": cell.data}
    record |= {"stopped": DIVERGED, DIVERGED: error.step}
    return record | {"hardware": hardware(), "software": software()}


def _run_together(job: Job, cell: Cell, missing: Missing) -> Missing:
    """Trains consecutive seeds in one program; returns the runs that must be trained separately."""
    # An interrupted run continues in its folder, which a program of several seeds could not read.
    separate = [
        missing_run for missing_run in missing if Path(str(missing_run[1].workdir)).exists()
    ]
    fresh = [missing_run for missing_run in missing if missing_run not in separate]
    paper, options = job.paper, job.options
    while fresh:
        first, config = fresh[0]
        # The seeds of a program are consecutive, so the seeds up to the first gap are counted.
        neighbours = sum(seed == first + place for place, (seed, _) in enumerate(fresh))
        count = min(options.lanes, neighbours) if config.allows_lanes else 1
        if count == 1:
            separate.append(fresh.pop(0))
            continue
        last = first + count - 1
        workdir = options.runs / f"{cell.data}-{cell.variant}-seeds{first}to{last}"
        say(f"{cell.data}, {cell.variant}, seeds {first} to {last}: {workdir}")
        if options.rerun and workdir.exists():
            remove_workdir(workdir)
        place = Place(workdir, paper.recorded(config))
        try:
            runs = run_lanes(paper.experiment, config, place, paper.recorded, seeds=count)
        except NonFiniteError as error:  # trained separately, the other seeds have results
            say(f"{cell.data}, {cell.variant}: {error}", file=sys.stderr)
            separate += fresh[:count]
        else:
            _keep(job, cell, [run_of_seed.record for run_of_seed in runs])
        fresh = fresh[count:]
    return sorted(separate, key=lambda missing_run: missing_run[0])


def runs_of(paper: Paper, config: Config) -> list[Run]:
    """Makes the run of a resolved configuration, or the runs of its seeds and its sweep in one
    program."""
    if config.train.seeds > 1 or config.train.sweep:
        if not config.allows_lanes:
            raise ValueError(
                "train.seeds must be 1 and train.sweep empty for runs that cannot train side by "
                f"side, got {config.train.seeds} and {config.train.sweep}"
            )
        place = Place(paper.workdir_of(config), paper.recorded(config))
        return run_lanes(paper.experiment, config, place, paper.recorded)
    return [run_of(paper, config)]


def run_config(paper: Paper, config: Config) -> int:
    """Makes the run of a configuration and prints its results; returns the exit status."""
    workdir = paper.workdir_of(config)
    cli.check_folder(workdir, "--workdir")
    # JAX fixes the number of devices at the first computation.
    prepare_cpu(config.cpu_devices)
    with cli.refusals():
        if hasattr(config, "distributed"):
            initialize(config.distributed)
        config = paper.resolve(config)
        settings = paper.recorded(config)
        for record in paper.store().any_of(config.preset):
            if not differences(record["config"], settings):
                say_differences(record)
        runs = runs_of(paper, config)
    records = [run.record for run in runs]
    stopped = next((record for record in records if record["stopped"] == "signal"), None)
    # Only the first of several processes prints, but all of them end with the same status.
    if not is_main():
        return 0 if stopped is None else stopped["exit_code"]
    console = new_console()
    if stopped is not None:
        console.print(
            f"stopped after step {stopped['steps']}; the same command continues from {workdir}"
        )
        return stopped["exit_code"]
    paper.report(console, records, workdir)
    return 0


def options_of(paper: Paper) -> type[TableOptions]:
    """Returns the class of options of a paper's command for tables, with its tables and folders."""
    all_tables = {**paper.tables, **COMMON}
    about = "\n".join(f"{name}: {table.about}" for name, table in all_tables.items())
    names: Any = Literal.__getitem__(tuple(all_tables))
    table_type: Any = Annotated[
        names, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE", help=about)
    ]
    types = {field.name: field.type for field in dataclasses.fields(paper.options)}
    fields: list[Any] = [
        ("what", table_type),
        ("results", types["results"], dataclasses.field(default=paper.folder)),
        ("runs", types["runs"], dataclasses.field(default=Path("runs") / paper.name / "tables")),
    ]
    options_class = dataclasses.make_dataclass(
        "TableOptions", fields, bases=(paper.options,), frozen=True, kw_only=True
    )
    # `make_dataclass` gives the class its signature as docstring, which the help would show.
    options_class.__doc__ = TableOptions.__doc__
    return options_class


def tables(paper: Paper, args: list[str] | None = None) -> int:
    """Makes the runs that a table or figure lacks and writes RESULTS.md; returns the status."""
    options = cli.parse_many(options_of(paper), args, f"python -m experiments.{paper.name}.tables")
    for name in options.data:
        cli.preset_named(name, paper.presets)
    # Tables without data sets, such as figures of a fixed data set, make no use of --data.
    with_data = tuple(name for name, table in paper.tables.items() if table.data)
    owned = {**options.owned, "data": with_data}
    for field in dataclasses.fields(options):
        owners = owned.get(field.name, (options.what,))
        if getattr(options, field.name) != field.default and options.what not in owners:
            option = f"--{field.name.replace('_', '-')}"
            cli.fail(f"{option} is an option of {join(owners)}, not of {options.what}")
    options.check()
    job = Job(paper, options)
    prepare_cpu(options.cpu_devices)
    with cli.refusals(cli.TABLE_OPTIONS):
        if options.cell is not None:
            cell = job.only(options.cell)
            run_cells(job, [cell])
            for seed in cell.configs:
                say(f"record: {job.store.existing_path(cell.data, cell.variant, seed)}")
            return 0
        run_cells(job, job.cells())
        if job.table.after is not None:
            job.table.after(job)
        # The page is written last, because it links the figures that exist.
        paper.write(job.store)
    return 0
