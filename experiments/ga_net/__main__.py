"""Trains and evaluates one GA-Net (or baseline): `python -m experiments.ga_net --preset trec`."""

import functools
import sys

from experiments.core import command
from experiments.ga_net.paper import PAPER

main = functools.partial(command.run, PAPER)

if __name__ == "__main__":
    sys.exit(main())
