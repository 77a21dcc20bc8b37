"""Trains and evaluates one AGT: `python -m experiments.agt --preset sst1`."""

import sys

from experiments.agt.cli import parse
from experiments.common.cli import fail

DESCRIPTION = """Train an attention gated transformation network, or a baseline with --model.system,
and evaluate it on the test sentences. Options that are not given come from --preset. Press Ctrl-C
to stop: the run is saved, and the same command continues it."""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    config = parse(args, "python -m experiments.agt", DESCRIPTION)

    from rich.console import Console

    from experiments.agt.report import print_run
    from experiments.agt.run import default_workdir, run
    from experiments.common.hardware import use_all_cores

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
