"""What a run prints when it is done."""

from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.core.report import print_metrics, print_parameters, print_time


def print_run(console: Console, record: dict[str, Any], workdir: Path) -> None:
    """Prints the metrics of validation and test, what became of the questions, and time."""
    title = f"GA Reader on {record['data']} (test: {record['test_n']:,} questions)"
    print_metrics(console, record, title, ("accuracy", "loss"))
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
    print_parameters(console, record)
    print_time(console, record, workdir)
