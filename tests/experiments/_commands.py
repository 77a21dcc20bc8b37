"""Commands as a stranger meets them: what they print, list and refuse."""

import re

import pytest


def plain(text):
    """Without colours, frames and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


def refused(command, args, capsys):
    """What a command says when it stops with status 2."""
    with pytest.raises(SystemExit) as stop:
        command(args)
    assert stop.value.code == 2
    return plain(capsys.readouterr().err)


def left_out_of_help(command, options, capsys):
    """The options that --help of a command does not list."""
    with pytest.raises(SystemExit) as stop:
        command(["--help"])
    assert stop.value.code == 0
    shown = plain(capsys.readouterr().out)
    return [option for option in options if option not in shown]
