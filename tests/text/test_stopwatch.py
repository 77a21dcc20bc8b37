"""The time limit of training: compilation does not count, and the end is reported."""

import pytest

from gatedjax.text.fit._network import Stopwatch, _render_time_up


def test_compilation_and_the_checks_before_it_do_not_count():
    now = [0.0]
    watch = Stopwatch(100.0, now=lambda: now[0])

    def wait(seconds, *, compiled=False):
        now[0] += seconds
        watch.pass_event(compiled=compiled)

    now[0] = 50.0
    assert watch.seconds() == 100
    wait(9, compiled=True)  # the checks and the first step
    assert watch.seconds() == 100
    wait(2)
    wait(30, compiled=True)  # another shape
    wait(3)
    now[0] += 1
    assert watch.seconds() == 106


@pytest.mark.parametrize(("steps", "hardly"), [(1, True), (10, False)])
def test_a_run_that_read_a_part_of_the_texts_is_said_to_have_hardly_learned(steps, hardly):
    line = _render_time_up(0.5, steps, 400, 10)
    assert line.startswith(f"the time is up (0.5 minutes) after {steps} of 400 steps")
    assert ("has read 10% of the training texts and has hardly learned" in line) == hardly
