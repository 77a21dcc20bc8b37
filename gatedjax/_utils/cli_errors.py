"""Messages about wrong command lines, each on a single line."""

import dataclasses
import difflib
import itertools
import re
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import tyro

_COMMON = ("--help", "--version")
_TYPES = {"INT": "an integer", "FLOAT": "a number"}


def is_option(word: str) -> bool:
    """Returns True for a word like "--text" or "-h"; "-5" and "-a film" are values."""
    return word.startswith("-") and word.lstrip("-")[:1].isalpha() and len(word.split()) == 1


def option_names(kind: Any, prefix: str = "--") -> Iterator[str]:
    """Yields the names of the options that the help of a dataclass shows, also of its groups."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        base = hint.__origin__ if marks else hint
        renamed = (getattr(mark, "name", None) for mark in marks)
        name = next(filter(None, renamed), field.name.replace("_", "-"))
        # tyro puts the name of a group before the names of its options.
        if dataclasses.is_dataclass(base):
            yield from option_names(base, f"{prefix}{name}.")
        elif tyro.conf.Positional not in marks and tyro.conf.Suppress not in marks:
            yield f"{prefix}{name}"
            if base is bool and tyro.conf.FlagCreatePairsOff not in marks:
                yield f"{prefix}no-{name}"


def positional_names(kind: Any) -> Iterator[str]:
    """Yields the words that stand for positional arguments of a dataclass in its usage line."""
    for hint in typing.get_type_hints(kind, include_extras=True).values():
        marks = getattr(hint, "__metadata__", ())
        if tyro.conf.Positional in marks:
            names = (getattr(mark, "metavar", None) for mark in marks)
            yield from filter(None, names)


def unknown_option(kind: Any, word: str) -> str:
    """Returns the message about an option that a command does not have."""
    name = _name_in(word)
    names = [*option_names(kind), *_COMMON]
    last = name.lstrip("-").rpartition(".")[2]
    # An option may belong to another group, so the last part of the name is compared first.
    similar = [option for option in names if option.rpartition(".")[2] == last]
    similar += difflib.get_close_matches(name, names, n=1)
    return f"unknown option {word}." + (f" Did you mean {similar[0]}?" if similar else "")


def message_of(event: Any, kind: Any, args: Sequence[str]) -> str | None:
    """Returns the message about a parse error of tyro, or None if the event is unknown."""
    names = {*option_names(kind), *_COMMON}
    unknown = [word for word in args if is_option(word) and _name_in(word) not in names]
    if unknown:  # because it may be a misspelt name of a missing option
        return unknown_option(kind, unknown[0])
    event_kind = type(event).__name__
    if event_kind == "MissingArgs":
        missing = [_shown_name(argument.arg) for argument in event.missing_arguments]
        return f"{_join_names(missing, 'and')} must be given"
    if event_kind == "InstantiationFailure" and event.argument is None:
        return str(event.message)
    if event_kind not in ("InvalidChoice", "BadValue", "InstantiationFailure"):
        return None
    name, value_type = _shown_name(event.argument), event.argument.lowered.metavar
    if event_kind == "InvalidChoice":
        choices = _in_order_of_help(event.choices, value_type)
        return f"{name} must be {_join_names(choices, 'or')}, got {event.value!r}"
    # tyro shows None as a possible value of an optional option. The user never types it.
    value_type = value_type.removeprefix("{None}|")
    if event_kind == "BadValue":
        return f"{name} needs a value ({value_type})"
    values = _values(args, name)
    return f"{name} must be {_TYPES.get(value_type, value_type)}, got {' '.join(values)!r}"


def _name_in(word: str) -> str:
    # tyro accepts both "--max_len=5" and "--max-len 5".
    return word.partition("=")[0].replace("_", "-")


def _shown_name(argument: Any) -> str:
    lowered = argument.lowered
    return str(lowered.metavar if argument.is_positional() else lowered.name_or_flags[0])


def _in_order_of_help(choices: Sequence[str], value_type: str) -> list[str]:
    shown = re.split(r"[{}|,]+", value_type)
    return [choice for choice in shown if choice in choices] or sorted(choices)


def _join_names(names: Sequence[str], conjunction: str) -> str:
    *early, last = names
    return f"{', '.join(early)} {conjunction} {last}" if early else last


def _values(args: Sequence[str], option: str) -> list[str]:
    values: list[str] = []
    for place, word in enumerate(args):
        if _name_in(word) == option:
            _, equals, value = word.partition("=")
            following = itertools.takewhile(lambda part: not is_option(part), args[place + 1 :])
            values = [value] if equals else list(following)
    return values
