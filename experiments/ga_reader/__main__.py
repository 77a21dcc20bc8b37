"""The command `python -m experiments.ga_reader`, which trains and evaluates a reader."""

import functools
import sys

from experiments.core import cli

main = functools.partial(cli.run, "ga_reader", others={"make-cloze": "make_cloze"})

if __name__ == "__main__":
    sys.exit(main())
