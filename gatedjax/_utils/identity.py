"""A model as a static argument of compiled programs."""

from typing import Any


class ByIdentity:
    """A wrapper of a model, equal to a wrapper of the same class with the same model object."""

    def __init__(self, model: Any) -> None:
        self.model = model

    # The hash of a Flax module covers all its fields and fails if one of them is an array.
    def __hash__(self) -> int:
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.model is other.model
