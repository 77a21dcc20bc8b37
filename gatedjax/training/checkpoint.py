"""Checkpoints with all arrays and settings that a run needs to continue with the same bits."""

import concurrent.futures
import contextlib
import itertools
import json
import logging
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import jax
import numpy as np

from gatedjax._utils.json import to_json_values
from gatedjax.training import manifest
from gatedjax.training.identity import CheckpointMismatch as CheckpointMismatch
from gatedjax.training.identity import (
    check_leaves,
    describe,
    describe_arrays,
    differences,
    named_leaves,
)
from gatedjax.training.identity import check_settings as check_settings
from gatedjax.training.identity import flatten as flatten
from gatedjax.training.manifest import CheckpointDamaged as CheckpointDamaged

T = TypeVar("T")

# Errors that a damaged file causes. A folder without permission (PermissionError) is not damaged.
DAMAGED = (ValueError, KeyError, TypeError, FileNotFoundError)

# Names of folders that a killed process leaves while it writes or removes a step.
_LEFTOVER = re.compile(r"\d+\.(partial|removed|orbax-checkpoint-tmp)")


class CheckpointNotSaved(OSError):
    """Raised if a checkpoint cannot be written; earlier checkpoints are unchanged."""


class CheckpointStore:
    """A folder of checkpoints that are verified by hashes. The oldest checkpoints are removed.

    A checkpoint has the train state, the best parameters so far, a JSON record, and a manifest with
    the hash of each file and array. Orbax writes a step into a folder with a temporary name, the
    manifest is written last, and then the folder is renamed to the number of the step. A save that
    is killed therefore leaves no step. A step is removed when `keep` newer steps are complete. A
    step that is no multiple of `every`, as after a signal, is removed when a newer step is
    complete, so that a run that was stopped leaves the same steps as an uninterrupted run.

    The first `save` creates the folder. Reading changes no files.

        >>> import tempfile
        >>> store = CheckpointStore(tempfile.mkdtemp(), keep=2)
        >>> for step in (1, 2, 3):
        ...     store.save(step, {"w": np.ones(2)}, {"w": np.ones(2)}, {"loss": 0.5})
        >>> store.close()
        >>> store.steps(), store.record(3)
        ([2, 3], {'loss': 0.5})

    Args:
      directory: the folder that has, or will have, a folder for each saved step.
      keep: the number of steps to keep.
      every: the number of steps between the regular checkpoints of a run.

    Attributes:
      directory: the absolute path of the folder of the steps.
      keep: the number of steps to keep.
      every: the number of steps between the regular checkpoints of a run.

    Raises:
      ValueError: if `keep` or `every` is below 1.
    """

    def __init__(self, directory: str | Path, keep: int = 2, *, every: int = 1) -> None:
        for name, value in (("keep", keep), ("every", every)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.directory = Path(directory).absolute()
        self.keep, self.every = keep, every
        self._writer: concurrent.futures.ThreadPoolExecutor | None = None
        self._saving: tuple[int, concurrent.futures.Future[None]] | None = None
        self._saved: list[int] = []

    def folder(self, step: int) -> Path:
        """Returns the folder of the checkpoint with the number `step`, which need not exist."""
        return self.directory / str(step)

    def found(self) -> list[int]:
        """Returns the numbers of all checkpoints, oldest first, damaged ones included."""
        if not self.directory.is_dir():
            return []
        names = [path.name for path in self.directory.iterdir() if path.is_dir()]
        # `isdecimal` accepts leading zeros and digits of other scripts, which no save writes.
        return sorted(int(n) for n in names if n.isdecimal() and n == str(int(n)))

    def steps(self) -> list[int]:
        """Returns the numbers of the checkpoints that have a manifest, oldest first."""
        return [step for step in self.found() if (self.folder(step) / manifest.NAME).is_file()]

    def latest(self) -> int | None:
        """Returns the number of the newest checkpoint with a manifest; None if there is none."""
        return max(self.steps(), default=None)

    # -- writing -------------------------------------------------------------------------------

    def save(self, step: int, state: Any, best: Any, record: dict[str, Any]) -> None:
        """Copies arrays and writes them in the background.

        The step is complete when `poll` returns its number, or when `wait` returns.

        Args:
          step: the number of the checkpoint. A complete checkpoint of this number is not replaced.
          state: the train state, a tree of NumPy arrays.
          best: the best parameters so far, a tree of NumPy arrays.
          record: a dict of values that JSON can represent.

        Raises:
          CheckpointNotSaved: if the previous save failed.
          RuntimeError: in another process than process 0, where Orbax would write no arrays.
        """
        if jax.process_index() != 0:
            raise RuntimeError(
                f"save must be called in process 0 of the run, got process {jax.process_index()}"
            )
        self.wait()
        if os.path.lexists(self.folder(step)):
            # A run that was continued reaches the step again with the same bits, so the old
            # checkpoint stays.
            if manifest.is_complete(self.folder(step)):
                self._saved.append(step)
                return
            self.set_aside(step)
        if self._writer is None:
            # A single thread keeps the order of the saves. Leftovers are removed here and not in
            # the constructor, because programs that only read must change no files.
            self._writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
            self._clean()
        trees = {
            "state": jax.tree.map(_copy_if_shared, state),
            "best": jax.tree.map(_copy_if_shared, best),
        }
        leaves = {item: named_leaves(tree) for item, tree in trees.items()}
        # Orbax refuses arrays of size 0, so only the manifest has their shapes.
        trees = jax.tree.map(lambda x: x if x.size else None, trees)
        task = self._writer.submit(self._write, step, trees, leaves, to_json_values(record))
        self._saving = (step, task)

    def _write(self, step: int, trees: dict, leaves: dict, record: dict) -> None:
        """Writes a step in the background, and removes the steps that it supersedes."""
        partial = self.directory / f"{step}.partial"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            _remove(partial)
            _orbax_save(partial, trees, record)
            manifest.write(partial, step, leaves)
            if manifest.find_excess(manifest.read_manifest(partial)):
                # Packed constants are so small that a reader would refuse the file as forged.
                shutil.rmtree(partial)
                _orbax_save(partial, trees, record, packed=False)
                manifest.write(partial, step, leaves)
            # The arrays are read back, because Orbax has reported saves that wrote no array.
            for item, entries in manifest.read_manifest(partial)["leaves"].items():
                _read_arrays(partial, item, entries, set(entries))
            # The rename makes the step visible in a single operation. The folder is synced, because
            # otherwise a power cut may undo the rename.
            os.rename(partial, self.folder(step))
            manifest.sync_folder(self.directory)
        except BaseException:
            # An incomplete step is useless, and a full disk needs the space.
            self._clean()
            raise
        self._retire()

    def _retire(self) -> None:
        """Removes complete steps that newer complete steps supersede; damaged steps stay."""
        complete = [step for step in self.steps() if manifest.is_complete(self.folder(step))]
        between = [step for step in complete[:-1] if step % self.every]
        regular = [step for step in complete if step not in between]
        for step in between + regular[: -self.keep]:
            # The folder is renamed first, because a step that is half removed would count as
            # damaged.
            removed = self.directory / f"{step}.removed"
            _remove(removed)
            try:
                os.rename(self.folder(step), removed)
            except OSError:
                continue  # because the new step is safe; the next save tries again
            _remove(removed)

    def _clean(self) -> None:
        if self.directory.is_dir():
            for path in self.directory.iterdir():
                if _LEFTOVER.match(path.name):
                    _remove(path)

    def poll(self) -> list[int]:
        """Returns the numbers of the steps that became complete since the last call.

        It does not wait for a save in progress.

        Raises:
          CheckpointNotSaved: if a save failed since the last call.
        """
        if self._saving is not None and self._saving[1].done():
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
        step, task = self._saving
        error = task.exception()
        self._saving = None
        if error is None:
            self._saved.append(step)
            return
        failure = CheckpointNotSaved(
            f"checkpoint {step} was not saved in {self.directory}: "
            f"{str(error).strip() or type(error).__name__}. "
            f"Steps that are whole: {self.steps() or 'none'}."
        )
        # The number lets a caller distinguish a full disk from other failures.
        failure.errno = getattr(error, "errno", None)
        raise failure from error

    def close(self) -> None:
        """Waits for the save in progress and stops the background thread."""
        try:
            self.wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
                self._writer = None

    def set_aside(self, step: int) -> Path:
        """Moves the folder of a damaged step to a folder with the suffix "-bad".

        `step` is the number of the checkpoint. Returns its new path.
        """
        self.wait()
        folder = self.directory.with_name(self.directory.name + "-bad")
        folder.mkdir(exist_ok=True)
        names = itertools.chain([str(step)], (f"{step}-{n}" for n in itertools.count(2)))
        target = next(folder / name for name in names if not (folder / name).exists())
        os.replace(self.folder(step), target)
        return target

    # -- reading -------------------------------------------------------------------------------

    def manifest(self, step: int) -> dict[str, Any]:
        """Returns the manifest of a step, without checking the files that it lists.

        It is a dict with "step", "time" (in seconds since 1970), "files" ({"size", "sha256"} of
        each file by path) and "leaves" ([dtype and shape, hash] of each array by name, in "state"
        and "best").
        """
        return manifest.read_manifest(self.folder(step))

    def verify(self, step: int, *, arrays: bool = False) -> dict[str, Any]:
        """Checks the hashes of all files of a step and returns its manifest.

        Args:
          step: the number of the checkpoint.
          arrays: True also checks the hashes of all arrays.

        Returns:
          The manifest, a dict with "step", "time", "files" (size and hash of each file) and
          "leaves" (shape and hash of each array), see the method `manifest`.

        Raises:
          CheckpointDamaged: if a file or an array differs from the save; the message names it.
        """
        content = manifest.verify(self.folder(step))
        for item, leaves in content["leaves"].items() if arrays else ():
            _read_arrays(self.folder(step), item, leaves, set(leaves))
        return content

    def record(self, step: int) -> dict[str, Any]:
        """Returns the JSON record of a step, the dict that `save` received.

        The hash of its file is checked.

        Raises:
          CheckpointDamaged: if the file differs from the save.
        """
        manifest.verify(self.folder(step), "record/")
        try:
            record = _orbax_record(self.folder(step) / "record")
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise CheckpointDamaged(self.folder(step), ["record/ holds no JSON object"])
        return record

    def restore(self, step: int, state_like: Any, best_like: Any) -> tuple[Any, Any]:
        """Reads a step as NumPy arrays.

        The hashes of the files are checked before they are read, and names, shapes and dtypes
        before arrays are allocated. The hashes of the arrays are checked last.

        Args:
          step: a step with a manifest.
          state_like: a tree of shapes and dtypes of the train state (from `jax.eval_shape`).
          best_like: a tree of shapes and dtypes of the best parameters.

        Returns:
          The train state and the best parameters.

        Raises:
          CheckpointMismatch: if the saved arrays have other names, shapes or dtypes.
          CheckpointDamaged: if a file or an array differs from the save.
        """
        leaves = self.verify(step)["leaves"]
        trees = {"state": state_like, "best": best_like}
        for item, like in trees.items():
            saved = {name: entry[0] for name, entry in leaves.get(item, {}).items()}
            current = describe_arrays(like)
            # The comparison needs only the manifest, so no array of another network is read.
            check_leaves(saved, current, self.directory)
        state, best = (
            self._read_tree(step, item, leaves[item], like) for item, like in trees.items()
        )
        return state, best

    def restore_partial(
        self,
        step: int,
        params_like: Any,
        which: Literal["best", "last"] = "best",
        part: Literal["params", "model_state"] = "params",
    ) -> tuple[Any, list[str]]:
        """Reads the parameters that have the same name, shape and dtype as in `params_like`.

        Args:
          step: a step with a manifest.
          params_like: a tree of arrays, the parameters of the network or, with part="model_state",
            its model state. An array that the step lacks is returned unchanged.
          which: "best" reads the best parameters up to the step, "last" the parameters of the step.
          part: "model_state" reads the model state in place of the parameters.

        Returns:
          The parameters as a tree like `params_like`, and a list with a line for each array that
          only the step or only `params_like` has.
        """
        every = self.verify(step)["leaves"]
        item, prefix = "state", f"{part}."
        if which == "best":
            # Without a model state the best tree is the parameters, without a prefix.
            has_state = any(n.split(".")[0] == "model_state" for n in every.get("state", {}))
            item, prefix = "best", prefix if has_state or part == "model_state" else ""
        leaves = every.get(item, {})
        saved = {n.removeprefix(prefix): e for n, e in leaves.items() if n.startswith(prefix)}
        current = describe_arrays(params_like)
        both = {n: prefix + n for n, e in saved.items() if current.get(n) == e[0]}
        arrays = _read_arrays(self.folder(step), item, leaves, set(both.values()))
        named = {
            name: arrays[both[name]] if name in both else leaf
            for name, leaf in named_leaves(params_like).items()
        }
        params = jax.tree.unflatten(jax.tree.structure(params_like), named.values())
        return params, differences({n: e[0] for n, e in saved.items()}, current)

    def arrays(self, step: int, item: Literal["state", "best"]) -> dict[str, np.ndarray]:
        """Returns a dict of all arrays of a part of a step by name, after checking their hashes.

        It serves tools that have no network to compare with.

        Args:
          step: a step with a manifest.
          item: "state" for the train state, "best" for the best parameters.
        """
        leaves = self.verify(step)["leaves"].get(item, {})
        return _read_arrays(self.folder(step), item, leaves, set(leaves))

    def read_newest(self, read: Callable[[list[int]], T], count: int = 1) -> T:
        """Calls `read` with the newest steps, and again if a run removes them meanwhile.

        Args:
          read: maps the numbers of the newest steps, oldest first, to a result.
          count: the number of steps; there may be fewer.

        Returns:
          The result of `read`.

        Raises:
          FileNotFoundError: if there are no steps.
          CheckpointDamaged: if a step that still exists differs from the save.
        """
        while True:
            # The list is read twice, because a run may replace all steps while it is read.
            steps = (self.steps() or self.steps())[-count:]
            if not steps:
                raise FileNotFoundError(f"no checkpoint in {self.directory}")
            try:
                return read(steps)
            except (CheckpointDamaged, FileNotFoundError):
                if all(self.folder(step).exists() for step in steps):
                    raise

    def _read_tree(self, step: int, item: str, leaves: dict[str, Any], like: Any) -> Any:
        arrays = _read_arrays(self.folder(step), item, leaves, set(leaves))
        current = named_leaves(like)
        return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in current])


