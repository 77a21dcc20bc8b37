"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.core.report import print_metrics, print_parameters, print_time

SYSTEMS = {"san": "SAN", "ssan": "SSAN"}


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the metrics of validation and test, what was selected, parameters and time."""
    layers = [layer for layer in record["config"]["model"]["select_layers"] if layer]
    where = f" (selector in layer {', '.join(map(str, layers))})" if layers else ""
    title = (
        f"{SYSTEMS[record['system']]}{where} on {record['data']}, trained on "
        f"{record['train_n']:,} examples (test: {record['test_n']:,})"
    )
    print_metrics(console, record, title, tuple(record["test"]))
    for name in ("validation_bleu", "test_bleu"):
        if name in record:
            console.print(f"{name.replace('_bleu', '')} BLEU {record[name]:.2f}")
    if "bleu_signature" in record:
        console.print(record["bleu_signature"])
    for way in ("greedy", "constrained"):
        if f"test_roles_{way}" in record:
            scores = record[f"test_roles_{way}"]
            shown = ", ".join(f"{name} {100 * value:.2f}" for name, value in scores.items())
            console.print(f"test arguments, {way}: {shown}")
    selectors = f", {record['parameters_of_selectors']:,} of selectors"
    print_parameters(console, record, selectors)
    print_time(console, record, workdir)
