"""The command `python -m experiments`, which lists the papers and their commands."""

import difflib
import importlib
import logging
import sys

from experiments.core.papers import BENCHMARKS, PAPERS
from gatedjax import __version__
from gatedjax._utils.terminal import say


def usage() -> str:
    """Returns the text that the command prints without an argument and with --help."""
    lines = ["usage: python -m experiments.PAPER ...", "", "papers:"]
    for name, paper in PAPERS.items():
        lines += ["", f"  {name}: {paper.title}"]
        commands = {f"python -m experiments.{name}{c}": text for c, text in paper.commands.items()}
        width = max(map(len, commands))
        lines += [f"    {command:<{width}}  {text}" for command, text in commands.items()]
    lines += [
        "",
        f"benchmarks: python -m experiments.benchmarks.NAME, with {', '.join(BENCHMARKS)}",
        "",
        "python -m experiments missing  print the runs that the tables lack, as shell commands",
        "python -m experiments verify PAPER/DATA/VARIANT/SEED  train the first steps of a record",
        "",
        "--help after a command shows its options; --version after one of a paper, the version.",
    ]
    return "\n".join(lines)


def main(args: list[str] | None = None) -> int:
    """Prints the list of papers, or runs `missing` or `verify`; returns the exit status."""
    args = sys.argv[1:] if args is None else args
    if not args or args[0] in ("-h", "--help"):
        say(usage())
        return 0
    if args[0] == "--version":
        say(f"gatedjax {__version__}")
        return 0
    if args[0] in ("missing", "verify"):
        # TFDS warns about each folder without a prepared data set, which is no fault here.
        logging.getLogger("absl").setLevel(logging.ERROR)
        # Imported here because it loads JAX, which the list of papers does not need.
        command = importlib.import_module(f"experiments.core.{args[0]}")
        try:
            status: int = command.main(args[1:])
        except KeyboardInterrupt:
            say("stopped", file=sys.stderr)
            return 130
        return status
    name = args[0].replace("-", "_")
    close_names = difflib.get_close_matches(name, PAPERS, n=1)
    if close_names:
        hint = f" Run python -m experiments.{close_names[0]}, with a dot."
        say(f"error: python -m experiments takes no argument.{hint}", file=sys.stderr)
    else:
        say(f"error: unknown paper {args[0]!r}. Papers: {', '.join(PAPERS)}.", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
