"""What a run prints when it is done."""

import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gatedjax.models.ga_net import GATE_MODES


def print_lanes(console: Console, records: list[dict[str, Any]], workdir: Path) -> None:
    """Prints the test results of runs that were trained side by side, and their mean."""
    first = records[0]
    title = f"{first['system']} on {first['data']} (test, n = {first['test_n']})"
    table = Table(title=title, title_justify="left")
    table.add_column("seed")
    for name in ("learning rate", "tau", "lambda", "steps", "accuracy", "density"):
        table.add_column(name, justify="right")
    for record in records:
        model, train = record["config"]["model"], record["config"]["train"]
        table.add_row(
            str(record["seed"]),
            f"{train['optimizer']['learning_rate']:g}",
            f"{model['temperature']:g}",
            f"{model['penalty']:g}",
            str(record["steps"]),
            f"{record['test']['accuracy']:.4f}",
            f"{record['test']['density']:.4f}" if "density" in record["test"] else "-",
        )
    console.print(table)
    if len({record["seed"] for record in records}) == len(records) > 1:
        accuracies = [record["test"]["accuracy"] for record in records]
        console.print(
            f"accuracy {statistics.mean(accuracies):.4f} +- {statistics.stdev(accuracies):.4f} "
            f"(mean and standard deviation, n = {len(accuracies)})"
        )
    console.print(f"{len(records)} runs, {first['seconds']} s each; results in {workdir}")


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the test results; for GA-Net under every gate mode."""
    test = record["test"]
    title = f"{record['system']} on {record['data']} (test, n = {record['test_n']})"
    if record["substitute"]:
        title += f"\n{record['substitute']}"
    table = Table(title=title, title_justify="left")
    table.add_column("gates")
    for name in ("accuracy", "density", "density (tokens)", "all closed"):
        table.add_column(name, justify="right")
    if record["system"] == "ganet":
        for mode in GATE_MODES:
            table.add_row(
                mode,
                *(
                    f"{test[key]:.4f}" if key in test else "-"
                    for key in (
                        f"accuracy_{mode}",
                        f"density_{mode}",
                        f"density_tok_{mode}",
                        f"closed_{mode}",
                    )
                ),
            )
    else:
        table.add_row("none", f"{test['accuracy']:.4f}", "-", "-", "-")
    console.print(table)
    console.print(
        f"best of {record['steps']} steps: step {record['best_step']} "
        f"(validation accuracy {record['validation']['accuracy']:.4f}); "
        f"{record['seconds']} s; results in {workdir}"
    )
