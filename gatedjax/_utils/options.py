"""Types for the fields of a dataclass of options, and the options that a user types for them."""

import dataclasses
import difflib
import functools
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import tyro

from gatedjax._utils.field_docs import field_docstrings
from gatedjax._utils.fields import at_least

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

# More devices wait for each other until XLA times out and ends the process.
CpuDevices = Annotated[Unset[int], at_least(1, 128)]
"""A number of CPU devices over which batches are split."""


def described_fields() -> tyro.constructors.ConstructorRegistry:
    """Returns rules for tyro that show the descriptions of `field_docstrings`, as `help` does, and
    hide empty defaults.
    """
    registry = tyro.constructors.ConstructorRegistry()
    in_rule = False

    def describe(options: Any, field: Any) -> Any:
        kind: Any = field.type
        if isinstance(field.default, (str, tuple)) and not field.default:
            kind = Annotated[kind, tyro.conf.arg(help_behavior_hint="")]
        # A function, because the source of the class is parsed only for --help.
        text = functools.partial(lambda name: field_docstrings(options).get(name), field.name)
        return dataclasses.replace(field, type=kind, helptext=text)

    @registry.struct_rule
    def rule(info: tyro.constructors.StructTypeInfo) -> Any:
        nonlocal in_rule
        if in_rule or not dataclasses.is_dataclass(info.type):
            return None
        in_rule = True  # so that the next call uses the rule of tyro
        try:
            spec: Any = registry.get_struct_spec(info)
        finally:
            in_rule = False
        fields = tuple(describe(info.type, field) for field in spec.fields)
        return dataclasses.replace(spec, fields=fields)

    return registry


def option_names(kind: Any) -> Iterator[str]:
    """Yields the names of the options that the help of a dataclass shows, also of its groups."""
    for _, name, has_pair in _options(kind, "--"):
        yield name
        if has_pair:
            yield _negated(name)


def arguments(kind: Any) -> dict[str, str]:
    """Returns the option that a user types for each field of a dataclass that is no group."""
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    return {
        field: _negated(name) if has_pair and defaults[field] else name
        for field, name, has_pair in _options(kind, "--")
        if "." not in name
    }


def _negated(name: str) -> str:
    group, dot, last = name.removeprefix("--").rpartition(".")
    return f"--{group}{dot}no-{last}"


def _options(kind: Any, prefix: str) -> Iterator[tuple[str, str, bool]]:
    """Yields (field, option, True if there is a --no-OPTION) for each option of a dataclass."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        base = hint.__origin__ if marks else hint
        renamed = (getattr(mark, "name", None) for mark in marks)
        name = next(filter(None, renamed), field.name.replace("_", "-"))
        # tyro puts the name of a group before the names of its options.
        if dataclasses.is_dataclass(base):
            yield from _options(base, f"{prefix}{name}.")
        elif field.init and tyro.conf.Positional not in marks and tyro.conf.Suppress not in marks:
            has_pair = base is bool and tyro.conf.FlagCreatePairsOff not in marks
            yield field.name, f"{prefix}{name}", has_pair


def positional_names(kind: Any) -> Iterator[str]:
    """Yields the words that stand for positional arguments of a dataclass in its usage line."""
    for hint in typing.get_type_hints(kind, include_extras=True).values():
        marks = getattr(hint, "__metadata__", ())
        if tyro.conf.Positional in marks:
            yield from filter(None, (getattr(mark, "metavar", None) for mark in marks))


def unknown_option(
    kind: Any, words: Sequence[str], elsewhere: Callable[[str], str | None]
) -> str | None:
    """Returns the message about the first option that a command does not have, or None; see
    `gatedjax._utils.cli.parse` for `elsewhere`.
    """
    names = {*option_names(kind), "-h", "--help", "--version"}
    for word in words:
        # "-5" and "-a film" are values.
        is_single = len(word.split()) == 1
        is_option = is_single and word.startswith("-") and word.lstrip("-")[:1].isalpha()
        # tyro accepts both "--max_len=5" and "--max-len 5".
        name = word.partition("=")[0].replace("_", "-")
        if is_option and name not in names:
            nearest = nearest_option(name, sorted(names))
            hint = f" Did you mean {nearest}?" if nearest else ""
            return elsewhere(name) or f"unknown option {word}.{hint}"
    return None


def nearest_option(name: str, names: Iterable[str]) -> str | None:
    """Returns the most similar option; its last part counts, because its group may be unknown.

    >>> nearest_option("--densty", ["--test", "--model.gates.density"])
    '--model.gates.density'
    """
    parts = {option.lstrip("-").rpartition(".")[2]: option for option in names}
    matches = difflib.get_close_matches(name.lstrip("-").rpartition(".")[2], parts, 1, 0.7)
    return parts[matches[0]] if matches else None
