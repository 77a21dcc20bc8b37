"""How every kind of run becomes an `Experiment`."""

from collections.abc import Callable
from typing import Any

from experiments.ssan.config import ProbeConfig, ReorderingConfig, RunConfig
from experiments.ssan.experiment import Experiment
from experiments.ssan.task_config import NLIConfig, SRLConfig, TranslationConfig


def _probe(config: Any) -> Experiment:
    from experiments.ssan.probes import experiment

    return experiment(config)


def _reordering(config: Any) -> Experiment:
    from experiments.ssan.reordering import experiment

    return experiment(config)


def _nli(config: Any) -> Experiment:
    from experiments.ssan.nli import experiment

    return experiment(config)


def _srl(config: Any) -> Experiment:
    from experiments.ssan.srl import experiment

    return experiment(config)


def _translation(config: Any) -> Experiment:
    from experiments.ssan.translation import experiment

    return experiment(config)


FAMILIES: dict[type[RunConfig], Callable[[Any], Experiment]] = {
    ProbeConfig: _probe,
    ReorderingConfig: _reordering,
    NLIConfig: _nli,
    SRLConfig: _srl,
    TranslationConfig: _translation,
}


def build(config: RunConfig) -> Experiment:
    """Loads the data of a run and makes its task.

    Raises:
      ValueError: if the run cannot be made.
    """
    return FAMILIES[type(config)](config)