def _read_arrays(
    folder: Path, item: str, leaves: dict[str, Any], names: set[str]
) -> dict[str, np.ndarray]:
    """Reads arrays, and checks their shapes and hashes with the manifest."""
    empty = {n: x for n, e in leaves.items() if (x := manifest.empty_array(e[0])) is not None}
    stored = {n: e[0] for n, e in leaves.items() if n not in empty}
    try:
        arrays = _orbax_arrays(folder / item, stored, names - empty.keys())
    # A machine with too little memory is no sign of damage.
    except MemoryError:
        raise
    except Exception as error:
        # A forged file can raise any error in Orbax. A file without permission is not damaged.
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise
        reason = str(error).split("\n", 1)[0][:200]
        raise CheckpointDamaged(folder, [f"{item}/ cannot be read: {reason}"]) from error
    arrays |= {n: x for n, x in empty.items() if n in names}
    wrong = [
        f"array {name} in {item}/ is not what was saved"
        for name in sorted(names)
        if manifest.leaf_hash(arrays[name]) != leaves[name][1]
    ]
    if wrong:
        raise CheckpointDamaged(folder, wrong)
    return arrays


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _copy_if_shared(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return array if array.flags.owndata else array.copy()


def _orbax() -> tuple[Any, Any]:
    # Orbax is imported only here, because its import takes most of a second and `import
    # gatedjax.training` does not need it.
    import orbax.checkpoint as ocp

    # Orbax logs each file that it touches at the level "warning".
    logging.getLogger("absl").setLevel(logging.ERROR)
    # This host has all arrays, so that it need not wait for other processes of the run.
    process = jax.process_index()
    return ocp, ocp.options.MultiprocessingOptions(primary_host=process, active_processes={process})


def _orbax_save(
    folder: Path, trees: dict[str, Any], record: dict[str, Any], *, packed: bool = True
) -> None:
    """Writes trees of arrays and a JSON record into a folder by Orbax."""
    ocp, alone = _orbax()
    handlers, arguments = {}, {}
    for item, tree in trees.items():
        if packed:
            handlers[item] = ocp.StandardCheckpointHandler(multiprocessing_options=alone)
            arguments[item] = ocp.args.StandardSave(tree)
        else:
            # The standard handler has no option that turns compression off.
            handlers[item] = ocp.PyTreeCheckpointHandler(
                multiprocessing_options=alone, use_compression=False
            )
            arguments[item] = ocp.args.PyTreeSave(tree)
    handler = ocp.CompositeCheckpointHandler(
        record=ocp.JsonCheckpointHandler(multiprocessing_options=alone),
        composite_options=ocp.CompositeOptions(multiprocessing_options=alone),
        **handlers,
    )
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
        checkpointer.save(
            folder, args=ocp.args.Composite(record=ocp.args.JsonSave(record), **arguments)
        )


def _orbax_record(folder: Path) -> dict[str, Any]:
    from etils import epath

    ocp, alone = _orbax()
    handler = ocp.JsonCheckpointHandler(multiprocessing_options=alone)
    return handler.restore(epath.Path(folder), args=ocp.args.JsonRestore())


def _other_codecs(folder: Path) -> list[str]:
    """Returns a line for each array in a folder that is not packed as Orbax packs it by default."""
    import tensorstore

    if not (folder / "manifest.ocdbt").is_file():
        return ["manifest.ocdbt is missing"]
    base = {"driver": "file", "path": f"{folder}/"}
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}).result()
    wrong = []
    for key in sorted(store.list().result()):
        name, _, file = key.decode("utf-8", "replace").rpartition("/")
        if file == "zarr.json":
            wrong.append(f"{name}: stored as zarr 3")
        elif file == ".zarray":
            # Another codec unpacks a chunk completely, up to 2 GB, before its size is checked.
            codec = json.loads(store.read(key).result().value).get("compressor")
            if codec is not None and codec.get("id") != "zstd":
                wrong.append(f"{name}: packed by {codec.get('id')!r}")
    return wrong


