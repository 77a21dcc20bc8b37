"""`gatedjax COMMAND ...`, or `python -m gatedjax COMMAND ...`: trained models, runs and data."""

import difflib
import importlib
import sys

from gatedjax import __version__
from gatedjax._utils.cli import program
from gatedjax._utils.terminal import say, while_read

COMMANDS = {
    "answer": "ask a trained reader about a document",
    "checkpoints": "list, verify and compare the checkpoints of a work folder",
    "data": "prepare a data set, or check the files it is made from",
    "evaluate": "measure a model on labelled texts",
    "explain": "show the words that a prediction rests on",
    "explore": "see the gates of a model, and force them, on a page",
    "export": "save the best parameters of a run with a model card",
    "gates": "report what gates do exactly, and what estimators are worth",
    "predict": "say which class texts belong to",
    "train": "train a classifier of your own texts",
    "translate": "translate lines with a trained translator",
    "verify-resume": "prove that a killed run continues with the same bits",
}


def usage() -> str:
    """What is shown without a command, and with --help."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    called = program()
    return (
        f"usage: {called} COMMAND ...\n\ncommands:\n"
        + "\n".join(lines)
        + f"\n\n{called} COMMAND --help shows the options of a command, and\n"
        f"{called} --version the version."
    )


def main(args: list[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    args = sys.argv[1:] if args is None else args
    if not args or args[0] in ("-h", "--help"):
        say(usage())
        return 0 if args else 2
    if args[0] == "--version":
        say(f"gatedjax {__version__}")
        return 0
    name, rest = args[0], args[1:]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        say(f"error: no command {name!r}.{hint}\n\n{usage()}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"gatedjax._commands.{name.replace('-', '_')}")
    try:
        with while_read(sys.stdout):
            return module.main(rest)
    except KeyboardInterrupt:  # before or after what a command can save
        say("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
