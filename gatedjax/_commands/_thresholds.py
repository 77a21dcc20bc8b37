"""The option --threshold of the commands: a number, or numbers of named labels."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from gatedjax._utils.options import Unset

Thresholds = Annotated[Unset[tuple[str, ...]], tyro.conf.arg(metavar="NUMBER")]
"""The type of the option, which `parse_thresholds` reads."""
THRESHOLD_ARGUMENTS = {"threshold must ": "--threshold must ", "as threshold ": "as --threshold "}
"""Words in messages of the library, and the options that replace them."""


def parse_thresholds(values: Sequence[str] | None) -> Any:
    """Returns the number, or the dict from labels to numbers, of the option --threshold.

    >>> parse_thresholds(["0.3"]), parse_thresholds(["spam=0.3", "ham=0.4"])
    (0.3, {'spam': 0.3, 'ham': 0.4})
    """
    if values is None:
        return None
    thresholds: dict[str, float] = {}
    for value in values:
        # A label may contain "=", and a number does not.
        label, equals, number = value.rpartition("=")
        if equals and label in thresholds:
            raise ValueError(
                f"threshold must have a single number for each label, got {' '.join(values)}: "
                f"leave out a number of {label}"
            )
        try:
            thresholds[label if equals else ""] = float(number)
        except ValueError:
            raise ValueError(
                f"threshold must be numbers, as 0.3 or spam=0.3, got {value!r}"
            ) from None
    for threshold in thresholds.values():
        if not 0 < threshold < 1:
            raise ValueError(f"threshold must be in (0, 1), got {threshold:g}")
    if "" in thresholds and len(values) > 1:
        raise ValueError(f"threshold must name the label of each number, got {' '.join(values)}")
    return thresholds.get("", thresholds)


def set_thresholds(model: Any, values: Sequence[str] | None) -> Any:
    """Returns the model with the thresholds of the option --threshold."""
    threshold = parse_thresholds(values)
    if threshold is None:
        return model
    target = getattr(model, "target", None)
    if target is None:
        raise ValueError(
            "--threshold must be left out unless the model is a lexicon of two classes or of "
            f"several labels, got {' '.join(values or ())} for a network"
        )
    return dataclasses.replace(model, target=target.with_threshold(threshold))
