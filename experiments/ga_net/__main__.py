"""Trains and evaluates one GA-Net (or baseline): `python -m experiments.ga_net --preset trec`."""

import sys

from experiments.ga_net.cli import fail, parse

DESCRIPTION = """Train GA-Net, or a baseline with --model.system, and evaluate it on the test set.
Options that are not given come from --preset. Press Ctrl-C to stop: the run is saved, and the
same command continues it."""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    config = parse(args, "python -m experiments.ga_net", DESCRIPTION)

    from rich.console import Console

    from experiments.ga_net.report import print_run
    from experiments.ga_net.run import default_workdir, run, use_all_cores
    from gatedjax.training.distributed import initialize, is_main

    use_all_cores(config.cpu_devices)
    try:
        initialize(config.distributed)
        result = run(config)
    except (ValueError, OSError, RuntimeError) as error:
        fail(str(error))
    if not is_main():
        return result.fit.exit_code
    console = Console()
    if result.fit.stopped == "signal":
        console.print(
            f"stopped after step {result.fit.steps}; the same command continues from "
            f"{default_workdir(config)}"
        )
        return result.fit.exit_code
    print_run(console, result.record, default_workdir(config))
    return 0


if __name__ == "__main__":
    sys.exit(main())
