"""Command-line parts that the commands of every paper share."""

import difflib
import sys
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import tyro

C = TypeVar("C")


def fail(message: str) -> NoReturn:
    """Prints an error and exits with status 2, as for any wrong command line."""
    print(f"error: {message}", file=sys.stderr)
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
