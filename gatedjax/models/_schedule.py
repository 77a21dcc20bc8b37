"""A schedule of the temperature over the training steps."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int

from gatedjax.functional._checks import check_positive
from gatedjax.models._checks import check_at_least


def check_schedule(config: Any) -> None:
    """Raises ValueError if a field of the temperature schedule is out of range."""
    check_at_least(config, 1, "temperature_steps")
    if config.final_temperature is not None:
        check_positive(final_temperature=config.final_temperature)


def schedule(
    config: Any, step: Int[Array, " B"] | None, start: float | Array | None = None
) -> float | Array:
    """Computes the temperature of a step: tau_0 (tau_1 / tau_0)^min(step / steps, 1).

    Args:
      config: a configuration with `temperature` (tau_0), `final_temperature` (tau_1; None means
        tau_0) and `temperature_steps`.
      step: number of the training step, from 0, the same in all B rows; None if it is unknown.
      start: tau_0 instead of `config.temperature`; may be traced. None uses the configuration.

    Returns:
      tau, a float or a scalar array.

    Raises:
      ValueError: if tau changes and step is None.
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
