"""The folder in which the commands keep compiled programs. It does not import JAX."""

import contextlib
import hashlib
import os
import platform
import stat
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LARGEST = 512 << 20
"""Bytes that the folder may have; when a command starts, the entries that were not used for the
longest time are removed."""
_FOLDER = "JAX_COMPILATION_CACHE_DIR"
# By default JAX stores only programs that take a second to compile, and many take less here.
_SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
}


def take_cache_option(args: list[str]) -> tuple[list[str], bool]:
    """Removes `--no-cache` from a command line, before "--"; returns False if it was there.

    >>> take_cache_option(["train", "--no-cache", "--", "--no-cache"])
    (['train', '--', '--no-cache'], False)
    """
    end = args.index("--") if "--" in args else len(args)
    options = [word for word in args[:end] if word != "--no-cache"]
    return [*options, *args[end:]], len(options) == end


def machine_key() -> str:
    """Returns a hash of the processor, as another one may not run the same compiled programs."""
    facts = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = "model name", "flags", "Features"
        # The lines are the same for each core.
        facts += [line for line in lines if line.startswith(names)][:2]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def jax_versions() -> str:
    """Returns the versions of JAX and jaxlib as a text, a part of the name of a folder."""
    return f"jax-{version('jax')}-jaxlib-{version('jaxlib')}"


def use_program_cache(*, enabled: bool = True) -> None:
    """Lets JAX keep compiled programs in `~/.cache/gatedjax`, if it was not imported yet."""
    if "jax" in sys.modules:
        return
    # Environment variables need no import of JAX and reach further processes of the command.
    if not enabled:
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        return
    if os.environ.get(_FOLDER):
        return
    # Without a home folder, a place to write, or the records of the packages, programs are compiled
    # as if there were no cache.
    with contextlib.suppress(OSError, RuntimeError, PackageNotFoundError):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gatedjax"
        folder = cache / f"{jax_versions()}-{machine_key()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return
        remove_oldest(cache, LARGEST)
        os.environ[_FOLDER] = str(folder)
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)


def _is_private(folder: Path) -> bool:
    facts = folder.stat()
    mine = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
    return mine and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def remove_oldest(folder: Path, most: int) -> None:
    """Removes the files that were not used for the longest time, until a folder is small enough."""
    entries = []
    for path in folder.rglob("*"):
        # Another process may remove a file at any time.
        with contextlib.suppress(OSError):
            facts = path.stat()
            if stat.S_ISREG(facts.st_mode):
                entries.append((max(facts.st_atime, facts.st_mtime), facts.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries, key=lambda entry: entry[0]):
        if total <= most:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
