"""Where a run goes on: its newest checkpoint that can be read, or the beginning."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gatedjax.training._record import check_run
from gatedjax.training._verify import note_resume
from gatedjax.training.checkpoint import (
    DAMAGED,
    CheckpointDamaged,
    CheckpointMismatch,
    CheckpointStore,
    check_metadata,
)
from gatedjax.training.config import TrainConfig
from gatedjax.training.log import environment, write_json


def restore_or_begin(
    store: CheckpointStore,
    wanted: dict[str, Any],
    metadata: dict[str, Any],
    config: TrainConfig,
    workdir: Path,
    like: Any,
) -> tuple[dict[str, Any], Any, Any] | None:
    """Reads where a run in workdir is, or writes what it is beside the logs to come.

    Args:
      store: its checkpoints.
      wanted: what they must share with this run, see `identity`.
      metadata: see `fit`.
      config: how to train.
      workdir: an existing folder.
      like: shapes and dtypes of the state.

    Returns:
      See `restore_newest`.

    Raises:
      CheckpointMismatch: if the checkpoints are of another run, or beyond its last step.
      RuntimeError: if there are checkpoints, but none can be read.
    """
    falls = config.optimizer.schedule != "constant"

    def check(saved: dict[str, Any]) -> None:
        check_metadata(saved, wanted, workdir, same_length=falls)

    found = restore_newest(store, check, like, like.params)
    if found is None:
        train = {"train": dataclasses.asdict(config)}
        named = {k: wanted[k] for k in ("optimizer",) if k in wanted}
        write_json(workdir / "config.json", metadata | train | named)
        write_json(workdir / "environment.json", environment(config.seed))
        return None
    step = found[0]["step"]
    if step > config.num_steps:
        raise CheckpointMismatch(
            f"{workdir} is at step {step}, and num_steps is {config.num_steps}: use another "
            f"workdir, or num_steps of at least {step}"
        )
    note_resume(step)
    return found


def restore_newest(
    store: CheckpointStore, check: Callable[[dict[str, Any]], None], like: Any, best_like: Any
) -> tuple[dict[str, Any], Any, Any] | None:
    """Reads the newest step that can be read: its record, state and best parameters.

    Damaged steps that are newer are set aside with a warning.

    Args:
      store: the checkpoints.
      check: raises CheckpointMismatch for the metadata of another run.
      like: shapes and dtypes of the state.
      best_like: those of the best parameters.

    Returns:
      None if there are no checkpoints.

    Raises:
      CheckpointMismatch: if the checkpoints are of another run.
      RuntimeError: if there are checkpoints, but none can be read.
    """
    damaged: dict[int, Exception] = {}
    for step in reversed(store.found()):
        try:
            saved = store.record(step)
            check(saved["metadata"])
            run = saved["run"]
            state, best = store.restore(step, like, best_like)
            try:
                check_run(run, step, state.step)
            except ValueError as error:
                raise CheckpointDamaged(store.folder(step), [f"record: {error}"]) from None
        except CheckpointMismatch:
            raise
        except DAMAGED as error:
            damaged[step] = error
            continue
        for bad, cause in damaged.items():
            moved = store.set_aside(bad)
            warnings.warn(
                f"checkpoint {bad} cannot be read and is now {moved} ({_reason(cause)}); "
                f"continuing from step {step}",
                RuntimeWarning,
                stacklevel=5,
            )
        return run, state, best
    if damaged:
        cause = next(iter(damaged.values()))
        raise RuntimeError(
            f"no checkpoint in {store.directory} can be read: tried {sorted(damaged)} "
            f"({_reason(cause)}); remove the folder to start again"
        ) from cause
    return None


def _reason(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]
