"""Tuples and dataclasses that programs of `jax.export` take and return."""

from typing import TypeVar

from jax import export

T = TypeVar("T", bound=type)


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
