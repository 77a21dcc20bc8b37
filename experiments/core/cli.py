"""Command-line parts that the commands of all papers share."""

import contextlib
import difflib
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from experiments.core.kinds import Config
from experiments.core.papers import PAPERS, owners
from gatedjax._utils import cli as _cli
from gatedjax._utils.choices import suggestion
from gatedjax._utils.cli import fail as fail
from gatedjax._utils.cli import parse as parse_options

C = TypeVar("C")

# Messages of the library name arguments of functions. A command has an option for each of them, and
# `python -m experiments.PAPER` names it differently from the commands for tables.
RUN_OPTIONS = {
    "another workdir": "another folder (--workdir DIR; without it the runs of a preset share one)",
    "manual_dir=...": "--data.manual-dir DIR",
    "random_embeddings makes": "--data.embeddings none draws",
}
"""Phrases in messages of the library, and the options of a single run that replace them."""
TABLE_OPTIONS = {
    "another workdir": "another folder of work folders (--runs DIR)",
    "manual_dir=...": "--manual-dir DIR",
    "random_embeddings makes": "--embeddings none draws",
}
"""The same phrases, and the options of the commands that make many runs."""


def refusals(
    options: Mapping[str, str] = RUN_OPTIONS,
) -> contextlib.AbstractContextManager[None]:
    """Turns the exceptions of a command's work into a printed message and exit status 2. `options`
    has phrases in messages of the library, and the option that replaces each of them."""
    return _cli.refusals(options)


def preset_named(name: str, presets: Mapping[str, C]) -> C:
    """Returns a preset by its name; exits with a suggestion if no preset has the name."""
    if name not in presets:
        hint = suggestion(name, presets)
        if papers := owners(name):
            commands = (f"python -m experiments.{paper}" for paper in papers)
            hint = f" It is one of {' and of '.join(commands)}."
        fail(f"unknown preset {name!r}.{hint} Presets: {', '.join(presets)}.")
    return presets[name]


def option_value(args: list[str], option: str) -> str | None:
    """Returns the last value that a command line gives to an option, before the line is parsed."""
    value = None
    for i, arg in enumerate(args):
        name, equals, joined = arg.partition("=")
        if name.replace("_", "-") != option:
            continue
        if equals:
            value = joined
        elif i + 1 < len(args):
            value = args[i + 1]
    return value


def check_folder(path: Path | str, option: str, *, exists: bool = False) -> None:
    """Exits with an error if a path is not a folder and cannot become a folder. With `exists` the
    folder must exist already."""
    path = Path(path).expanduser()
    if exists and not path.exists():
        fail(f"{option} {path}: there is no such folder")
    # A folder that does not exist yet can be created unless a parent is a file.
    existing = next((place for place in (path, *path.parents) if place.exists()), path)
    if existing.exists() and not existing.is_dir():
        fail(f"{option} {path}: {existing} must be a folder, got a file")


def parse(
    args: list[str] | None,
    *,
    name: str,
    about: str,
    presets: Mapping[str, C],
    default: str,
    presets_for: Callable[[list[str], Mapping[str, C]], Mapping[str, C]] | None = None,
) -> C:
    """Reads the options of a run; an option that is absent has its value in the preset. The keyword
    arguments are the fields of `config.Start`, because a help must not load a whole paper. Returns
    the configuration, of the class of the presets."""
    args = sys.argv[1:] if args is None else args
    prog = f"python -m experiments.{name}"
    # Some options change the presets, so they are read before the command line is parsed.
    if presets_for is not None:
        presets = presets_for(args, presets)
    if args and not args[0].startswith("-"):
        fail(_not_a_command(args[0], prog))
    preset_name = option_value(args, "--preset")
    preset: Config = preset_named(default if preset_name is None else preset_name, presets)
    config: Config = parse_options(type(preset), args, prog, description=about, default=preset)
    if config.data.manual_dir is not None:
        check_folder(config.data.manual_dir, "--data.manual-dir", exists=True)
    return config


def run(name: str, args: list[str] | None = None, *, others: Mapping[str, str] = {}) -> int:
    """Runs `python -m experiments.NAME`: a single run of the paper, or one of its `others`, modules
    by the first word of the command line; returns the exit status."""
    args = sys.argv[1:] if args is None else args
    # Imports wait here, because a help or a refused option does not need these modules.
    if args and (module := others.get(args[0])):
        other: int = importlib.import_module(f"experiments.{name}.{module}").main(args[1:])
        return other
    start = importlib.import_module(f"experiments.{name}.config").START
    config = parse(args, **vars(start))
    command = importlib.import_module("experiments.core.command")
    paper = importlib.import_module(f"experiments.{name}.paper").PAPER
    status: int = command.run_config(paper, config)
    return status


def check_counts(options: object, *names: str) -> None:
    """Exits with an error if an option is below 1; an absent field or None is not checked."""
    for name in names:
        value = getattr(options, name, None)
        if value is not None and value < 1:
            fail(f"--{name.replace('_', '-')} must be at least 1, got {value}")


def _not_a_command(word: str, prog: str) -> str:
    """Returns the message for a first word that is no option, with the nearest option.
    prog is the command, such as "python -m experiments.ssan"."""
    paper = PAPERS.get(prog.rpartition(".")[-1])
    words = {command.split()[0].strip("."): command for command in paper.commands} if paper else {}
    words.pop("--preset", None)
    matches = difflib.get_close_matches(word, words, n=1)
    hint = f" Did you mean {prog}{words[matches[0]]}?" if matches else ""
    return f"{prog} takes options, not {word!r}.{hint}"


def parse_many(kind: type[C], args: list[str] | None, prog: str) -> C:
    """Reads the options of a command that makes many runs; exits if a value fits no run."""
    args = sys.argv[1:] if args is None else args
    options: Any = parse_options(kind, args, prog)
    check_counts(options, "seeds", "lanes", "num_steps")
    for name in ("results", "runs", "workdir"):
        if hasattr(options, name):
            check_folder(getattr(options, name), f"--{name}")
    if getattr(options, "manual_dir", None) is not None:
        check_folder(options.manual_dir, "--manual-dir", exists=True)
    return options
