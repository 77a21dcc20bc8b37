"""The options of a network and of its training. This module imports JAX."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from gatedjax._utils.choices import suggestion
from gatedjax._utils.fields import with_changes
from gatedjax.text.models._entries import Config, NetworkEntry, networks
from gatedjax.training import OptimizerConfig, TrainConfig

# Twenty epochs of a few texts would be too few steps for the learning rate.
_FEWEST_STEPS = 400


def check_network(options: Any, kind: str) -> None:
    """Checks the names and values of the `TextOptions` that configure a network and its steps."""
    entry = networks(kind)[options.model]
    # The file of vectors, which determines their width, has not been read yet. Any width shows
    # whether the names and values are possible.
    network_config(options, entry, entry.vectors)
    train_config(options, 1)


def network_config(options: Any, entry: NetworkEntry, width: int) -> Config:
    """Builds the configuration of the network from the options."""
    overrides = {} if options.vectors is None else dict(entry.with_vectors)
    if options.share is not None:
        overrides["gates.density"] = options.share
    config = entry.width(entry.config, width)
    return _change_options(config, {**overrides, **(options.network or {})}, "network")


def train_config(options: Any, epoch: int) -> TrainConfig:
    """Builds the configuration of the training; `epoch` is the number of steps of an epoch."""
    every = min(max(epoch // 2, 20), 2000)
    default = TrainConfig(
        num_steps=options.num_steps or max(20 * epoch, _FEWEST_STEPS),
        log_every=max(every // 2, 1),
        eval_every=every,
        checkpoint_every=2 * every,
        early_stop_patience=6,
        seed=options.seed,
        optimizer=OptimizerConfig(
            learning_rate=1e-3 if options.vectors is None else 2e-3, clip_norm=5.0
        ),
    )
    changes = options.training or {}
    config: TrainConfig = _change_options(default, changes, "training")
    if config.seeds > 1 or config.sweep:
        raise ValueError(
            "training: seeds must be 1 and sweep empty for a model, got "
            f"{config.seeds} and {config.sweep}: train a model for each `seed`"
        )
    # With a time limit the last step is unknown, and the rate of such a schedule depends on it.
    planned = options.num_steps is not None or "num_steps" in changes
    # These schedules do not depend on the number of steps.
    ends = config.optimizer.schedule not in ("constant", "rsqrt", "staircase")
    if options.minutes and not planned and ends:
        raise ValueError(
            f"minutes must be left out for the schedule {config.optimizer.schedule!r}, which "
            f"depends on the number of steps, got {options.minutes!r}: leave it out, or give "
            "num_steps"
        )
    return config


def _change_options(config: Config, changes: Mapping[str, object], option: str) -> Config:
    """Changes options by dotted names; `option` is the argument that has them, for messages."""

    def unknown(kind: type, name: str, first: str) -> ValueError:
        names = [field.name for field in dataclasses.fields(kind)]
        # The list of all options is too long for a message, so only the nearest name is suggested.
        return ValueError(
            f"{option} must have names of options of {kind.__name__}, got {name!r}."
            f"{suggestion(first, names)}"
        )

    try:
        return with_changes(config, changes, unknown)
    except ValueError as error:
        # Other arguments have fields of the same names, such as `seed`.
        last = {path.rpartition(".")[2]: path for path in changes}
        name, must, wanted = str(error).partition(" must ")
        if name not in last:
            raise
        raise ValueError(f"{option}.{last[name]}{must}{wanted}") from error
