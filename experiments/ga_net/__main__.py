"""Training and test of a GA-Net (or baseline): `python -m experiments.ga_net --preset trec`."""

import functools
import sys

from experiments.core import cli

main = functools.partial(cli.run, "ga_net")

if __name__ == "__main__":
    sys.exit(main())
