"""Docstrings of configurations with the descriptions of their fields."""

import ast
import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)
# Shorter than the lines of the source, because `help` indents the lines of a docstring.
_WIDTH = 92


def document_fields(kind: Kind) -> Kind:
    """Adds a section "Attributes:" with the docstrings of the fields to that of a dataclass."""
    # Python keeps no docstrings of fields. Their source is parsed when `__doc__` is first read,
    # because it takes 0.1 seconds for all configurations.
    changed: Any = kind  # because mypy allows only a string as a docstring
    changed.__doc__ = _Docstring(inspect.cleandoc(kind.__doc__ or ""))
    return kind


class _Docstring:
    """A descriptor for `__doc__` that adds the section "Attributes:" when it is first read."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get__(self, instance: object, kind: Any) -> str:
        wrap = textwrap.TextWrapper(
            _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
        texts = field_docstrings(kind)
        names = [field.name for field in dataclasses.fields(kind) if field.name in texts]
        lines = [wrap.fill(f"{name}: {texts[name]}") for name in names]
        return "\n".join([self.text, "\nAttributes:", *lines]) if lines else self.text


@functools.cache
def field_docstrings(kind: Any) -> dict[str, str]:
    """Returns the description of each field of a dataclass that has one, its docstring as a line,
    by the name of the field.
    """
    return {
        name: " ".join(text.split()) for base in reversed(kind.__mro__) for name, text in _own(base)
    }


def _own(kind: type) -> Iterator[tuple[str, str]]:
    """Yields (name, docstring) for each documented field of the class `kind`."""
    if not dataclasses.is_dataclass(kind):
        return
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return
    # A docstring of a field is a string that follows its annotation in the body of the class.
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            yield field.target.id, below.value.value
