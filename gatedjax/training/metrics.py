"""Metrics as sums and counts, so that batches of any size merge without bias."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float


@struct.dataclass
class Ratio:
    """A sum and what it is divided by; both are float32 scalars.

    Attributes:
      total: sum of values.
      count: sum of weights.
    """

    total: Float[Array, ""]
    count: Float[Array, ""]

    @classmethod
    def of(cls, values: Float[Array, " B"], weight: Float[Array, " B"]) -> "Ratio":
        """Sums values over the rows with weight; a row of weight 0 may hold anything."""
        kept = jnp.where(weight > 0, values, 0).astype(jnp.float32)
        return cls(total=jnp.sum(kept * weight), count=jnp.sum(weight).astype(jnp.float32))

    def __add__(self, other: "Ratio") -> "Ratio":
        return Ratio(total=self.total + other.total, count=self.count + other.count)

    def value(self) -> float:
        """The ratio as a Python float; NaN if nothing was counted. Waits for the device."""
        total, count = (float(x) for x in jax.device_get((self.total, self.count)))
        return total / count if count else math.nan


Metrics = dict[str, Ratio]


def merge(a: Metrics, b: Metrics) -> Metrics:
    """Adds two sets of metrics; a name that only one has is kept."""
    merged = dict(a)
    for name, ratio in b.items():
        merged[name] = merged[name] + ratio if name in merged else ratio
    return merged


def to_json(metrics: Mapping[str, Ratio]) -> dict[str, list]:
    """Sums and counts as JSON holds them: float32 values, exact."""
    return {
        name: [np.asarray(ratio.total).tolist(), np.asarray(ratio.count).tolist()]
        for name, ratio in jax.device_get(dict(metrics)).items()
    }


def from_json(saved: Mapping[str, list]) -> Metrics:
    """The inverse of `to_json`."""
    return {
        name: Ratio(total=jnp.array(total, jnp.float32), count=jnp.array(count, jnp.float32))
        for name, (total, count) in saved.items()
    }


def to_floats(metrics: Mapping[str, Ratio]) -> dict[str, float]:
    """Values of all metrics, fetched from the device at once.

    "perplexity" holds negative log-likelihoods, in nats, and counts tokens; its value is the
    exponential of their mean. So it merges over batches and devices like any other.
    """
    values = {name: ratio.value() for name, ratio in jax.device_get(dict(metrics)).items()}
    if "perplexity" in values:
        values["perplexity"] = float(np.exp(np.float64(min(values["perplexity"], 700.0))))
    return values
