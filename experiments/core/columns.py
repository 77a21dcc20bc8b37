"""Columns that the tables of several papers share, and the printed results of a run."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table as Screen

from experiments.core.comparison import sentence
from experiments.core.config import value_at
from experiments.core.kinds import Json
from experiments.core.origins import origin_of, other_data
from experiments.core.paper import Column, Table, TableRow
from experiments.core.records import LAST, NOT_RUN, Record, Records, Store, format_average
from gatedjax import analysis

Numbers = Mapping[str, Any] | Callable[[TableRow], Any]
"""Numbers of a paper, by variant or data set, or a function that returns the number of a row."""


def figure_links(store: Store, titles: Mapping[str, str]) -> str:
    """Returns a line of Markdown per figure: its title, and a link if the figure was drawn."""
    lines = []
    for stem, title in titles.items():
        # The file is looked up and not a record, because figures are drawn separately and a link to
        # a missing picture would be broken.
        is_drawn = (store.folder / f"{stem}.png").exists()
        lines.append(f"- {title}: " + (f"[{stem}.png]({stem}.png)" if is_drawn else NOT_RUN))
    return "\n".join(lines)


def data(heading: str = "data") -> Column:
    """Returns the column with the name of the data set."""
    return Column(heading, lambda row: row.label, "data")


def variant(heading: str = "system") -> Column:
    """Returns the column with the title of the system."""
    return Column(heading, lambda row: row.title, "both")


def paper_number(
    heading: str,
    numbers: Numbers,
    spec: str = ".4f",
    *,
    where: Callable[[TableRow], bool] = lambda row: True,
) -> Column:
    """Returns a column with a number of the paper, or a dash. `numbers` are by data set, by variant
    and data set, or a function of a row; `where` is True for rows that have a number."""

    def text(row: TableRow) -> str:
        number = None
        if where(row):
            number = numbers(row) if callable(numbers) else numbers.get(row.variant, numbers)
        # The numbers of a variant may be a mapping by data set. Without the variant `numbers`
        # itself is such a mapping.
        if isinstance(number, Mapping):
            number = number.get(row.data)
        return "-" if number is None else format(number, spec)

    return Column(heading, text, "paper")


def _reader(path: str | Callable[[Record], Any]) -> Callable[[Record], Any]:
    """Returns a function that reads a value of a record; `path` is dotted, or such a function."""
    return path if callable(path) else lambda record: value_at(record, path)


def scaled_value(
    path: str | Callable[[Record], Any], times: float
) -> Callable[[Record], float | None]:
    """Returns a function that reads a number of a record and multiplies it by `times`; None stays.
    `path` is dotted, or a function of a record."""
    value_of = _reader(path)

    def value(record: Record) -> float | None:
        number = value_of(record)
        return None if number is None else times * number

    return value


def metric(
    heading: str,
    figure: str | Callable[[Record], float | None],
    digits: int = 4,
    *,
    times: float = 1,
    where: Callable[[TableRow], bool] = lambda row: True,
) -> Column:
    """Returns a column with mean, deviation and number of runs of a value of the records. `figure`
    is the dotted path of the value in a record, or a function of a record, and is multiplied by
    `times`. Rows where `where` is False have a dash."""
    value = scaled_value(figure, times)
    return Column(
        heading, lambda row: format_average(row.records, value, digits) if where(row) else "-"
    )


def percent(heading: str, figure: str | Callable[[Record], float | None]) -> Column:
    """Returns a `metric` column in percent, with two digits."""
    return metric(heading, figure, 2, times=100)


def at_last_step(
    records: Records, name: str = "accuracy", digits: int = 2, *, times: float = 100
) -> str:
    """Formats a test metric of the parameters of the last step. The text is a dash if no record has
    the metric."""
    text = format_average(records, scaled_value(f"test_last.{name}", times), digits)
    # Older records have no metrics of the last step. Their runs were made, so that "not run" would
    # be wrong.
    return "-" if text == NOT_RUN else text


def with_last(heading: str, digits: int = 4, *, times: float = 1) -> tuple[Column, Column]:
    """Returns two columns of test accuracy: of the chosen and of the last parameters."""
    best = metric(heading, "test.accuracy", digits, times=times)

    def last(row: TableRow) -> str:
        return at_last_step(row.records, digits=digits, times=times)

    return best, Column(f"{LAST} (%)" if times == 100 else LAST, last)


ACCURACY = (
    percent("validation (%)", "validation.accuracy"),
    *with_last("test (%)", 2, times=100),
)
"""Columns with the accuracy in validation and in the test, in percent."""


TESTS = ("95 % interval", "p", "McNemar p (each seed)")
"""Headings for the columns of `paired_tests` after the difference."""


def paired_tests(
    headings: Sequence[str],
    *,
    points: bool = True,
    seeds: bool = True,
    digits: int = 3,
    missing: str = "-",
) -> tuple[Column, ...]:
    """Returns columns of paired tests: difference, 95 % interval, p, McNemar p per seed. There are
    at most four headings; a column with an empty heading is left out. `points` shows percentage
    points, and `missing` stands in the first column if there is no comparison."""

    def text(row: TableRow, place: int) -> str:
        if row.comparison is None:
            return missing if place == 0 else "-"
        # A comparison formats all of its cells together, so that they agree on the reason when
        # there is no test.
        return row.comparison.cells(points=points, seeds=seeds, digits=digits)[place]

    return tuple(
        Column(heading, functools.partial(text, place=place))
        for place, heading in enumerate(headings)
        if heading
    )


def parameters(
    heading: str = "parameters",
    key: str = "parameters",
    of: Literal["ours", "both"] = "ours",
) -> Column:
    """Returns a column with the number of trained parameters."""

    def text(row: TableRow) -> str:
        # Records of several data sets or vocabularies may have different numbers; equal ones are
        # shown once.
        counts = sorted({record[key] for record in row.records if key in record})
        return ", ".join(f"{count:,}" for count in counts) or "-"

    return Column(heading, text, of)


def each_value(heading: str, path: str, spec: str = "") -> Column:
    """Returns a column with a value of each record."""

    def text(row: TableRow) -> str:
        values = [value_at(record, path) for record in row.records]
        return ", ".join(format(value, spec) for value in values if value is not None) or "-"

    return Column(heading, text)


def first(heading: str, path: str | Callable[[Record], Any], spec: str = "") -> Column:
    """Returns a column with a value of the first record, which all runs of a cell share."""
    value_of = _reader(path)

    def text(row: TableRow) -> str:
        if not row.records:
            return "-"
        # The first record stands for all, because the settings of the seeds of a cell are checked
        # to be equal when they are read.
        value = value_of(row.records[0])
        return "-" if value is None else format(value, spec)

    return Column(heading, text)


def _milliseconds(row: TableRow) -> str:
    values = [r["seconds_per_step"] for r in row.records if r.get("seconds_per_step")]
    return f"{1000 * np.mean(values):.1f}" if values else "-"


def hardware(row: TableRow) -> str:
    """Returns the hardware of the first run of a row."""
    # Seeds of a cell may have run on different machines. The table has room for the first.
    machine = row.records[0].get("hardware", {})
    device = f"{machine.get('device', '-')} x{machine.get('devices', '-')}"
    start = row.records[0].get("started_on")
    prefix = "" if start is None else f"begun on {start['device']}, jax {start['jax']}; then "
    return f"{prefix}{device}, jax {machine.get('jax', '-')}"


BATCH = first("batch", "config.data.batch_size")
RATE = first("lr", "config.train.optimizer.learning_rate", "g")
SECONDS = Column(
    "seconds",
    lambda row: f"{np.mean([record.get('seconds', 0.0) for record in row.records]):.0f}",
)
MILLISECONDS = Column("ms per step", _milliseconds)
"""The mean time of a step; a dash if no record has it."""
PROGRESS = (
    each_value("steps", "steps"),
    each_value("best steps", "best_step"),
    SECONDS,
    MILLISECONDS,
)
"""The numbers of steps and the times of the runs."""


def sentences(
    systems: Callable[[TableRow], tuple[str, str] | None],
) -> Callable[[Store, Sequence[TableRow]], list[str]]:
    """Returns a function for `Table.below` with a sentence for each comparison. `systems` returns
    the names of the two systems that a row compares, or None."""

    def below(store: Store, rows: Sequence[TableRow]) -> list[str]:
        pairs = [(row, names) for row in rows if (names := systems(row)) is not None]
        lines = (f"- {sentence(row.label, *names, row.comparison)}" for row, names in pairs)
        return ["\n".join(lines)]

    return below


def beside_quoted(
    heading: str,
    quoted: Mapping[str, str],
    paper_row: tuple[str, str],
    ours: Mapping[str, Records],
    figure: Callable[[Record], float],
) -> str:
    """Returns a table of a number with its source: quoted systems, the paper's system, and ours.
    `paper_row` is the name and the number of the paper's system, and `ours` has our records by
    title."""
    source = "quoted in the paper, not trained here"
    rows = [[name, number, source] for name, number in quoted.items()]
    rows.append([*paper_row, "the paper's own"])
    for title, records in ours.items():
        other = f", on {origin_of(records[0])}" if other_data(records) else ""
        rows.append([title, format_average(records, figure, 2), f"ours{other}"])
    return analysis.render_table(["system", heading, "source"], rows)


def lacks(record: Record) -> tuple[str, ...]:
    """Returns the entries that a record lacks because it is older than the entry."""
    # Language models and translations have no classes, so they have no digest of their labels.
    has_digest = "test_digest" in record or not isinstance(record.get("correct"), str)
    commit = (record.get("software") or {}).get("commit")
    return ("commit",) * (not commit) + ("test digest",) * (not has_digest)


def _lacking(row: TableRow) -> str:
    """Returns the cell with the entries that the records of a row lack, and their seeds."""
    seeds: dict[str, list[str]] = {}
    for record in row.records:
        for entry in lacks(record):
            seeds.setdefault(entry, []).append(str(record["seed"]))
    some = {entry: len(of) < len(row.records) for entry, of in seeds.items()}
    return (
        ", ".join(
            entry + (f" (seed {', '.join(of)})" if some[entry] else "")
            for entry, of in seeds.items()
        )
        or "-"
    )


def _count_lacking(store: Store, rows: Sequence[TableRow]) -> Iterator[str]:
    records = [record for row in rows for record in row.records]
    entries = [entry for record in records for entry in lacks(record)]
    if entries:
        yield (
            f"Of {len(records)} records {entries.count('commit')} have no commit of the program, "
            f"and {entries.count('test digest')} have no digest of the test examples: they are "
            "older than these entries, or their task has no classes."
        )


def runs(names: Iterable[str], *settings: Column, heading: str = "variant") -> Table:
    """Returns the section of a page that describes each cell with a record. `settings` are columns
    between the seeds and the hardware."""
    return Table(
        title="Runs",
        note="Records in runs/; seconds are wall time per run.",
        list_rows=lambda store: [
            (data_set, name) for data_set in names for name in store.variants(data_set)
        ],
        columns=(
            data(),
            Column(heading, lambda row: row.variant, "both"),
            each_value("seeds", "seed"),
            *settings,
            Column("hardware", hardware),
            Column("not recorded", _lacking),
            Column("substitute", lambda row: row.records[0].get("substitute") or "no"),
        ),
        below=_count_lacking,
        is_folded=True,
    )


def screen(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Screen:
    """Returns a table for the terminal. All columns but the first are aligned like numbers."""
    table = Screen(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    return table


def print_metrics(console: Console, record: Record, title: str, names: tuple[str, ...]) -> None:
    """Prints the metrics of the best parameters in validation and test, and of the last parameters.
    A metric that a split does not have is a dash."""
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
    """Formats a metric with four digits; a dash if it is missing."""
    return f"{metrics[name]:.4f}" if name in metrics else "-"


def print_parameters(console: Console, record: Record, ending: str = "") -> None:
    """Prints the numbers of parameters with and without word vectors."""
    console.print(
        f"{record['parameters']:,} parameters, {record['parameters_without_embeddings']:,} "
        f"without word vectors{ending}"
    )


def print_time(console: Console, record: Record, workdir: Path) -> None:
    """Prints the steps, the reason of an early end, the time, and the folder of the results."""
    early = f" ({record['stopped']})" if record["stopped"] != "done" else ""
    rate = record.get("seconds_per_step")
    per_step = f" ({1000 * rate:.1f} ms per step)" if rate else ""
    console.print(
        f"{record['steps']} steps{early}, {record['seconds']} s{per_step}; results in {workdir}"
    )
