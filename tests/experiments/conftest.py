"""What makes the runs of the papers' tests shorter."""

import contextlib
import functools

import jax
import pytest

from experiments.benchmarks import _harness
from experiments.core import experiment as engine
from experiments.core.config import with_changes
from experiments.ga_net import experiment
from experiments.ga_net.config import PRESETS
from gatedjax import training


@pytest.fixture(scope="module", autouse=True)
def one_device():
    """Trains on one device: a program for eight takes several times as long to compile."""
    single = functools.partial(training.make_parallel, "single")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "make_parallel", lambda kind, **options: single(**options))
        lanes = functools.partial(training.fit_lanes, devices=jax.devices()[:1])
        patch.setattr(engine, "fit_lanes", lanes)
        yield


@pytest.fixture(scope="module")
def small_polarity():
    """Trains a narrow GA-Net on polarity; enumerates the gates of few words alone.

    All patterns of the gates of 20 words take minutes in unoptimised code; 24 texts have 5 words.
    """
    narrow = {"model.embedding_dim": 8, "model.hidden": 4, "model.aux_hidden": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "EXACT", 5)
        patch.setitem(PRESETS, "polarity", with_changes(PRESETS["polarity"], narrow))
        yield


@pytest.fixture
def known_programs(monkeypatch):
    """Lets a benchmark read its programs from the cache: how long one compiles is no test."""
    monkeypatch.setattr(_harness, "no_compilation_cache", contextlib.nullcontext)