def _orbax_arrays(folder: Path, saved: dict[str, str], names: set[str]) -> dict[str, np.ndarray]:
    """Reads the arrays `names` from a folder that Orbax wrote; returns them by dotted name."""
    from etils import epath

    ocp, alone = _orbax()
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    stored = handler.metadata(epath.Path(folder)).tree
    named = named_leaves(stored)
    wrong = differences(saved, {name: describe(leaf) for name, leaf in named.items()})
    for name in names & named.keys():
        chunk = getattr(named[name].storage, "chunk_shape", None) or ()
        # A chunk is unpacked completely, even from a small file.
        if any(c > max(s, 1) for c, s in zip(chunk, named[name].shape, strict=True)):
            wrong.append(f"{name}: chunks of {list(chunk)}")
    wrong = wrong or _other_codecs(folder)
    if not wrong:
        size = sum(math.prod(named[n].shape) * np.dtype(named[n].dtype).itemsize for n in names)
        # The check comes before the arrays are allocated, because the system would kill the
        # process.
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > memory:
            wrong = [f"arrays of {size} bytes on a machine with {memory}"]
    if wrong:
        raise ValueError("; ".join(wrong[:4]).replace(", now ", ", stored "))
    if not names:
        return {}
    item = jax.tree_util.tree_map_with_path(
        lambda path, leaf: (
            leaf
            if jax.tree_util.keystr(path, simple=True, separator=".") in names
            else ocp.PLACEHOLDER
        ),
        stored,
    )
    arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), stored)
    restored = handler.restore(
        epath.Path(folder), args=ocp.args.PyTreeRestore(item=item, restore_args=arguments)
    )
    return {n: np.asarray(x) for n, x in named_leaves(restored).items() if n in names}
