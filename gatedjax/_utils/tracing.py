"""Arguments of functions that JAX compiles: traced arrays, PRNG keys, models as static arguments.

No other module uses the tracer class of JAX. The messages of the checks name the argument.
"""

import functools
import sys
from typing import Any

import numpy as np


def is_traced(value: Any) -> bool:
    """Returns True for an array that JAX is tracing, with numbers that are not known."""
    # Something is traced only if JAX is imported, which takes seconds.
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.core.Tracer)


def check_key(**keys: Any) -> None:
    """Raises unless each argument is a single PRNG key; its keyword is its name in the message."""
    for name, key in keys.items():
        shape = _key_shape(name, key, "a PRNG key, such as jax.random.key(0)")
        if shape != ():
            raise ValueError(
                f"{name} must be a single PRNG key, such as jax.random.key(0), got keys of shape "
                f"{shape}: pass one of them, or map the call over them with jax.vmap"
            )


def check_keys(rows: int | None = None, **keys: Any) -> None:
    """Raises unless each argument is an array [rows] of PRNG keys; its keyword is its name."""
    count = rows if isinstance(rows, int) else "B"  # jax.export may leave the number open
    example = f"jax.random.split(jax.random.key(0), {count})"
    for name, key in keys.items():
        shape = _key_shape(name, key, f"PRNG keys, such as {example}")
        if len(shape) != 1 or (rows is not None and shape[0] != rows):
            raise ValueError(
                f"{name} must be PRNG keys of shape ({count},), such as {example}, got "
                f"{f'keys of shape {shape}' if shape else 'a single key'}"
            )


def _key_shape(name: str, value: Any, expected: str) -> tuple[int, ...]:
    """Returns the shape of PRNG keys; raises TypeError for another value."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        import jax

        shape = tuple(value.shape)
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return shape
        words = _count_words(str(jax.config.jax_default_prng_impl))  # type: ignore[attr-defined]
        if value.dtype == np.uint32 and shape[-1:] == (words,):
            return shape[:-1]
    raise TypeError(f"{name} must be {expected}, got {_describe(value)}")


@functools.cache
def _count_words(implementation: str) -> int:
    import jax

    key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=implementation)))
    return int(key.shape[0])


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and hasattr(value, "dtype") and (shape or is_traced(value)):
        return f"an array of shape {shape} and dtype {value.dtype}"
    return repr(value)


class ByIdentity:
    """A model as a static argument of compiled programs; equal if class and model are the same."""

    def __init__(self, model: Any) -> None:
        self.model = model

    # The hash of a Flax module covers all its fields and fails if one of them is an array.
    def __hash__(self) -> int:
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.model is other.model
