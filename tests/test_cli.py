"""The one parser of command lines: whole sentences in the help, one line for a refusal."""

import dataclasses
import importlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from gatedjax.__main__ import GROUPS, main
from gatedjax._commands import _train_network, train
from gatedjax._utils.cli import parse, parse_command
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import UNREAD
from gatedjax.text._options import TextOptions as ModelOptions
from gatedjax.text.fit._network_options import train_config
from tests._streams import unread
from tests.conftest import ROOT
from tests.experiments._commands import plain
from tests.text._own import TEXTS, write_csv

HELPS = {
    **{
        f"gatedjax {name}": ("gatedjax.__main__", [name])
        for group in GROUPS.values()
        for name in group
    },
    **{
        f"gatedjax {name}": ("gatedjax.__main__", name.split())
        for name in ("checkpoints diff", "data check", "gates report")
    },
    "experiments.ga_net": ("experiments.ga_net.__main__", []),
    "experiments.ssan translation": ("experiments.ssan.__main__", ["--preset", "mt_multi30k"]),
    "experiments.ga_reader.tables": ("experiments.ga_reader.tables", []),
    "experiments missing": ("experiments.__main__", ["missing"]),
    "experiments.agt": ("experiments.agt.__main__", []),
    "experiments.ssan": ("experiments.ssan.__main__", []),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    """Options of a group."""

    seed: int = 3
    """The seed."""
    rate: float | None = None
    """The rate."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Does what the command does.

    This paragraph is longer than a line of eighty columns, so that it must be wrapped at a word and
    not in the middle of it.
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder."""
    texts: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT ...]")
    ] = ()
    """The texts."""
    out: Path
    """The file to write, with a docstring of two lines, which the help shows whole and without a
    break after the words of the first (default: standard output)."""
    count: Unset[int] = None
    """The count."""
    columns: Unset[tuple[str, ...]] = None
    """The columns."""
    part: Literal["state", "best"] = "state"
    """The part."""
    lower_case: bool = True
    """Whether to fold case."""
    relax: Unset[Literal["hard", "soft", "expected", "straight", "sampled"]] = None
    """The relaxation."""
    overwrite: Flag = False
    """Whether to replace the file."""
    train: Inner = Inner()


def read(*args):
    return parse(Options, args, "prog", words="texts")


def shown(call, capsys, monkeypatch, columns=80):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(call())
    assert stop.value.code in (0, None)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "columns"), [*((name, 80) for name in HELPS), ("gatedjax train", 100)]
)
def test_a_help_fits_the_terminal_and_cuts_nothing(command, columns, capsys, monkeypatch):
    module, args = HELPS[command]
    main = importlib.import_module(module).main
    text = shown(lambda: main([*args, "--help"]), capsys, monkeypatch, columns)
    assert text.startswith("usage: ")
    assert max(map(len, text.splitlines())) <= columns
    assert " ...\n" not in text.partition("\n\n")[2].replace("COLUMN ...\n", "")
    for option in re.split(r"\n│ --", text):
        hints = re.findall(r"\(default: ?([^)]*)\)", plain(option))
        assert len(hints) < 2, option
        assert not {"", "''", '""'} & set(hints), option


@pytest.mark.parametrize("name", ["_harness", "compile", "ga_reader", "recurrence", "__main__"])
def test_the_help_of_a_benchmark_shows_no_empty_default(name, capsys, monkeypatch):
    kind = importlib.import_module(f"experiments.benchmarks.{name}").Options
    text = shown(lambda: parse(kind, ["--help"], "prog"), capsys, monkeypatch)
    assert "(default: )" not in text
    assert "(default: None)" not in text


def test_a_help_shows_every_docstring_whole(capsys, monkeypatch):
    text = shown(lambda: read("--help"), capsys, monkeypatch)
    assert (
        "The file to write, with a docstring of two lines, which the help shows whole and without "
        "a break after the words of the first (default: standard output). (required)"
    ) in plain(text)
    assert "This paragraph is longer than a line of eighty columns, so that it must be" in text
    assert "with a docstring of two lines, which the help shows\n" not in text
    for name in ("MODEL", "--count INT", "--lower-case, --no-lower-case", "--train.seed INT"):
        assert name in text
    for more in (["-h"], ["--help-all"], ["model", "--count", "3", "--help"]):
        assert shown(lambda more=more: read(*more), capsys, monkeypatch) == text


