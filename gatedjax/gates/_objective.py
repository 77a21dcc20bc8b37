"""The loss of gates, as every estimator calls it: other arguments bound, its result checked."""

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


@dataclasses.dataclass(frozen=True)
class Objective:
    """loss(gates, *args) as a function of the gates alone.

    Attributes:
      loss: the user's function.
      args: its other arguments.
      dtype: the dtype that it gets the gates in, that of the logits.
    """

    loss: Loss
    args: tuple[Any, ...]
    dtype: Dtype

    def __call__(self, gates: Float[Array, " n"]) -> Float[Array, ""]:
        """The loss of one pattern, in float32 or wider; numbers of errors and bools count."""
        value = self.loss(gates.astype(self.dtype), *self.args)
        check_that(jnp.ndim(value) == 0, "the loss must return a scalar", value)
        dtype = jnp.result_type(value)
        if jnp.issubdtype(dtype, jnp.complexfloating):
            raise TypeError(f"the loss must return a real number, got dtype {dtype}")
        discrete = not jnp.issubdtype(dtype, jnp.floating)
        return jnp.asarray(value, jnp.float32 if discrete else wide_dtype(dtype))

    def values(self, gates: Float[Array, "k n"]) -> Float[Array, " k"]:
        """The losses of several patterns, evaluated side by side."""
        return jax.vmap(self)(gates)

    @property
    def held(self) -> "Objective":
        """The same without derivatives with respect to the other arguments."""
        return dataclasses.replace(self, args=jax.lax.stop_gradient(self.args))


def has_derivative(objective: Objective, size: int) -> bool:
    """Whether the loss passes derivatives of its gates on; found by tracing, without numbers.

    A loss that rounds or compares its gates, or stops their gradient, does not.
    """
    seen = []

    @jax.custom_jvp
    def probe(value):
        return value

    def rule(primals, tangents):
        seen.append(not isinstance(tangents[0], SymbolicZero))
        return primals[0], jnp.zeros_like(primals[0])

    probe.defjvp(rule, symbolic_zeros=True)

    def derivative(gates):
        return jax.jvp(lambda g: probe(objective(g)), (gates,), (gates,))

    jax.eval_shape(derivative, jax.ShapeDtypeStruct((size,), wide_dtype(objective.dtype)))
    return any(seen)
