"""Trains and evaluates one GA-Net (or baseline): `python -m experiments.ga_net --preset trec`."""

import sys

from experiments.common.cli import check_folder, refusals
from experiments.ga_net.cli import parse
from gatedjax._terminal import new_console

DESCRIPTION = """Train GA-Net, or a baseline with --model.system, and evaluate it on the test set.
Options that are not given come from --preset. Press Ctrl-C to stop: the run is saved, and the
same command continues it."""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    config = parse(args, "python -m experiments.ga_net", DESCRIPTION)

    from experiments.common.hardware import prepare_cpu
    from experiments.ga_net.report import print_lanes, print_run
    from experiments.ga_net.run import default_workdir, run, run_lanes
    from gatedjax.training.distributed import initialize, is_main

    workdir = default_workdir(config)
    check_folder(workdir, "--workdir")
    prepare_cpu(config.cpu_devices)
    several = config.train.seeds > 1 or bool(config.train.sweep)
    with refusals():
        initialize(config.distributed)
        results = run_lanes(config) if several else [run(config)]
    stopped = next((r.fit for r in results if r.fit.stopped == "signal"), None)
    if not is_main():
        return 0 if stopped is None else stopped.exit_code
    console = new_console()
    if stopped is not None:
        console.print(
            f"stopped after step {stopped.steps}; the same command continues from {workdir}"
        )
        return stopped.exit_code
    if several:
        print_lanes(console, [result.record for result in results], workdir)
    else:
        print_run(console, results[0].record, workdir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
