"""The identity of a run: settings, lowered programs, shapes and first batches, in JSON."""

import dataclasses
import hashlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from gatedjax._utils.json import to_json_values
from gatedjax._utils.run_files import versions
from gatedjax.training.checkpoint import CheckpointMismatch, describe, named
from gatedjax.training.config import TrainConfig
from gatedjax.training.step import TrainState, init_state, make_train_step, trained
from gatedjax.training.task import Batch, Carried, call_evaluate, init_carried

# Options that may differ, because they do not change the results of a step.
FREE = ("num_steps", "max_skipped", "progress", "keep_checkpoints", "parallel")
TITLES = {
    "programs.init": "the initialisation of the task",
    "programs.step": "the training step (loss, optimizer or schedule)",
    "programs.evaluate": "the evaluation (of the task, or eval_params)",
    "frozen": "the frozen parameters of the task",
    "params": "the initial parameters",
    "train_data": "the training data",
    "eval_data": "the evaluation data",
}
# Constants of more elements are hashed as bytes, because their text is several times as large.
IN_TEXT = 4096
SYMBOL = re.compile(r'@("[^"]*"|[\w$.-]+)')
FUNCTION = re.compile(rf"func\.func (?:public |private )?{SYMBOL.pattern}")
# A run may continue on another number of devices, also where its loss constrains a sharding.
DEVICES = re.compile(r"sdy\.mesh @.*|mhlo\.num_partitions = \d+")


