"""What gatedjax prints: names from elsewhere are shown as they are and steer no terminal."""

import ast
import dataclasses
import io
import json
import sys
from types import SimpleNamespace

import pytest
from rich.table import Table
from rich.text import Text

from experiments.core import cli, command
from experiments.core.columns import print_time
from gatedjax._commands._lines import lines_to
from gatedjax._utils.terminal import UNREAD, new_console, printable, say, while_read
from gatedjax.data.files import _source
from gatedjax.training import CheckpointDamaged, CheckpointMismatch
from tests._sources import trees
from tests._streams import unread
from tests.conftest import ROOT
from tests.experiments import _commands
from tests.experiments._toy import PAPER

HOSTILE = "a\x1b[31mred\x07\x9b2J\u202e\udc80"
SHOWN = r"a\x1b[31mred\x07\x9b2J\u202e\udc80"


def test_control_characters_are_shown_and_lines_stay_lines(capsys):
    assert printable(HOSTILE) == SHOWN
    assert printable("two\nlines\tand a n\u0303 \u0645\u200c\u06cc") == (
        "two\nlines\tand a n\u0303 \u0645\u200c\u06cc"
    )
    say("name", HOSTILE, 3)
    assert capsys.readouterr().out == f"name {SHOWN} 3\n"


@pytest.mark.parametrize("size", [1, 200_000])
def test_where_the_reader_has_gone_the_program_ends_without_a_word(size, capfd):
    with unread() as stream:
        with pytest.raises(SystemExit) as ended:
            say("x" * size, file=stream)
        assert ended.value.code == UNREAD
        stream.write("y" * size)  # as an exit handler might; closing flushes it into nothing
    assert capfd.readouterr() == ("", "")


def test_a_console_whose_reader_has_gone_ends_the_program_too(capfd, monkeypatch):
    with unread() as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with pytest.raises(SystemExit) as ended:
            new_console(stderr=True).print("x")
    assert ended.value.code == UNREAD
    say("standard output is still heard")
    assert capfd.readouterr().out == "standard output is still heard\n"


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_program_without_a_stream_says_nothing_there(name, monkeypatch, capfd):
    monkeypatch.setattr(sys, name, None)
    say("unheard", **({"file": sys.stderr} if name == "stderr" else {}))
    assert capfd.readouterr() == ("", "")


LETTERS = "na\u00efve \u597d \U0001f600"
SOURCES = {"say": say, "console": lambda text: new_console().print(Text(text), overflow="crop")}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_letters_that_a_stream_does_not_have_are_escaped(source, encoding, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    SOURCES[source](LETTERS)
    stream.flush()
    written = stream.buffer.getvalue().decode(encoding)
    naive = "na\u00efve" if encoding == "cp1252" else r"na\xefve"
    assert written == naive + r" \u597d \U0001f600" + "\n"


def test_what_prints_by_itself_is_escaped_too():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with while_read(stream):
        print(LETTERS, file=stream)
    assert stream.buffer.getvalue().decode() == r"na\xefve \u597d \U0001f600" + "\n"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_line_of_json_is_the_same_value_in_every_encoding(encoding, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    with lines_to(None) as write:
        write({"kept": LETTERS.split(), "label": "na\u00efve"})
    stream.flush()
    written = stream.buffer.getvalue().decode(encoding)
    assert json.loads(written) == {"kept": LETTERS.split(), "label": "na\u00efve"}
    assert ("\u597d" in written) == (encoding == "utf-8")


def test_a_handler_of_the_users_own_stays(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    say(LETTERS, file=stream)
    assert stream.buffer.getvalue() == b"na?ve ? ?\n"
    assert stream.errors == "replace"


def test_a_console_prints_strings_as_they_are(capsys):
    console = new_console()
    table = Table(title=f"[/b] {HOSTILE}")
    table.add_column("[red]head")
    table.add_row(f"[/i] :smile: {HOSTILE}")
    console.print(f"runs/[/b] {HOSTILE}", soft_wrap=True)
    console.print(table)
    out = capsys.readouterr().out
    for part in (f"runs/[/b] {SHOWN}", f"[/b] {SHOWN}", "[red]head", f"[/i] :smile: {SHOWN}"):
        assert part in out
    assert "\x1b" not in out


def test_a_signalled_run_names_its_folder_on_one_line(monkeypatch, capsys):
    record = {"stopped": "signal", "steps": 3, "exit_code": 3}
    show = lambda console, records, folder: print_time(console, records[0], folder)  # noqa: E731
    monkeypatch.setattr(command, "runs_of", lambda *_: [SimpleNamespace(record=record)])
    paper = dataclasses.replace(PAPER, report=show)
    assert _commands.run(paper, ["--workdir", "runs/[/b]", "--cpu-devices", "1"]) == 3
    assert "continues from runs/[/b]" in " ".join(capsys.readouterr().out.split())


def test_messages_with_names_out_of_files_steer_no_terminal(tmp_path, capsys):
    damaged = CheckpointDamaged(tmp_path, [f"array {HOSTILE} is not what was saved"])
    mismatch = CheckpointMismatch(f"{HOSTILE}: saved nothing, now float32[]")
    quarantined = _source.Quarantined(f"cnn.tgz/{HOSTILE}", 3, "no candidate")
    for message in (str(damaged), str(mismatch), str(quarantined)):
        assert SHOWN in message
        assert "\x1b" not in message
    with pytest.raises(SystemExit, match="2"):
        cli.fail(f"unknown label {HOSTILE}")
    assert SHOWN in capsys.readouterr().err


@pytest.mark.slow
def test_nothing_else_prints():
    # one rule in one place: a plain print, or a console with markup, would go around it
    found = []
    for path, tree in trees().items():
        name = path.relative_to(ROOT).as_posix()
        if name == "gatedjax/_utils/terminal.py":
            continue
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id in ("print", "Console"):
                found.append(f"{name}:{node.lineno}: {called.id}")
    assert not found, "print with gatedjax._utils.terminal.say and new_console"
