"""`gatedjax translate FOLDER`: the lines of standard input through a trained translator."""

import sys

from gatedjax._utils.cli import program
from gatedjax.text._translate import TranslateOptions, run
from gatedjax.text._translator import open_translator

CALLED = {" (--search.extra)": "", "average is for": "--average is for"}
"""What the library says, and what it is called here."""


def main(args: list[str]) -> int:
    """Runs the command; returns its exit status."""
    prog = f"{program()} translate"
    streams = {"lines": sys.stdin, "out": sys.stdout}
    return run(TranslateOptions, args, prog, open_translator, called=CALLED, **streams)
