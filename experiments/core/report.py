"""What every run prints when it is done."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.core.kinds import Json, Record


def screen(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table for the terminal; all but its first column are numbers."""
    table = Table(title=title, title_justify="left")
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
