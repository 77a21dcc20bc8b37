"""Gate modes and estimators side by side: as Markdown and as JSON."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from gatedjax._utils.types import Json
from gatedjax.analysis import render_table
from gatedjax.gates._report import Measured, estimator_table


class ModeRow(NamedTuple):
    """One kind of gate over all texts; a standard error is of the draws, the texts are given.

    Attributes:
      mode: "sample", "exact", "marginal", "threshold", "best", "expected" or "relaxed".
      title: for people.
      loss: mean cross-entropy.
      loss_error: its standard error; None where nothing is drawn.
      gap: loss less that of "exact".
      accuracy: share of the texts whose label is predicted; None where there are no classes.
      accuracy_error: likewise.
      density: mean share of open words.
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
    """One loss, or the texts of a data set.

    Attributes:
      title: what was studied.
      modes: one row for each kind of gate.
      measured: the estimators.
      facts: what else is known, for JSON.
      notes: sentences for people, below the tables.
    """

    title: str
    modes: tuple[ModeRow, ...]
    measured: Measured
    facts: Json
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Title, both tables, notes."""
        parts = [
            f"## {self.title}\n",
            _modes_table(self.modes),
            estimator_table(self.measured.rows),
        ]
        return "\n".join([*parts, *(f"{note}\n" for note in self.notes)])

    def record(self) -> Json:
        """As JSON can hold it; null where a number is not finite."""
        return {
            "title": self.title,
            **self.facts,
            "modes": [_finite(row._asdict()) for row in self.modes],
            "texts": self.measured.texts,
            "draws": self.measured.draws,
            "gradient_norm": self.measured.gradient,
            "estimators": [_finite(row.record()) for row in self.measured.rows],
            "notes": list(self.notes),
        }


def _finite(record: Json) -> Json:
    bad = lambda x: isinstance(x, float) and not math.isfinite(x)  # noqa: E731
    return {name: None if bad(value) else value for name, value in record.items()}


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _modes_table(rows: Sequence[ModeRow]) -> str:
    classes = any(row.accuracy is not None for row in rows)
    heads = ["gates", "loss", "+-", "less exact"]
    heads += ["accuracy", "+-", "open"] if classes else []
    cells = []
    for row in rows:
        own = "-" if row.mode == "exact" else f"{row.gap:+.5f}"
        line = [row.title, f"{row.loss:.5f}", _number(row.loss_error, ".5f"), own]
        if classes:
            numbers = ((row.accuracy, ".4f"), (row.accuracy_error, ".4f"), (row.density, ".3f"))
            line += [_number(value, form) for value, form in numbers]
        cells.append(line)
    return render_table(heads, cells)
