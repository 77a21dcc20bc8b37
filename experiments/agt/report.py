"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.agt.cells import SYSTEMS


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the metrics of validation and test, parameters and time."""
    title = (
        f"{SYSTEMS[record['system']]} on {record['data']}, trained on {record['train_n']:,} "
        f"{record['train_on']} (test: {record['test_n']:,} sentences)"
    )
    if record.get("substitute"):
        title += f"\n{record['substitute']}"
    rows = [
        (f"validation, best step {record['best_step']}", record["validation"]),
        (f"test, best step {record['best_step']}", record["test"]),
        (f"test, last step {record['steps']}", record["test_last"]),
    ]
    table = Table(title=title, title_justify="left")
    table.add_column("parameters of")
    names = ("accuracy", "loss")
    for name in names:
        table.add_column(name, justify="right")
    for label, metrics in rows:
        table.add_row(label, *(f"{metrics[name]:.4f}" for name in names))
    console.print(table)
    if record["first_words"]:
        words = ", ".join(f"{word} ({count})" for word, count in record["first_words"][:10])
        console.print(f"selected most often by the first layer: {words}", markup=False)
    console.print(
        f"{record['parameters']:,} parameters, {record['parameters_without_embeddings']:,} "
        "without word vectors"
    )
    rate = record.get("seconds_per_step")
    console.print(
        f"{record['steps']} steps, {record['seconds']} s"
        + (f" ({1000 * rate:.1f} ms per step)" if rate else "")
        + f"; results in {workdir}"
    )
