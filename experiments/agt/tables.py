"""The paper's table and figures: `python -m experiments.agt.tables table1`."""

import functools
import sys

from experiments.agt.paper import PAPER
from experiments.core import command

main = functools.partial(command.tables, PAPER)

if __name__ == "__main__":
    sys.exit(main())
