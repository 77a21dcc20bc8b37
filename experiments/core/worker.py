"""A process that makes a single run of a table; `reproduce` starts it."""

import ctypes
import importlib
import os
import signal
import sys

from experiments.core.command import tables

if __name__ == "__main__":
    parent, module, *options = sys.argv[1:]
    if sys.platform == "linux":
        # The system sends SIGTERM when the parent ends, so that the run saves itself. Without the
        # parent no process would write RESULTS.md or stop the run in time.
        set_death_signal = 1  # PR_SET_PDEATHSIG of Linux's sys/prctl.h
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)
        if os.getppid() != int(parent):
            sys.exit(128 + signal.SIGTERM)
    sys.exit(tables(importlib.import_module(module).PAPER, options))
