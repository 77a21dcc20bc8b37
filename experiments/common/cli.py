"""Command-line parts that the commands of every paper share."""

import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import tyro

from gatedjax._terminal import new_console, say

C = TypeVar("C")


def fail(message: str) -> NoReturn:
    """Prints an error and exits with status 2, as for any wrong command line."""
    say(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def preset_named(name: str, presets: Mapping[str, C]) -> C:
    """Returns a preset; an unknown name is refused with a suggestion."""
    if name not in presets:
        near = difflib.get_close_matches(name, presets, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        fail(f"unknown preset {name!r}.{hint} Presets: {', '.join(presets)}.")
    return presets[name]


def option_value(args: list[str], option: str) -> str | None:
    """The last value that a command line gives an option, before it is parsed; None without."""
    value = None
    for i, arg in enumerate(args):
        if arg.startswith(f"{option}="):
            value = arg.removeprefix(f"{option}=")
        elif arg == option and i + 1 < len(args):
            value = args[i + 1]
    return value


def parse(
    args: list[str], presets: Mapping[str, C], *, default: str, prog: str, description: str
) -> C:
    """Reads a run's options; those that are not given come from the preset.

    Args:
      args: the command line.
      presets: configurations by name.
      default: the preset without --preset.
      prog: name of the command, for its help.
      description: shown by --help.

    Returns:
      The configuration.
    """
    preset: Any = preset_named(option_value(args, "--preset") or default, presets)
    return tyro.cli(type(preset), args=args, prog=prog, description=description, default=preset)


def run_command(
    run: Callable[[], dict[str, Any]],
    print_run: Callable[[Any, dict[str, Any], Path], None],
    workdir: Path,
    cpu_devices: int | None,
) -> int:
    """Makes a run and prints what came of it.

    Args:
      run: returns the record.
      print_run: prints a finished one (console, record, workdir).
      workdir: of the run.
      cpu_devices: CPU devices to split a batch over; None is one per core.

    Returns:
      The exit status.
    """
    from experiments.common.hardware import prepare_cpu

    prepare_cpu(cpu_devices)
    try:
        record = run()
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        fail(str(error))
    console = new_console()
    if record["stopped"] == "signal":
        console.print(
            f"stopped after step {record['steps']}; the same command continues from {workdir}"
        )
        return record["exit_code"]
    print_run(console, record, workdir)
    return 0
