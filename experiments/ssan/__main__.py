"""The command `python -m experiments.ssan`, which trains and evaluates an SSAN or its baseline."""

import functools
import sys

from experiments.core import cli

main = functools.partial(cli.run, "ssan", others={"make-probes": "make_probes"})

if __name__ == "__main__":
    sys.exit(main())
