"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.rau.paper import CELLS


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the metrics of validation and test, parameters and time."""
    unit = "tokens" if record["data"] == "ptb" else "examples"
    title = f"{CELLS[record['cell']]} on {record['data']} (test: {record['test_n']:,} {unit})"
    if record.get("substitute"):
        title += f"\n{record['substitute']}"
    rows = [
        (f"validation, best step {record['best_step']}", record["validation"]),
        (f"test, best step {record['best_step']}", record["test"]),
    ]
    if "test_last" in record:
        rows.append((f"test, last step {record['steps']}", record["test_last"]))
    names = [n for n in ("accuracy", "perplexity", "loss") if n in record["test"]]
    table = Table(title=title, title_justify="left")
    table.add_column("parameters of")
    for name in names:
        table.add_column(name, justify="right")
    for label, metrics in rows:
        table.add_row(
            label, *(f"{metrics[name]:.4f}" if name in metrics else "-" for name in names)
        )
    console.print(table)
    recurrent = record.get("recurrent_parameters")
    console.print(
        f"{record['parameters']:,} parameters"
        + (f", {recurrent:,} of them recurrent" if recurrent else "")
    )
    rate = record.get("seconds_per_step")
    console.print(
        f"{record['steps']} steps, {record['seconds']} s"
        + (f" ({1000 * rate:.1f} ms per step)" if rate else "")
        + f"; results in {workdir}"
    )
