"""A model as a static argument of compiled programs."""

from typing import Any


class ByIdentity:
    """Equal where it is of one class and of the same object, so that its programs compile once.

    Attributes:
      model: the object.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def __hash__(self) -> int:
        return id(self.model)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.model is other.model
