"""The toy paper with runs that last, for processes that are stopped or killed."""

import dataclasses
import os
import sys

from experiments.core import plan, pool, reproduce, verify
from experiments.core.config import changed
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


PRESETS = {name: changed(one, STEPS) for name, one in _toy.PAPER.presets.items()}
PAPER = dataclasses.replace(_toy.PAPER, presets=PRESETS, experiment=experiment)


def in_place_of_papers() -> list[tuple[object, str, object]]:
    """What makes `reproduce` know this paper alone: (module, name, value)."""
    here = ("cpu", "this one")
    return [
        *((module, "PAPERS", {"toy": None}) for module in (reproduce, verify)),
        *((module, "paper_named", lambda name: PAPER) for module in (reproduce, verify)),
        *((module, "hardware_here", lambda: here) for module in (reproduce, plan)),
        (pool, "module_of", lambda task: MODULE),
    ]


if __name__ == "__main__":
    for module, name, value in in_place_of_papers():
        setattr(module, name, value)
    sys.exit(reproduce.main(["--papers", "toy", *sys.argv[1:]]))
