"""A help that fits a screen, and the whole of it on request."""

import dataclasses
import importlib
import os
import re
import sys

import pytest

from gatedjax.__main__ import main
from gatedjax._commands import train
from gatedjax._utils import help as _help
from gatedjax._utils.terminal import UNREAD
from gatedjax.training import TrainConfig
from tests._streams import unread

LONG = {
    "gatedjax train": ("gatedjax.__main__", ["train"]),
    "experiments.ga_net": ("experiments.ga_net.__main__", []),
    "experiments.ssan translation": (
        "experiments.ssan.__main__",
        ["--preset", "mt_multi30k"],
    ),
    "experiments.ga_reader.tables": ("experiments.ga_reader.tables", []),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Few:
    """Few options."""

    count: int = 3
    """How many."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Many:
    """Many options."""

    name: str | None = None
    """Of the run, which is long enough that its line does not fit into the width of a terminal."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


def shown(call, capsys, monkeypatch, columns=80):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(call())
    assert stop.value.code in (0, None)
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("command", LONG)
def test_a_long_help_is_shown_in_fewer_than_60_lines(command, columns, capsys, monkeypatch):
    module, args = LONG[command]
    main = importlib.import_module(module).main
    short = shown(lambda: main([*args, "--help"]), capsys, monkeypatch, columns)
    assert short.count("\n") < 60
    assert max(map(len, short.splitlines())) <= columns
    assert short.startswith("usage: ")
    assert short.endswith("--help-all says what every option means, and its default.\n")
    long = shown(lambda: main([*args, "--help-all"]), capsys, monkeypatch, columns)
    assert long.count("\n") > 60
    # what the long one has, the short one names, without "--group."
    for name in re.findall(r"^│ --([\w.-]+)", long, re.MULTILINE):
        last = name.rpartition(".")[2]
        assert re.search(rf"(?<![\w-]){re.escape(last)}(?![\w-])", short), name


@pytest.mark.parametrize("option", ["--help", "--help-all"])
def test_a_long_help_that_is_not_read_to_its_end_is_no_error(option, capfd, monkeypatch):
    with unread() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as ended:
            _help.read(Many, [option])
    assert ended.value.code == UNREAD
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("command", ["predict", "data", "translate"])
def test_a_short_help_that_nobody_reads_is_no_error(command, capfd, monkeypatch):
    with unread() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
    assert ended.value.code == UNREAD
    assert capfd.readouterr().err == ""


def test_a_short_help_stays_what_it_is(capsys, monkeypatch):
    for option in ("--help", "-h", "--help-all"):
        text = shown(lambda option=option: _help.read(Few, [option]), capsys, monkeypatch)
        assert "--count INT" in text
        assert "How many. (default: 3)" in text


def test_groups_are_listed_by_name_and_lines_are_cut_at_words(capsys, monkeypatch):
    text = shown(lambda: _help.read(Many, ["--help"], prog="x"), capsys, monkeypatch)
    lines = text.splitlines()
    place = lines.index("train options, as --train.num-steps:")
    assert lines[place + 1].startswith("  num-steps, log-every, eval-every, ")
    (named,) = [line for line in lines if line.startswith("  --name STR")]
    assert named.endswith(" ...")
    assert "train.optimizer options, as --train.optimizer.name:" in lines
    assert "no-progress" not in text


def test_options_are_read_and_a_help_behind_two_dashes_is_none():
    assert _help.read(Few, ["--count", "4"]) == Few(count=4)
    with pytest.raises(SystemExit, match="2"):
        _help.read(Few, ["--", "--help"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model.hidden", "1000000000"], "hidden must be at most 65,536, got 1,000,000,000"),
        (["--train.seed", str(2**70)], f"seed must be at most 4,294,967,295, got {2**70:,}"),
        (["--train.seed", "x"], "--train.seed: invalid literal for int() with base 10: 'x'"),
    ],
)
def test_a_wrong_value_is_one_line(options, message, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit) as stop:
        train.main(["texts.csv", "--out", "model", *options])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert os.environ["COLUMNS"] == "60"


@pytest.mark.parametrize("option", ["lazy-rows", "no-lazy_rows", "lazy_rows=True"])
@pytest.mark.parametrize("command", ["gatedjax train", "experiments.ga_net"])
def test_a_removed_option_is_explained_in_a_line(command, option, capsys):
    module, args = LONG[command]
    with pytest.raises(SystemExit) as stop:
        importlib.import_module(module).main([*args, f"--train.optimizer.{option}"])
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    assert line.startswith("error: --train.optimizer.lazy-rows was removed in 0.1.0: every ")
