"""JSON files of runs and commands, and the record of the environment that a run had."""

import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

from gatedjax._utils.json import to_json
from gatedjax._utils.limits import read_limited
from gatedjax._utils.write import write_text
from gatedjax._version import __version__

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "grain",
    "tensorflow-datasets",
)


def write_json(path: Path, value: Any) -> None:
    """Writes a value to the file `path` as JSON, with sorted keys and in one step."""
    write_text(path, to_json(value, indent=1, sort_keys=True) + "\n")


def read_json(path: Path, *keys: str) -> Any:
    """Reads a JSON file of a command; raises ValueError if it is damaged or lacks one of `keys`."""
    try:
        value = json.loads(read_limited(path).decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged: it must be JSON ({error}): delete it, and it is computed again"
        ) from error
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise ValueError(
            f"{path} must be a record with the entries {missing}: delete it, and it is computed "
            "again"
        )
    return value


def versions() -> dict[str, str | None]:
    """Returns the versions of gatedjax and of packages that results depend on; None if missing."""
    numbers: dict[str, str | None] = dict.fromkeys(("gatedjax", *PACKAGES))
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            numbers[name] = importlib.metadata.version(name)
    return numbers | {"gatedjax": __version__}


def source() -> dict[str, Any]:
    """Returns {"commit": ..., "clean": ...} for the code of gatedjax, from its repository or the
    record of pip; None if unknown.
    """
    this_file = Path(__file__)
    commit = clean = None
    # The repository must track this file, as an environment may be in a folder of another one.
    if _git(this_file.parent, "ls-files", "--error-unmatch", "--", this_file.name) is not None:
        commit = _git(this_file.parent, "rev-parse", "HEAD")
        # Other files do not count, because records and RESULTS.md change when runs end.
        changed = _git(this_file.parent, "status", "--porcelain", "-uno", "--", ":(top)*.py")
        clean = None if changed is None else not changed
    else:
        with contextlib.suppress(
            importlib.metadata.PackageNotFoundError, ValueError, AttributeError
        ):
            origin = importlib.metadata.distribution("gatedjax").read_text("direct_url.json")
            commit = json.loads(origin or "{}").get("vcs_info", {}).get("commit_id")
    return {"commit": commit, "clean": clean}


def processor() -> str:
    """Returns the model of the CPU, or the kind of machine if the model is unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _git(folder: Path, *command: str) -> str | None:
    """Returns the output of a git command in a folder; None if it fails."""
    # These variables lead to the repository of the calling program, such as a hook.
    elsewhere = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
    variables = {name: value for name, value in os.environ.items() if name not in elsewhere}
    options: Any = {"env": variables, "stderr": subprocess.DEVNULL, "text": True}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        # The time is limited, because a repository on a slow network drive must not delay the start
        # of a run.
        return subprocess.check_output(["git", *command], cwd=folder, timeout=5, **options).strip()
    return None


def environment(seed: int) -> dict[str, Any]:
    """Returns a description of this process for environment.json."""
    return {
        "versions": versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        # Results may differ in the last digits between kinds and numbers of devices, so both are
        # recorded.
        "devices": [str(device.device_kind) for device in jax.devices()],
        "backend": jax.default_backend(),
        "processor": processor(),
        **source(),
        "seed": seed,
    }
