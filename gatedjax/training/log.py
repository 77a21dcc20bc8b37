"""metrics.jsonl and the record of the environment."""

import importlib.metadata
import json
import os
import platform
import subprocess
import warnings
from pathlib import Path
from typing import Any, TextIO

import jax

from gatedjax._utils.json import to_json
from gatedjax._utils.limits import read_limited
from gatedjax._utils.write import write_atomic
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


def write_text(path: Path, text: str) -> None:
    """Writes a file so that a reader sees the old one or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Writes JSON as `write_text` does, keys sorted; NaN and infinities become null."""
    write_text(path, to_json(value, indent=1, sort_keys=True) + "\n")


def read_json(path: Path, *keys: str) -> Any:
    """Reads a file that a command wrote; a ValueError names one that is damaged or lacks a key."""
    try:
        value = json.loads(read_limited(path).decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to have it made again") from error
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise ValueError(
            f"{path} is not a record: it has no {', '.join(missing)}; delete it to have it made "
            "again"
        )
    return value


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


def _clean() -> bool | None:
    """Whether no tracked Python file differs from the commit; None where `_commit` asked no git."""
    here = Path(__file__)
    if _git(here.parent, "ls-files", "--error-unmatch", "--", here.name) is None:
        return None
    changed = _git(here.parent, "status", "--porcelain", "-uno", "--", ":(top)*.py")
    return None if changed is None else not changed


def versions() -> dict[str, str | None]:
    """Of gatedjax and of the packages that decide its numbers; None for one that is not there."""
    return {"gatedjax": __version__, **{name: _version(name) for name in PACKAGES}}


def source() -> dict[str, Any]:
    """What code this is: the commit, and whether the tree was clean.

    "clean" looks at tracked Python files alone, as records and RESULTS.md change while runs end.
    Both are None outside a repository; an installation from one knows its commit.
    """
    return {"commit": _commit(), "clean": _clean()}


def processor() -> str:
    """The model of the CPU, or the kind of machine where the system does not say it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


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
    """Versions, devices, code and seed of this process."""
    return {
        "versions": versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "devices": [str(device.device_kind) for device in jax.devices()],
        "backend": jax.default_backend(),
        "processor": processor(),
        **source(),
        "seed": seed,
    }


def read_lines(path: Path) -> list[tuple[int, str]] | None:
    """The lines of a metrics.jsonl with their steps; None where there is no file.

    Raises:
      ValueError: naming file and line, if a line is JSON that no run has written.
    """
    if not path.exists():
        return None
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        text = line.decode("utf-8", errors="replace")
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue  # the torn last line of a killed run
        step = record.get("step") if isinstance(record, dict) else None
        if type(step) is not int:
            raise ValueError(
                f"{path}, line {number}: wanted an object with a whole number as its 'step', got "
                f"{text[:80]!r}. Mend or remove that line; nothing was changed"
            )
        found.append((step, text))
    return found


class MetricsLog:
    """One JSON object a line, appended; on resume, lines after the restored step are removed.

    Reads the file at once, and changes nothing before `begin`.

    Args:
      path: the file; its folder exists.

    Raises:
      ValueError: naming file and line, if a line is JSON that no run has written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found = read_lines(path)
        self._file: TextIO | None = None

    def begin(self, restored_step: int | None) -> None:
        """Opens the file for writing: a new one, or the lines up to the restored step."""
        if restored_step is not None and self._found is None:
            warnings.warn(
                f"{self.path} is gone: the metrics up to step {restored_step} are lost, and a new "
                "file goes on after it",
                RuntimeWarning,
                stacklevel=2,
            )
        last = -1 if restored_step is None else restored_step
        write_text(
            self.path, "".join(f"{line}\n" for step, line in self._found or () if step <= last)
        )
        self._found = None
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        """Appends a line and hands it to the system at once. NaN and infinities become null."""
        assert self._file is not None, "begin() comes first"
        self._file.write(to_json(record) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Makes what was written survive a power cut, as the checkpoint that counts on it does."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
