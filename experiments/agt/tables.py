"""Reproduces the paper's table and figures: `python -m experiments.agt.tables table1`."""

import sys

from experiments.agt.paper import PAPER
from experiments.core import command


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command.tables(PAPER, args)


if __name__ == "__main__":
    sys.exit(main())
