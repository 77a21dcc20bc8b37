"""The program `gatedjax COMMAND ...`, also `python -m gatedjax COMMAND ...`."""

import importlib
import os
import sys

from gatedjax._utils.cli import choose, fail, program, reason
from gatedjax._utils.program_cache import take_cache_option, use_program_cache
from gatedjax._utils.signals import STATUS, Terminated
from gatedjax._utils.terminal import replace_missing_streams, say, while_read

GROUPS = {
    "texts": {
        "look": "show how labelled texts would be read, without training",
        "train": "train a classifier of your own texts",
        "predict": "say which class texts belong to",
        "evaluate": "measure a model on labelled texts",
        "explain": "show the words that a prediction rests on",
        "explore": "see the gates of a model, and force them, on a page",
    },
    "research": {
        "answer": "ask a trained reader about a document",
        "translate": "translate lines with a trained translator",
        "gates": "report what gates do exactly, and what estimators are worth",
        "data": "prepare a data set, or check the files it is made from",
        "checkpoints": "list, verify and compare the checkpoints of a work folder",
        "export": "save the best parameters of a run with a model card",
        "verify-resume": "prove that a killed run continues with the same bits",
    },
}
_OPTIONS = {
    "--no-cache": "compile all programs again, and leave out ~/.cache/gatedjax, the folder of "
    "compiled programs"
}


def main(args: list[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    with replace_missing_streams():
        try:
            with while_read(sys.stdout):
                return _run(sys.argv[1:] if args is None else args)
        except (KeyboardInterrupt, Terminated) as stop:  # in a part that saves no work
            say("stopped", file=sys.stderr)
            return STATUS if isinstance(stop, Terminated) else 130
        except OSError as error:  # of standard output, as on a full disk
            fail(reason(error))


def _run(args: list[str]) -> int:
    args, uses_cache = take_cache_option(args)
    try:
        name, command_args = choose(GROUPS, args, program(), options=_OPTIONS), args[1:]
    except SystemExit as stop:  # after a list of the commands, the version or an error
        return int(stop.code or 0)
    # Before the module of the command, which may import JAX.
    use_program_cache(enabled=uses_cache)
    # XLA logs banners about slow compilations as errors, between the lines of a report. An error
    # that ends a command is raised as well.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # The import of JAX takes seconds, in which a user may press Ctrl-C.
    module = importlib.import_module(f"gatedjax._commands.{name.replace('-', '_')}")
    status: int = module.main(command_args)
    return status


if __name__ == "__main__":
    sys.exit(main())
