"""The loss as a function of the gates only, with a check of its result."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from gatedjax.functional._checks import check_that, wide_dtype
from gatedjax.functional._types import Dtype

Loss = Callable[..., Any]
"""loss(gates, *args) -> scalar; gates [n]."""


def check_loss(loss: object) -> None:
    """Raises TypeError unless the loss is a function."""
    if not callable(loss):
        raise TypeError(f"loss must be a function of gates [n] that returns a scalar, got {loss!r}")


@dataclasses.dataclass(frozen=True)
class Objective:
    """The loss as a function of the gates only: loss(gates, *args) with the other arguments bound.

        >>> weights = jnp.array([1.0, 2.0])
        >>> objective = Objective(lambda gates, w: jnp.sum(gates * w), (weights,), jnp.float32)
        >>> print(objective(jnp.array([0.0, 1.0])), objective.values(jnp.eye(2)))
        2.0 [1. 2.]

    Attributes:
      loss: the function of the user, loss(gates, *args) -> scalar.
      args: the other arguments of the loss.
      dtype: the dtype of the gates that the loss takes, which is the dtype of the logits.
    """

    loss: Loss
    args: tuple[Any, ...]
    dtype: Dtype

    def __call__(self, gates: Float[Array, " n"]) -> Float[Array, ""]:
        """Returns the loss of a pattern in float32 or wider, also if it is an integer or a bool.

        gates [n] are the pattern, 0 or 1 for each gate, or soft gates. The loss is a scalar.

        Raises:
          ValueError: if the loss is not a scalar.
          TypeError: if the loss is complex.
        """
        value = self.loss(gates.astype(self.dtype), *self.args)
        check_that(jnp.ndim(value) == 0, "loss must return a scalar", value)
        dtype = jnp.result_type(value)
        if jnp.issubdtype(dtype, jnp.complexfloating):
            raise TypeError(f"loss must return a real number, got dtype {dtype}")
        # A loss that counts errors is an integer or a bool, and its mean needs fractions.
        discrete = not jnp.issubdtype(dtype, jnp.floating)
        return jnp.asarray(value, jnp.float32 if discrete else wide_dtype(dtype))

    def values(self, gates: Float[Array, "k n"]) -> Float[Array, " k"]:
        """Returns the losses [k] of k patterns of n gates, the rows of `gates`."""
        return jax.vmap(self)(gates)

    @property
    def held(self) -> "Objective":
        """The same objective, without derivatives with respect to the other arguments."""
        return dataclasses.replace(self, args=jax.lax.stop_gradient(self.args))


def has_derivative(objective: Objective, size: int) -> bool:
    """Returns True if the loss has a derivative by its gates; traces it without evaluating it."""
    seen = []

    @jax.custom_jvp
    def probe(value):
        return value

    def rule(primals, tangents):
        # JAX passes a symbolic zero if the loss has no differentiable path from its gates.
        seen.append(not isinstance(tangents[0], SymbolicZero))
        return primals[0], jnp.zeros_like(primals[0])

    probe.defjvp(rule, symbolic_zeros=True)

    def derivative(gates):
        return jax.jvp(lambda g: probe(objective(g)), (gates,), (gates,))

    jax.eval_shape(derivative, jax.ShapeDtypeStruct((size,), wide_dtype(objective.dtype)))
    return any(seen)
