"""The paper's tables and figures: `python -m experiments.rau.tables table1`."""

import functools
import sys

from experiments.core import command
from experiments.rau.paper import PAPER

main = functools.partial(command.tables, PAPER)

if __name__ == "__main__":
    sys.exit(main())
