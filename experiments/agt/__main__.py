"""Training and test of an AGT: `python -m experiments.agt --preset sst1`."""

import sys

from experiments.agt.config import START
from experiments.core import cli


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    config = cli.parse(args, **vars(START))
    # These imports are slow, so a help or a refused option must not wait for them.
    from experiments.agt.paper import PAPER
    from experiments.core import command

    return command.run_config(PAPER, config)


if __name__ == "__main__":
    sys.exit(main())
