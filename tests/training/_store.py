"""A folder with two small checkpoints, made once and copied, and ways to damage them."""

import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from gatedjax.training import CheckpointStore


def trees(step):
    """State and best parameters of a step; every value tells which."""
    params = {
        "dense": {"kernel": np.full((3, 4), step, np.float32), "bias": np.zeros(4, jnp.bfloat16)},
        "scale": np.array(step + 0.5, np.float32),
    }
    state = {
        "params": params,
        "count": np.array(step, np.int32),
        "nan": np.array([np.nan, -0.0], np.float32),
    }
    best = {"params": {"dense": params["dense"] | {"bias": np.ones(4, jnp.bfloat16)}}}
    return {"state": state, "best": best}


def make(workdir: Path, *steps: int, keep=2) -> CheckpointStore:
    store = CheckpointStore(workdir / "checkpoints", keep)
    for step in steps:
        store.save(step, {"step": step}, **trees(step))
    store.close()
    return store


def copy(store: CheckpointStore, workdir: Path) -> CheckpointStore:
    shutil.copytree(store.directory, workdir / "checkpoints")
    return CheckpointStore(workdir / "checkpoints")


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGES = {"flip": flip, "cut": cut, "delete": Path.unlink}