def sha(*parts: bytes) -> str:
    """Returns a short digest."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def digest_of(array: Any) -> str:
    """Returns dtype, shape and digest of an array, such as "float32[3] 0f1e2d3c4b5a6978"."""
    if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    array = np.asarray(array)
    data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return f"{array.dtype}{list(array.shape)} {sha(data)}"


def array_digests(tree: Any) -> dict[str, str]:
    """Returns `digest_of` each array of a tree by name."""
    # JAX would treat a mapping of another class than dict as a single leaf.
    tree = dict(tree) if isinstance(tree, Mapping) else tree
    return {name: digest_of(x) for name, x in sorted(named(tree).items())}


def program_digest(function: Callable[..., Any], *arguments: Any) -> str:
    """Returns a digest of the program that JAX lowers a function to, and of its constants. Python
    functions that the program calls back are not part of it.
    """
    # Only shapes are used, because the text would name the devices an array is committed to.
    arguments = jax.eval_shape(lambda *trees: trees, *arguments)
    with jax.disable_jit(False):
        traced = jax.jit(function).trace(*arguments)
        module: Any = traced.lower().compiler_ir()
    text = DEVICES.sub("", str(module.operation.get_asm(large_elements_limit=IN_TEXT)))
    # Functions are numbered by their order, because a helper may get another name.
    numbers = {name: f"@{i}" for i, name in enumerate(FUNCTION.findall(text))}
    text = SYMBOL.sub(lambda symbol: numbers.get(symbol[1], symbol[0]), text)
    # A lowered program may have constants as arguments, of which its text has only the shapes.
    constants = (digest_of(constant).encode() for constant in _constants(traced.jaxpr, set()))
    return sha(text.encode(), *constants)


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


def mapping_of(source: Any, name: str) -> dict[str, Any]:
    """Returns a mapping or a dataclass as a dict of JSON values."""
    values = to_json_values(source, name)
    if not isinstance(values, dict):
        raise TypeError(f"{name} must be a mapping or a dataclass, got {type(source).__name__}")
    return values


def settings_of(source: Any, config: TrainConfig) -> dict[str, Any]:
    """Returns the argument `settings` of `fit` with the training options below "train"."""
    values = mapping_of({} if source is None else source, "settings")
    train = mapping_of(values.get("train", {}), "settings['train']")
    return values | {"train": to_json_values(config) | train}


def identity_of(
    task: Any,
    tx: optax.GradientTransformation,
    point: Callable[[Any, Any], Any],
    accumulate: int,
    like: TrainState,
    first: Batch,
    eval_data: Any,
    evaluation: Batch | None,
    params: Any,
) -> dict[str, Any]:
    """Returns JSON values that change if a run would compute something else.

    The programs are lowered for a single device, without compilation. The step has all numbers of
    loss, optimizer, schedule and accumulation, in its text or in its constants.
    """
    key = jax.random.key(0)
    programs = {
        "init": program_digest(lambda key: init_state(task, tx, key, first, params).params, key),
        "step": program_digest(make_train_step(task, tx, accumulate=accumulate), like, first, key),
    }
    data: dict[str, Any] = {}
    if evaluation is not None:

        def evaluate(params: Any, opt_state: Any, shared: Any, batch: Batch) -> Any:
            carried = Carried(init_carried(task, key, evaluation).rows, shared)
            part = point(trained(task, params), opt_state)
            return call_evaluate(task, params, batch, carried), part

        shared = like.carried.shared
        programs["evaluate"] = program_digest(
            evaluate, like.params, like.opt_state, shared, evaluation
        )
        # An unknown length is -1: the __len__ of a loader over a stream raises TypeError.
        data = array_digests(evaluation) | {"batches": operator.length_hint(eval_data, -1)}
    return {
        "programs": programs,
        "frozen": list(getattr(task, "frozen", ())),
        "arrays": describe(dataclasses.replace(like, carried=Carried(shared=like.carried.shared))),
        "params": {} if params is None else array_digests(params),
        "train_data": array_digests(first),
        "eval_data": data,
        "versions": versions() | {"backend": jax.default_backend()},
    }


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the leaves of nested dicts in a dict by dotted name, as "train.optimizer.name"."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
    return flat


def changes(saved: dict[str, Any], current: dict[str, Any]) -> dict[str, list[str]]:
    """Returns a line for each difference of two identities, by its kind.

    The kinds are "settings", "arrays", the keys of `TITLES`, and "versions". A setting with the
    name of a part, such as "step" or "train_data", is compared in place of that part.
    """
    old, new = flatten(saved), flatten(current)
    replaced = {title for title in TITLES if title.split(".")[-1] in current["settings"]}
    for values in (old, new):
        train = {"best_metric": "", "best_mode": ""}
        train = {name: values.get(f"settings.train.{name}", "") for name in train}
        if train["best_mode"] == "auto":  # it equals the mode that it stands for
            values["settings.train.best_mode"] = TrainConfig(best_metric=train["best_metric"]).mode
    lines: dict[str, list[str]] = {}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name, "nothing"), new.get(name, "nothing")
        kind = next((t for t in TITLES if f"{name}.".startswith(f"{t}.")), name.split(".")[0])
        free = name in {f"settings.train.{option}" for option in FREE}
        if was == now or free or kind in replaced:
            continue
        label = name.removeprefix(f"{kind}.")
        if kind in TITLES:
            label = TITLES[kind] + ("" if name == kind else f", {label}")
        texts = (f"{x!r}" if kind == "settings" else f"{x}" for x in (was, now))
        line = "  {}: saved {}, now {}".format(label, *texts)
        lines.setdefault(kind, []).append(line)
    return lines


def compare(saved: dict[str, Any], current: dict[str, Any], where: Path | None) -> str | None:
    """Compares the identity of a checkpoint with that of a run; returns a notice if programs could
    not be compared, because other versions of packages lowered them.

    Raises:
      CheckpointMismatch: if they differ; the message has a line for each difference.
    """
    differing = changes(saved, current)
    versions_differ = bool(differing.pop("versions", []))
    programs = {
        kind: differing.pop(kind) for kind in list(differing) if kind.startswith("programs.")
    }
    # Other settings are a reason for other data, and both for other programs: named alone.
    for kind in ("train_data", "eval_data") if "settings" in differing else ():
        differing.pop(kind, None)
    lines = [line for part in differing.values() for line in part]
    if not lines and not versions_differ:
        lines = [line for part in programs.values() for line in part]
    if lines:
        steps = [v["settings"]["train"].get("num_steps") for v in (saved, current)]
        hint = "Use another workdir, or the task, data and settings of the checkpoint."
        if not differing and steps[0] != steps[1]:
            hint += f" num_steps was {steps[0]} and is {steps[1]}, which a schedule may depend on."
        raise CheckpointMismatch(
            "\n".join([f"{where} holds a checkpoint of another run:", *lines, hint])
        )
    if programs:
        titles = " and ".join(TITLES[kind] for kind in programs)
        return (
            f"{where}: {titles} cannot be compared with the checkpoint, which other versions of "
            "packages or another kind of device wrote (environment.json)"
        )
    return None
