"""The list of data sets, and the meaning of their names."""

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from gatedjax._utils.choices import suggestion
from gatedjax.data.sets._declaration import DataSet, Embedded, SetOptions

# The modules with the declarations, in the order of `gatedjax data list`.
_FILES = (
    *("_sst", "_trec", "_imdb", "_ag_news", "_ptb", "_images", "_two_facts", "_polarity", "_demo"),
    *("_cbt", "_question_files", "_nli", "_srl", "_treebank", "_reordering", "_probing"),
    *("_parallel",),
)
_DECLARED: tuple[DataSet | Embedded, ...] = tuple(
    declared
    for file in _FILES
    for declared in importlib.import_module(f"gatedjax.data.sets.{file}").DECLARED
)

SETS = {declared.name: declared for declared in _DECLARED if isinstance(declared, DataSet)}
EMBEDDED = {declared.name: declared for declared in _DECLARED if isinstance(declared, Embedded)}
ALIASES = {
    alias: (declared.name, o) for declared in SETS.values() for alias, o in declared.aliases.items()
}


def _groups(
    places: Iterable[tuple[tuple[str, str, str] | None, str]],
) -> dict[str, tuple[str, dict[str, str]]]:
    """Groups data sets: returns group -> (option, {value of the option: name of the set})."""
    groups: dict[str, tuple[str, dict[str, str]]] = {}
    for place, name in places:
        if place is not None:
            group, option, value = place
            groups.setdefault(group, (option, {}))[1][value] = name
    return groups


FAMILIES = _groups([(declared.family, declared.name) for declared in SETS.values()])
"""Name of a family of sets -> its option, and the set for each value of the option."""
CONFIGS = _groups([(declared.config, declared.name) for declared in SETS.values()])
"""Name of a TFDS builder with several sets -> the option of `load`, and the set for each value."""


def names() -> tuple[str, ...]:
    """Lists the data sets that `load` accepts.

    >>> "sst" in names(), "polarity" in names()
    (True, True)

    Returns:
      The sorted names of data sets, of aliases (other names of a set) and of families, such as
      "cbt", which stand for several sets.
    """
    return tuple(sorted([*EMBEDDED, *SETS, *ALIASES, *FAMILIES]))


def check_known(noun: str, name: object, names: Sequence[str]) -> None:
    """Raises ValueError if `name` is not in `names`; the message has the most similar name."""
    if name in names:
        return
    hint = suggestion(name, names, cutoff=0.4)
    raise ValueError(
        f"{noun} must be one of {', '.join(map(repr, names)) or '(none)'}, got {name!r}.{hint}"
    )


def resolve(name: str, options: SetOptions | None = None) -> tuple[DataSet | Embedded, SetOptions]:
    """Returns (declaration, value of each option) for the name of a set, alias or family."""
    check_known("data set", name, names())
    options = dict(options or {})
    if name in FAMILIES:
        option, values = FAMILIES[name]
        value = options.pop(option, next(iter(values)))
        check_known(option, value, list(values))
        name = values[value]
    name, preset = ALIASES.get(name, (name, {}))
    for option, value in preset.items():
        # An alias fixes the option, so another value would contradict the name.
        if options.setdefault(option, value) != value:
            raise ValueError(
                f"{option} must be {value!r} for this name of the data set, got {options[option]!r}"
            )
    if name in EMBEDDED:
        for option in options:
            raise ValueError(f"options must be empty for {name!r}, got {option!r}: leave it out")
        return EMBEDDED[name], {}
    declared = SETS[name]
    for option in options:
        check_known(f"option of {name!r}", option, sorted(declared.options))
    full = {option: options.get(option, values[0]) for option, values in declared.options.items()}
    for option, value in full.items():
        check_known(option, value, declared.options[option])
    return declared, full


def resolve_config(name: str, options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Chooses the set of a TFDS builder by the option of `CONFIGS`; other names stay unchanged."""
    if name not in CONFIGS:
        return name, options
    option, values = CONFIGS[name]
    value = options.get(option)
    if value not in values:
        known = ", ".join(map(repr, values))
        raise ValueError(f"{option} of {name!r} must be one of {known}, got {value!r}")
    return values[value], {key: text for key, text in options.items() if key != option}


def not_there(declared: DataSet, part: str, folder: Path, looked_for: str) -> FileNotFoundError:
    """Returns the error for a missing raw file of a part, or for a missing `folder`."""
    if not folder.is_dir():
        return FileNotFoundError(f"manual_dir {folder}: there is no such folder")
    return FileNotFoundError(
        f"data set {declared.name!r}, {part}: no {looked_for} in manual_dir {folder} or in its "
        f"folder of the set. The files are at {declared.where}."
    )
