"""`gatedjax translate FOLDER`: translates the lines of standard input."""

import sys

from gatedjax._utils.cli import program
from gatedjax.text._translate import TranslateOptions, run
from gatedjax.text.models._translator import open_translator

CALLED = {" (--search.extra)": ""}
"""Words in messages of the library about options that this command does not have."""


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status, 0; errors exit with status 2."""
    prog = f"{program()} translate"
    streams = {"lines": sys.stdin, "out": sys.stdout}
    return run(TranslateOptions, args, prog, open_translator, called=CALLED, **streams)
