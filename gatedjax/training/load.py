"""Parameters out of a workdir, for evaluation or to start another network from them."""

from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from gatedjax.training.checkpoint import CheckpointStore
from gatedjax.training.identity import CheckpointMismatch


def load_params(
    workdir: str | Path,
    like: Any,
    partial: bool = False,
    *,
    which: Literal["best", "last"] = "best",
    step: int | None = None,
) -> tuple[Any, list[str]]:
    """Reads the parameters of a run, verified; needs no lock and changes nothing.

    Beside a run that is writing, a newest step that is superseded while it is read is not damage:
    the one that took its place is read.

    Args:
      workdir: what `fit` was given.
      like: parameters of the network that they are for; shapes and dtypes suffice if partial is
        False.
      partial: load what has the same name, shape and dtype, and leave the rest as it is in `like`.
      which: "best" by the evaluations up to the checkpoint, or the "last" ones.
      step: which checkpoint (default: the newest).

    Returns:
      The parameters as NumPy arrays, and a line for each that was not loaded or not asked for
      (none if partial is False).

    Raises:
      FileNotFoundError: if workdir has no checkpoint, or not that one.
      CheckpointMismatch: if the parameters differ and partial is False.
      CheckpointDamaged: if the checkpoint is not what was saved.
    """
    store, params, skipped = _read(workdir, like, which, step, "params")
    if skipped and not partial:
        raise CheckpointMismatch(
            f"{store.directory} holds the parameters of another network:\n  "
            + "\n  ".join(skipped)
            + "\npartial=True loads those that fit."
        )
    return params, skipped


def load_model_state(
    workdir: str | Path,
    like: Any,
    *,
    which: Literal["best", "last"] = "best",
    step: int | None = None,
) -> Any:
    """Reads the model state of a run (see `ModelStateTask`), verified, as NumPy arrays.

    It belongs to the parameters that `load_params` reads with the same options.

    Args:
      workdir: what `fit` was given.
      like: a model state of the network, or its shapes and dtypes.
      which: that of the best parameters by the evaluations up to the checkpoint, or the "last" one.
      step: which checkpoint (default: the newest).

    Raises:
      FileNotFoundError, CheckpointDamaged: as `load_params`.
      CheckpointMismatch: if the run has another model state, or none.
    """
    store, state, skipped = _read(workdir, like, which, step, "model_state")
    if skipped:
        raise CheckpointMismatch(
            f"{store.directory} does not hold this model state:\n  " + "\n  ".join(skipped)
        )
    return state


def _read(
    workdir: str | Path,
    like: Any,
    which: Literal["best", "last"],
    step: int | None,
    part: Literal["params", "model_state"],
) -> tuple[CheckpointStore, Any, list[str]]:
    if which not in ("best", "last"):
        raise ValueError(f"which must be 'best' or 'last', got {which!r}")
    store = CheckpointStore(Path(workdir) / "checkpoints")
    if step is None:
        return store, *store.read_newest(
            lambda steps: store.restore_partial(steps[-1], like, which, part)
        )
    if step not in store.steps():
        raise FileNotFoundError(
            f"no checkpoint {step} in {store.directory}: it has {store.steps()}"
        )
    return store, *store.restore_partial(step, like, which, part)


def average_params(workdir: str | Path, like: Any, count: int) -> tuple[Any, tuple[int, ...]]:
    """The mean of the parameters in the newest checkpoints of a run.

    The last step is one of them. That the run was stopped and went on changes nothing.

    Args:
      workdir: what `fit` was given.
      like: parameters of the network.
      count: of how many checkpoints; `TrainConfig.keep_checkpoints` says how many there are. Fewer
        are averaged where there are fewer.

    Returns:
      The parameters as NumPy arrays, and the steps of the checkpoints.

    Raises:
      ValueError: if count is below 1.
      FileNotFoundError, CheckpointMismatch, CheckpointDamaged: as `load_params`.

    Reference: Vaswani et al. 2017, section 6.1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")

    def mean_of(steps: list[int]) -> tuple[Any, tuple[int, ...]]:
        total: Any = None
        for step in steps:
            params, _ = load_params(workdir, like, which="last", step=step)
            wide = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
            total = wide if total is None else jax.tree.map(np.add, total, wide)
        mean = jax.tree.map(lambda x, y: (x / len(steps)).astype(y.dtype), total, like)
        return mean, tuple(steps)

    return CheckpointStore(Path(workdir) / "checkpoints").read_newest(mean_of, count)
