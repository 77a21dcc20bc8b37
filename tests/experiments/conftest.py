"""Fixtures of several papers' tests, which make their runs shorter."""

import contextlib

import pytest

from experiments.benchmarks import _harness
from experiments.core.config import with_changes
from experiments.ga_net import experiment
from experiments.ga_net.config import PRESETS
from gatedjax.training import identity


@pytest.fixture(scope="module")
def without_digests():
    """Lowers the program of a run once, where no test asks whether two programs are equal.

    The digest of its programs takes a third of a short run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "program_digest", lambda *_: "")
        yield


@pytest.fixture(scope="module")
def small_polarity():
    """Trains a narrow GA-Net on polarity on one device; enumerates the gates of few words alone.

    All patterns of the gates of 20 words take minutes in unoptimised code; 24 texts have 5 words.
    """
    narrow = {"model.embedding_dim": 8, "model.hidden": 4, "model.aux_hidden": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "EXACT", 5)
        small = with_changes(PRESETS["polarity"], {"train.parallel": "single", **narrow})
        patch.setitem(PRESETS, "polarity", small)
        yield


@pytest.fixture
def known_programs(monkeypatch):
    """Lets a benchmark read its programs from the cache: how long one compiles is no test."""
    monkeypatch.setattr(_harness, "no_compilation_cache", contextlib.nullcontext)
