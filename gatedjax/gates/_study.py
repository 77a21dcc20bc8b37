"""Tables of gate modes and estimators, as Markdown and as JSON."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from gatedjax._utils.types import Json
from gatedjax.analysis import render_table
from gatedjax.gates._report import Measured, estimator_table


class ModeRow(NamedTuple):
    """The results of a gate mode, as means over all texts.

    Standard errors are over the draws of gates and not over the texts, which are fixed.

    Attributes:
      mode: the gate mode, that is, the kind of gates with which the loss is computed: "sample"
        (draws), "exact" (the expected loss over all patterns), "marginal" (the loss of the mean
        probabilities of the classes), "threshold" ([a > 0]), "best" (the pattern of the smallest
        loss), "expected" (the open probabilities as gates) or "relaxed" (Gumbel-sigmoid gates).
      title: the name of the mode in tables.
      loss: the mean cross-entropy.
      loss_error: the standard error of the loss; None if no gates are drawn.
      gap: the loss minus the loss of the mode "exact".
      accuracy: the share of texts with a correct prediction; None if there are no classes.
      accuracy_error: the standard error of the accuracy; None if no gates are drawn.
      density: the mean share of open words; None if there are no classes.
    """

    mode: str
    title: str
    loss: float
    loss_error: float | None
    gap: float
    accuracy: float | None
    accuracy_error: float | None
    density: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """The gate modes and the estimators of a loss, or of a network on the texts of a data set.

    `gatedjax.gates.toys` and `gatedjax.text.gate_modes` return studies, and
    `gatedjax.analysis.plot_studies` draws them.

        >>> from gatedjax.gates import MeanField, toys
        >>> study = next(toys(draws=2, estimators=[MeanField()]))
        >>> study.title, [row.mode for row in study.modes[:3]]
        ('(b - 0.49)^2, theta 0', ['sample', 'exact', 'threshold'])

    Attributes:
      title: the heading of the Markdown text.
      modes: a `ModeRow` for each gate mode, with its loss and accuracy.
      measured: a `Measured`, the bias, variance and cost of each estimator.
      facts: further entries of the dict that `record` returns, such as {"variance": 0.1}.
      notes: sentences below the tables.
    """

    title: str
    modes: tuple[ModeRow, ...]
    measured: Measured
    facts: Json
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Returns the title, the table of gate modes, that of the estimators, and the notes.

        They are a single string of Markdown.
        """
        parts = [
            f"## {self.title}\n",
            _render_modes(self.modes),
            estimator_table(self.measured.rows),
        ]
        return "\n".join([*parts, *(f"{note}\n" for note in self.notes)])

    def record(self) -> Json:
        """Returns the study as a dict for JSON, with None for numbers that are not finite.

        The keys are "title", the keys of `facts`, "modes" and "estimators" (a dict for each row),
        "texts", "draws", "gradient_norm" and "notes".
        """
        return {
            "title": self.title,
            **self.facts,
            "modes": [_to_json_numbers(row._asdict()) for row in self.modes],
            "texts": self.measured.texts,
            "draws": self.measured.draws,
            "gradient_norm": self.measured.gradient,
            "estimators": [_to_json_numbers(row.record()) for row in self.measured.rows],
            "notes": list(self.notes),
        }


def _to_json_numbers(record: Json) -> Json:
    # JSON has no NaN and no infinity, and the loss of a gate mode may be infinite.
    is_not_finite = lambda x: isinstance(x, float) and not math.isfinite(x)  # noqa: E731
    return {name: None if is_not_finite(value) else value for name, value in record.items()}


def _format_number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _render_modes(rows: Sequence[ModeRow]) -> str:
    """Returns a Markdown table with a line for each gate mode: its loss, errors and accuracy."""
    # The classic problems have a loss but no classes, and columns of dashes would hide the numbers.
    classes = any(row.accuracy is not None for row in rows)
    heads = ["gates", "loss", "+-", "less exact"]
    heads += ["accuracy", "+-", "open"] if classes else []
    cells = []
    for row in rows:
        gap = "-" if row.mode == "exact" else f"{row.gap:+.5f}"
        line = [row.title, f"{row.loss:.5f}", _format_number(row.loss_error, ".5f"), gap]
        if classes:
            numbers = ((row.accuracy, ".4f"), (row.accuracy_error, ".4f"), (row.density, ".3f"))
            line += [_format_number(value, form) for value, form in numbers]
        cells.append(line)
    return render_table(heads, cells)
