"""What every run prints when it is done."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from experiments.core.kinds import Record


def print_metrics(console: Console, record: Record, title: str, names: tuple[str, ...]) -> None:
    """Prints the metrics of the best parameters in validation and test, and of the last ones.

    Args:
      console: to print to.
      record: of the run.
      title: of the table; what the data stand in for is added.
      names: of the metrics; "-" for one that a split does not have.
    """
    if record.get("substitute"):
        title += f"\n{record['substitute']}"
    rows = [
        (f"validation, best step {record['best_step']}", record["validation"]),
        (f"test, best step {record['best_step']}", record["test"]),
    ]
    if "test_last" in record:
        rows.append((f"test, last step {record['steps']}", record["test_last"]))
    table = Table(title=title, title_justify="left")
    table.add_column("parameters of")
    for name in names:
        table.add_column(name, justify="right")
    for label, metrics in rows:
        found = (f"{metrics[name]:.4f}" if name in metrics else "-" for name in names)
        table.add_row(label, *found)
    console.print(table)


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
