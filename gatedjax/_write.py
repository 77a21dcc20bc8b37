"""Files that appear whole or not at all, as readable as any other."""

import os
import secrets
from pathlib import Path


def beside(path: Path) -> Path:
    """Makes an empty file to be renamed to `path`; the process's umask decides who may read it.

    `tempfile` makes files that only their owner may read, and a name that a process gives itself
    alone may have been left by one that was killed.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    return partial


def write_atomic(path: Path, content: bytes) -> None:
    """Replaces a file in one step; a failure leaves the old one and nothing else."""
    partial = beside(path)
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
