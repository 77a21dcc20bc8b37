"""Trains and evaluates one reader: `python -m experiments.ga_reader --preset cbt_ne`."""

import sys

from experiments.core import cli
from experiments.ga_reader.config import START


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    # what a command needs is loaded when its name or its options are known
    if args[:1] in (["answer"], ["make-cloze"]):
        from experiments.ga_reader import answer, make_cloze

        other = answer if args[0] == "answer" else make_cloze
        return other.main(args[1:])
    config = cli.parse(args, **vars(START))
    from experiments.core import command
    from experiments.ga_reader.paper import PAPER

    return command.run_config(PAPER, config)


if __name__ == "__main__":
    sys.exit(main())
