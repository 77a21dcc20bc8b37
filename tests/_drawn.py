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
) -> Any:
    """Normal numbers in the shapes of init(key, *inputs); no bias is 0.

    Args:
      init: of a module, a network or a task.
      inputs: what it takes beside the key.
      std: their standard deviation.
      dtype: another one than that of the parameters.
      rng: a generator, or the seed of one.
    """
    rng = np.random.default_rng(rng)
    shapes = jax.eval_shape(init, jax.random.key(0), *inputs)
    return jax.tree.map(lambda s: (std * rng.normal(size=s.shape)).astype(dtype or s.dtype), shapes)
