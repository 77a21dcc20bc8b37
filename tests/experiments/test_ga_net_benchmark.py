"""The benchmark of GA-Net's inference opens the share of gates that it says, and measures."""

import json

import numpy as np
import pytest

from experiments.benchmarks import ga_net


@pytest.mark.slow
@pytest.mark.usefixtures("known_programs")
def test_one_turn_gives_every_figure(tmp_path, monkeypatch):
    target = tmp_path / "figures.json"
    small = ga_net.Case(batch=2, words=10, width=3, layers=1, densities=(0.3, 1.0))
    monkeypatch.setattr(ga_net, "CASE", small)
    rows = ga_net.main(ga_net.Options(json=target, repeats=1))
    assert [row["density"] for row in rows] == [0.3, 1.0]
    assert rows[0]["capacity"] < rows[1]["capacity"] == 10
    for row in rows:
        for kind in ("governed", "input"):
            ratio = row["ms"][f"{kind} compact"] / row["ms"][f"{kind} call"]
            assert row["ratios"][kind] == pytest.approx(ratio)
        assert min(row["ms"][name] for name in ("backbone", "auxiliary")) > 0
    assert json.loads(target.read_text())["rows"] == rows


@pytest.mark.parametrize("density", [0.01, 0.3, 0.5, 1.0])
def test_the_gate_bias_opens_the_share_of_words_that_is_asked_for(density, np_rng):
    logits = np_rng.normal(size=(4, 10)).astype(np.float32)
    logits[1, 3:] = -np.inf
    params = {"auxiliary": {"gate": {"bias": np.zeros(1, np.float32)}}}
    tuned, is_open = ga_net.with_density(params, logits, density)
    np.testing.assert_array_equal(logits > -tuned["auxiliary"]["gate"]["bias"][0], is_open)
    assert is_open.sum() == max(1, round(density * 33))
