"""Trains and evaluates one SSAN or its baseline: `python -m experiments.ssan --preset bshift`."""

import sys

from experiments.core.cli import run_command
from experiments.ssan.cli import parse

DESCRIPTION = """Train a network with selective self-attention (SSAN), or the standard one (SAN)
with --model.select-layers 0, and evaluate it on the test data. Options that are not given come from
--preset, which also decides which options there are. Press Ctrl-C to stop: the run is saved, and
the same command continues it. Translate with a finished run:
python -m experiments.ssan translate --workdir W < in.txt"""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    if args[:1] == ["translate"]:
        from experiments.ssan.translate import main as translate

        return translate(args[1:])
    config = parse(args, "python -m experiments.ssan", DESCRIPTION)

    from experiments.ssan.report import print_run
    from experiments.ssan.run import default_workdir, run

    return run_command(lambda: run(config), print_run, default_workdir(config), config.cpu_devices)


if __name__ == "__main__":
    sys.exit(main())
