"""The estimate of the time that is left: of steps and evaluations, without compilation."""

import pytest

from gatedjax.training import TrainConfig, fit, fit_lanes, progress
from gatedjax.training.progress import ProgressView
from tests.training._tiny import Data, Tiny


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_compilation_is_not_part_of_the_estimate(clock, capsys):
    view = ProgressView(total=100, start=0, enabled=True)
    clock.now += 60  # the first step, which compiles
    view.once(60, steps=1)
    view.log(1, {"loss": 1.0})
    clock.now += 2 * 9  # nine steps of two seconds
    view.log(10, {"loss": 1.0})
    clock.now += 30 + 2  # another shape compiles
    view.once(30, steps=0)
    view.log(11, {"loss": 1.0})
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert shown == [
        "step 1/100: loss 1.0000",  # nothing to estimate from yet
        "step 10/100: loss 1.0000, 180 s left",
        "step 11/100: loss 1.0000, 178 s left",
    ]


@pytest.mark.slow
def test_a_run_leaves_the_time_of_its_compilations_out(tmp_path, monkeypatch):
    left_out = []
    monkeypatch.setattr(
        ProgressView, "once", lambda self, seconds, steps=0: left_out.append((seconds > 0, steps))
    )
    for seeds in (1, 2):
        config = TrainConfig(
            num_steps=4,
            log_every=2,
            eval_every=2,
            best_metric="accuracy",
            progress=False,
            parallel="single",
            seeds=seeds,
        )
        if seeds == 1:
            fit(Tiny(), Data(), [Data()[1000]], config, tmp_path / "one")
        else:
            fit_lanes(Tiny(), lambda seed: Data(), [Data()[1000]], config, tmp_path / "two")
        # the first step, and the first of two evaluations
        assert left_out == [(True, 1), (True, 0)]
        left_out.clear()
