"""Digests of the task and of the data of a run, by which a checkpoint knows them again.

The settings of a run say nothing of the code of a loss, and nothing of what is in the data. A
checkpoint therefore has digests of the lowered loss with its gradient, of the lowered evaluation,
and of the first batches.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gatedjax.training.identity import CheckpointMismatch, describe, flatten
from gatedjax.training.log import versions
from gatedjax.training.manifest import leaf_hash
from gatedjax.training.step import init_carry, step_rngs
from gatedjax.training.task import AnyTask, Batch, is_stateful

_TITLES = {
    "loss": "the loss of the task",
    "evaluate": "the evaluation of the task",
    "train_data": "the training data",
    "eval_data": "the evaluation data",
}
# The shapes of a batch are part of the program that is lowered for it.
_PROGRAMS = {"loss": "train_data", "evaluate": "eval_data"}
_LENGTH = "number of batches"
# Constants of more elements are hashed as bytes, because their text is several times as large.
_IN_TEXT = 4096


def array_digests(tree: Any) -> dict[str, str]:
    """Returns dtype, shape and a hash for every array of a batch or of parameters, by its path."""
    # a batch may be any mapping, of which JAX would make a single leaf
    leaves = jax.tree_util.tree_leaves_with_path(dict(tree) if isinstance(tree, Mapping) else tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): _array_digest(leaf)
        for path, leaf in leaves
    }


def _array_digest(value: Any) -> str:
    array = host_array(value)
    return f"{describe(array)} {leaf_hash(array)[:12]}"


def host_array(value: Any) -> np.ndarray:
    """Returns a NumPy array of anything that JAX takes for one, of PRNG keys their bits."""
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(jax.device_get(value))


def program_digest(function: Callable[..., Any], *arguments: Any) -> str:
    """Returns a hash of the program that JAX lowers a function to, and of all constants in it.

    Nothing is compiled. Two processes with the same code, packages and kind of device get the same
    hash: the text of the program has no addresses and no places in the source.

    Args:
      function: a pure function.
      arguments: arrays, or their shapes and dtypes.
    """

    def program(*arguments: Any) -> Any:
        return function(*arguments)

    # shapes alone, because an array may be committed to devices, which would be in the text
    arguments = jax.eval_shape(lambda *trees: trees, *arguments)
    with jax.disable_jit(False):
        traced = jax.jit(program).trace(*arguments)
        module: Any = traced.lower().compiler_ir()
    text = module.operation.get_asm(large_elements_limit=_IN_TEXT)
    digest = hashlib.sha256(text.encode())
    for constant in _constants(traced.jaxpr, set()):
        digest.update(_array_digest(constant).encode())
    return f"program {digest.hexdigest()[:16]}"


def _constants(jaxpr: Any, seen: set[int]) -> Iterator[Any]:
    """Yields the arrays that a jaxpr closes over, and those of the jaxprs in its equations.

    A lowered program may have them as arguments, of which the text has the shape alone.
    """
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    yield from getattr(jaxpr, "consts", ())
    for equation in jaxpr.eqns:
        yield from (v.val for v in equation.invars if hasattr(v, "val") and np.ndim(v.val))
        for parameter in jax.tree.leaves(equation.params):
            if hasattr(parameter, "eqns"):
                yield from _constants(parameter, seen)


def run_digests(
    task: AnyTask, params: Any, first: Batch, evaluation: Batch | None, eval_data: Any
) -> dict[str, Any]:
    """Returns digests of the loss, the evaluation and the data of a run.

    Args:
      task: the model.
      params: shapes and dtypes of its parameters.
      first: the first batch of training.
      evaluation: the first batch of evaluation; None if nothing is evaluated.
      eval_data: the evaluation data.
    """

    def carried(batch: Batch) -> tuple[Any, ...]:
        return (jax.eval_shape(lambda: init_carry(task, batch)),) if is_stateful(task) else ()

    # with its gradient, because stop_gradient and custom derivatives change nothing else
    loss = jax.value_and_grad(task.loss, has_aux=True)
    rngs = jax.eval_shape(lambda: step_rngs(jax.random.key(0), 0))
    digests = {
        "software": versions() | {"backend": jax.default_backend()},
        "loss": digest_or_none(_TITLES["loss"], loss, params, first, rngs, *carried(first)),
        "train_data": array_digests(first),
        "eval_data": {},
    }
    if evaluation is not None:
        digests["evaluate"] = digest_or_none(
            _TITLES["evaluate"], task.evaluate, params, evaluation, *carried(evaluation)
        )
        length = {_LENGTH: len(eval_data)} if isinstance(eval_data, Sized) else {}
        digests["eval_data"] = array_digests(evaluation) | length
    return digests


def shared_by(metadata: dict[str, Any], digests: dict[str, Any]) -> dict[str, Any]:
    """Returns what a checkpoint has beside its arrays to be known by.

    Metadata with the name of a digest takes its place, as `metadata["optimizer"]` does.
    """
    named = {k: v for k, v in digests.items() if k not in _TITLES or k not in metadata}
    return {"metadata": metadata, "digests": named}


def digest_or_none(title: str, function: Callable[..., Any], *arguments: Any) -> str | None:
    """Returns `program_digest`, or None with a RuntimeWarning if the function cannot be lowered."""
    try:
        return program_digest(function, *arguments)
    except Exception as error:  # whatever a function does that can be traced but not lowered
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]
        warnings.warn(
            f"{title} cannot be lowered on its own ({reason}): checkpoints of this run do not "
            "know it, so another one is not refused in this workdir",
            RuntimeWarning,
            stacklevel=5,
        )
        return None


def check_digests(saved: Any, wanted: dict[str, Any], where: Path) -> str | None:
    """Refuses the checkpoint of another task or of other data.

    What either side does not know is not compared: checkpoints of older versions have no digests.

    Args:
      saved: digests of the checkpoint.
      wanted: digests of this run.
      where: the workdir, for the messages.

    Returns:
      A line about programs that could not be compared because other packages lowered them, or None.

    Raises:
      CheckpointMismatch: naming each of loss, evaluation, training data and evaluation data that
        is another one.
    """
    saved = saved if isinstance(saved, dict) else {}
    lines, reshaped, programs = [], set(), []
    for name in ("train_data", "eval_data"):
        if not isinstance(saved.get(name), dict) or name not in wanted:
            continue
        old, new = flatten(saved[name]), flatten(wanted[name])
        for leaf in sorted(old.keys() | new.keys()):
            a, b = old.get(leaf, "nothing"), new.get(leaf, "nothing")
            if a == b:
                continue
            what = leaf if leaf == _LENGTH else f"{leaf} in the first batch"
            lines.append(f"  {_TITLES[name]}, {what}: saved {a}, now {b}")
            if leaf != _LENGTH and str(a).rpartition(" ")[0] != str(b).rpartition(" ")[0]:
                reshaped.add(name)
    for name, data in _PROGRAMS.items():
        a, b = saved.get(name), wanted.get(name)
        if a is not None and b is not None and a != b and data not in reshaped:
            programs.append((name, f"  {_TITLES[name]}: saved {a}, now {b}"))
    same_software = saved.get("software") == wanted.get("software")
    if same_software:
        lines = [line for _, line in programs] + lines
    if lines:
        raise CheckpointMismatch(
            "\n".join(
                [
                    f"{where} holds a checkpoint of another task or of other data:",
                    *lines,
                    "Use another workdir to train this, or the task and data of the checkpoint.",
                ]
            )
        )
    if programs and not same_software:
        titles = " and ".join(_TITLES[name] for name, _ in programs)
        return (
            f"{where}: {titles} cannot be compared with the checkpoint, which other versions "
            "of packages or another kind of device wrote (environment.json)"
        )
    return None
