"""The benchmarks' command lines, without timing anything."""

import re
import runpy
import sys

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "experiments" / "benchmarks"
OPTIONS = {
    "recurrence": (
        *("--sizes", "--cells", "--layers", "--bidirectional", "--contestants", "--repeats"),
        *("--devices", "--seed", "--json", "--docs", "--figures"),
    ),
    "compile": ("--models", "--layers", "--words", "--repeats", "--clock", "--json", "--docs"),
    "compact_attention": ("--scores", "--steps", "--densities", "--repeats", "--seed", "--json"),
    "agt": ("--vocabulary", "--batch", "--words", "--layers", "--repeats", "--json"),
    "ga_net": (
        *("--densities", "--score", "--batch", "--words", "--width", "--layers", "--repeats"),
        *("--seed", "--json"),
    ),
    "ga_reader": (
        *("--batch", "--document", "--query", "--hidden", "--hops", "--repeats", "--seed"),
        *("--json", "--docs", "--figures"),
    ),
    "own_text": ("--runs", "--json", "--docs"),
    "ssan": (
        *("--layers", "--size", "--repeats", "--clock", "--memory-size", "--json"),
        "--docs",
    ),
    "vectors": ("--vectors", "--share", "--draws", "--json", "--docs"),
    "training": ("--what", "--steps", "--lane-steps", "--seeds", "--repeats", "--json"),
}


@pytest.fixture
def command(monkeypatch, capsys):
    def call(name, *args):
        monkeypatch.setattr(sys, "argv", [name, *args])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        shown = capsys.readouterr()
        return stop.value.code, re.sub(r"\x1b\[[0-9;]*m", "", shown.out + shown.err)

    return call


def test_every_benchmark_is_covered():
    found = {path.stem for path in FOLDER.glob("[!_]*.py")}
    assert found == set(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_help_lists_the_options(command, name):
    code, shown = command(name, "--help")
    assert code == 0
    assert all(option in shown for option in OPTIONS[name])


@pytest.mark.parametrize("name", [name for name in OPTIONS if "--repeats" in OPTIONS[name]])
def test_an_impossible_number_is_one_line_that_names_it(command, name):
    code, _ = command(name, "--repeats", "0")
    assert code == "error: repeats must be at least 1, got 0"


def test_an_unknown_option_is_refused_with_a_suggestion(command):
    code, shown = command("recurrence", "--repeatz", "3")
    assert code == 2
    assert "--repeats" in shown
