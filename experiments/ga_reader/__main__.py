"""Trains and evaluates one reader: `python -m experiments.ga_reader --preset cbt_ne`."""

import sys

from experiments.core.cli import run_command
from experiments.ga_reader.cli import parse

DESCRIPTION = """Train a gated-attention reader, or a baseline with --model.hops 1 or --model.gating
none, and evaluate it on the test questions. Options that are not given come from --preset. Press
Ctrl-C to stop: the run is saved, and the same command continues it.

Other commands: `answer` asks a trained reader one's own question; `make-cloze` makes questions of
books."""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    if args[:1] == ["answer"]:
        from experiments.ga_reader.answer import main as answer

        return answer(args[1:])
    if args[:1] == ["make-cloze"]:
        from experiments.ga_reader.make_cloze import main as make_cloze

        return make_cloze(args[1:])
    config = parse(args, "python -m experiments.ga_reader", DESCRIPTION)

    from experiments.ga_reader.report import print_run
    from experiments.ga_reader.run import default_workdir, run

    return run_command(lambda: run(config), print_run, default_workdir(config), config.cpu_devices)


if __name__ == "__main__":
    sys.exit(main())
