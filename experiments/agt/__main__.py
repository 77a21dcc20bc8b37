"""Training and test of an AGT: `python -m experiments.agt --preset sst1`."""

import functools
import sys

from experiments.core import cli

main = functools.partial(cli.run, "agt")

if __name__ == "__main__":
    sys.exit(main())
