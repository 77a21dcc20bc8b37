"""Two facts need two hops: the toy preset, as a stranger would run it."""

import dataclasses

import pytest

from experiments.ga_reader.config import PRESETS
from experiments.ga_reader.run import run


def accuracy(tmp_path, hops):
    base = PRESETS["toy"]
    config = dataclasses.replace(
        base,
        workdir=str(tmp_path / str(hops)),
        model=dataclasses.replace(base.model, hops=hops),
        train=dataclasses.replace(base.train, progress=False),
    )
    return run(config)["test"]["accuracy"]


@pytest.mark.slow
def test_two_hops_follow_two_facts_and_one_hop_does_not(tmp_path):
    assert accuracy(tmp_path, 2) > 0.95
    assert accuracy(tmp_path, 1) < 0.8
