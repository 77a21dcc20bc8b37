"""A model as a static argument of compiled programs."""

from typing import Any


class ByIdentity:
    """A wrapper that compares by the identity of its model, so that programs compile only once.

    Attributes:
      model: the model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def __hash__(self) -> int:
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.model is other.model
