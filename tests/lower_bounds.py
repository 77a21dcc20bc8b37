"""The oldest versions that setup.cfg allows: `python -m tests.lower_bounds > constraints.txt`.

It needs nothing but Python, as it runs before anything is installed.
"""

import configparser
import re
import sys
from pathlib import Path

SETUP = Path(__file__).parents[1] / "setup.cfg"
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[[\w,]+\])?(?P<bounds>[^;]*)")


def requirements(path: Path = SETUP) -> dict[str, set[tuple[str, ...]]]:
    """The bounds of every requirement of the package and its extras, by its name.

    Returns:
      Such as {"orbax-checkpoint": {(">=0.12", "<1")}}; an extra of a package, such as jax[tpu], is
      bounded by what is written for the package itself.
    """
    config = configparser.ConfigParser(inline_comment_prefixes=None)
    config.read(path, encoding="utf-8")
    lines = config["options"]["install_requires"].splitlines()
    for extra in config["options.extras_require"]:
        lines += config["options.extras_require"][extra].splitlines()
    found: dict[str, set[tuple[str, ...]]] = {}
    for line in filter(None, map(str.strip, lines)):
        parts = _REQUIREMENT.fullmatch(line)
        if parts is None:
            raise ValueError(f"{path}: {line!r} is no requirement")
        own = found.setdefault(parts["name"], set())
        if not parts["extras"]:
            own.add(tuple(bound.strip() for bound in parts["bounds"].split(",") if bound.strip()))
    return found


def constraints(path: Path = SETUP) -> list[str]:
    """Every lower bound as the version to install: "flax>=0.12.7" becomes "flax==0.12.7"."""
    return [
        f"{name}=={bound.removeprefix('>=')}"
        for name, written in sorted(requirements(path).items())
        for bounds in sorted(written)
        for bound in bounds
        if bound.startswith(">=")
    ]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in constraints()))
