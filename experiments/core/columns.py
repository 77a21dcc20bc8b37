"""How records are shown: columns that tables of several papers have, and what a run prints."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table as Screen

from experiments.core.comparison import sentence
from experiments.core.config import value_at
from experiments.core.kinds import Json
from experiments.core.origins import origin_of, other_data, substitute_of
from experiments.core.paper import Column, Row, Table
from experiments.core.records import LAST, NOT_RUN, Record, Records, Store, averaged
from gatedjax import analysis

Numbers = Mapping[str, Any] | Callable[[Row], Any]


def figure_links(store: Store, titles: Mapping[str, str]) -> str:
    """A line per figure, by the stem of its files: its title, and a link where it was drawn."""
    lines = []
    for stem, title in titles.items():
        there = (store.folder / f"{stem}.png").exists()
        lines.append(f"- {title}: " + (f"[{stem}.png]({stem}.png)" if there else NOT_RUN))
    return "\n".join(lines)


def everywhere(row: Row) -> bool:
    """A column that says something in every row."""
    del row
    return True


def data(heading: str = "data") -> Column:
    """What tables call the data set."""
    return Column(heading, lambda row: row.label, "data")


def variant(heading: str = "system") -> Column:
    """What tables call the system."""
    return Column(heading, lambda row: row.title, "both")


def record_name(heading: str = "variant") -> Column:
    """The name of the records."""
    return Column(heading, lambda row: row.variant, "both")


def quoted(
    heading: str,
    numbers: Numbers,
    spec: str = ".4f",
    *,
    where: Callable[[Row], bool] = everywhere,
) -> Column:
    """A number of the paper, or a dash.

    Args:
      heading: of the column.
      numbers: by data set, by variant and data set, or from a row.
      spec: how it is formatted.
      where: rows that have one.
    """

    def text(row: Row) -> str:
        number = None
        if where(row):
            number = numbers(row) if callable(numbers) else numbers.get(row.variant, numbers)
        if isinstance(number, Mapping):
            number = number.get(row.data)
        return "-" if number is None else format(number, spec)

    return Column(heading, text, "paper")


def _reader(path: str | Callable[[Record], Any]) -> Callable[[Record], Any]:
    """What reads a value of a record, from its dotted path or itself."""
    return path if callable(path) else lambda record: value_at(record, path)


def _scaled(path: str | Callable[[Record], Any], times: float) -> Callable[[Record], float | None]:
    """What reads a number of a record, if it has it, and multiplies it."""
    read = _reader(path)

    def value(record: Record) -> float | None:
        number = read(record)
        return None if number is None else times * number

    return value


def metric(
    heading: str,
    figure: str | Callable[[Record], float | None],
    digits: int = 4,
    *,
    times: float = 1,
    where: Callable[[Row], bool] = everywhere,
) -> Column:
    """Mean, deviation and number of runs of a figure of the records.

    Args:
      heading: of the column.
      figure: its dotted path in a record, or from a record.
      digits: after the point.
      times: what it is multiplied by.
      where: rows that have one; others have a dash.
    """
    value = _scaled(figure, times)
    return Column(heading, lambda row: averaged(row.records, value, digits) if where(row) else "-")


def percent(heading: str, figure: str | Callable[[Record], float | None]) -> Column:
    """`metric` in percent, with two digits."""
    return metric(heading, figure, 2, times=100)


def at_last_step(
    records: Records, name: str = "accuracy", digits: int = 2, *, times: float = 100
) -> str:
    """A metric of the test by the parameters of the last step; a dash if no record has it."""
    text = averaged(records, _scaled(f"test_last.{name}", times), digits)
    return "-" if text == NOT_RUN else text


def with_last(heading: str, digits: int = 4, *, times: float = 1) -> tuple[Column, Column]:
    """Accuracy of the test, by the parameters that validation chose and `at_last_step`."""
    chosen = metric(heading, "test.accuracy", digits, times=times)

    def last(row: Row) -> str:
        return at_last_step(row.records, digits=digits, times=times)

    return chosen, Column(f"{LAST} (%)" if times == 100 else LAST, last)


ACCURACY = (
    percent("validation (%)", "validation.accuracy"),
    *with_last("test (%)", 2, times=100),
)
"""Accuracy in percent, of validation and of the test."""


TESTS = ("95 % interval", "bootstrap p", "McNemar p (each seed)")
"""What follows the difference in the headings of `paired`."""


def paired(
    headings: Sequence[str],
    *,
    points: bool = True,
    seeds: bool = True,
    digits: int = 3,
    missing: str = "-",
) -> tuple[Column, ...]:
    """Difference, 95 % interval, bootstrap p, McNemar p of each seed: as many as headings.

    Args:
      headings: of the columns; empty ones are left out.
      points: in percentage points, else as it is.
      seeds: say how many seeds the difference is of.
      digits: of the bootstrap p.
      missing: what stands first where there is nothing to compare.
    """

    def text(place: int) -> Callable[[Row], str]:
        def cell(row: Row) -> str:
            if row.comparison is None:
                return missing if place == 0 else "-"
            return row.comparison.cells(points=points, seeds=seeds, digits=digits)[place]

        return cell

    return tuple(Column(heading, text(i)) for i, heading in enumerate(headings) if heading)


def parameters(
    heading: str = "parameters",
    key: str = "parameters",
    of: Literal["ours", "both"] = "ours",
) -> Column:
    """How many parameters the runs trained."""

    def text(row: Row) -> str:
        counts = sorted({record[key] for record in row.records if key in record})
        return ", ".join(f"{count:,}" for count in counts) or "-"

    return Column(heading, text, of)


def each(heading: str, path: str, spec: str = "") -> Column:
    """A value of every record."""

    def text(row: Row) -> str:
        values = [value_at(record, path) for record in row.records]
        return ", ".join(format(value, spec) for value in values if value is not None) or "-"

    return Column(heading, text)


def first(heading: str, path: str | Callable[[Record], Any], spec: str = "") -> Column:
    """A value of the first record: of what the runs of a cell have alike."""
    read = _reader(path)

    def text(row: Row) -> str:
        if not row.records:
            return "-"
        value = read(row.records[0])
        return "-" if value is None else format(value, spec)

    return Column(heading, text)


def milliseconds_of(records: Records) -> str:
    """The mean time of a step, in milliseconds."""
    values = [r["seconds_per_step"] for r in records if r.get("seconds_per_step")]
    return f"{1000 * np.mean(values):.1f}" if values else "-"


def milliseconds(heading: str = "ms per step") -> Column:
    """The mean time of a step."""
    return Column(heading, lambda row: milliseconds_of(row.records))


def seconds(heading: str = "seconds") -> Column:
    """The mean wall time of a run."""

    def text(row: Row) -> str:
        return f"{np.mean([record.get('seconds', 0.0) for record in row.records]):.0f}"

    return Column(heading, text)


def hardware(heading: str = "hardware") -> Column:
    """What the first run ran on."""

    def text(row: Row) -> str:
        machine = row.records[0].get("hardware", {})
        device = f"{machine.get('device', '-')} x{machine.get('devices', '-')}"
        return f"{device}, jax {machine.get('jax', '-')}"

    return Column(heading, text)


def substitute(heading: str = "substitute") -> Column:
    """What differs from the paper's data."""
    return Column(heading, lambda row: substitute_of(row.records[0]) or "no")


