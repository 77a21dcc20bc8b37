"""Reproduces the paper's tables and figures: `python -m experiments.ssan.tables table2`."""

import sys

from experiments.core import command
from experiments.ssan.paper import PAPER


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command.tables(PAPER, args)


if __name__ == "__main__":
    sys.exit(main())
