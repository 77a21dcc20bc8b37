"""Types for the fields of a dataclass of options, see `gatedjax._utils.cli.parse`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import tyro

T = TypeVar("T")

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""An option that takes no value and has no --no-NAME."""
# None comes first because tyro loads typeguard, which takes longer than tyro, to look behind it
Unset = Annotated[
    None | T,  # noqa: RUF036
    tyro.conf.DisallowNone,
    tyro.conf.arg(help_behavior_hint=""),
]
"""None where the option is not given. The docstring of the field names the default in its place."""
Several = Annotated[tuple[T, ...], tyro.conf.arg(help_behavior_hint="")]
"""Any number of values. The docstring of the field names the default in the place of ()."""


def joined_docstrings() -> tyro.constructors.ConstructorRegistry:
    """Returns rules for tyro that join the lines of a field's docstring.

    tyro takes a line that is indented for a paragraph of its own.
    """
    registry = tyro.constructors.ConstructorRegistry()
    in_rule = False

    @registry.struct_rule
    def rule(info: tyro.constructors.StructTypeInfo) -> Any:
        nonlocal in_rule
        if in_rule or not dataclasses.is_dataclass(info.type):
            return None
        in_rule = True  # the rule that is asked next is tyro's own
        try:
            spec = registry.get_struct_spec(info)
        finally:
            in_rule = False
        if not isinstance(spec, tyro.constructors.StructConstructorSpec):
            return spec
        fields = (
            dataclasses.replace(field, helptext=functools.partial(_joined, field.helptext))
            for field in spec.fields
        )
        return dataclasses.replace(spec, fields=tuple(fields))

    return registry


def _joined(text: str | Callable[[], str | None] | None) -> str | None:
    text = text() if callable(text) else text
    return None if text is None else " ".join(text.split())
