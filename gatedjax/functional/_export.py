"""Needs of programs of `jax.export`: their platform, and registered tuples and dataclasses."""

from typing import TypeVar

import jax
from jax import export

T = TypeVar("T", bound=type)

exported_for = jax.make_user_context(default_value=None)
"""Sets, as a context, the platform of the program that is traced; `jit` traces again for another.

None is the default, outside an export.
"""


def target_platform() -> str:
    """Returns the platform of the program that is traced, such as "cpu", "gpu", "cuda" or "tpu".

    It is the platform of the export, and outside an export the default backend of JAX.
    """
    return exported_for.value or jax.default_backend()


def exportable(kind: T) -> T:
    """Registers a named tuple, or a dataclass that is a pytree, for `jax.export`; a decorator."""
    name = f"gatedjax.{kind.__name__}"
    try:
        if issubclass(kind, tuple):
            export.register_namedtuple_serialization(kind, serialized_name=name)
        else:
            # All fields are children of the pytree, so there is no auxiliary data to write.
            export.register_pytree_node_serialization(
                kind,
                serialized_name=name,
                serialize_auxdata=lambda _: b"",
                deserialize_auxdata=lambda _: (),
            )
    except ValueError as error:
        if "Duplicate" not in str(error):  # as at a second import of a module
            raise
    return kind
