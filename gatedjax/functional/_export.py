"""Tuples that a program written by `jax.export` may take and return."""

from typing import TypeVar

from jax import export

T = TypeVar("T", bound=type)


def exportable(kind: T) -> T:
    """Lets `jax.export` write a named tuple into a file, by a name that does not change.

    A module that is imported again leaves the first registration as it is.
    """
    try:
        export.register_namedtuple_serialization(kind, serialized_name=f"gatedjax.{kind.__name__}")
    except ValueError as error:
        if "Duplicate" not in str(error):
            raise
    return kind
