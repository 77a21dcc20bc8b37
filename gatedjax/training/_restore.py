"""Restoration of a run from its newest checkpoint that can be read."""

import dataclasses
import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from gatedjax.training._digests import check_digests
from gatedjax.training._record import Record, check_run
from gatedjax.training._verify import note_resume
from gatedjax.training._workdir import Params, Workdir
from gatedjax.training.checkpoint import (
    DAMAGED,
    CheckpointDamaged,
    CheckpointMismatch,
    CheckpointStore,
    check_settings,
)
from gatedjax.training.config import TO_ZERO, TrainConfig
from gatedjax.training.distributed import broadcast_json
from gatedjax.training.identity import saved_settings
from gatedjax.training.log import environment, write_json
from gatedjax.training.step import TrainState, best_of


@dataclasses.dataclass(frozen=True)
class Restored:
    """The contents of a checkpoint. All arrays are NumPy arrays."""

    run: dict[str, Any]  # a `Record`, or {"lanes": several, "step": ..., "pending": ...}
    state: TrainState
    best: Params
    data: Any = None  # the position in the training data, see `Batches.state`


@dataclasses.dataclass(frozen=True)
class Shared:
    """Entries that all checkpoints of a run record in addition to its progress."""

    settings: dict[str, Any]
    metadata: dict[str, Any]
    digests: dict[str, Any]


def records_of(saved: Sequence[dict[str, Any]], step: int, config: TrainConfig) -> list[Record]:
    """Returns the records in a checkpoint, with `finished` set for the present configuration."""
    records = [Record(**entry) for entry in saved]
    for record in records:
        # A larger num_steps continues a run that was done, unless early stopping ends it now. A
        # num_steps that the run has reached ends it.
        if record.finished != "early":
            record.finished = record.find_end_reason(step, config)
    return records


def restore_everywhere(work: Workdir, shared: Shared, like: TrainState) -> Restored | None:
    """Calls `restore_or_begin` in process 0 and sends its result, so no shared disk is needed."""
    if not work.several:
        return restore_or_begin(work, shared, like)
    from jax.experimental import multihost_utils

    saved: Restored | None = None
    error: Exception | None = None
    if work.reports:
        try:
            saved = restore_or_begin(work, shared, like)
        except Exception as caught:  # because the other processes wait for an answer
            error = caught
    failure = None if error is None else f"{type(error).__name__}: {error}"
    answer = json.dumps([failure, *((None, None) if saved is None else (saved.run, saved.data))])
    failure, run, data = json.loads(broadcast_json(answer))
    if error is not None:
        raise error
    if failure is not None:
        raise RuntimeError(f"process 0 cannot start: {failure}")
    if run is None:
        return None
    # A broadcast needs arrays of the same shapes in all processes, so the other processes pass
    # zeros, which the arrays of process 0 replace.
    trees = (like, _best_like(like)) if saved is None else (saved.state, saved.best)
    if saved is None:
        trees = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), trees)
    state, best = jax.device_get(multihost_utils.broadcast_one_to_all(trees))
    return Restored(run, state, best, data)


def restore_or_begin(work: Workdir, shared: Shared, like: TrainState) -> Restored | None:
    """Locks the workdir and reads its newest checkpoint, or writes config.json for a new run."""
    config, settings, path = work.config, shared.settings, work.path
    if path is None or work.store is None:
        work.begin_without_files()
        return None
    to_zero = config.optimizer.schedule in TO_ZERO

    def check(saved: dict[str, Any]) -> None:
        check_settings(saved_settings(saved), settings, path, same_length=to_zero)

    def check_program(saved: dict[str, Any]) -> None:
        note = check_digests(saved.get("digests"), shared.digests, path)
        if note is not None:
            work.view.notice(note)

    # The lock comes first, because another run could otherwise replace the checkpoints while they
    # are read.
    log = work.take()
    newest = restore_newest(work.store, check, like, check_program)
    if newest is None:
        description = settings | shared.metadata | {"train": config}
        # Only a new run writes these files, so that they describe its beginning, also after it was
        # continued on another machine.
        write_json(path / "config.json", description)
        write_json(path / "environment.json", environment(config.seed))
        log.begin(None)
        return None
    step = newest.run["step"]
    if step > config.num_steps:
        raise CheckpointMismatch(
            f"{path} is at step {step}, and num_steps is {config.num_steps}: use another "
            f"workdir, or num_steps of at least {step}"
        )
    note_resume(step)
    log.begin(step)
    return newest


def restore_newest(
    store: CheckpointStore,
    check: Callable[[dict[str, Any]], None],
    like: TrainState,
    check_program: Callable[[dict[str, Any]], None],
) -> Restored | None:
    """Reads the newest checkpoint that can be read; damaged newer ones are moved with a warning."""
    damaged: dict[int, Exception] = {}
    for step in reversed(store.found()):
        try:
            saved = store.record(step)
            check(saved)
            run = saved["run"]
            state, best = store.restore(step, like, _best_like(like))
            try:
                check_run(run, step, state.step)
            except ValueError as error:
                raise CheckpointDamaged(store.folder(step), [f"record: {error}"]) from None
            # Names of arrays, compared above, are the clearer message if the network differs.
            check_program(saved)
        # A mismatch is a ValueError too, but no sign of damage: older checkpoints of the folder
        # would not fit either.
        except CheckpointMismatch:
            raise
        except DAMAGED as error:
            damaged[step] = error
            continue
        # Damaged checkpoints are moved only now, because a folder without any good checkpoint must
        # stay as it is for its user.
        for bad, cause in damaged.items():
            moved = store.set_aside(bad)
            warnings.warn(
                f"checkpoint {bad} cannot be read and is now {moved} ({_reason(cause)}); "
                f"continuing from step {step}",
                RuntimeWarning,
                stacklevel=5,
            )
        return Restored(run, state, best, saved.get("data"))
    if damaged:
        cause = next(iter(damaged.values()))
        raise RuntimeError(
            f"no checkpoint in {store.directory} can be read: tried {sorted(damaged)} "
            f"({_reason(cause)}); remove the folder to start again"
        ) from cause
    return None


def _best_like(like: TrainState) -> Params:
    return best_of(like.params, like.model_state)


def _reason(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]
