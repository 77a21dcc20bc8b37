"""Trains and evaluates one SSAN or its baseline: `python -m experiments.ssan --preset bshift`."""

import sys

from experiments.core import command
from experiments.ssan import translation
from experiments.ssan.paper import PAPER


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    if args[:1] == ["translate"]:
        return translation.main(args[1:])
    return command.run(PAPER, args)


if __name__ == "__main__":
    sys.exit(main())
