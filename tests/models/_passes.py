"""Passes of a network or a task as compiled programs, and what a test looks at in one."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

RNGS = {"dropout": jax.random.key(1), "gate": jax.random.key(2)}
# every draw of random bits that belongs to examples; the keys are this argument of it
DRAWS = {
    "example_dropout": 2,
    "feature_bytes": 0,
    "pair_bytes": 0,
    "pair_uniform": 0,
    "example_noise": 0,
}


def in_numpy(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compiled whole, and its results as NumPy arrays, whose parts are no programs.

    The first argument is static: a network or a task.
    """
    compiled = jax.jit(function, static_argnums=0, **options)
    return lambda *args, **kwargs: jax.tree.map(np.asarray, compiled(*args, **kwargs))


apply = in_numpy(lambda model, params, batch: model.apply({"params": params}, batch))
evaluate = in_numpy(lambda task, params, batch: task.evaluate(params, batch))
# ((loss, metrics), gradient)
loss = in_numpy(
    lambda task, params, batch: jax.value_and_grad(task.loss, has_aux=True)(params, batch, RNGS)
)


class Recording:
    """A model that keeps what its last pass returned."""

    def __init__(self, model: Any) -> None:
        self.model, self.output = model, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """The pass of the model."""
        self.output = self.model.apply(*args, **kwargs)
        return self.output
