"""The benchmarks' command lines, without timing anything."""

import re
import runpy
import sys

import pytest

from experiments.core.papers import BENCHMARKS
from tests.conftest import ROOT

FOLDER = ROOT / "experiments" / "benchmarks"


@pytest.fixture
def command(monkeypatch, capsys):
    def call(name, *args):
        monkeypatch.setattr(sys, "argv", [name, *args])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        shown = capsys.readouterr()
        return stop.value.code, re.sub(r"\x1b\[[0-9;]*m", "", shown.out + shown.err)

    return call


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_help_and_names_an_impossible_number(command, name):
    code, shown = command(name, "--help")
    assert code == 0
    assert "--json" in shown
    if "--repeats" in shown:
        code, _ = command(name, "--repeats", "0")
        assert code == "error: repeats must be at least 1, got 0"


def test_an_unknown_option_is_refused_with_a_suggestion(command):
    code, shown = command("recurrence", "--repeatz", "3")
    assert code == 2
    assert "--repeats" in shown
