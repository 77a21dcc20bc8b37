"""Command-line parts that the commands of every paper share."""

import contextlib
import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from experiments.core.kinds import Config
from experiments.core.papers import PAPERS, owners
from gatedjax._utils import cli as _cli
from gatedjax._utils.cli import fail as fail
from gatedjax._utils.cli import parse as parse_options

C = TypeVar("C")

# Errors of the library speak of arguments of functions. In a command each of them is an option, of
# another name in `python -m experiments.PAPER` than in its tables.
RUN_OPTIONS = {
    "another workdir": "another folder (--workdir DIR; without it the runs of a preset share one)",
    "manual_dir=...": "--data.manual-dir DIR",
    "random_embeddings makes": "--data.embeddings none draws",
}
"""What the library says, and what it is called by the commands that make one run."""
TABLE_OPTIONS = {
    "another workdir": "another folder of work folders (--runs DIR)",
    "manual_dir=...": "--manual-dir DIR",
    "random_embeddings makes": "--embeddings none draws",
}
"""The same for the commands that make many runs."""


def refusals(
    options: Mapping[str, str] = RUN_OPTIONS,
) -> contextlib.AbstractContextManager[None]:
    """Turns the errors of a command's work into `fail`, in its own words: see `RUN_OPTIONS`."""
    return _cli.refusals(options)


def preset_named(name: str, presets: Mapping[str, C]) -> C:
    """Returns a preset; an unknown name is refused with a suggestion."""
    if name not in presets:
        near = difflib.get_close_matches(name, presets, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        if others := owners(name):
            commands = (f"python -m experiments.{paper}" for paper in others)
            hint = f" It is one of {' and of '.join(commands)}."
        fail(f"unknown preset {name!r}.{hint} Presets: {', '.join(presets)}.")
    return presets[name]


def option_value(args: list[str], option: str) -> str | None:
    """The last value that a command line gives an option, before it is parsed; None without."""
    value = None
    for i, arg in enumerate(args):
        name, equals, given = arg.partition("=")
        if name.replace("_", "-") != option:
            continue
        if equals:
            value = given
        elif i + 1 < len(args):
            value = args[i + 1]
    return value


def check_folder(path: Path | str, option: str, *, exists: bool = False) -> None:
    """Refuses a path that is no folder and cannot become one, or with `exists` is not there."""
    path = Path(path).expanduser()
    if exists and not path.exists():
        fail(f"{option} {path}: there is no such folder")
    found = next((place for place in (path, *path.parents) if place.exists()), path)
    if found.exists() and not found.is_dir():
        fail(f"{option} {path}: {found} is a file, a folder is wanted")


def parse(
    args: list[str] | None,
    *,
    name: str,
    about: str,
    presets: Mapping[str, C],
    default: str,
    presets_for: Callable[[list[str], Mapping[str, C]], Mapping[str, C]] | None = None,
) -> C:
    """Reads a run's options; those that are not given come from the preset.

    The rest are fields of a `paper.Paper`, taken singly: a help needs no paper.
    """
    args = sys.argv[1:] if args is None else args
    prog = f"python -m experiments.{name}"
    if presets_for is not None:
        presets = presets_for(args, presets)
    if args and not args[0].startswith("-"):
        fail(_not_a_command(args[0], prog))
    given = option_value(args, "--preset")
    preset: Config = preset_named(default if given is None else given, presets)
    config: Config = parse_options(type(preset), args, prog, description=about, default=preset)
    _cli.check_devices(config.cpu_devices)
    if config.data.manual_dir is not None:
        check_folder(config.data.manual_dir, "--data.manual-dir", exists=True)
    return config


def check_counts(options: object, *names: str) -> None:
    """Refuses options that are below 1; those that there are not, or that are None, are passed."""
    for name in names:
        value = getattr(options, name, None)
        if value is not None and value < 1:
            fail(f"--{name.replace('_', '-')} must be at least 1, got {value}")


def _not_a_command(word: str, prog: str) -> str:
    paper = PAPERS.get(prog.rpartition(".")[-1])
    words = {command.split()[0].strip("."): command for command in paper.commands} if paper else {}
    words.pop("--preset", None)
    near = difflib.get_close_matches(word, words, n=1)
    hint = f" Did you mean {prog}{words[near[0]]}?" if near else ""
    return f"{prog} takes options, not {word!r}.{hint}"


def parse_many(kind: type[C], args: list[str] | None, prog: str) -> C:
    """Reads the options of a command that makes many runs; refuses what none of them could use."""
    args = sys.argv[1:] if args is None else args
    options: Any = parse_options(kind, args, prog)
    _cli.check_devices(getattr(options, "cpu_devices", None))
    check_counts(options, "seeds", "lanes", "num_steps")
    for name in ("results", "runs", "workdir"):
        if hasattr(options, name):
            check_folder(getattr(options, name), f"--{name}")
    if getattr(options, "manual_dir", None) is not None:
        check_folder(options.manual_dir, "--manual-dir", exists=True)
    return options
