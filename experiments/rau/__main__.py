"""Trains and evaluates one RAU, GRU or LSTM: `python -m experiments.rau --preset digits`."""

import sys

from experiments.core import command
from experiments.rau.paper import PAPER


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command.run(PAPER, args)


if __name__ == "__main__":
    sys.exit(main())
