"""The command `python -m experiments.ssan.tables TABLE`, which reproduces tables and figures."""

import functools
import sys

from experiments.core import command
from experiments.ssan.paper import PAPER

main = functools.partial(command.tables, PAPER)


if __name__ == "__main__":
    sys.exit(main())
