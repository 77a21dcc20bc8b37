"""Digests of the task and of the data of a run, by which a checkpoint is matched to them.

The settings of a run describe neither the code of a loss nor the contents of the data. A checkpoint
therefore has digests of the lowered initialisation, of the lowered loss with its gradient, of the
lowered evaluation, and of the first batches.
"""

import hashlib
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gatedjax.training.identity import CheckpointMismatch, describe, flatten
from gatedjax.training.log import versions
from gatedjax.training.manifest import leaf_hash
from gatedjax.training.step import TrainState, init_carry, step_rngs
from gatedjax.training.task import (
    AnyTask,
    Batch,
    call_evaluate,
    call_loss,
    frozen_parameters,
    has_model_state,
)

_TITLES = {
    "init": "the initialisation of the task",
    "loss": "the loss of the task",
    "evaluate": "the evaluation of the task",
    "frozen": "the frozen parameters of the task",
    "params": "the initial parameters",
    "train_data": "the training data",
    "eval_data": "the evaluation data",
}
# A program depends on the shapes of a batch; the initialisation may depend on its values as well.
_PROGRAMS = {"init": "train_data", "loss": "train_data", "evaluate": "eval_data"}
_LENGTH = "number of batches"
# Constants of more elements are hashed as bytes, because their text is several times as large.
_IN_TEXT = 4096
# A run may continue on another number of devices, also where its loss constrains a sharding.
_SYMBOL = re.compile(r'@("[^"]*"|[\w$.-]+)')
_FUNCTION = re.compile(rf"func\.func (?:public |private )?{_SYMBOL.pattern}")
_NUM_DEVICES = re.compile(r"sdy\.mesh @.*|mhlo\.num_partitions = \d+")


def array_digests(tree: Any) -> dict[str, str]:
    """Returns dtype, shape and hash, "float32[3] 0f1e2d3c4b5a", of each array by its path."""
    # JAX would treat a mapping of another class than dict as a single leaf.
    leaves = jax.tree_util.tree_leaves_with_path(dict(tree) if isinstance(tree, Mapping) else tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): _array_digest(leaf)
        for path, leaf in leaves
    }


def _array_digest(value: Any) -> str:
    array = host_array(value)
    return f"{describe(array)} {leaf_hash(array)[:12]}"


def host_array(value: Any) -> np.ndarray:
    """Returns the array `value` as a NumPy array; PRNG keys become integers."""
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(jax.device_get(value))


def program_digest(function: Callable[..., Any], *arguments: Any) -> str:
    """Returns a hash of the program that JAX lowers a function to, and of its constants. Processes
    with the same code, packages and kind of device get the same hash. Python functions that the
    program calls back are not part of it.
    """

    def program(*arguments: Any) -> Any:
        return function(*arguments)

    # Only shapes are used, because the text would name the devices an array is committed to.
    arguments = jax.eval_shape(lambda *trees: trees, *arguments)
    with jax.disable_jit(False):
        traced = jax.jit(program).trace(*arguments)
        text = _NUM_DEVICES.sub("", lowered_text(traced))
    return f"program {_hash_text(text, traced)[:16]}"


def lowered_text(traced: Any) -> str:
    """Returns the text (StableHLO) of a lowered program, without large constants."""
    module: Any = traced.lower().compiler_ir()
    return str(module.operation.get_asm(large_elements_limit=_IN_TEXT))


def compiled_digest(traced: Any) -> str | None:
    """Returns a hash of program, constants and result trees; None if it calls Python functions."""
    text = lowered_text(traced)
    # The text does not name the Python functions.
    if "callback" in text or traced.jaxpr.effects:
        return None
    return _hash_text(f"{text}{jax.tree.structure(traced.out_info)}", traced)


def _hash_text(text: str, traced: Any) -> str:
    # Functions are numbered by their order, because a helper may get another name.
    numbers = {name: f"@{i}" for i, name in enumerate(_FUNCTION.findall(text))}
    text = _SYMBOL.sub(lambda symbol: numbers.get(symbol[1], symbol[0]), text)
    digest = hashlib.sha256(text.encode())
    # A lowered program may have constants as arguments, of which its text has only the shapes.
    for constant in _constants(traced.jaxpr, set()):
        digest.update(_array_digest(constant).encode())
    return digest.hexdigest()


