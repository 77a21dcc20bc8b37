"""`gatedjax translate FOLDER`: translates the lines of standard input."""

import sys

from gatedjax._utils.cli import program
from gatedjax.text._translate import TranslateOptions, run
from gatedjax.text._translator import open_translator

# `gatedjax translate` has no option for the extra pieces of a translation.
CALLED = {" (--search.extra)": ""} | {
    f"{name} must": f"--{name.replace('_', '-')} must"
    for name in ("average", "beam_size", "length_penalty", "batch_sentences")
}
"""Words in messages of the library, and the options that replace them."""


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status, 0; errors exit with status 2."""
    prog = f"{program()} translate"
    streams = {"lines": sys.stdin, "out": sys.stdout}
    return run(TranslateOptions, args, prog, open_translator, called=CALLED, **streams)
