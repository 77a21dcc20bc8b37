"""Tuples and dataclasses that a program written by `jax.export` may take and return."""

from typing import TypeVar

from jax import export

T = TypeVar("T", bound=type)


def exportable(kind: T) -> T:
    """Lets `jax.export` write a named tuple, or a dataclass that is a tree, into a file.

    It is written by a name that does not change. A module that is imported again leaves the first
    registration as it is.
    """
    name = f"gatedjax.{kind.__name__}"
    try:
        if issubclass(kind, tuple):
            export.register_namedtuple_serialization(kind, serialized_name=name)
        else:
            # every field is part of the tree, so that nothing beside the arrays is written
            export.register_pytree_node_serialization(
                kind,
                serialized_name=name,
                serialize_auxdata=lambda _: b"",
                deserialize_auxdata=lambda _: (),
            )
    except ValueError as error:
        if "Duplicate" not in str(error):
            raise
    return kind
