"""Parameters and variables for tests, without the initialisers, which take long to compile."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def drawn(
    init: Callable[..., Any],
    *inputs: Any,
    std: float = 0.5,
    dtype: Any = None,
    rng: np.random.Generator | int = 1,
    scales: float = 0.0,
) -> Any:
    """Normal numbers in the shapes of init(key, *inputs); no bias is 0.

    Args:
      init: of a module, a network or a task.
      inputs: what it takes beside the key.
      std: their standard deviation.
      dtype: another one than that of the parameters.
      rng: a generator, or the seed of one.
      scales: the mean of the scales of layer norms.
    """
    rng = np.random.default_rng(rng)
    shapes = jax.eval_shape(init, jax.random.key(0), *inputs)

    def leaf(path: Any, s: Any) -> np.ndarray:
        mean = scales if "'scale'" in str(path) else 0.0
        return (mean + std * rng.normal(size=s.shape)).astype(dtype or s.dtype)

    return jax.tree.map_with_path(leaf, shapes)
