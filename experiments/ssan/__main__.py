"""The command `python -m experiments.ssan`, which trains and evaluates an SSAN or its baseline."""

import functools
import sys

from experiments.core import cli

OTHERS = {"translate": "translation", "make-probes": "make_probes"}
main = functools.partial(cli.run, "ssan", others=OTHERS)

if __name__ == "__main__":
    sys.exit(main())
