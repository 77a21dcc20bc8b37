"""What a record keeps of the lines of metrics.jsonl."""

from experiments.core.curves import curve, first_losses, seconds_per_step


def line(step, split="train", **values):
    return {"split": split, "step": step, **values}


LINES = [
    line(60, loss=2.5, cross_entropy=2.0, accuracy=0.25, steps_per_s=10.0),
    line(60, "eval", loss=3.0, accuracy=0.5),
    line(80, loss=1.5, cross_entropy=1.0, accuracy=0.75, steps_per_s=40.0),
    line(100, loss=0.75, steps_per_s=20.0),
]


def test_a_curve_has_the_loss_without_penalties():
    assert curve(LINES, "train") == [[60, 2.0, 0.25], [80, 1.0, 0.75], [100, 0.75, None]]
    assert curve(LINES, "eval") == [[60, 3.0, 0.5]]
    assert curve(LINES, "test") == []
    assert curve([line(3, loss=None, accuracy=1.0)], "train") == [[3, None, 1.0]]


def test_neighbours_of_a_long_curve_are_one_point_at_the_last_of_them():
    assert curve(LINES, "train", 2) == [[80, 1.5, 0.5], [100, 0.75, None]]


def test_first_losses_have_the_first_line_whatever_its_step():
    assert first_losses(LINES, last=50) == [[60, 2.0]]
    assert first_losses(LINES, last=80) == [[60, 2.0], [80, 1.0]]


def test_the_time_of_a_step_is_that_of_the_median_interval():
    assert seconds_per_step(LINES) == 0.05
    assert seconds_per_step([line(1, loss=1.0)]) is seconds_per_step([]) is None
