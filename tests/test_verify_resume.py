"""`python -m gatedjax verify-resume` proves equality, and sees where there is none."""

import sys
from pathlib import Path

import pytest

from gatedjax.__main__ import main
from gatedjax._commands.verify_resume import _differences, kill_points
from tests._programs import environment

RECIPE = str(Path(__file__).parent / "training" / "_recipe.py")


@pytest.fixture
def importable(monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
def test_a_recipe_is_proved(importable, capsys, tmp_path):
    args = ["--kills", "2", "--keep", str(tmp_path / "kept"), "--", sys.executable, RECIPE]
    assert main(["verify-resume", *args]) == 0
    out = capsys.readouterr().out
    assert out.count(": killed") == 2
    assert out.splitlines()[-1] == "bit-equal"
    assert "2 kills, " in out
    assert (tmp_path / "kept" / "killed" / "metrics.jsonl").exists()


@pytest.mark.slow
def test_a_recipe_that_does_not_resume_is_found_out(importable, capsys):
    assert main(["verify-resume", "--kills", "1", "--", sys.executable, RECIPE, "--forget"]) == 1
    out = capsys.readouterr().out
    assert "state: DIFFERENT: " in out
    assert "metrics: DIFFERENT: " in out
    assert "NOT equal" in out


def test_a_command_that_fails_shows_its_last_lines(capsys):
    command = ["python", "-c", "import sys; raise SystemExit(sys.executable)"]
    assert main(["verify-resume", "--", *command]) == 2
    assert sys.executable in capsys.readouterr().err  # that of this process


def test_values_differ_by_their_bits_and_what_is_empty_is_a_value():
    nan = float("nan")
    found = _differences({"a": [nan, 0.0, 1], "b": {}}, {"a": [nan, -0.0, 1]})
    assert sorted(found) == ["a.1", "b"]


def test_a_command_that_trains_nothing_is_refused(capsys):
    assert main(["verify-resume", "--", sys.executable, "-c", "pass"]) == 2
    assert "must finish one training run" in capsys.readouterr().err


def test_a_workdir_of_its_own_is_refused(capsys):
    assert main(["verify-resume", "--", "python", "x.py", "--workdir=w"]) == 2
    assert "must not have --workdir" in capsys.readouterr().err


def test_kills_ascend_and_half_of_them_are_in_saves():
    points = kill_points(60, 4, 20, seed=3, interval=0.5)
    steps = [step for _, step, _ in points]
    assert len(points) == 20
    assert steps == sorted(steps)
    assert all(step % 4 == 0 for step in steps)
    assert sum(kind == "save" for kind, _, _ in points) == 10
    assert all(0 <= seconds <= 0.5 for _, _, seconds in points)
    assert kill_points(3, 125, 2, seed=0, interval=1.0)[-1][:2] == ("save", 3)


def test_an_unknown_command_is_refused_with_a_suggestion(capsys):
    assert main(["verify-resme"]) == 2
    assert "Did you mean 'verify-resume'?" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["--help"]) == 0
