"""Reading of parameters from the checkpoints of a run."""

from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from gatedjax.training.checkpoint import CheckpointStore
from gatedjax.training.identity import CheckpointMismatch


def restore_params(
    workdir: str | Path,
    like: Any,
    partial: bool = False,
    *,
    which: Literal["best", "last"] = "best",
    step: int | None = None,
) -> tuple[Any, list[str]]:
    """Reads the parameters of a run from a checkpoint, and checks their hashes.

    It takes no lock and changes no files. While a run writes new checkpoints, the newest complete
    checkpoint is read.

        >>> import tempfile
        >>> workdir = Path(tempfile.mkdtemp())
        >>> store = CheckpointStore(workdir / "checkpoints")
        >>> store.save(1, {"params": {"w": np.ones(2)}}, {"w": np.ones(2)}, {})
        >>> store.close()
        >>> restore_params(workdir, {"w": np.zeros(2)})
        ({'w': array([1., 1.])}, [])

    Args:
      workdir: the workdir of `fit`.
      like: a tree with the parameters of the network that receives the parameters, such as the
        result of `task.init`. Their shapes and dtypes suffice if partial is False.
      partial: True reads the parameters with the same name, shape and dtype, and returns all others
        as they are in `like`.
      which: "best" reads the best parameters by the evaluations up to the checkpoint, "last" the
        parameters at the checkpoint.
      step: the step of the checkpoint (default: the newest).

    Returns:
      The parameters as NumPy arrays, and a line for each parameter that only the checkpoint or only
      `like` has (an empty list if partial is False).

    Raises:
      FileNotFoundError: if workdir has no checkpoint, or no checkpoint of that step.
      CheckpointMismatch: if the parameters differ and partial is False.
      CheckpointDamaged: if the checkpoint differs from the save.
    """
    store, params, skipped = _read_part(workdir, like, which, step, "params")
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
    """Reads the model state of a run (see `ModelStateTask`), and checks its hashes.

    A model state belongs to parameters: the result belongs to those that `restore_params` reads
    with the same `which` and `step`.

        >>> import tempfile
        >>> workdir = Path(tempfile.mkdtemp())
        >>> best = {"params": {"w": np.ones(2)}, "model_state": {"mean": np.zeros(2)}}
        >>> store = CheckpointStore(workdir / "checkpoints")
        >>> store.save(1, best, best, {})
        >>> store.close()
        >>> load_model_state(workdir, {"mean": np.ones(2)})
        {'mean': array([0., 0.])}

    Args:
      workdir: the workdir of `fit`.
      like: a model state of the network, or its shapes and dtypes.
      which: "best" reads the model state of the best parameters by the evaluations up to the
        checkpoint, "last" the model state at the checkpoint.
      step: the step of the checkpoint (default: the newest).

    Returns:
      The model state, with NumPy arrays.

    Raises:
      FileNotFoundError: if workdir has no checkpoint, or no checkpoint of that step.
      CheckpointDamaged: if the checkpoint differs from the save.
      CheckpointMismatch: if the run has another model state, or none.
    """
    store, state, skipped = _read_part(workdir, like, which, step, "model_state")
    if skipped:
        raise CheckpointMismatch(
            f"{store.directory} does not hold this model state:\n  " + "\n  ".join(skipped)
        )
    return state


def _read_part(
    workdir: str | Path,
    like: Any,
    which: Literal["best", "last"],
    step: int | None,
    part: Literal["params", "model_state"],
) -> tuple[CheckpointStore, Any, list[str]]:
    """Returns (store, arrays like `like`, a line for each array that only one side has)."""
    if which not in ("best", "last"):
        raise ValueError(f"which must be 'best' or 'last', got {which!r}")
    store = CheckpointStore(Path(workdir) / "checkpoints")
    if step is None:
        # A run may remove the newest checkpoint while it is read, and `read_newest` then tries
        # again.
        return store, *store.read_newest(
            lambda steps: store.restore_partial(steps[-1], like, which, part)
        )
    if step not in store.steps():
        raise FileNotFoundError(
            f"no checkpoint {step} in {store.directory}: it has {store.steps()}"
        )
    return store, *store.restore_partial(step, like, which, part)


def average_params(workdir: str | Path, like: Any, count: int) -> tuple[Any, tuple[int, ...]]:
    """Averages the parameters in the newest checkpoints of a run.

    The last step is among the averaged checkpoints. A run that was stopped and continued has the
    same average as an uninterrupted run.

        >>> import tempfile
        >>> workdir = Path(tempfile.mkdtemp())
        >>> store = CheckpointStore(workdir / "checkpoints")
        >>> for step, w in ((1, 1.0), (2, 2.0)):
        ...     params = {"w": np.array([w])}
        ...     store.save(step, {"params": params}, params, {})
        >>> store.close()
        >>> average_params(workdir, {"w": np.zeros(1)}, 2)
        ({'w': array([1.5])}, (1, 2))

    Args:
      workdir: the workdir of `fit`.
      like: parameters of the network, a tree of arrays or of their shapes and dtypes.
      count: the number of checkpoints to average. `TrainConfig.keep_checkpoints` limits how many
        there are; with fewer, all are averaged.

    Returns:
      The averaged parameters as NumPy arrays, and a tuple of the steps of the checkpoints.

    Raises:
      ValueError: if count is below 1.
      FileNotFoundError: if workdir has no checkpoint.
      CheckpointMismatch: if the parameters differ from `like` in names, shapes or dtypes.
      CheckpointDamaged: if a checkpoint differs from the save.

    Reference: Vaswani et al. 2017, section 6.1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")

    def mean_of(steps: list[int]) -> tuple[Any, tuple[int, ...]]:
        total: Any = None
        for step in steps:
            params, _ = restore_params(workdir, like, which="last", step=step)
            # The sum is in float64, because narrower types would round at each addition.
            wide = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
            total = wide if total is None else jax.tree.map(np.add, total, wide)
        mean = jax.tree.map(lambda x, y: (x / len(steps)).astype(y.dtype), total, like)
        return mean, tuple(steps)

    return CheckpointStore(Path(workdir) / "checkpoints").read_newest(mean_of, count)
