"""The toy paper with runs that last, for processes that are stopped or killed."""

import dataclasses
import os
import sys

from experiments.core import plan, reproduce, verify
from experiments.core.config import with_changes
from experiments.core.experiment import Experiment
from tests.experiments import _toy
from tests.training._tiny import Data

STEPS = {"train.num_steps": 60, "train.eval_every": 20, "train.checkpoint_every": 5}
MODULE = "tests.experiments._toy_slow"
PAUSE = "TOY_PAUSE"
"""Seconds that every step takes."""


def experiment(config: _toy.Config) -> Experiment:
    pause = float(os.environ.get(PAUSE, "0"))
    made = _toy.experiment(config)
    return dataclasses.replace(made, train=lambda seed: Data(pause, rows=config.data.rows))


PRESETS = {name: with_changes(one, STEPS) for name, one in _toy.PAPER.presets.items()}
COMMAND_OF = reproduce.command_of
START = dataclasses.replace(_toy.PAPER.start, presets=PRESETS)
PAPER = dataclasses.replace(_toy.PAPER, start=START, experiment=experiment)


def command_of(task: plan.Task) -> list[str]:
    """Returns the command of a run, of this module's paper."""
    return [{"experiments.toy.paper": MODULE}.get(part, part) for part in COMMAND_OF(task)]


def in_place_of_papers() -> list[tuple[object, str, object]]:
    """Returns what makes `reproduce` use this paper alone: (module, name, value)."""
    return [
        *((module, "PAPERS", {"toy": None}) for module in (reproduce, verify)),
        *((module, "paper_named", lambda name: PAPER) for module in (reproduce, verify)),
        (reproduce, "default_platform", lambda: "cpu"),
        (reproduce, "command_of", command_of),
    ]


if __name__ == "__main__":
    for module, name, value in in_place_of_papers():
        setattr(module, name, value)
    sys.exit(reproduce.main(["--papers", "toy", *sys.argv[1:]]))
