"""Training and test of a RAU, GRU or LSTM: `python -m experiments.rau --preset digits`."""

import functools
import sys

from experiments.core import cli

main = functools.partial(cli.run, "rau")

if __name__ == "__main__":
    sys.exit(main())