def seeds(heading: str = "seeds") -> Column:
    """The seeds of the records."""
    return each(heading, "seed")


BATCH = first("batch", "config.data.batch_size")
RATE = first("lr", "config.train.optimizer.learning_rate", "g")
PROGRESS = (each("steps", "steps"), each("best steps", "best_step"), seconds(), milliseconds())
"""How far the runs went, and how long they took."""


def verdicts(
    systems: Callable[[Row], tuple[str, str] | None],
) -> Callable[[Store, Sequence[Row]], list[str]]:
    """What stands below paired tests: a sentence for every row that compares two systems."""

    def below(store: Store, rows: Sequence[Row]) -> list[str]:
        pairs = [(row, names) for row in rows if (names := systems(row)) is not None]
        lines = (f"- {sentence(row.label, *names, row.comparison)}" for row, names in pairs)
        return ["\n".join(lines)]

    return below


def beside_quoted(
    heading: str,
    quoted: Mapping[str, str],
    own: tuple[str, str],
    ours: Mapping[str, Records],
    figure: Callable[[Record], float],
) -> str:
    """A table of a number with its source: systems of other papers, the paper's own, and ours."""
    source = "quoted in the paper, not trained here"
    rows = [[name, number, source] for name, number in quoted.items()]
    rows.append([*own, "the paper's own"])
    for title, records in ours.items():
        other = f", on {origin_of(records[0])}" if other_data(records) else ""
        rows.append([title, averaged(records, figure, 2), f"ours{other}"])
    return analysis.render_table(["system", heading, "source"], rows)


def runs(names: Iterable[str], *settings: Column, heading: str = "variant") -> Table:
    """The section of a page that says how everything that has a record was made.

    Args:
      names: data sets in the order of tables.
      *settings: columns between the seeds and what they ran on.
      heading: of the names of records.
    """
    return Table(
        title="Runs",
        note="Records in runs/; seconds are wall time per run.",
        shown=lambda store: [(one, name) for one in names for name in store.variants(one)],
        columns=(data(), record_name(heading), seeds(), *settings, hardware(), substitute()),
    )


def screen(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Screen:
    """A table for the terminal; all but its first column are numbers."""
    table = Screen(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    return table


def print_metrics(console: Console, record: Record, title: str, names: tuple[str, ...]) -> None:
    """Prints the metrics of the best parameters in validation and test, and of the last ones.

    The title is completed by what differs from the official data; a metric that a split does not
    have is a dash.
    """
    if record.get("substitute"):
        title += f"\n{record['substitute']}"
    parts = [
        (f"validation, best step {record['best_step']}", record["validation"]),
        (f"test, best step {record['best_step']}", record["test"]),
    ]
    if "test_last" in record:
        parts.append((f"test, last step {record['steps']}", record["test_last"]))
    rows = [[label, *(cell(metrics, name) for name in names)] for label, metrics in parts]
    console.print(screen(title, ("parameters of", *names), rows))


def cell(metrics: Json, name: str) -> str:
    """A metric with four digits, or a dash."""
    return f"{metrics[name]:.4f}" if name in metrics else "-"


def print_parameters(console: Console, record: Record, more: str = "") -> None:
    """Prints the numbers of parameters with and without word vectors, and something more."""
    console.print(
        f"{record['parameters']:,} parameters, {record['parameters_without_embeddings']:,} "
        f"without word vectors{more}"
    )


def print_time(console: Console, record: Record, workdir: Path) -> None:
    """Prints steps, why a run ended before the last one, time, and where the results are."""
    early = f" ({record['stopped']})" if record["stopped"] != "done" else ""
    rate = record.get("seconds_per_step")
    each = f" ({1000 * rate:.1f} ms per step)" if rate else ""
    console.print(
        f"{record['steps']} steps{early}, {record['seconds']} s{each}; results in {workdir}"
    )
