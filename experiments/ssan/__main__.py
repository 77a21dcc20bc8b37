"""Trains and evaluates one SSAN or its baseline: `python -m experiments.ssan --preset bshift`."""

import sys

from experiments.core import cli
from experiments.ssan.config import START


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    # what a command needs is loaded when its name or its options are known
    if args[:1] == ["translate"]:
        from experiments.ssan import translation

        return translation.main(args[1:])
    config = cli.parse(args, **vars(START))
    from experiments.core import command
    from experiments.ssan.paper import PAPER

    return command.run_config(PAPER, config)


if __name__ == "__main__":
    sys.exit(main())
