"""Reproduces the paper's tables and figures: `python -m experiments.ga_reader.tables table2`."""

import sys

from experiments.core import command
from experiments.ga_reader.paper import PAPER


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command.tables(PAPER, args)


if __name__ == "__main__":
    sys.exit(main())
