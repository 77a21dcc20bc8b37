"""Trains and evaluates one reader: `python -m experiments.ga_reader --preset cbt_ne`."""

import sys

from experiments.common.cli import fail
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

    from rich.console import Console

    from experiments.common.hardware import use_all_cores
    from experiments.ga_reader.report import print_run
    from experiments.ga_reader.run import default_workdir, run

    use_all_cores(config.cpu_devices)
    try:
        record = run(config)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        fail(str(error))
    console = Console()
    workdir = default_workdir(config)
    if record["stopped"] == "signal":
        console.print(
            f"stopped after step {record['steps']}; the same command continues from {workdir}"
        )
        return record["exit_code"]
    print_run(console, record, workdir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
