"""The paper's tables and figures: `python -m experiments.ga_net.tables table2`."""

import functools
import sys

from experiments.core import command
from experiments.ga_net.paper import PAPER

main = functools.partial(command.tables, PAPER)

if __name__ == "__main__":
    sys.exit(main())
