"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.core.report import print_metrics, print_time
from experiments.rau.paper import CELLS


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the metrics of validation and test, parameters and time."""
    unit = "tokens" if record["data"].startswith("ptb") else "examples"
    title = f"{CELLS[record['cell']]} on {record['data']} (test: {record['test_n']:,} {unit})"
    names = [n for n in ("accuracy", "perplexity", "loss") if n in record["test"]]
    print_metrics(console, record, title, tuple(names))
    recurrent = record.get("recurrent_parameters")
    console.print(
        f"{record['parameters']:,} parameters"
        + (f", {recurrent:,} of them recurrent" if recurrent else "")
    )
    print_time(console, record, workdir)
