"""`python -m tests.equality [NAME ...]`: writes the golden files; see the package."""

import importlib
import sys

# the settings of JAX that the tests have
import tests.conftest  # noqa: F401
from tests.equality._golden import GOLDEN, written

NAMES = (
    "batches",
    "cells",
    "commands",
    "formats",
    "helps",
    "losses",
    "names",
    "own_text",
    "parameters",
)


def main(args: list[str]) -> int:
    """Writes the files that are named, or all; returns the exit status."""
    if unknown := sorted(set(args) - set(NAMES)):
        print(f"error: no golden file {', '.join(unknown)}; there are {', '.join(NAMES)}")
        return 2
    GOLDEN.mkdir(exist_ok=True)
    for name in args or NAMES:
        found = importlib.import_module(f"tests.equality.test_{name}").found()
        path = GOLDEN / f"{name}.json"
        path.write_text(written(found), encoding="utf-8")
        print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
