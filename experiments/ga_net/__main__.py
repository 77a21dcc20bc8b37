"""Training and test of a GA-Net (or baseline): `python -m experiments.ga_net --preset trec`."""

import sys

from experiments.core import cli
from experiments.ga_net.config import START


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    config = cli.parse(args, **vars(START))
    # These imports are slow, so a help or a refused option must not wait for them.
    from experiments.core import command
    from experiments.ga_net.paper import PAPER

    return command.run_config(PAPER, config)


if __name__ == "__main__":
    sys.exit(main())
