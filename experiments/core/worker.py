"""One run of a table in a process of its own: what `reproduce` starts."""

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from experiments.core.command import tables

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's sys/prctl.h


def end_with(parent: int) -> None:
    """Asks the system for SIGTERM when the parent ends in whatever way, so that the run is saved.

    Nobody would write RESULTS.md for a run that is left alone, or keep its budget.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:
            sys.exit(128 + signal.SIGTERM)


def main(args: Sequence[str]) -> int:
    """The table command of the paper in a module: PARENT MODULE OPTIONS..."""
    parent, module, *options = args
    end_with(int(parent))
    return tables(importlib.import_module(module).PAPER, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
