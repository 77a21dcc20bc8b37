"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SYSTEMS = {"san": "SAN", "ssan": "SSAN"}


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the metrics of validation and test, what was selected, parameters and time."""
    layers = [layer for layer in record["config"]["model"]["select_layers"] if layer]
    where = f" (selector in layer {', '.join(map(str, layers))})" if layers else ""
    title = (
        f"{SYSTEMS[record['system']]}{where} on {record['data']}, trained on "
        f"{record['train_n']:,} examples (test: {record['test_n']:,})"
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
    for name in record["test"]:
        table.add_column(name, justify="right")
    for label, metrics in rows:
        table.add_row(label, *(f"{metrics[name]:.4f}" for name in record["test"]))
    console.print(table)
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
    console.print(
        f"{record['parameters']:,} parameters, {record['parameters_without_embeddings']:,} "
        f"without word vectors, {record['parameters_of_selectors']:,} of selectors"
    )
    rate = record.get("seconds_per_step")
    console.print(
        f"{record['steps']} steps, {record['seconds']} s"
        + (f" ({1000 * rate:.1f} ms per step)" if rate else "")
        + f"; results in {workdir}"
    )
