"""Configurations for tests, whose cases name an option without its group."""

import dataclasses
from typing import get_type_hints

from gatedjax import models, training
from gatedjax._utils.fields import with_changes

CONFIGS = {
    name: getattr(module, name)
    for module in (models, training)
    for name in dir(module)
    if name.endswith("Config")
}
"""All public configurations by name."""


def option_paths(kind):
    """Option -> its dotted name, for the options of a configuration and those in its groups."""
    paths = {}
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            inner = option_paths(hints[field.name])
            paths |= {name: f"{field.name}.{path}" for name, path in inner.items()}
        paths[field.name] = field.name
    return paths


def option_names(kind):
    """The options of a configuration, with those of a group in place of the group."""
    hints = get_type_hints(kind)
    paths = option_paths(kind)
    return [name for name in paths if not dataclasses.is_dataclass(hints.get(name))]


def option(config, name):
    """The value of an option in whatever group it is."""
    for part in option_paths(type(config))[name].split("."):
        config = getattr(config, part)
    return config


def grouped(config, **options):
    """A configuration, or a class and its defaults, with other values of options."""

    def unknown(kind, path, name):
        return TypeError(f"{kind.__name__} got an unexpected keyword argument {name!r}")

    if isinstance(config, type):
        hints = get_type_hints(config)
        paths = option_paths(config)
        # Fields without a default and wrong values reach the class as a user would give them.
        plain = {n: v for n, v in options.items() if paths.get(n, n) == n}
        inner = {paths[n]: v for n, v in options.items() if n not in plain}
        groups = {path.partition(".")[0] for path in inner}
        for group in groups:
            field = next(f for f in dataclasses.fields(config) if f.name == group)
            made = field.default is dataclasses.MISSING
            present = plain.get(group, field.default_factory() if made else field.default)
            changes = {
                path.partition(".")[2]: value
                for path, value in inner.items()
                if path.startswith(f"{group}.")
            }
            assert dataclasses.is_dataclass(hints[group])
            plain[group] = with_changes(present, changes, unknown)
        return config(**plain)
    paths = option_paths(type(config))
    return with_changes(config, {paths.get(n, n): v for n, v in options.items()}, unknown)
