"""The command `python -m experiments.ga_reader.tables TABLE`, which reproduces tables and
figures."""

import functools
import sys

from experiments.core import command
from experiments.ga_reader.paper import PAPER

main = functools.partial(command.tables, PAPER)


if __name__ == "__main__":
    sys.exit(main())
