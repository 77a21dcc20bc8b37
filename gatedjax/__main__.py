"""`python -m gatedjax COMMAND ...`: tools for runs and data."""

import difflib
import importlib
import sys

from gatedjax import __version__
from gatedjax._terminal import say

COMMANDS = {
    "checkpoints": "list, verify and compare the checkpoints of a work folder",
    "data": "prepare a data set, or check the files it is made from",
    "export": "save the best parameters of a run with a model card",
    "verify-resume": "prove that a killed run continues with the same bits",
}


def usage() -> str:
    """What is shown without a command, and with --help."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return (
        "usage: python -m gatedjax COMMAND ...\n\ncommands:\n"
        + "\n".join(lines)
        + "\n\npython -m gatedjax COMMAND --help shows the options of a command, and\n"
        "python -m gatedjax --version the version."
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
    return module.main(rest)


if __name__ == "__main__":
    sys.exit(main())
