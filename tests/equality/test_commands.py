"""Options and exit statuses of every command: an option may come, none may go."""

import contextlib
import importlib
import io
import re

import pytest

from tests.equality._golden import golden, not_smaller

# command -> (module, arguments before its options)
PAPERS = {
    f"experiments.{paper}{f' --preset {preset}' if preset else ''}": (
        f"experiments.{paper}.__main__",
        ["--preset", preset] if preset else [],
    )
    for paper, presets in {
        "agt": ("",),
        "ga_net": ("",),
        "ga_reader": ("",),
        "rau": ("",),
        # every kind of task has options of its own
        "ssan": ("", "wrd_small", "nli", "srl", "mt_multi30k"),
    }.items()
    for preset in presets
}
COMMANDS = PAPERS | {
    **{
        f"experiments.{paper}.tables": (f"experiments.{paper}.tables", [])
        for paper in ("agt", "ga_net", "ga_reader", "rau", "ssan")
    },
    "experiments.ga_net.demo": ("experiments.ga_net.demo", []),
    "experiments.ga_net.tune": ("experiments.ga_net.tune", []),
    "experiments.agt.tune": ("experiments.agt.tune", []),
    "experiments.agt.vectors": ("experiments.agt.vectors", []),
    "experiments.ssan make-probes": ("experiments.ssan.__main__", ["make-probes"]),
    "experiments.ga_reader make-cloze": ("experiments.ga_reader.__main__", ["make-cloze"]),
    "gatedjax": ("gatedjax.__main__", []),
    **{
        f"gatedjax {words}": ("gatedjax.__main__", words.split())
        for words in (
            "checkpoints",
            "checkpoints ls",
            "checkpoints verify",
            "checkpoints diff",
            "data",
            "data prepare",
            "data check",
            "data list",
            "export",
            "answer",
            "translate",
            "verify-resume",
        )
    },
    "experiments": ("experiments.__main__", []),
}
SHARED = re.compile(r"experiments\.(ga_net|ga_reader|rau|ssan)(\.tables| --preset .*)?$")
# what a command wants beside options
REQUIRED = {
    **{name: ["render", "--results", "nowhere"] for name in COMMANDS if name.endswith("tables")},
    "gatedjax checkpoints": ["ls", "nowhere"],
    "gatedjax checkpoints ls": ["nowhere"],
    "gatedjax checkpoints verify": ["nowhere"],
    "gatedjax checkpoints diff": ["nowhere"],
    "gatedjax data prepare": ["trec"],
    "gatedjax data check": ["trec"],
    "gatedjax export": ["nowhere", "--out", "nothing"],
    "gatedjax answer": [*["nowhere", "--document", "d", "--question", "q", "--candidates", "c"]],
    "gatedjax translate": ["nowhere"],
}
# a line of a list of options, in a frame or not; texts are further to the right
LINE = re.compile(r"^(?:│ |  )(-.*)$", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w.-]*")


def status(command: str, *more: str) -> int:
    """The exit status of a command, in this process."""
    module, args = COMMANDS[command]
    try:
        return importlib.import_module(module).main([*args, *more])
    except SystemExit as stop:
        return stop.code


def options(command: str) -> list[str]:
    """The options that the help of a command lists."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        # one column of options, whatever the terminal
        patch.setenv("COLUMNS", "100")
        assert status(command, "--help") == 0, command
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    lines = [line.split("  ")[0] for line in LINE.findall(text)]
    listed = {name for line in lines for name in OPTION.findall(line)}
    return sorted(listed)


def found() -> dict[str, list[str]]:
    """The options of every command."""
    return {command: options(command) for command in COMMANDS}


# The whole help of the other commands is compared by `test_helps`.
@pytest.mark.parametrize("command", [name for name in COMMANDS if name.startswith("experiments")])
def test_no_option_has_gone(command):
    not_smaller({command: options(command)}, {command: golden("commands")[command]})


# The papers share one parser, and so do their tables.
@pytest.mark.parametrize("command", [n for n in COMMANDS if not SHARED.match(n)])
def test_an_unknown_option_is_named_and_ends_with_status_2(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert status(command, *REQUIRED.get(command, []), "--no-such-option") == 2
    output = capsys.readouterr()
    # the words of verify-resume are a command's
    assert "--no-such-option" in output.err or command == "gatedjax verify-resume"
    assert output.out == ""
    assert not list(tmp_path.iterdir())


def test_every_list_of_options_was_read():
    lists = golden("commands")
    assert lists.keys() == COMMANDS.keys()
    # this one only lists other commands
    few = {name for name, listed in lists.items() if len(listed) < 2}
    assert few == {"experiments"}
    assert len(lists["experiments.ssan"]) > 60
