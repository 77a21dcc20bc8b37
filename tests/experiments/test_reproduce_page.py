"""The commands on docs/reproduce.md, as far as they go without training and without a network."""

import importlib
import re
import runpy
import shlex
import shutil
import sys

import pytest

from experiments.core import subset
from tests.conftest import ROOT

RESULTS = ROOT / "experiments" / "results"
TABLE = re.compile(r"python -m experiments\.\w+\.tables ")


def commands(page):
    """The commands in the blocks of a page."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("python -m ")]


COMMANDS = commands("reproduce")
TABLES = [
    line
    for page in ("reproduce", "ga_net", "agt", "rau", "ga_reader")
    for line in commands(page)
    if TABLE.match(line)
]


def test_the_page_has_commands_of_every_kind():
    assert len(COMMANDS) > 20
    assert len(TABLES) > 8


@pytest.mark.parametrize("line", TABLES)
def test_a_command_for_tables_finds_the_records_of_a_fresh_clone(line, tmp_path, monkeypatch):
    """Status 0 without training a run: the settings of the command are those of the records."""
    module, *args = shlex.split(line)[2:]
    name = module.split(".")[1]
    if "--help" not in args and "--tuning" not in args:
        shutil.copytree(RESULTS / name, tmp_path / name)
        args += ["--results", str(tmp_path / name), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr("experiments.core.command.run_one", lambda *_, **__: pytest.fail(line))
    # tests/equality/test_results.py renders the pages of all folders of records
    monkeypatch.setattr("experiments.core.paper.Paper.write", lambda paper, store: None)
    monkeypatch.chdir(tmp_path)
    main = importlib.import_module(module).main
    if "--help" in args:
        with pytest.raises(SystemExit) as stop:
            main(args)
        assert stop.value.code == 0
    elif "--tuning" in args:
        # Its file is made by the command above it on the page.
        with pytest.raises(SystemExit) as stop:
            main(args)
        assert stop.value.code == 2
    else:
        assert main(args) == 0


class Reached(Exception):
    """Raised where a command would train."""


@pytest.mark.parametrize("line", [line for line in COMMANDS if not TABLE.match(line)])
def test_any_other_command_starts_or_names_the_file_that_it_needs(
    line, tmp_path, monkeypatch, capsys
):
    # The shell reads what stands after a "<".
    module, *args = shlex.split(re.split("[<>|]", line)[0])[2:]
    if "verify-resume" in args:
        pytest.skip("it trains in other processes; test_verify_resume.py runs it")
    if args[:1] == ["missing"]:
        args += ["--papers", "rau"]  # all papers take a quarter of a minute

    def reach(*_, **__):
        raise Reached

    monkeypatch.setattr("experiments.core.command.run_one", reach)
    monkeypatch.setattr("experiments.core.tune.run_one", reach, raising=False)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DIR").mkdir()
    monkeypatch.setattr(sys, "argv", [module, *args])
    for name in (module, f"{module}.__main__"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # as in a new process
    with pytest.raises((SystemExit, Reached)) as stop:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    if stop.type is SystemExit and stop.value.code not in (0, None):
        assert stop.value.code in (1, 2)
        message = capsys.readouterr().err.strip()
        if args[:1] == ["missing"]:  # the lines above name what is left out
            message = message.splitlines()[-1].replace("every missing cell", "every file")
        assert message.count("\n") <= 1, message
        assert re.search(r"error: .*(file|folder|DIR|must be|questions)", message), message


@pytest.mark.slow
def test_the_part_of_glove_has_the_words_of_the_data_sets(tmp_path, capsys):
    (tmp_path / "trec").mkdir()
    for name in ("train_5500.label", "TREC_10.label"):
        lines = [f"HUM:x Who wrote page {i} ?" for i in range(10)]
        (tmp_path / "trec" / name).write_text("\n".join(lines) + "\n", encoding="latin-1")
    glove = tmp_path / "glove.txt"
    glove.write_text("who 1.0 2.0\nWho 3.0 4.0\nthe 5.0 6.0\n? 7.0 8.0\npage 9.0 1.5\n", "utf-8")
    out = tmp_path / "part.subset.txt"
    args = ["--glove", str(glove), "--data", "trec", "--manual-dir", str(tmp_path)]
    assert subset.main([*args, "--out", str(out)]) == 0
    assert out.read_text("utf-8") == "who 1.0 2.0\nWho 3.0 4.0\n? 7.0 8.0\npage 9.0 1.5\n"
    assert "4 words" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        subset.main([*args, "--out", str(out)])  # a present file is kept
    assert "which exists" in capsys.readouterr().err
    args[1] = str(tmp_path / "none.txt")
    with pytest.raises(SystemExit):
        subset.main([*args, "--out", str(tmp_path / "other.txt")])
    assert "GloVe is a separate download" in capsys.readouterr().err
