"""Trains and evaluates one GA-Net (or baseline): `python -m experiments.ga_net --preset trec`."""

import sys

from experiments.core import command
from experiments.ga_net.paper import PAPER


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    return command.run(PAPER, args)


if __name__ == "__main__":
    sys.exit(main())
