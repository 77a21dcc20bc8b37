"""Checkpoints by Orbax, with a checksum of each array, and the parameters of a finished run."""

import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from gatedjax._utils.json import to_json_values
from gatedjax._utils.terminal import printable

REMOVED = "removed"
"""The folder into which Orbax moves the checkpoints that are to be removed."""


class CheckpointMismatch(ValueError):
    """Raised if a checkpoint belongs to another run; the message lists the differences."""

    def __init__(self, message: str) -> None:
        # The message has names from a file, which may have control characters.
        super().__init__(printable(message))


class CheckpointDamaged(RuntimeError):
    """Raised if a checkpoint cannot be read, or has other arrays than were saved.

    Attributes:
      problems: a list of the damages, such as "best: params.w differs from its checksum".
    """

    def __init__(self, folder: Path, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__(printable(f"{folder} is damaged: {'; '.join(problems[:5])}"))


class CheckpointNotSaved(OSError):
    """Raised if a checkpoint cannot be written; earlier checkpoints are unchanged."""


def named(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a tree by dotted name, such as "opt_state.0.mu.kernel"."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    leaves = {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in flat}
    if len(leaves) < len(flat):
        raise ValueError("arrays must have different names: rename keys with a dot in them")
    return leaves


def describe(tree: Any) -> dict[str, str]:
    """Returns dtype and shape of each array of a tree, such as "float32[3, 4]", by dotted name."""
    return {name: f"{x.dtype}{list(x.shape)}" for name, x in named(tree).items()}


def differences(old: dict[str, Any], new: dict[str, Any], words: Sequence[str]) -> list[str]:
    """Returns a line for each name with different values; `words` stand before the two values."""
    return [
        f"{name}: {words[0]} {old.get(name, 'nothing')}, {words[1]} {new.get(name, 'nothing')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def checksums(tree: Any) -> dict[str, int]:
    """Returns the CRC32 of each array by name; all processes must call it."""
    sums = {}
    for name, x in named(tree).items():
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        if isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated):
            x = multihost_utils.process_allgather(x, tiled=True)
        sums[name] = zlib.crc32(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
    return sums


def _solid(tree: Any) -> Any:
    """Returns a tree without its arrays of size 0, which Orbax refuses."""
    return jax.tree.map(lambda x: x if math.prod(x.shape) else None, tree)


def _orbax() -> Any:
    # Orbax is imported only here, because its import takes most of a second and `import
    # gatedjax.training` does not need it.
    import orbax.checkpoint

    # Orbax logs each file that it touches at the level "warning".
    logging.getLogger("absl").setLevel(logging.ERROR)
    return orbax.checkpoint


def _read(path: Path, like: Any) -> Any:
    """Reads the arrays in a folder; as NumPy arrays in nested dicts if like is None."""
    ocp = _orbax()
    with ocp.PyTreeCheckpointer() as reader, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if like is not None:
            args = ocp.checkpoint_utils.construct_restore_args(like)
            return reader.restore(path, args=ocp.args.PyTreeRestore(like, restore_args=args))
        saved = reader.metadata(path).item_metadata.tree
        # NumPy arrays do not ask for the devices of the run that saved them.
        args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), saved)
        return reader.restore(path, args=ocp.args.PyTreeRestore(restore_args=args))


class _Keep:
    """The policy of a run for Orbax: the newest step, and the newest `keep` multiples of `every`.

    A step between them, saved after a signal, goes with the next one, so that a stopped run leaves
    the steps of an unbroken run.
    """

    def __init__(self, keep: int, every: int) -> None:
        self.keep, self.every = keep, every

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Returns for each checkpoint, oldest first, whether it stays."""
        steps = [info.step for info in checkpoints]
        regular = [step for step in steps if step % self.every == 0 or step == max(steps)]
        return [step in regular[-self.keep :] for step in steps]


class CheckpointStore:
    """The checkpoints of a run: an Orbax `CheckpointManager` with checksums of its arrays.

    A checkpoint has trees of arrays by name, such as the train state and the best parameters so
    far, and a JSON record. Orbax writes in the background and makes a step visible by a rename, so
    that a killed save leaves no step. Reading changes no files.

        >>> import tempfile
        >>> store = CheckpointStore(tempfile.mkdtemp(), keep=2)
        >>> for step in (1, 2, 3):
        ...     store.save(step, {"loss": 0.5}, state={"w": np.ones(2)}, best={"w": np.ones(2)})
        >>> store.close()
        >>> store.steps(), store.record(3)
        ([2, 3], {'loss': 0.5})

    Args:
      directory: the folder of the steps, which the first `save` creates.
      keep: the number of steps to keep.
      every: the number of steps between the regular checkpoints of a run.

    Attributes:
      directory: the absolute path of the folder of the steps.

    Raises:
      ValueError: if `keep` or `every` is below 1.
    """

    def __init__(self, directory: str | Path, keep: int = 2, *, every: int = 1) -> None:
        for name, value in (("keep", keep), ("every", every)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.directory, self._keep = Path(directory).absolute(), _Keep(keep, every)
        self._manager: Any = None
        self._saving: int | None = None
        self._saved: list[int] = []

    def folder(self, step: int) -> Path:
        """Returns the folder of the checkpoint with the number `step`, which need not exist."""
        return self.directory / str(step)

    def steps(self) -> list[int]:
        """Returns the numbers of the complete checkpoints, oldest first."""
        names = [p.name for p in self.directory.iterdir()] if self.directory.is_dir() else []
        # `isdecimal` accepts leading zeros and digits of other scripts, which no save writes.
        return sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))

    def latest(self) -> int | None:
        """Returns the number of the newest checkpoint; None if there is none."""
        return max(self.steps(), default=None)

    # -- writing -------------------------------------------------------------------------------

    def save(self, step: int, record: dict[str, Any], **trees: Any) -> None:
        """Copies the arrays and writes them in the background; all processes must call it.

        Args:
          step: the number of the checkpoint. A complete checkpoint of this number is not replaced.
          record: a dict of values that JSON can represent.
          **trees: trees of arrays: the train state as `state`, the best parameters as `best`.

        Raises:
          CheckpointNotSaved: if this save or the one before cannot be written.
        """
        self.wait()
        self._saving = step
        if step in self.steps():  # a run that continued reaches it again, with the same bits
            return
        trees = {name: _solid(tree) for name, tree in trees.items()}
        trees = {name: tree for name, tree in trees.items() if jax.tree.leaves(tree)}
        sums = {name: checksums(tree) for name, tree in trees.items()}
        ocp, body = _orbax(), json.dumps([to_json_values(record), sums])
        entry = {"body": body, "sha256": hashlib.sha256(body.encode()).hexdigest()}
        items = {name: ocp.args.PyTreeSave(tree) for name, tree in trees.items()}
        try:
            if self._manager is None:
                options = ocp.CheckpointManagerOptions(
                    preservation_policy=self._keep,
                    cleanup_tmp_directories=True,
                    # A step that is half removed would count as damaged.
                    todelete_subdir=REMOVED,
                )
                self._manager = ocp.CheckpointManager(self.directory, options=options)
            args = ocp.args.Composite(record=ocp.args.JsonSave(entry), **items)
            self._manager.save(step, args=args, force=True)
        except Exception as error:  # Orbax raises errors of many kinds
            raise self._not_saved(error) from error

    def poll(self, *, wait: bool = False) -> list[int]:
        """Returns the numbers of the steps that became complete since the last call.

        Args:
          wait: True waits for a save in progress.

        Raises:
          CheckpointNotSaved: if a save failed since the last call.
        """
        if self._saving is not None:
            busy = self._manager is not None and self._manager.is_saving_in_progress()
            if wait or not busy:
                self.wait()
        saved, self._saved = self._saved, []
        return saved

    def wait(self) -> None:
        """Waits until the save in progress is complete.

        Raises:
          CheckpointNotSaved: if it failed.
        """
        if self._saving is None:
            return
        try:
            if self._manager is not None:
                self._manager.wait_until_finished()
                self._manager.check_for_errors()
        except Exception as error:  # Orbax raises errors of many kinds
            raise self._not_saved(error) from error
        if jax.process_index() == 0:
            shutil.rmtree(self.directory / REMOVED, ignore_errors=True)
        self._saved.append(self._saving)
        self._saving = None

    def _not_saved(self, error: BaseException) -> CheckpointNotSaved:
        step, self._saving = self._saving, None
        reason = str(error).strip() or type(error).__name__
        if "No space left on device" in reason:
            reason = "No space left on device"
        # A manager that has failed once would fail again.
        manager, self._manager = self._manager, None
        with contextlib.suppress(Exception):
            manager.close()
        failure = CheckpointNotSaved(
            f"checkpoint {step} was not saved in {self.directory}: {reason[-300:]}. Steps that are "
            f"whole: {self.steps() or 'none'}."
        )
        # The number lets a caller distinguish a full disk from other failures.
        cause: BaseException | None = error
        while cause is not None and failure.errno is None:
            failure.errno = getattr(cause, "errno", None)
            cause = cause.__cause__ or cause.__context__
        return failure

    def close(self) -> None:
        """Waits for the save in progress and ends the background threads."""
        try:
            self.wait()
        finally:
            if self._manager is not None:
                manager, self._manager = self._manager, None
                manager.close()

    # -- reading -------------------------------------------------------------------------------

    def record(self, step: int) -> dict[str, Any]:
        """Returns the JSON record of the checkpoint with the number `step`.

        Raises:
          CheckpointDamaged: if it differs from the save.
        """
        return self._entry(step)[0]

    def checksums(self, step: int) -> dict[str, dict[str, int]]:
        """Returns the CRC32 of each array of the checkpoint `step`, by its tree and its name."""
        return self._entry(step)[1]

    def _entry(self, step: int) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
        try:
            entry = json.loads((self.folder(step) / "record" / "metadata").read_bytes())
            if hashlib.sha256(entry["body"].encode()).hexdigest() != entry["sha256"]:
                raise ValueError("the text must have its checksum, got another")
            record, sums = json.loads(entry["body"])
        except (ValueError, KeyError, TypeError, RecursionError, FileNotFoundError,
                NotADirectoryError) as error:  # fmt: skip
            raise CheckpointDamaged(self.folder(step), [f"record: {error}"]) from error
        return record, sums

    def restore(self, step: int, **like: Any) -> dict[str, Any]:
        """Reads trees of a checkpoint and compares the checksums of their arrays.

        Args:
          step: the number of the checkpoint.
          **like: for each tree, such as `state`, a tree of shapes, dtypes and perhaps shardings;
            or None for NumPy arrays in nested dicts.

        Returns:
          The trees by name.

        Raises:
          CheckpointDamaged: if a file is damaged; the message names arrays that differ.
          CheckpointMismatch: if the arrays have other names, shapes or dtypes than `like`.
        """
        sums, result = self.checksums(step), {}
        for name, tree in like.items():
            if name not in sums and (tree is None or not jax.tree.leaves(_solid(tree))):
                result[name] = {} if tree is None else jax.tree.map(_empty, tree, _solid(tree))
                continue
            try:
                saved = _read(self.folder(step) / name, None if tree is None else _solid(tree))
                now = checksums(saved)
            except PermissionError:
                raise
            except Exception as error:  # Orbax raises errors of many kinds for a damaged file
                raise CheckpointDamaged(self.folder(step), [f"{name}: {error!s:.300}"]) from error
            if wrong := [k for k in sums[name] | now if sums[name].get(k) != now.get(k)]:
                raise CheckpointDamaged(
                    self.folder(step), [f"{name}: {k} differs from its checksum" for k in wrong]
                )
            result[name] = saved if tree is None else jax.tree.map(_empty, tree, saved)
        return result

    def arrays(self, step: int, tree: str = "best") -> dict[str, np.ndarray]:
        """Returns the NumPy arrays of the tree `tree` of the checkpoint `step` by dotted name."""
        return named(jax.tree.map(np.asarray, self.restore(step, **{tree: None})[tree]))

    def restore_newest(self, check: Callable[[dict[str, Any]], None], **like: Any) -> Any:
        """Reads the newest good checkpoint; moves damaged ones to checkpoints-bad/ with a warning.

        Args:
          check: called with the record; raises CheckpointMismatch for another run.
          **like: see `restore`.

        Returns:
          (step, record, trees); None without checkpoints.

        Raises:
          RuntimeError: if there are checkpoints and none can be read.
        """
        damaged: dict[int, CheckpointDamaged] = {}
        for step in reversed(self.steps()):
            try:
                record = self.record(step)
                check(record)
                trees = self.restore(step, **like)
            except CheckpointDamaged as error:
                damaged[step] = error
                continue
            # They are moved only now, because a folder without any good checkpoint must stay as it
            # is for its user.
            for number, cause in damaged.items():
                target = self._set_aside(number)
                warnings.warn(
                    f"checkpoint {number} cannot be read and is now {target} ({cause}); continuing "
                    f"from step {step}",
                    RuntimeWarning,
                    stacklevel=5,
                )
            return step, record, trees
        if damaged:
            cause = damaged[max(damaged)]
            raise RuntimeError(
                f"no checkpoint in {self.directory} can be read: tried {sorted(damaged)} ({cause})"
                "; remove the folder to start again"
            ) from cause
        return None

    def _set_aside(self, step: int) -> Path:
        folder = self.directory.with_name(self.directory.name + "-bad")
        target, number = folder / str(step), 2
        while target.exists():
            target, number = folder / f"{step}-{number}", number + 1
        if jax.process_index() == 0:
            folder.mkdir(exist_ok=True)
            os.replace(self.folder(step), target)
        return target

    def read_newest(self, read: Callable[[int], Any]) -> Any:
        """Returns `read` of the newest step, again if a run removed that step while it was read."""
        while True:
            step = self.latest()
            if step is None:
                raise FileNotFoundError(f"no checkpoint in {self.directory}")
            try:
                return read(step)
            except (CheckpointDamaged, FileNotFoundError):
                if self.folder(step).exists():
                    raise


def _empty(like: Any, saved: Any) -> Any:
    """Returns an array that was saved, or an array of size 0, which was not."""
    return jnp.zeros(like.shape, like.dtype) if saved is None else saved


def saved_settings(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings in the record of a checkpoint; {} if another program wrote it."""
    return record.get("identity", {}).get("settings", {})


def saved_description(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings and the metadata in the record of a checkpoint, a dict."""
    return saved_settings(record) | record.get("metadata", {})


def restore_params(
    workdir: str | Path,
    like: Any,
    partial: bool = False,
    *,
    which: Literal["best", "last"] = "best",
    step: int | None = None,
    part: Literal["params", "shared"] = "params",
) -> tuple[Any, list[str]]:
    """Reads the parameters of a run, or the shared carried arrays that belong to them.

    It takes no lock and changes no files. While a run writes new checkpoints, the newest complete
    checkpoint is read.

        >>> import tempfile
        >>> workdir = Path(tempfile.mkdtemp())
        >>> store = CheckpointStore(workdir / "checkpoints")
        >>> store.save(1, {}, best={"params": {"w": np.ones(2)}})
        >>> store.close()
        >>> restore_params(workdir, {"w": np.zeros(2)})
        ({'w': array([1., 1.])}, [])

    Args:
      workdir: the workdir of `fit`.
      like: a tree with the parameters of the network that receives the parameters, such as the
        result of `task.init`. Their shapes and dtypes suffice if partial is False.
      partial: True reads the parameters with the same name, shape and dtype, and returns the rest
        as they are in `like`.
      which: "best" reads the best parameters by the evaluations up to the checkpoint, "last" the
        parameters at the checkpoint.
      step: the step of the checkpoint (default: the newest).
      part: "params", or "shared" for the shared carried arrays.

    Returns:
      The arrays as NumPy arrays, and a line for each array that only the checkpoint or only `like`
      has (an empty list if partial is False).

    Raises:
      FileNotFoundError: if workdir has no checkpoint, or no checkpoint of that step.
      CheckpointMismatch: if the arrays differ and partial is False.
      CheckpointDamaged: if the checkpoint differs from the save.
    """
    if which not in ("best", "last"):
        raise ValueError(f"which must be 'best' or 'last', got {which!r}")
    store = CheckpointStore(Path(workdir) / "checkpoints")
    if step is not None and step not in store.steps():
        raise FileNotFoundError(
            f"no checkpoint {step} in {store.directory}: it has {store.steps()}"
        )
    item = "state" if which == "last" else "best"
    prefix = f"carried.{part}." if which == "last" and part == "shared" else f"{part}."
    read = lambda step: store.arrays(step, item)  # noqa: E731
    arrays = store.read_newest(read) if step is None else read(step)
    saved = {k.removeprefix(prefix): x for k, x in arrays.items() if k.startswith(prefix)}
    expected, old, new = named(like), describe(saved), describe(like)
    # Arrays of size 0 are not saved.
    empty = {name: x for name, x in expected.items() if name not in old and not math.prod(x.shape)}
    old |= describe(empty)
    saved |= {name: np.zeros(x.shape, x.dtype) for name, x in empty.items()}
    lines = differences(old, new, ("saved", "now"))
    if lines and not partial:
        raise CheckpointMismatch(
            "\n  ".join([f"{store.directory} holds the parameters of another network:", *lines])
            + "\npartial=True loads those that fit."
        )
    leaves = [saved[k] if old.get(k) == new[k] else x for k, x in expected.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), lines


def average_params(workdir: str | Path, like: Any, count: int) -> tuple[Any, tuple[int, ...]]:
    """Averages the parameters in the newest checkpoints of a run.

    The last step is among the averaged checkpoints. A run that was stopped and continued has the
    same average as an uninterrupted run.

        >>> import tempfile
        >>> workdir = Path(tempfile.mkdtemp())
        >>> store = CheckpointStore(workdir / "checkpoints")
        >>> for step, w in ((1, 1.0), (2, 2.0)):
        ...     store.save(step, {}, state={"params": {"w": np.array([w])}})
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
      FileNotFoundError, CheckpointMismatch, CheckpointDamaged: see `restore_params`.

    Reference: Vaswani et al. 2017, section 6.1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    store = CheckpointStore(Path(workdir) / "checkpoints")

    def mean_of(newest: int) -> tuple[Any, tuple[int, ...]]:
        steps = [step for step in store.steps() if step <= newest][-count:]
        trees = [restore_params(workdir, like, which="last", step=step)[0] for step in steps]
        # The mean is computed in float64, because narrower types would round at each addition.
        mean = lambda *x: np.mean(x, axis=0, dtype=np.float64).astype(x[0].dtype)  # noqa: E731
        return jax.tree.map(mean, *trees), tuple(steps)

    return store.read_newest(mean_of)
