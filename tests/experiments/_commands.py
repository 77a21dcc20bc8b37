"""Commands as a stranger meets them: what they print, list and refuse."""

import re

import pytest

from experiments.core import cli, command


def parse(paper, args):
    """The configuration that a paper's command has of its options."""
    return cli.parse(args, **vars(paper.start))


def run(paper, args):
    """What a paper's command does; returns its exit status."""
    return command.run_config(paper, parse(paper, args))


def plain(text):
    """Without colours, frames and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


def refused(main, args, capsys):
    """What a command says when it stops with status 2."""
    with pytest.raises(SystemExit) as stop:
        main(args)
    assert stop.value.code == 2
    return plain(capsys.readouterr().err)


def left_out_of_help(main, options, capsys):
    """The options that --help of a command does not list."""
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    shown = plain(capsys.readouterr().out)
    return [option for option in options if option not in shown]
