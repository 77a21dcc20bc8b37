"""Checkpoints: everything that a run needs to continue with the same bits, in one Orbax step."""

import dataclasses
import itertools
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gatedjax.training.config import TrainConfig

# What a damaged file raises. A folder that may not be read (PermissionError) is not damage.
DAMAGED = (ValueError, KeyError, TypeError, FileNotFoundError)

# Differences in these change how long or how visibly a run trains, not what a step computes.
_FREE = (
    "num_steps",
    "max_skipped",
    "progress",
    "tensorboard",
    "keep_checkpoints",
    "parallel",
    "profile_steps",
)


class CheckpointMismatch(ValueError):
    """A checkpoint belongs to another configuration, vocabulary or network."""


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves of nested dicts by dotted name."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
    return flat


def check_metadata(
    saved: dict[str, Any], wanted: dict[str, Any], where: Path, *, same_length: bool = False
) -> None:
    """Raises CheckpointMismatch with every leaf in which two runs differ.

    Args:
      saved: metadata of the checkpoint.
      wanted: metadata of this run. Training options are below "train" or "config.train".
      where: the workdir, for the message.
      same_length: num_steps may not differ, as where a schedule falls to 0 at the last step.
    """
    free = {
        f"{group}.{name}"
        for group in ("train", "config.train")
        for name in _FREE
        if not (same_length and name == "num_steps")
    }
    old, new = flatten(saved), flatten(wanted)
    # an option that is younger than the checkpoint was what it is by default
    default = flatten(dataclasses.asdict(TrainConfig()))
    for name in new.keys() - old.keys():
        group, _, option = name.partition("train.")
        if group in ("", "config.") and option in default:
            old[name] = default[option]
    lines = [
        f"  {name}: saved {old.get(name, 'nothing')!r}, now {new.get(name, 'nothing')!r}"
        for name in sorted(old.keys() | new.keys())
        if name not in free and old.get(name) != new.get(name)
    ]
    if lines:
        raise CheckpointMismatch(
            f"{where} holds a checkpoint of another run:\n"
            + "\n".join(lines)
            + "\nUse another workdir, or the saved settings."
        )


def _leaves(tree: Any) -> dict[str, str]:
    """Dtype and shape of every array by its dotted name, as in "float32[3, 4]"."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): f"{x.dtype}{list(np.shape(x))}"
        for path, x in flat
    }


class CheckpointStore:
    """A folder of checkpoints, the newest few kept.

    Each holds the train state, the best parameters so far, and a JSON record. Orbax writes a step
    into a temporary folder and renames it when it is whole, so a killed save leaves no step.

    Args:
      directory: where the steps are.
      keep: how many of the newest to keep.
    """

    def __init__(self, directory: str | Path, keep: int = 2) -> None:
        import orbax.checkpoint as ocp

        # Orbax reports every file it touches through absl at "warning" level.
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.directory = Path(directory).absolute()
        self._ocp = ocp
        self._manager = ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, create=True, cleanup_tmp_directories=True
            ),
        )

    def steps(self) -> list[int]:
        """The complete steps, oldest first."""
        return sorted(self._manager.all_steps())

    def latest(self) -> int | None:
        """The newest complete step, or None."""
        return max(self.steps(), default=None)

    def save(self, step: int, state: Any, best: Any, record: dict[str, Any]) -> None:
        """Saves host arrays; returns when they are copied, writes in the background.

        Args:
          step: the number of the checkpoint; one that exists is left as it is.
          state: the train state, as NumPy arrays.
          best: the best parameters so far, as NumPy arrays.
          record: what JSON can hold.
        """
        if step in self._manager.all_steps():
            return
        args = self._ocp.args
        saved = self._manager.save(
            step,
            args=args.Composite(
                state=args.StandardSave(state),
                best=args.StandardSave(best),
                record=args.JsonSave({"leaves": _leaves(state), "record": record}),
            ),
        )
        if not saved:
            raise RuntimeError(
                f"checkpoint {step} was not saved: {self.directory} holds {self.steps()}"
            )

    def set_aside(self, step: int) -> Path:
        """Moves a step out of the way, beside the folder; returns where it is now."""
        self.wait()
        folder = self.directory.with_name(self.directory.name + "-bad")
        folder.mkdir(exist_ok=True)
        names = itertools.chain([str(step)], (f"{step}-{n}" for n in itertools.count(2)))
        target = next(folder / name for name in names if not (folder / name).exists())
        os.replace(self.directory / str(step), target)
        self._manager.reload()
        return target

    def record(self, step: int) -> dict[str, Any]:
        """The JSON record of a step."""
        return self._read(step)["record"]

    def _read(self, step: int) -> dict[str, Any]:
        args = self._ocp.args
        return self._manager.restore(step, args=args.Composite(record=args.JsonRestore())).record

    def restore(self, step: int, state_like: Any, best_like: Any) -> tuple[Any, Any]:
        """Reads a step as NumPy arrays.

        Args:
          step: a complete step.
          state_like: shapes and dtypes of the state (from `jax.eval_shape`).
          best_like: those of the parameters.

        Raises:
          CheckpointMismatch: if the saved arrays have other names, shapes or dtypes.
        """
        args = self._ocp.args
        empty = lambda tree: jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), tree)  # noqa: E731
        self._check_leaves(step, state_like)
        with warnings.catch_warnings():
            # restoring to NumPy on another topology is what is wanted here
            warnings.simplefilter("ignore")
            restored = self._manager.restore(
                step,
                args=args.Composite(
                    state=args.StandardRestore(empty(state_like)),
                    best=args.StandardRestore(empty(best_like)),
                ),
            )
        return restored.state, restored.best

    def _check_leaves(self, step: int, state_like: Any) -> None:
        saved = self._read(step)["leaves"]
        wanted = _leaves(state_like)
        lines = [
            f"  {name}: saved {saved.get(name, 'nothing')}, now {wanted.get(name, 'nothing')}"
            for name in sorted(saved.keys() | wanted.keys())
            if saved.get(name) != wanted.get(name)
        ]
        if lines:
            raise CheckpointMismatch(
                f"{self.directory} holds the checkpoint of another network:\n" + "\n".join(lines)
            )

    def wait(self) -> None:
        """Returns when every save is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, and stops the background threads."""
        self._manager.wait_until_finished()
        self._manager.close()
