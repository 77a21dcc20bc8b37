"""The two commands of every paper: one run, and its tables and figures."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from experiments.core import cli
from experiments.core.cells import run_cells, run_of
from experiments.core.experiment import Place, Run, run_lanes
from experiments.core.hardware import prepare_cpu
from experiments.core.paper import RENDER, Config, Figure, Job, Options, Paper
from gatedjax._terminal import new_console
from gatedjax.training.distributed import initialize, is_main


def parse(paper: Paper, args: list[str] | None) -> Config:
    """Reads a run's options; those that are not given come from the preset."""
    names = ("name", "about", "presets", "default", "presets_for")
    return cli.parse(args, **{name: getattr(paper, name) for name in names})


def runs_of(paper: Paper, config: Config) -> list[Run]:
    """Makes the run of a configuration, or those of its seeds and its sweep side by side."""
    config = paper.resolve(config)
    if config.train.seeds > 1 or config.train.sweep:
        place = Place(paper.workdir_of(config), paper.recorded(config))
        return run_lanes(paper.experiment, config, place, paper.recorded)
    return [run_of(paper, config)]


def run(paper: Paper, args: list[str] | None = None) -> int:
    """Makes a run and prints what came of it; returns the exit status."""
    return run_config(paper, parse(paper, args))


def run_config(paper: Paper, config: Config) -> int:
    """As `run`, of options that were read already."""
    workdir = paper.workdir_of(config)
    cli.check_folder(workdir, "--workdir")
    prepare_cpu(config.cpu_devices)
    with cli.refusals():
        if hasattr(config, "distributed"):
            initialize(config.distributed)
        runs = runs_of(paper, config)
    records = [one.record for one in runs]
    stopped = next((one for one in records if one["stopped"] == "signal"), None)
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


def options_of(paper: Paper) -> type[Options]:
    """The options of the command for tables, with the paper's names of tables and its folders."""
    named = {**paper.tables, "render": RENDER}
    about = "; ".join(f"{name}: {one.about}" for name, one in named.items())
    names: Any = Literal.__getitem__(tuple(named))
    what: Any = Annotated[names, tyro.conf.Positional, tyro.conf.arg(help=f"{about}.")]
    types = {field.name: field.type for field in dataclasses.fields(paper.options)}
    fields: list[Any] = [
        ("what", what),
        ("results", types["results"], dataclasses.field(default=paper.folder)),
        ("runs", types["runs"], dataclasses.field(default=Path("runs") / paper.name / "tables")),
    ]
    made = dataclasses.make_dataclass(
        "Options", fields, bases=(paper.options,), frozen=True, kw_only=True
    )
    made.__doc__ = Options.__doc__
    return made


def tables(paper: Paper, args: list[str] | None = None) -> int:
    """Runs what a table or figure lacks and writes RESULTS.md; returns the exit status."""
    options = cli.parse_many(options_of(paper), args, f"python -m experiments.{paper.name}.tables")
    for name in options.data:
        cli.preset_named(name, paper.presets)
    for field in dataclasses.fields(options):
        owners = paper.owned.get(field.name, (options.what,))
        if getattr(options, field.name) != field.default and options.what not in owners:
            option = f"--{field.name.replace('_', '-')}"
            cli.fail(f"{option} is an option of {' and '.join(owners)}, not of {options.what}")
    paper.check(options)
    job = Job(paper, options)
    prepare_cpu(options.cpu_devices)
    with cli.refusals(cli.TABLE_OPTIONS):
        run_cells(job, job.cells())
        one = job.table
        act = one.draw if isinstance(one, Figure) else one.after
        if act is not None:
            act(job)
        paper.write(job.store)
    return 0
