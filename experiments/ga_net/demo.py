"""`make demo`: soft attention and GA-Net on the embedded corpus, and their open gates."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.core.cli import parse_many, refusals
from experiments.core.columns import screen
from experiments.core.command import run_of
from experiments.core.config import with_changes
from experiments.core.experiment import Run
from experiments.ga_net.config import PRESETS
from experiments.ga_net.experiment import texts_of
from experiments.ga_net.figures import Inspected, inspect
from experiments.ga_net.paper import PAPER, operations
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import clean, new_console


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Trains two small models on the embedded corpus (no download) and compares them."""

    workdir: Path = Path("runs/demo")
    """Folder for metrics, checkpoints and the heat map; finished runs in it are not repeated."""
    num_steps: Unset[int] = None
    """Training steps per model (default: the preset's)."""
    seed: int = 0
    """The seed of parameters, data order and gates."""
    cpu_devices: Unset[int] = None
    """The number of CPU devices that split a batch (default: one per core)."""


SYSTEMS = {"soft": "soft attention", "ganet": "GA-Net"}
"""The two systems and their names."""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(DemoConfig, args, "python -m experiments.ga_net.demo")
    prepare_cpu(options.cpu_devices)
    console = new_console()
    preset = PRESETS["polarity"]
    if options.num_steps is not None:
        preset = with_changes(preset, {"train.num_steps": options.num_steps})
    splits = texts_of(preset.data, preset.model.embedding_dim).splits
    counts = ", ".join(f"{len(split)} {name}" for name, split in splits.items())
    console.print(f"polarity, generated sentences with known deciding words: {counts}")
    runs: dict[str, Run] = {}
    for system, name in SYSTEMS.items():
        console.rule(f"training {name}")
        workdir = options.workdir if system == "ganet" else options.workdir / system
        # Both systems have the same seed, so that they see the same batches in the same order.
        changes = {"workdir": str(workdir), "model.system": system, "train.seed": options.seed}
        with refusals():
            runs[system] = run_of(PAPER, with_changes(preset, changes))
        if runs[system].fit.stopped == "signal":
            console.print("stopped; the same command continues")
            return runs[system].fit.exit_code
    seen = inspect(runs["ganet"], splits["test"], range(len(splits["test"])))
    console.print(comparison_table(runs, splits["test"], seen))
    console.print(
        "gate precision: share of open words that decide the label; recall: share of deciding\n"
        "words that are open. Gates see states of a BiLSTM, which know their neighbours too:\n"
        "a gate beside the deciding word can be enough."
    )
    show_words(console, seen[:5])
    draw(runs, splits["test"], seen, options.workdir)
    console.print(
        f"\n{options.workdir}/heatmap.png shows one sentence under both models; metrics.jsonl,\n"
        "config.json and checkpoints are beside it (soft attention's in soft/)."
    )
    return 0


def comparison_table(
    runs: Mapping[str, Run], test: gdata.Encoded, seen: Sequence[Inspected]
) -> Table:
    """Returns a table of both models: accuracy, operations, precision and recall of the gates.

    Args:
      runs: the two runs by system.
      test: the test split.
      seen: all test texts under GA-Net.
    """
    soft, ganet = runs["soft"].record, runs["ganet"].record
    full, sparse = operations(ganet)
    truth = [test.extra(index, "decides") for index in range(len(test))]
    scores = analysis.gate_truth(
        analysis.pad([text.gates for text in seen]),
        analysis.pad(truth),
        [len(text.tokens) for text in seen],
    )
    # Soft attention opens all words. Its precision is therefore the share of deciding words, the
    # value that gates without knowledge would have.
    chance = sum(map(sum, truth)) / soft["test_tokens"]
    accuracies = [f"{record['test']['accuracy']:.4f}" for record in (soft, ganet)]
    rows = [
        ["accuracy", *accuracies],
        ["gate density", "1.0000", f"{ganet['test']['density']:.4f}"],
        ["attention FLOPs", f"{full:,}", f"{sparse:,} ({sparse / full:.2f} of soft)"],
        ["gate precision", f"{chance:.4f}", f"{scores.precision:.4f}"],
        ["gate recall", "1.0000", f"{scores.recall:.4f}"],
    ]
    return screen("polarity, test set", ("", *SYSTEMS.values()), rows)


def show_words(console: Console, seen: Sequence[Inspected]) -> None:
    """Prints sentences with the words that GA-Net attends to.

    Args:
      console: the terminal.
      seen: the sentences under GA-Net.
    """
    console.print("\nWords that GA-Net attends to:")
    for text in seen:
        mark = "right" if text.predicted == text.label else "wrong"
        # Without colours the gates are shown by characters, so that the text can be piped into a
        # file.
        marked = analysis.highlight_terminal(
            text.tokens, text.attention, text.gates, plain=console.color_system is None
        )
        console.print(marked, Text(f" {clean(text.label)} ({mark})", style="dim"))


def draw(
    runs: Mapping[str, Run], test: gdata.Encoded, seen: Sequence[Inspected], workdir: Path
) -> None:
    """Draws the longest of the first positive sentences under both models.

    Args:
      runs: the two runs by system.
      test: the test split.
      seen: all test texts under GA-Net.
      workdir: the folder of the figure.
    """
    longest = max(range(40), key=lambda i: len(seen[i].tokens) * (seen[i].label == "positive"))
    rows = []
    for system in ("ganet", "soft"):
        (text,) = inspect(runs[system], test, [longest])
        title = f"{SYSTEMS[system]}: {text.predicted}"
        rows.append((title, text.tokens, text.attention, text.gates))
    analysis.plot_heatmap(rows, workdir / "heatmap", title=f"label: {seen[longest].label}")


if __name__ == "__main__":
    sys.exit(main())
