"""How every kind of run becomes an `Experiment`."""

from collections.abc import Callable
from typing import Any

from experiments.ssan.config import ProbeConfig, ReorderingConfig, RunConfig
from experiments.ssan.experiment import Experiment


def _probe(config: Any) -> Experiment:
    from experiments.ssan.probes import experiment

    return experiment(config)


def _reordering(config: Any) -> Experiment:
    from experiments.ssan.reordering import experiment

    return experiment(config)


FAMILIES: dict[type[RunConfig], Callable[[Any], Experiment]] = {
    ProbeConfig: _probe,
    ReorderingConfig: _reordering,
}


def build(config: RunConfig) -> Experiment:
    """Loads the data of a run and makes its task.

    Raises:
      ValueError: if the run cannot be made.
    """
    return FAMILIES[type(config)](config)
