"""Comparison of a checkpoint with a run, by its settings and the names and shapes of its arrays."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from gatedjax._utils.json import to_json_values
from gatedjax._utils.terminal import printable
from gatedjax.training._transforms import call_update
from gatedjax.training.config import TrainConfig, mode_of

_PROGRAM = "optax program"

# Options that may differ, because they do not change the results of a step.
_FREE = (
    "num_steps",
    "max_skipped",
    "progress",
    "tensorboard",
    "keep_checkpoints",
    "parallel",
    "profile_steps",
)


class CheckpointMismatch(ValueError):
    """Raised if a checkpoint belongs to another configuration, vocabulary or network.

    The message lists the differences.
    """

    def __init__(self, message: str) -> None:
        # The message has names from a file, which may have control characters.
        super().__init__(printable(message))


def settings_of(
    source: object, config: TrainConfig, optimizer: str | None = None
) -> dict[str, Any]:
    """Returns the settings that a checkpoint must share with a run: the entries of `source`, which
    may replace training options in "train", and the digest of an optimizer that is passed to `fit`.
    """
    settings = _mapping("settings", source)
    train = to_json_values(config) | _mapping("settings['train']", settings.get("train", {}))
    if optimizer is not None:
        # `check_optimizer` accepts an optimizer only if these options are the defaults, so they do
        # not describe it. A setting with the name "optimizer" replaces the digest.
        del train["optimizer"]
        settings = {"optimizer": optimizer} | settings
    return settings | {"train": train}


def metadata_of(source: object) -> dict[str, Any]:
    """Returns the argument `metadata` of `fit` as a dict of JSON values; {} for None."""
    return _mapping("metadata", source)


def _mapping(name: str, source: object) -> dict[str, Any]:
    values = {} if source is None else to_json_values(source, name)
    if not isinstance(values, dict):
        raise TypeError(f"{name} must be a mapping or a dataclass, got {type(source).__name__}")
    return values


def saved_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in the JSON record of a checkpoint; {} if another program wrote it."""
    return record.get("settings", {})


def saved_description(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings and the metadata in the JSON record of a checkpoint, a dict."""
    return saved_settings(record) | record.get("metadata", {})


def program_of(tx: optax.GradientTransformation, params: Any) -> str:
    """Returns a digest of the lowered `init` and `update` of an Optax transformation. Two with the
    same digest compute the same updates; it may depend on the versions of JAX and Optax.
    """
    state = jax.eval_shape(tx.init, params)
    # This stands for the loss. It is in the digest only if the optimizer uses value or value_fn.
    loss = lambda params: optax.tree.norm(params, squared=True)  # noqa: E731
    update = lambda grads, state, params: call_update(  # noqa: E731
        tx, grads, state, params, value=loss(params), grad=grads, value_fn=loss
    )
    programs = [jax.jit(tx.init).lower(params), jax.jit(update).lower(params, state, params)]
    return f"{_PROGRAM} {_digest(programs)}"


def eval_params_digest(function: Callable[..., Any], params: Any, opt_state: Any) -> str:
    """Returns a hash of the program of a function for `fit(eval_params=...)`."""
    return f"program {_digest([jax.jit(function).lower(params, opt_state)])}"


def _digest(programs: list[Any]) -> str:
    text = "".join(program.as_text() for program in programs)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the leaves of nested dicts in one dict by dotted name, as "train.optimizer.name"."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
    return flat


def check_settings(
    saved: dict[str, Any],
    current: dict[str, Any],
    where: Path,
    *,
    same_length: bool = False,
) -> None:
    """Raises CheckpointMismatch, with all differences, if settings of checkpoint and run differ."""
    free = {f"train.{name}" for name in _FREE if not (same_length and name == "num_steps")}
    old, new = flatten(saved), flatten(current)
    # A run with "auto" continues a run with the mode that "auto" stands for.
    for values in (old, new):
        if "train.best_mode" in values:
            mode = mode_of(str(values.get("train.best_metric")), values["train.best_mode"])
            values["train.best_mode"] = mode
    names = [
        name
        for name in sorted(old.keys() | new.keys())
        if name not in free and old.get(name) != new.get(name)
    ]
    if names:
        lines = [
            f"{where} holds a checkpoint of another run:",
            *(
                f"  {n}: saved {old.get(n, 'nothing')!r}, now {new.get(n, 'nothing')!r}"
                for n in names
            ),
        ]
        if "train.num_steps" in names:
            lines.append(
                "The learning rate falls to 0 after the last step, so a run cannot be made longer."
            )
        lines.append("Use another workdir, or the saved settings.")
        raise CheckpointMismatch("\n".join(lines))


def named_leaves(tree: Any) -> dict[str, Any]:
    """Returns each leaf of a tree by its dotted name, such as "opt_state.0.mu.kernel"."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    named: dict[str, Any] = {}
    for path, leaf in flat:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if name in named:
            raise ValueError(
                f"arrays must have different names, got {name!r} twice: rename a key with a dot in "
                "it"
            )
        named[name] = leaf
    return named


def describe(array: Any) -> str:
    """Returns dtype and shape of an array, or of an object with both, such as "float32[3, 4]"."""
    return f"{np.dtype(array.dtype)}{list(array.shape)}"


def describe_arrays(tree: Any) -> dict[str, str]:
    """Returns dtype and shape of each array of a tree, such as "float32[3, 4]", by dotted name."""
    return {name: describe(leaf) for name, leaf in named_leaves(tree).items()}


def differences(saved: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Returns a line for each array that differs between two results of `describe_arrays`."""
    return [
        f"{name}: saved {saved.get(name, 'nothing')}, now {current.get(name, 'nothing')}"
        for name in sorted(saved.keys() | current.keys())
        if saved.get(name) != current.get(name)
    ]


def check_leaves(saved: Mapping[str, str], current: Mapping[str, str], where: Path) -> None:
    """Raises CheckpointMismatch, with all differences, if arrays of network and file differ."""
    lines = differences(saved, current)
    if lines:
        raise CheckpointMismatch(
            f"{where} holds the checkpoint of another network:\n  " + "\n  ".join(lines)
        )
