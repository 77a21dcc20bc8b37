"""The commands of experiments.ga_net as a stranger meets them."""

import dataclasses
import re

import numpy as np
import pytest

from experiments.ga_net import demo
from experiments.ga_net.figures import Inspected
from experiments.ga_net.picture import DARK, Row, draw_picture


@pytest.mark.slow
@pytest.mark.usefixtures("small_polarity")
def test_demo_draws_its_picture_with_the_measured_numbers(tmp_path, capsys):
    assert demo.main(["--workdir", str(tmp_path), "--num-steps", "8"]) == 0
    for name in ("picture.png", "picture.svg", "picture_dark.png", "picture_dark.svg"):
        assert (tmp_path / name).exists()
    for folder in (tmp_path, tmp_path / "soft", tmp_path / "input"):
        for name in ("metrics.jsonl", "config.json", "checkpoints"):
            assert (folder / name).exists()
    shown = capsys.readouterr().out
    assert "gate precision" in shown
    (row,) = (line for line in shown.splitlines() if "other answer " in line and "of 1,000" in line)
    # By construction closed words have no effect if the gates are on the input.
    assert re.findall(r"(\d+) of 1,000", row)[2] == "0"


def _seen(words, gates, predicted, label="positive"):
    weights = np.arange(1.0, 1 + len(words))
    return Inspected(tuple(words), weights, gates, predicted, label)


def test_the_picture_has_the_text_in_which_closed_words_change_the_answer():
    gates = np.array([0.0, 1.0, 0.0])
    words = ["far", "from", "dull"]
    before = [_seen(words, gates, "negative"), *[_seen(words, gates, "positive")] * 2]
    after = [_seen(["from"], gates[1:2], name) for name in ("positive", "positive", "negative")]
    still = demo.Removal(before, before)
    removals = {"soft": still, "attention": demo.Removal(before, after), "input": still}
    assert removals["attention"].changed == 2
    assert removals["input"].changed == 0
    # In the first text the answer is wrong.
    assert demo.choose_text(removals) == 2
    assert demo.choose_text(dict.fromkeys(removals, still)) == 0


def test_soft_attention_keeps_the_words_with_the_largest_weights():
    assert demo.open_words(_seen("abcde", None, "x")).tolist() == [0, 0, 0, 1, 1]
    assert demo.open_words(_seen("ab", np.array([1.0, 0.0]), "x")).tolist() == [1, 0]


def test_titles_follow_the_measurement():
    assert "cannot change" in demo.describe("input", 0, 1000)[0]
    assert "can still change" in demo.describe("input", 1, 1000)[0]
    title, finding = demo.describe("attention", 1234, 2000)
    assert "can still change" in title
    assert finding == "Removing the closed words changes the answer in 1,234 of 2,000 texts."
    assert "cannot" not in demo.describe("attention", 0, 1000)[0]


@pytest.mark.slow
def test_the_picture_strikes_closed_words_and_writes_the_findings(tmp_path):
    row = Row("A title", "A finding.", ["a", "b", "c"], np.array([0.0, 1.0, 0.0]),
              np.array([False, True, False]), ("x", "y"), closes=True)  # fmt: skip
    soft = dataclasses.replace(row, closes=False, answers=("x", "x"))
    figure = draw_picture([row, soft], "Heading", tmp_path / "picture", DARK)
    (axes,) = figure.axes
    shown = [text.get_text() for text in axes.texts]
    assert {"Heading", "A title", "A finding.", "another answer", "same answer"} <= set(shown)
    # Two closed words of the first row and the word of the legend.
    assert len(axes.lines) == 3
    assert (tmp_path / "picture.png").exists()
    assert (tmp_path / "picture.svg").exists()