def test_the_usage_ends_with_the_words(capsys, monkeypatch):
    text = shown(lambda: main(["verify-resume", "--help"]), capsys, monkeypatch)
    assert text.partition("\n\n")[0].endswith(" -- COMMAND ...")


def test_the_help_of_train_shows_the_defaults_of_the_command():
    options, inferred = _train_network.TrainingOptions(), train_config(ModelOptions(), 1)
    data = ("num_steps", "log_every", "eval_every", "checkpoint_every", "seed", "learning_rate")
    for one, other in ((options, inferred), (options.optimizer, inferred.optimizer)):
        for field in dataclasses.fields(other):
            if field.name not in (*data, "optimizer"):
                assert getattr(one, field.name) == getattr(other, field.name), field.name


def test_the_help_of_train_is_short_and_that_of_a_task_has_its_network(capsys, monkeypatch):
    text = shown(lambda: main(["train", "--help"]), capsys, monkeypatch)
    assert len(text.splitlines()) <= 70
    text = shown(lambda: main(["train", "--task=pair", "--help"]), capsys, monkeypatch)
    assert "--model.hidden" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["x", "--model=ganet", "--model.temprature", "1"],
            "unknown option --model.temprature. Did you mean --model.gates.temperature?",
        ),
        (["x", "--train.seeds", "2"], "--train.seeds must be left out for a lexicon, which has no "
         "network: add --model ganet"),
        (["x", "--num_steps=3"], "--num-steps must be left out for a lexicon, which has no "
         "network: add --model ganet"),
        (["x", "--tag", "3"], "--tag must be left out except for files of tags: add --task tags"),
        (["x", "--model=gru", "--order", "a,b"], "--order must be left out for gru: it is an "
         "option of the model lexicon"),
        (["x", "--cpu-devices=0", "--model", "gru"], "--cpu-devices must be at least 1, got 0"),
        (["x", "--densty", "1"], "unknown option --densty. Did you mean --model.gates.density? It "
         "needs --model ganet"),
        (["x", "--model=ganet", "--densty", "1"],
         "unknown option --densty. Did you mean --model.gates.density?"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_train_is_refused_by_the_name_in_the_help(args, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        train.main([*args, "--out", "model"])
    assert capsys.readouterr().err == f"error: {message}\n"


def test_a_help_is_drawn_in_the_characters_of_the_stream(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    with pytest.raises(SystemExit, match="0"):
        read("--help")
    text = sys.stdout.buffer.getvalue().decode("ascii")
    assert "--count INT" in text
    assert "\\u" not in text


@pytest.mark.parametrize("command", ["train", "data"])
def test_a_help_that_nobody_reads_is_no_error(command, capfd, monkeypatch):
    with unread() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as ended:
            sys.exit(main([command, "--help"]))
    assert ended.value.code == UNREAD
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        (["a", "--count", "3", "b"], {"texts": ("a", "b"), "count": 3}),
        (["a", "-b c", "--count=-3", "-d e"], {"texts": ("a", "-b c", "-d e"), "count": -3}),
        (["--count", "-3", "--count", "4"], {"count": 4}),
        (["a", "--overwrite", "--", "--count", "-h"], {"texts": ("a", "--count", "-h")}),
        (["a", "--", "--version", "--"], {"texts": ("a", "--version", "--")}),
        (["--part", "best", "-5"], {"texts": ("-5",), "part": "best"}),
        (["--columns", "x", "y", "--no-lower_case"], {"columns": ("x", "y"), "lower_case": False}),
        (["--columns", "-x y"], {"columns": ("-x y",)}),
        (["--columns", "-x\ty"], {"columns": ("-x\ty",)}),
        (["--train.rate", "None", "--train.seed=1"], {"train": Inner(seed=1)}),
    ],
)
def test_what_a_command_takes(args, fields):
    options = read("model", "--out", "file", *args)
    assert {name: getattr(options, name) for name in fields} == fields
    assert options.model == Path("model")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["m", "--ouut", "x"], "unknown option --ouut. Did you mean --out?"),
        (["--coumt=3", "m", "--out", "x"], "unknown option --coumt=3. Did you mean --count?"),
        (["m", "--out", "x", "--seed", "1"], "unknown option --seed. Did you mean --train.seed?"),
        (["m", "--out", "x", "--zzz"], "unknown option --zzz."),
        (["m", "--out", "x", "-v"], "unknown option -v."),
        (["m", "--out", "x", "--no-overwrite"], "Did you mean --overwrite?"),
    ],
)
def test_an_unknown_option_is_one_line(args, message, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")  # a message is never wrapped
    with pytest.raises(SystemExit, match="2"):
        read(*args)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.endswith(f"{message}\n")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ([], ["MODEL", "--out PATH"]),
        (["m"], ["--out PATH"]),
        (["m", "--out"], ["'--out'"]),
        (["m", "--out", "--count", "3"], ["'--out'"]),
        (["m", "--out", "x", "--count", "many"], ["--count", "int", "'many'"]),
        (["m", "--out", "x", "--count", "None"], ["--count", "int", "'None'"]),
        (["m", "--out", "x", "--train.rate=1,5"], ["--train.rate", "float", "1,5"]),
        (["m", "--out", "x", "--part", "all"], ["--part", "'all'", "state", "best"]),
    ],
)
def test_a_wrong_value_is_refused_by_tyro_with_its_option(args, parts, capsys):
    with pytest.raises(SystemExit, match="2"):
        read(*args)
    output = capsys.readouterr()
    assert output.out == ""
    assert all(part in plain(output.err) for part in [*parts, "prog --help"])


