"""The list of data sets, and the meaning of their names."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from gatedjax._utils.choices import suggestion
from gatedjax.data.sets._declaration import DataSet, Embedded, SetOptions

# The modules with the declarations, in the order of `gatedjax data list`.
_FILES = (
    "_sst",
    "_trec",
    "_imdb",
    "_ag_news",
    "_ptb",
    "_images",
    "_two_facts",
    "_polarity",
    "_demo",
    "_cbt",
    "_question_files",
    "_nli",
    "_srl",
    "_treebank",
    "_reordering",
    "_probing",
    "_parallel",
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


FAMILIES: dict[str, tuple[str, dict[str, str]]] = {}
"""Name of a family of sets -> its option, and the set for each value of the option."""
for _set in SETS.values():
    if _set.family is not None:
        FAMILIES.setdefault(_set.family[0], (_set.family[1], {}))[1][_set.family[2]] = _set.name


def names() -> tuple[str, ...]:
    """Lists the data sets that `load` accepts.

    >>> "sst" in names(), "polarity" in names()
    (True, True)

    Returns:
      The sorted names of data sets, of aliases (other names of a set) and of families, such as
      "cbt", which stand for several sets.
    """
    # A family of a builder's configurations needs its option, so that its name alone loads nothing.
    families = [name for name, (_, sets) in FAMILIES.items() if not _has_configs(sets)]
    return tuple(sorted([*EMBEDDED, *SETS, *ALIASES, *families]))


def _has_configs(sets: Mapping[str, str]) -> bool:
    return any(SETS[name].config for name in sets.values())


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
    options = dict(options or {})
    if name in FAMILIES:
        option, values = FAMILIES[name]
        first = next(iter(values))
        # Configurations of a builder are of equal rank, and none is the default.
        if option not in options and _has_configs(values):
            choices = ", ".join(map(repr, values))
            raise ValueError(
                f"{option} of {name!r} must be one of {choices}, got none: give it, or the name "
                f"of the set, such as {values[first]!r}"
            )
        value = options.pop(option, first)
        check_known(f"{option} of {name!r}", value, list(values))
        name = values[value]
    check_known("data set", name, names())
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


def not_there(declared: DataSet, part: str, folder: Path, looked_for: str) -> FileNotFoundError:
    """Returns the error for a missing raw file of a part, or for a missing `folder`."""
    if not folder.is_dir():
        return FileNotFoundError(f"manual_dir {folder}: there is no such folder")
    return FileNotFoundError(
        f"data set {declared.name!r}, {part}: no {looked_for} in manual_dir {folder} or in its "
        f"folder of the set. The files are at {declared.where}."
    )
