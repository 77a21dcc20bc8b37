"""The command `python -m experiments.ga_reader`, which trains and evaluates a reader."""

import functools
import sys

from experiments.core import cli

OTHERS = {"answer": "answer", "make-cloze": "make_cloze"}
main = functools.partial(cli.run, "ga_reader", others=OTHERS)

if __name__ == "__main__":
    sys.exit(main())