def _constants(jaxpr: Any, seen: set[int]) -> Iterator[Any]:
    """Yields the arrays that a jaxpr, or a jaxpr in one of its equations, closes over."""
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
    task: AnyTask,
    state: TrainState,
    first: Batch,
    evaluation: Batch | None,
    eval_data: Any,
    params: Any = None,
) -> dict[str, Any]:
    """Returns digests of a task's programs, of its first batches and of the software by name."""
    model_state = state.model_state

    def carry_of(batch: Batch) -> Any:
        # The carry has as many rows as this batch.
        return jax.eval_shape(lambda: init_carry(task, batch))

    def init(key: jax.Array) -> Any:
        initial_state = task.init_model_state(key, first) if has_model_state(task) else None  # type: ignore[union-attr]
        return task.init(key, first), initial_state

    def loss(params: Any, batch: Batch, rngs: Any, carry: Any, model_state: Any) -> Any:
        total, *outputs = call_loss(task, params, batch, rngs, carry, model_state)
        return total, outputs

    def evaluate(params: Any, batch: Batch, carry: Any, model_state: Any) -> Any:
        return call_evaluate(task, params, batch, carry, model_state)

    # The gradient is hashed too, because stop_gradient and custom derivatives change only it.
    gradient = jax.value_and_grad(loss, has_aux=True)
    key = jax.eval_shape(lambda: jax.random.key(0))
    rngs = jax.eval_shape(step_rngs, key, 0)
    digests: dict[str, Any] = {
        "software": versions() | {"backend": jax.default_backend()},
        "init": digest_or_none("init", init, key),
        "loss": digest_or_none(
            "loss", gradient, state.params, first, rngs, carry_of(first), model_state
        ),
        "frozen": list(frozen_parameters(task)),
        "params": "of task.init" if params is None else _tree_digest(params),
        "train_data": array_digests(first),
        "eval_data": {},
    }
    if evaluation is not None:
        digests["evaluate"] = digest_or_none(
            "evaluate", evaluate, state.params, evaluation, carry_of(evaluation), model_state
        )
        # An unknown length is -1: the __len__ of a loader over a stream raises TypeError.
        length = operator.length_hint(eval_data, -1)
        digests["eval_data"] = array_digests(evaluation) | {_LENGTH: length}
    return digests


def _tree_digest(tree: Any) -> str:
    text = repr(sorted(array_digests(tree).items()))
    return f"arrays {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def compared_digests(
    settings: dict[str, Any], digests: dict[str, Any], *, is_repeatable: bool = True
) -> dict[str, Any]:
    """Returns the digests that are compared when a run continues. A setting with the name of a
    digest, such as "loss" or "train_data", is compared instead of it.
    """
    of_first_batch = () if is_repeatable else ("train_data", "init")
    return {
        k: v
        for k, v in digests.items()
        if (k not in _TITLES or k not in settings) and k not in of_first_batch
    }


def digest_or_none(name: str, function: Callable[..., Any], *arguments: Any) -> str | None:
    """Returns `program_digest`, or None with a RuntimeWarning if the function cannot be lowered."""
    try:
        return program_digest(function, *arguments)
    except Exception as error:  # the run goes on, because the step may still compile
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]
        warnings.warn(
            f"{_TITLES.get(name, name)} cannot be lowered ({reason}): checkpoints of this run do "
            "not record the program, so that a changed program is not detected in this workdir",
            RuntimeWarning,
            stacklevel=5,
        )
        return None


def check_digests(saved: Any, current: dict[str, Any], where: Path) -> str | None:
    """Raises CheckpointMismatch for another task or data; returns a notice if versions differ."""
    saved = saved if isinstance(saved, dict) else {}
    lines, changed, reshaped = [], set(), set()
    for name in ("train_data", "eval_data"):
        if not isinstance(saved.get(name), dict) or name not in current:
            continue
        old, new = flatten(saved[name]), flatten(current[name])
        for leaf in sorted(old.keys() | new.keys()):
            a, b = old.get(leaf, "nothing"), new.get(leaf, "nothing")
            if a != b:
                place = leaf if leaf == _LENGTH else f"{leaf} in the first batch"
                lines.append(f"  {_TITLES[name]}, {place}: saved {a}, now {b}")
                changed.add(name)
            # The text of an entry is dtype, shape and hash; without the hash it shows if the shape
            # changed.
            if leaf != _LENGTH and str(a).rpartition(" ")[0] != str(b).rpartition(" ")[0]:
                reshaped.add(name)
    programs = {
        name: f"  {_TITLES[name]}: saved {saved[name]}, now {current[name]}"
        for name, data in _PROGRAMS.items()
        if None not in (saved.get(name), current.get(name))
        and saved[name] != current[name]
        and data not in (changed if name == "init" else reshaped)
    }
    # A program that differs because its data differ is not listed, because the message names the
    # data. Other versions of packages may lower the same function to another text, so that a
    # difference is no proof then.
    same_software = saved.get("software") == current.get("software")
    if same_software:
        lines = [*programs.values(), *lines]
    frozen = saved.get("frozen"), current.get("frozen")
    if frozen[0] != frozen[1]:
        lines.append(f"  {_TITLES['frozen']}: saved {frozen[0]}, now {frozen[1]}")
    given = saved.get("params"), current.get("params")
    if None not in given and given[0] != given[1]:
        lines.append(f"  {_TITLES['params']}: saved {given[0]}, now {given[1]}")
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
        titles = " and ".join(_TITLES[name] for name in programs)
        return (
            f"{where}: {titles} cannot be compared with the checkpoint, which other versions "
            "of packages or another kind of device wrote (environment.json)"
        )
    return None
