"""The folder in which the commands keep compiled programs. It does not import JAX."""

import contextlib
import hashlib
import os
import platform
import stat
import sys
from pathlib import Path

_FOLDER = "JAX_COMPILATION_CACHE_DIR"
# By default JAX stores only programs that take a second to compile, and many take less here.
_SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    # In bytes. JAX removes the programs that were not used for the longest time.
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(512 << 20),
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
    """Returns a hash of the processor, as another may not run the same compiled programs."""
    facts = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = "model name", "flags", "Features"
        # The lines are the same for each core.
        facts += [line for line in lines if line.startswith(names)][:2]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


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
    # Without a home folder or a place to write, programs are compiled as if there were no cache.
    with contextlib.suppress(OSError, RuntimeError):
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gatedjax"
        # The names of JAX's entries have its version.
        folder = cache / f"jax-{machine_key()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return
        for entry in folder.glob("*-cache"):
            # A process that is killed between its two files stops JAX from adding others.
            if not entry.with_name(entry.name.removesuffix("cache") + "atime").exists():
                entry.unlink(missing_ok=True)
        os.environ[_FOLDER] = str(folder)
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)


def _is_private(folder: Path) -> bool:
    facts = folder.stat()
    mine = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
    return mine and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
