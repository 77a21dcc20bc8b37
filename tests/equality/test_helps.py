"""The words of every --help of `gatedjax`, whole: an option's docstring is a user's only manual."""

import contextlib
import io
import re
import textwrap

import pytest

from gatedjax.__main__ import GROUPS, main
from tests.equality._golden import golden, same

COMMANDS = (
    "",
    *(name for group in GROUPS.values() for name in group),
    *("checkpoints ls", "checkpoints verify", "checkpoints diff", "gates report"),
    *("data prepare", "data check", "data list"),
    *("train --model linear", "train --model ganet", "train --task tags"),
)


def read_help(command: str) -> list[str]:
    """The help of a command without colours and frames, in lines of 90 columns."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setenv("COLUMNS", "100")
        patch.setattr("sys.argv", ["gatedjax"])
        with contextlib.suppress(SystemExit):
            main([*command.split(), "--help"])
    text = re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", out.getvalue())
    return textwrap.wrap(" ".join(text.split()), 90, break_on_hyphens=False)


def found() -> dict[str, list[str]]:
    """The help of every command."""
    return {command: read_help(command) for command in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_says_what_it_said(command):
    same(read_help(command), golden("helps")[command], command)
