"""Trains and evaluates one AGT: `python -m experiments.agt --preset sst1`."""

import functools
import sys

from experiments.agt.paper import PAPER
from experiments.core import command

main = functools.partial(command.run, PAPER)

if __name__ == "__main__":
    sys.exit(main())
