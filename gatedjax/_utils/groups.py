"""Groups of options inside a configuration, whose options keep the names of ungrouped fields.

    @with_groups
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class GANetConfig:
        hidden: int = 100
        gates: GateConfig = GateConfig()  # with the field `temperature`

`temperature` was a field of GANetConfig, and this name still sets and reads the option:
`GANetConfig(temperature=0.5).temperature`, `dataclasses.replace(config, temperature=0.5)` and
`--model.temperature 0.5`. Files have the ungrouped names, so that old ones can be read.
"""

import dataclasses
import difflib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

C = TypeVar("C")
T = TypeVar("T")


def with_groups(kind: type[C]) -> type[C]:
    """Lets a dataclass take and read the options of its groups by their ungrouped names."""
    changed: Any = kind  # mypy lets nobody set attributes of a class
    hints, init = get_type_hints(kind), changed.__init__
    changed._groups = {n: hint for n, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters = list(inspect.signature(init).parameters.values())
    for name, group in changed._groups.items():
        for parameter in inspect.signature(group).parameters.values():
            default = getattr(getattr(kind, name), parameter.name)
            parameters.append(parameter.replace(default=default))
        for option in dir(group):
            # An attribute of the configuration itself comes before an option of a group with the
            # same name.
            if not (option.startswith("_") or hasattr(kind, option)):
                setattr(kind, option, property(operator.attrgetter(f"{name}.{option}")))

    @functools.wraps(init)
    def __init__(self: Any, **options: Any) -> None:
        _check_options(type(self), options)
        init(self, **_gather(type(self), options))

    def __setstate__(self: Any, state: dict[str, Any]) -> None:
        vars(self).update(_gather(type(self), state))  # pickled before there were groups, too

    __init__.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    changed.__init__, changed.__setstate__ = __init__, __setstate__
    return kind


def _check_options(kind: Any, options: Mapping[str, Any]) -> None:
    """Raises TypeError for an unknown option that resembles options of the dataclass `kind`."""
    names = option_names(kind)
    for option in options.keys() - {*names, *groups_of(kind)}:
        similar = [name for name in names if option in name.split("_")]
        similar = similar or difflib.get_close_matches(option, names)
        if similar:
            raise TypeError(
                f"options of {kind.__name__} must have the names of its fields, got {option!r}: "
                f"did you mean {' or '.join(similar)}?"
            )


def _gather(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a dict of the fields of a configuration for options by any of their names."""
    values = _without_lists(options)
    # `dataclasses.replace` gives all fields, and does not tell which configuration it copies.
    is_complete = options.keys() >= {field.name for field in dataclasses.fields(kind)}
    for name, group in groups_of(kind).items():
        # The default of a group is the class attribute that the dataclass leaves.
        value = values.get(name, getattr(kind, name))
        changes = {field: values.pop(field) for field in option_names(group) if field in values}
        if isinstance(value, Mapping):
            missing = [option for option in option_names(group) if option not in value]
            if is_complete and missing and missing != option_names(group):
                option, new = next(iter(value.items()))
                raise TypeError(
                    f"{name} must have all options of {group.__name__} when all fields are given, "
                    f"as by dataclasses.replace, got a dict without {', '.join(missing)}: replace "
                    f"the options by name, such as {option}={new!r}"
                )
            value, changes = getattr(kind, name), _without_lists(value) | changes
        if not isinstance(value, group):
            raise TypeError(
                f"{name} must be a {group.__name__} or a dict of its options, got "
                f"{type(value).__name__}"
            )
        values[name] = dataclasses.replace(value, **changes) if changes else value
    return values


def _without_lists(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}


def with_changes(
    config: T, changes: Mapping[str, Any], unknown: Callable[[type, str, str], Exception]
) -> T:
    """Returns a copy with new values by dotted path; a dict changes only its entries of a group."""
    parts: dict[str, dict[str, Any]] = {}
    values: dict[str, Any] = {}
    kind: Any = type(config)
    names, paths = {field.name for field in dataclasses.fields(kind)}, grouped_paths(kind)
    for path, value in changes.items():
        name, _, inner_path = paths.get(path, path).partition(".")
        if name not in names:
            raise unknown(kind, path, name)
        if inner_path:
            parts.setdefault(name, {})[inner_path] = value
        elif name in groups_of(kind) and isinstance(value, Mapping):
            parts.setdefault(name, {}).update(value)
        elif isinstance(getattr(config, name), tuple) and isinstance(value, list):
            values[name] = tuple(value)
        else:
            values[name] = value
    for name, inner in parts.items():
        values[name] = with_changes(values.get(name, getattr(config, name)), inner, unknown)
    copy: Any = config
    # All values are set together, because some of them must agree for its checks.
    return dataclasses.replace(copy, **values) if values else config


def groups_of(kind: Any) -> dict[str, Any]:
    """Returns a dict from the name of each group of a dataclass to the class of the group."""
    return getattr(kind, "_groups", {})


def option_names(kind: Any) -> list[str]:
    """Returns the names of all options of a dataclass; a group is replaced by its options."""
    groups, fields = groups_of(kind), dataclasses.fields(kind)
    inner = (option_names(groups[f.name]) if f.name in groups else [f.name] for f in fields)
    return [name for names in inner for name in names]


def grouped_paths(kind: Any) -> dict[str, str]:
    """Returns a dict from the name of each option in a group to its path "group.option"."""
    groups = groups_of(kind).items()
    return {option: f"{name}.{option}" for name, group in groups for option in option_names(group)}


def grouped_names(kind: Any, prefix: str = "--") -> Iterator[tuple[str, str]]:
    """Yields pairs of the ungrouped and the grouped name of each option on a command line."""
    for name, hint in get_type_hints(kind).items() if dataclasses.is_dataclass(kind) else ():
        yield from grouped_names(hint, f"{prefix}{name}.")
    for path in grouped_paths(kind).values():
        for new in (path, path.replace(".", ".no-")):  # the second closes a flag
            old = new.partition(".")[2]
            yield f"{prefix}{old}".replace("_", "-"), f"{prefix}{new}".replace("_", "-")


def with_grouped_names(args: Sequence[str], kind: Any) -> list[str]:
    """Returns a command line with the grouped names of options in place of the ungrouped names."""
    names = dict(grouped_names(kind))
    parts = (arg.partition("=") for arg in args)
    return ["".join((names.get(n.replace("_", "-"), n), *rest)) for n, *rest in parts]
