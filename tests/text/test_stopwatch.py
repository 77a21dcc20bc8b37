"""The time limit of training: compilation does not count, and the end is reported."""

import types

import pytest

import gatedjax.text.fit._network as training_module
from gatedjax.text._options import TextOptions
from gatedjax.text.fit._network import NetworkLearner, _render_time_up


def test_compilation_and_the_checks_before_it_do_not_count(tmp_path, monkeypatch):
    now, stops = [0.0], []

    def fit(*arguments, hook, **options):
        def wait(seconds, event="step"):
            now[0] += seconds
            stops.append(hook(event, 0, None, {}))

        wait(50, "compiled")  # the checks and the first step
        wait(2)
        wait(30, "compiled")  # another shape
        wait(3, "save")
        wait(1)
        return types.SimpleNamespace(signal=None)

    monkeypatch.setattr(training_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(training_module, "fit", fit)
    (tmp_path / "seconds").write_text("100.000")
    options = TextOptions("gru", minutes=1.75)
    NetworkLearner("text", options, tmp_path, progress=False)._run(None, None, None, None, {})
    assert stops == [False, False, False, True, True]
    assert (tmp_path / "seconds").read_text() == "105.000"


@pytest.mark.parametrize(("steps", "hardly"), [(1, True), (10, False)])
def test_a_run_that_read_a_part_of_the_texts_is_said_to_have_hardly_learned(steps, hardly):
    line = _render_time_up(0.5, steps, 400, 10)
    assert line.startswith(f"the time is up (0.5 minutes) after {steps} of 400 steps")
    assert ("has read 10% of the training texts and has hardly learned" in line) == hardly
