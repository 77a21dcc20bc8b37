"""Types for the fields of a dataclass of options, see `gatedjax._utils.cli.parse`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import tyro

T = TypeVar("T")

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""An option that takes no value and has no --no-NAME."""
# None comes first, because tyro would otherwise load typeguard, which takes longer than tyro.
Unset = Annotated[
    None | T,  # noqa: RUF036
    tyro.conf.DisallowNone,
    tyro.conf.arg(help_behavior_hint=""),
]
"""An option that is None if it is not given. The docstring of the field describes its default."""
Several = Annotated[tuple[T, ...], tyro.conf.arg(help_behavior_hint="")]
"""An option with any number of values. The docstring of the field describes its default."""


def joined_docstrings() -> tyro.constructors.ConstructorRegistry:
    """Returns rules for tyro that join the lines of a field's docstring and hide empty defaults."""
    registry = tyro.constructors.ConstructorRegistry()
    in_rule = False

    @registry.struct_rule
    def rule(info: tyro.constructors.StructTypeInfo) -> Any:
        nonlocal in_rule
        if in_rule or not dataclasses.is_dataclass(info.type):
            return None
        in_rule = True  # so that the next call uses the rule of tyro
        try:
            spec = registry.get_struct_spec(info)
        finally:
            in_rule = False
        if not isinstance(spec, tyro.constructors.StructConstructorSpec):
            return spec
        return dataclasses.replace(spec, fields=tuple(map(_shown_field, spec.fields)))

    return registry


def _shown_field(
    field: tyro.constructors.StructFieldSpec,
) -> tyro.constructors.StructFieldSpec:
    kind: Any = field.type
    if isinstance(field.default, (str, tuple)) and not field.default:
        kind = Annotated[kind, tyro.conf.arg(help_behavior_hint="")]
    text = functools.partial(_join_lines, field.helptext)
    return dataclasses.replace(field, type=kind, helptext=text)


def _join_lines(text: str | Callable[[], str | None] | None) -> str | None:
    text = text() if callable(text) else text
    return None if text is None else " ".join(text.split())
