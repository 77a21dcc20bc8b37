"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the metrics of validation and test, what became of the questions, and time."""
    title = f"GA Reader on {record['data']} (test: {record['test_n']:,} questions)"
    if record.get("substitute"):
        title += f"\n{record['substitute']}"
    rows = [
        (f"validation, best step {record['best_step']}", record["validation"]),
        (f"test, best step {record['best_step']}", record["test"]),
        (f"test, last step {record['steps']}", record["test_last"]),
    ]
    table = Table(title=title, title_justify="left")
    table.add_column("parameters of")
    for name in ("accuracy", "loss"):
        table.add_column(name, justify="right")
    for label, metrics in rows:
        table.add_row(label, f"{metrics['accuracy']:.4f}", f"{metrics['loss']:.4f}")
    console.print(table)
    for split, found in record["counts"].items():
        parts = [f"{found['questions']:,} questions"]
        if found["set_aside"]:
            parts.append(f"{found['set_aside']:,} more set aside")
        parts += [f"{what}: {count:,}" for what, count in found["notes"].items()]
        if found["documents_cut"]:
            parts.append(f"documents cut: {found['documents_cut']:,}")
        if found["answer_not_in_document"]:
            what = "left out of the loss" if split == "train" else "counted as wrong"
            parts.append(f"answer not to be found: {found['answer_not_in_document']:,}, {what}")
        console.print(f"{split}: {'; '.join(parts)}", markup=False, highlight=False)
    console.print(
        f"{record['parameters']:,} parameters, {record['parameters_without_embeddings']:,} "
        "without word vectors"
    )
    rate = record.get("seconds_per_step")
    console.print(
        f"{record['steps']} steps ({record['stopped']}), {record['seconds']} s"
        + (f" ({1000 * rate:.1f} ms per step)" if rate else "")
        + f"; results in {workdir}"
    )