def test_ctrl_c_while_a_command_is_imported_is_no_traceback(capsys, monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupt)
    assert main(["train", "reviews.csv", "--out", "model"]) == 130
    assert capsys.readouterr().err == "stopped\n"


LOGGED = """
import sys
from gatedjax.__main__ import main
assert main(["look", sys.argv[1]]) == 0
import jax
jax.jit(lambda x: 2 * x)(1.0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", [None, "2"])
def test_errors_in_the_log_of_xla_are_not_shown_unless_the_user_wants_them(level, tmp_path):
    # The banners about slow compilations are of this kind, but come only after two minutes.
    path = write_csv(tmp_path / "texts.csv", TEXTS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    environment["XLA_FLAGS"] = f"--xla_dump_to={path}/none"
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    command = [sys.executable, "-c", LOGGED, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ("Could not create directory" in done.stderr) == (level is not None)


def test_the_text_and_the_label_are_different_columns(tmp_path, capsys):
    path = tmp_path / "reviews.csv"
    path.write_text("text,label\na,b\nc,d\n")
    for args in (["train", str(path), "--out", str(tmp_path / "m")], ["look", str(path)]):
        with pytest.raises(SystemExit, match="2"):
            main([*args, "--label", "text"])
        assert capsys.readouterr().err == (
            "error: --text and --label must be names of different columns, got ('text',) and "
            "'text'\n"
        )


def test_a_word_too_many_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        parse(Inner, ["--seed", "1", "--", "--help"], "prog")
    assert capsys.readouterr().err == "error: unexpected argument '--help'\n"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--model.hidden", 10**9, "hidden must be at most 65,536, got 1,000,000,000"),
        ("--train.seed", 2**70, f"--train.seed must be at most 4,294,967,295, got {2**70:,}"),
    ],
)
def test_a_value_that_a_configuration_refuses_ends_with_status_2(option, value, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        train.main(["texts.csv", "--out", "model", "--model=ganet", option, str(value)])
    assert message in plain(capsys.readouterr().err)


def test_one_of_several_commands(capsys):
    commands = {"first": Inner, "second": Options}
    assert parse_command(commands, ["first", "--seed", "4"], "prog", "") == Inner(seed=4)
    for args, status in (([], 2), (["--help"], 0)):
        with pytest.raises(SystemExit, match=str(status)):
            parse_command(commands, args, "prog", "Does both.")
        text = capsys.readouterr().out
        assert "Does both." in text
        assert "first   Options of a group. Options: --seed, --rate." in text
    with pytest.raises(SystemExit, match="2"):
        parse_command(commands, ["secnd", "m"], "prog", "")
    err = capsys.readouterr().err
    assert (
        err == "error: unknown command 'secnd'. Did you mean 'second'? Commands: first, second.\n"
    )


def test_the_version_needs_no_parser():
    code = (
        "import sys; from gatedjax.__main__ import main; "
        "main(['--version']); main(['--help']); assert 'tyro' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
