"""Where a run goes on: its newest checkpoint that can be read, or the beginning."""

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
    """A checkpoint: JSON (see `Record`), the train state, the best so far (see `best_of`)."""

    run: dict[str, Any]
    state: TrainState
    best: Params


@dataclasses.dataclass(frozen=True)
class Shared:
    """Entries of the record of every checkpoint of a run, beside its progress.

    Attributes:
      settings: what a checkpoint must share with the run, see `settings_of`.
      metadata: what is recorded and not compared, see `fit`.
      digests: of the task and the data, see `run_digests`; compared.
    """

    settings: dict[str, Any]
    metadata: dict[str, Any]
    digests: dict[str, Any]


def records_of(saved: Sequence[dict[str, Any]], step: int, config: TrainConfig) -> list[Record]:
    """The records that a checkpoint at a step holds, of runs that go on or are over."""
    records = [Record(**one) for one in saved]
    for record in records:
        # more steps than before continue a run that was done, unless its patience ended with them;
        # as many as it has made end it
        if record.finished != "early":
            record.finished = record.ended(step, config)
    return records


def restore_everywhere(work: Workdir, shared: Shared, like: TrainState) -> Restored | None:
    """As `restore_or_begin` in process 0, which sends it to the others: they need no shared disk.

    Every process must call it at the same point.
    """
    if not work.several:
        return restore_or_begin(work, shared, like)
    from jax.experimental import multihost_utils

    saved: Restored | None = None
    error: Exception | None = None
    if work.writes:
        try:
            saved = restore_or_begin(work, shared, like)
        except Exception as caught:  # the others wait for an answer
            error = caught
    told = None if error is None else f"{type(error).__name__}: {error}"
    answer = json.dumps([told, None if saved is None else saved.run])
    told, run = json.loads(broadcast_json(answer))
    if error is not None:
        raise error
    if told is not None:
        raise RuntimeError(f"process 0 cannot start: {told}")
    if run is None:
        return None
    trees = (like, _best_like(like)) if saved is None else (saved.state, saved.best)
    if saved is None:
        trees = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), trees)
    return Restored(run, *jax.device_get(multihost_utils.broadcast_one_to_all(trees)))


def restore_or_begin(work: Workdir, shared: Shared, like: TrainState) -> Restored | None:
    """Takes the workdir and reads where its run is, or writes what it is beside the logs to come.

    Args:
      work: where the run is.
      shared: entries of the record of every checkpoint.
      like: shapes and dtypes of the state.
    """
    config, settings = work.config, shared.settings
    to_zero = config.optimizer.schedule in TO_ZERO

    def check(saved: dict[str, Any]) -> None:
        check_settings(saved_settings(saved), settings, work.path, same_length=to_zero)

    def check_program(saved: dict[str, Any]) -> None:
        note = check_digests(saved.get("digests"), shared.digests, work.path)
        if note is not None:
            work.view.notice(note)

    log = work.take()
    newest = restore_newest(work.store, check, like, check_program)
    if newest is None:
        described = settings | shared.metadata | {"train": config}
        write_json(work.path / "config.json", described)
        write_json(work.path / "environment.json", environment(config.seed))
        log.begin(None)
        return None
    step = newest.run["step"]
    if step > config.num_steps:
        raise CheckpointMismatch(
            f"{work.path} is at step {step}, and num_steps is {config.num_steps}: use another "
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
    """Reads the newest step that can be read; damaged ones are set aside with a warning.

    `check` and `check_program` raise CheckpointMismatch for the record of another run. The second
    is called after the arrays were compared, because another network has another program anyway.
    """
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
            check_program(saved)
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
        return Restored(run, state, best)
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
