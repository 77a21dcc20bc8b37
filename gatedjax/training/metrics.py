"""Metrics as sums and counts, so that the metrics of batches of any size merge without bias."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float


@struct.dataclass
class Ratio:
    """A mean as a sum and a count. Sums and counts of batches are added before the division.

        >>> ratio = Ratio.of(jnp.array([1.0, 0.0, 9.0]), jnp.array([1.0, 1.0, 0.0]))
        >>> ratio.value()
        0.5
        >>> (ratio + Ratio(jnp.array(1.0), jnp.array(2.0))).value()
        0.5

    Attributes:
      total: the sum of the weighted values, a scalar, float32 or for such values float64.
      count: the sum of the weights, a scalar of the same type.
    """

    total: Float[Array, ""]
    count: Float[Array, ""]

    @classmethod
    def of(cls, values: Float[Array, " B"], weight: Float[Array, " B"]) -> "Ratio":
        """Returns a `Ratio` of the weighted sum of values and the sum of weights.

        Args:
          values: [B], a value for each of the B rows of a batch, or a scalar that all rows share.
            Values at rows of weight 0, NaN included, have no effect.
          weight: [B], a weight per row: 1 for an example, 0 for a filler row. Both may also be
            [B, T], a value and a weight for each of T tokens.

        Raises:
          ValueError: if values and weight differ in shape and values are not a scalar.
        """
        # [B, 1] and [B] would be broadcast to [B, B], and the mean would be of other numbers.
        if jnp.shape(values) not in ((), jnp.shape(weight)):
            raise ValueError(
                f"values must have the shape of weight {jnp.shape(weight)}, or (), got "
                f"{jnp.shape(values)}: give one value for each weight"
            )
        # The values are replaced before the product, because 0 times NaN is NaN.
        real_values = jnp.where(weight > 0, values, 0)
        wide = jnp.float64 if real_values.dtype == jnp.float64 else jnp.float32
        total = jnp.sum(real_values.astype(wide) * weight)
        return cls(total=total, count=jnp.sum(weight).astype(wide))

    def __add__(self, other: "Ratio") -> "Ratio":
        return Ratio(total=self.total + other.total, count=self.count + other.count)

    def value(self) -> float:
        """Returns the mean as a Python float; NaN if the count is 0. Waits for the device."""
        total, count = float(self.total), float(self.count)
        return total / count if count else math.nan


Metrics = dict[str, Ratio]


@struct.dataclass
class Sums:
    """The metrics of some steps in one array, because each array that a step returns costs time."""

    values: Array  # [N], or [L, N] of L runs
    structure: tuple = struct.field(pytree_node=False)  # of the dict, and the shapes in it

    @classmethod
    def of(cls, metrics: Metrics) -> "Sums":
        """Returns the metrics of a step as sums."""
        leaves, tree = jax.tree.flatten(metrics)
        wide = jnp.float64 if jnp.float64 in {x.dtype for x in leaves} else jnp.float32
        values = jnp.concatenate([jnp.ravel(x).astype(wide) for x in leaves])
        return cls(values, (tree, tuple(x.shape for x in leaves)))

    def __add__(self, other: "Sums") -> "Sums":
        if self.structure != other.structure:
            names = [sorted(jax.tree.unflatten(*sums.structure)) for sums in (self, other)]
            raise ValueError(f"loss must return the same metrics for all batches, got {names}")
        return Sums(self.values + other.values, self.structure)

    def metrics(self) -> Metrics:
        """Returns the metrics as NumPy arrays, with a first axis of several runs."""
        tree, shapes = self.structure
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        parts = np.split(np.asarray(self.values), ends[:-1], axis=-1)
        return jax.tree.unflatten(
            tree, [x.reshape(x.shape[:-1] + shape) for x, shape in zip(parts, shapes, strict=True)]
        )


def merge(a: Metrics, b: Metrics) -> Metrics:
    """Adds the totals and the counts of two dicts of metrics by name.

        >>> a = {"loss": Ratio(jnp.array(1.0), jnp.array(1.0))}
        >>> b = {"loss": Ratio(jnp.array(2.0), jnp.array(1.0))}
        >>> merge(a, b)["loss"].value()
        1.5

    Args:
      a: metrics, such as those of a batch.
      b: metrics to add, such as the totals so far.

    Returns:
      The sums. A name that only `a` or only `b` has is in the result as well.
    """
    merged = dict(a)
    for name, ratio in b.items():
        merged[name] = merged[name] + ratio if name in merged else ratio
    return merged


def to_floats(metrics: Mapping[str, Ratio]) -> dict[str, float]:
    """Returns the values of all metrics as Python floats, fetched from the device in a single copy.

    A metric "perplexity" sums negative log-likelihoods, in nats, over tokens, so that it merges
    over batches and devices. Its value is the exponential of the mean.

        >>> nats = Ratio(jnp.array(0.0), jnp.array(2.0))
        >>> to_floats({"loss": nats, "perplexity": nats})
        {'loss': 0.0, 'perplexity': 1.0}

    Args:
      metrics: metrics by name.

    Returns:
      A Python float for each name; NaN for a metric with a count of 0.
    """
    values = {name: ratio.value() for name, ratio in jax.device_get(dict(metrics)).items()}
    if "perplexity" in values:
        # The exponential of more than 709 overflows float64.
        values["perplexity"] = float(np.exp(np.float64(min(values["perplexity"], 700.0))))
    return values
