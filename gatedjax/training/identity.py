"""Whether a checkpoint belongs to a run: its settings, and the names and shapes of its arrays."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from gatedjax._utils.json import to_json_values
from gatedjax._utils.removed import REMOVED_FIELDS
from gatedjax._utils.terminal import printable
from gatedjax.training._transforms import call_update
from gatedjax.training.config import TrainConfig

# Differences in these change how long or how visibly a run trains, not what a step computes.
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
    """A checkpoint belongs to another configuration, vocabulary or network."""

    def __init__(self, message: str) -> None:
        # names of arrays and settings come from a file
        super().__init__(printable(message))


def settings_of(given: object, config: TrainConfig, optimizer: str | None = None) -> dict[str, Any]:
    """Returns the settings that a checkpoint must share with a run.

    Args:
      given: `settings` of `fit`. Its "train", if there is one, is put over the training options.
      config: how to train; its options are the settings below "train".
      optimizer: what an optimizer is known by that takes the place of the configured one, see
        `program_of`.

    Raises:
      TypeError: if `given`, or its "train", is no mapping and no dataclass, or for a value that
        JSON cannot hold.
    """
    settings = _mapping("settings", given)
    train = to_json_values(config) | _mapping("settings['train']", settings.get("train", {}))
    if optimizer is not None:
        del train["optimizer"]
        settings = {"optimizer": optimizer} | settings
    return settings | {"train": train}


def metadata_of(given: object) -> dict[str, Any]:
    """Returns `metadata` of `fit` as JSON holds it.

    Raises:
      TypeError: as `settings_of`.
    """
    return _mapping("metadata", given)


def _mapping(name: str, given: object) -> dict[str, Any]:
    values = {} if given is None else to_json_values(given, name)
    if not isinstance(values, dict):
        raise TypeError(f"{name} must be a mapping or a dataclass, got {type(given).__name__}")
    return values


def saved_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in the record of a checkpoint; {} if another program wrote it.

    Before 0.1.0 they were the metadata of the record, where a run of `experiments` had its training
    options below "config". They are returned as such a run has them today.
    """
    if "settings" in record:
        return record["settings"]
    settings = dict(record.get("metadata", {}))
    config = settings.get("config")
    if "train" not in settings and isinstance(config, dict) and "train" in config:
        rest = {name: value for name, value in config.items() if name != "train"}
        settings |= {"config": rest, "train": config["train"]}
    return settings


def saved_description(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings and metadata in the record of a checkpoint, as config.json has them."""
    return saved_settings(record) | record.get("metadata", {})


def program_of(tx: optax.GradientTransformation, params: Any) -> str:
    """What an Optax transformation is known by: a digest of the program that it is for parameters.

    It changes with every number in it, such as a learning rate, and may change with the versions
    of JAX and Optax.

    Args:
      tx: the transformation.
      params: shapes and dtypes of the parameters.
    """
    state = jax.eval_shape(tx.init, params)
    # what stands for the loss is not in the program of an optimizer that does not ask for it
    loss = lambda params: optax.tree.norm(params, squared=True)  # noqa: E731
    update = lambda grads, state, params: call_update(  # noqa: E731
        tx, grads, state, params, value=loss(params), grad=grads, value_fn=loss
    )
    programs = [jax.jit(tx.init).lower(params), jax.jit(update).lower(params, state, params)]
    return f"optax program {_digest(programs)}"


def eval_params_digest(function: Callable[..., Any], params: Any, opt_state: Any) -> str:
    """Returns a digest of the program of a function for `fit(eval_params=...)`."""
    return f"program {_digest([jax.jit(function).lower(params, opt_state)])}"


def _digest(programs: list[Any]) -> str:
    text = "".join(program.as_text() for program in programs)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves of nested dicts by dotted name."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{prefix}.{name}" if prefix else str(name))
    return flat


def check_settings(
    saved: dict[str, Any], wanted: dict[str, Any], where: Path, *, same_length: bool = False
) -> None:
    """Raises CheckpointMismatch with every setting in which two runs differ.

    Args:
      saved: settings of the checkpoint, see `saved_settings`.
      wanted: settings of this run, see `settings_of`.
      where: the workdir, for the message.
      same_length: num_steps may not differ, as where a schedule falls to 0 after the last step.
    """
    free = {f"train.{name}" for name in _FREE if not (same_length and name == "num_steps")}
    old, new = flatten(saved), flatten(wanted)
    # an option that is younger than the checkpoint was what it is by default
    default = flatten({"train": to_json_values(TrainConfig())})
    old |= {name: default[name] for name in new.keys() - old.keys() if name in default}
    # an option that was removed since is the same run if it has its default
    for name, (unchanged, _) in REMOVED_FIELDS["OptimizerConfig"].items():
        if old.get(f"train.optimizer.{name}") == unchanged:
            del old[f"train.optimizer.{name}"]
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
        raise CheckpointMismatch("\n".join([*lines, "Use another workdir, or the saved settings."]))


def named_leaves(tree: Any) -> dict[str, Any]:
    """Leaves of any tree by dotted name, such as "opt_state.0.mu.kernel".

    Raises:
      ValueError: if two leaves have one name (a dot inside a key can do that).
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    named: dict[str, Any] = {}
    for path, leaf in flat:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if name in named:
            raise ValueError(f"two arrays have the name {name!r}; rename a key with a dot in it")
        named[name] = leaf
    return named


def describe(array: Any) -> str:
    """Dtype and shape, as in "float32[3, 4]"."""
    return f"{np.dtype(array.dtype)}{list(array.shape)}"


def described(tree: Any) -> dict[str, str]:
    """Dtype and shape of every array by name."""
    return {name: describe(leaf) for name, leaf in named_leaves(tree).items()}


def differences(saved: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """One line for every array that two trees do not share."""
    return [
        f"{name}: saved {saved.get(name, 'nothing')}, now {wanted.get(name, 'nothing')}"
        for name in sorted(saved.keys() | wanted.keys())
        if saved.get(name) != wanted.get(name)
    ]


def check_leaves(saved: Mapping[str, str], wanted: Mapping[str, str], where: Path) -> None:
    """Raises CheckpointMismatch with every array that two networks do not share."""
    lines = differences(saved, wanted)
    if lines:
        raise CheckpointMismatch(
            f"{where} holds the checkpoint of another network:\n  " + "\n  ".join(lines)
        )
