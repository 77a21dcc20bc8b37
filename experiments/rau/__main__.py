"""Trains and evaluates one RAU, GRU or LSTM: `python -m experiments.rau --preset digits`."""

import functools
import sys

from experiments.core import command
from experiments.rau.paper import PAPER

main = functools.partial(command.run, PAPER)

if __name__ == "__main__":
    sys.exit(main())
