"""Trains and evaluates one reader: `python -m experiments.ga_reader --preset cbt_ne`."""

import sys

from experiments.core import command
from experiments.ga_reader import answer, make_cloze
from experiments.ga_reader.paper import PAPER

OTHERS = {"answer": answer.main, "make-cloze": make_cloze.main}


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    if args and args[0] in OTHERS:
        return OTHERS[args[0]](args[1:])
    return command.run(PAPER, args)


if __name__ == "__main__":
    sys.exit(main())
