"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gatedjax.models.ga_net import GATE_MODES


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
