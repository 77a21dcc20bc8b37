"""metrics.jsonl and the record of the environment."""

import importlib.metadata
import json
import math
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

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


def write_text(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old one or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON as `write_text` does, keys sorted."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """gatedjax's own commit: of the repository that has this file, or that pip installed it from.

    An environment may lie inside the repository of something else.
    """
    here = Path(__file__)
    if _git(here.parent, "ls-files", "--error-unmatch", "--", here.name) is not None:
        return _git(here.parent, "rev-parse", "HEAD")
    try:
        origin = importlib.metadata.distribution("gatedjax").read_text("direct_url.json")
        return json.loads(origin or "{}").get("vcs_info", {}).get("commit_id")
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None


def _git(folder: Path, *command: str) -> str | None:
    """What git says in a folder, whatever repository its caller is at work in; None: it fails."""
    elsewhere = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
    environment = {name: v for name, v in os.environ.items() if name not in elsewhere}
    try:
        done = subprocess.run(
            ["git", *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def environment(seed: int) -> dict[str, Any]:
    """Versions, devices, commit and seed of this process."""
    return {
        "versions": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "devices": [str(device.device_kind) for device in jax.devices()],
        "backend": jax.default_backend(),
        "commit": _commit(),
        "seed": seed,
    }


class MetricsLog:
    """One JSON object a line, appended; on resume, lines after the restored step are removed.

    Args:
      path: the file; its folder exists.
      restored_step: keep lines up to this step; None starts a new file.
    """

    def __init__(self, path: Path, restored_step: int | None) -> None:
        self.path = path
        kept = [] if restored_step is None else self._until(restored_step)
        write_text(path, "".join(kept))
        self._file = path.open("a", encoding="utf-8")

    def _until(self, step: int) -> list[str]:
        if not self.path.exists():
            return []
        kept = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # the torn last line of a killed run
            if record.get("step", 0) <= step:
                kept.append(line + "\n")
        return kept

    def write(self, record: dict[str, Any]) -> None:
        """Appends a line and hands it to the system at once. NaN and infinities become null."""
        finite = {
            k: None if isinstance(v, float) and not math.isfinite(v) else v
            for k, v in record.items()
        }
        self._file.write(json.dumps(finite, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
