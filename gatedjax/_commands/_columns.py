"""The task, the columns and the thresholds of texts, as the options of a command name them."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from gatedjax._utils.options import Unset
from gatedjax.text.answers._prediction import COLUMNS, check_inputs
from gatedjax.text.sources._open import infer_task
from gatedjax.text.sources._table import Columns, parse_header


def task_of(data: Any, text: Sequence[str] | None, encoding: str, columns: str | None) -> str:
    """Returns the task "text", "pair" or "tags" of data; `text` and `columns` are options."""
    task = infer_task(data, encoding=encoding, header=parse_header(columns))
    # The number of columns after --text decides, because the file may have any names.
    return task_of_columns(text) if text and task != "tags" else task


def task_of_columns(text: Sequence[str] | None) -> str:
    """Returns the task "text" or "pair" of the option --text."""
    return "pair" if text and len(text) == 2 else "text"


def columns_of(options: Any, kind: str) -> Columns:
    """Returns the columns of texts that the options name; refuses options of files of tags."""
    for name in ("word", "tag"):
        if (place := getattr(options, name, None)) is not None:
            raise ValueError(f"--{name} must be left out except for files of tags, got {place}")
    default, label = COLUMNS[kind], getattr(options, "label", None)
    header = parse_header(options.columns)
    columns = Columns(options.text or default.inputs, label, header, default.target)
    check_inputs(columns, kind)
    return columns


Thresholds = Annotated[Unset[tuple[str, ...]], tyro.conf.arg(metavar="NUMBER")]
"""The type of the option, which `parse_thresholds` reads."""


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
    if getattr(model, "target", None) is None:
        raise ValueError(
            "--threshold must be left out unless the model is a lexicon of two classes or of "
            f"several labels, got {' '.join(values or ())} for a network"
        )
    return dataclasses.replace(model, target=model.target.with_threshold(threshold))
