"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.agt.cells import SYSTEMS
from experiments.core.report import print_metrics, print_parameters, print_time


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the metrics of validation and test, parameters and time."""
    title = (
        f"{SYSTEMS[record['system']]} on {record['data']}, trained on {record['train_n']:,} "
        f"{record['train_on']} (test: {record['test_n']:,} sentences)"
    )
    print_metrics(console, record, title, ("accuracy", "loss"))
    if record["first_words"]:
        words = ", ".join(f"{word} ({count})" for word, count in record["first_words"][:10])
        console.print(f"selected most often by the first layer: {words}")
    print_parameters(console, record)
    print_time(console, record, workdir)
