"""The types of batches and metrics, checks of batches and options, the temperature of a step."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Int

from gatedjax._utils.fields import Limit
from gatedjax._utils.limits import MOST_LAYERS, MOST_WIDTH, check_most
from gatedjax.training import Ratio

# In all tasks "weight" [B] is 1 for examples and 0 for rows that fill up a batch.
Batch: TypeAlias = dict[str, Array]
"""The arrays of a batch by name; the docstring of each network lists its arrays."""
Metrics: TypeAlias = dict[str, Ratio]
"""Metrics by name, as sums and counts."""
Predictions: TypeAlias = dict[str, Array]
"""Arrays by name, with an entry for each example."""


def _check_widths(name: str, widths: Sequence[int]) -> None:
    check_most(f"the layers of {name}", len(widths), MOST_LAYERS)
    if any(not 1 <= width <= MOST_WIDTH for width in widths):
        raise ValueError(f"{name} must be widths in [1, {MOST_WIDTH}], got {widths}")


WIDTHS = Limit("widths of layers", _check_widths)


def check_defaults(config: Any, names: Sequence[str], where: str, reason: str = "") -> None:
    """Raises ValueError unless options that have no effect have their defaults. `where` is the
    choice that excludes them, such as "cell='gru'", and `reason` explains why.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name in names:
        if (value := getattr(config, name)) != defaults[name]:
            why = f": {reason}" if reason else ""
            raise ValueError(f"{name} must be {defaults[name]!r} for {where}, got {value!r}{why}")


def check_batch(batch: Mapping[str, Array], **axes: str) -> None:
    """Checks the axes of arrays, such as tokens="B N"; equal letters need equal sizes."""
    named = {name: f"[{letters.replace(' ', ', ')}]" for name, letters in axes.items()}
    if not isinstance(batch, Mapping):
        shape = getattr(batch, "shape", None)
        got = type(batch).__name__ if shape is None else f"an array of shape {shape}"
        arrays = ", ".join(f'"{name}": {letters}' for name, letters in named.items())
        raise TypeError(f"batch must be a dict of arrays {{{arrays}}}, got {got}")
    if missing := sorted(axes.keys() - batch.keys()):
        raise ValueError(f"batch must have {', '.join(missing)}, got {sorted(batch)}")
    sizes: dict[str, tuple[int, str]] = {}
    for name, letters in axes.items():
        shape = getattr(batch[name], "shape", None)
        if shape is None:
            kind = type(batch[name]).__name__
            raise TypeError(f"batch[{name!r}] must be an array {named[name]}, got {kind}")
        if len(letters.split()) != len(shape):
            raise ValueError(f"batch must have {name} {named[name]}, got shape {shape}")
        for letter, size in zip(letters.split(), shape, strict=True):
            # The first array with an axis sets its size, with which the later arrays must agree.
            wanted, first = sizes.setdefault(letter, (size, name))
            if wanted != size:
                raise ValueError(
                    f"batch must have {name} {named[name]} with {letter} = {wanted} for {first} "
                    f"{batch[first].shape}, got shape {shape}"
                )


def schedule(
    config: Any, step: Int[Array, " B"] | None, start: float | Array | None = None
) -> float | Array:
    """Computes the temperature of a step: tau_0 (tau_1 / tau_0)^min(step / steps, 1), for tau_0 =
    `config.temperature` or `start`, which may be traced, and tau_1 = `config.final_temperature`.
    `step` may be None if the temperature does not change.
    """
    start = config.temperature if start is None else start
    if config.final_temperature is None:
        return start
    if step is None:
        raise ValueError(
            f"batch must have step for final_temperature={config.final_temperature}, got none"
        )
    # All rows have the number of the same step; the maximum makes it a scalar.
    share = jnp.minimum(jnp.max(step) / config.temperature_steps, 1.0)
    return start * (config.final_temperature / start) ** share
