"""What `make demo` runs: soft attention and GA-Net on the embedded corpus, and what gates chose."""

import dataclasses
import sys
from pathlib import Path

from rich.table import Table
from rich.text import Text

from experiments.core.cells import run_of
from experiments.core.cli import parse_many, refusals
from experiments.core.config import changed
from experiments.core.experiment import Run
from experiments.core.hardware import prepare_cpu
from experiments.ga_net.config import PRESETS, SystemName
from experiments.ga_net.experiment import texts_of
from experiments.ga_net.figures import inspect
from experiments.ga_net.paper import PAPER
from gatedjax import analysis
from gatedjax._terminal import clean, new_console


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Trains two small models on the embedded corpus (no download) and compares them."""

    workdir: Path = Path("runs/demo")
    """Where metrics, checkpoints and the heat map go; finished work there is not repeated."""
    num_steps: int | None = None
    """Training steps per model (default: the preset's)."""
    seed: int = 0
    """Seed of parameters, data order and gates."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core)."""


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(DemoConfig, args, "python -m experiments.ga_net.demo")

    prepare_cpu(options.cpu_devices)
    console = new_console()
    preset = PRESETS["polarity"]
    if options.num_steps is not None:
        preset = changed(preset, {"train.num_steps": options.num_steps})
    splits = texts_of(preset.data, preset.model.embedding_dim).splits
    counts = ", ".join(f"{len(split)} {name}" for name, split in splits.items())
    console.print(f"polarity, generated sentences with known deciding words: {counts}")
    results: dict[str, Run] = {}
    systems: tuple[tuple[SystemName, str], ...] = (("soft", "soft attention"), ("ganet", "GA-Net"))
    for system, name in systems:
        console.rule(f"training {name}")
        workdir = options.workdir if system == "ganet" else options.workdir / system
        changes = {"workdir": str(workdir), "model.system": system, "train.seed": options.seed}
        with refusals():
            results[system] = run_of(PAPER, changed(preset, changes))
        if results[system].fit.stopped == "signal":
            console.print("stopped; the same command continues")
            return results[system].fit.exit_code

    width = preset.model.hidden * (2 if preset.model.merge == "concat" else 1)
    soft, ganet = results["soft"].record, results["ganet"].record
    full = analysis.attention_flops(soft["test_tokens"], width)
    sparse = analysis.attention_flops(ganet["attended_tokens"], width)
    test = splits["test"]
    seen = inspect(results["ganet"], test, range(len(test)))
    truth = [test.extra(index, "decides") for index in range(len(test))]
    scores = analysis.gate_truth(
        analysis.pad([s.gates for s in seen]),
        analysis.pad(truth),
        [len(s.tokens) for s in seen],
    )

    chance = sum(map(sum, truth)) / soft["test_tokens"]
    table = Table(title="polarity, test set", title_justify="left")
    for heading in ("", "soft attention", "GA-Net"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("accuracy", f"{soft['test']['accuracy']:.4f}", f"{ganet['test']['accuracy']:.4f}")
    table.add_row("gate density", "1.0000", f"{ganet['test']['density']:.4f}")
    table.add_row("attention FLOPs", f"{full:,}", f"{sparse:,} ({sparse / full:.2f} of soft)")
    table.add_row("gate precision", f"{chance:.4f}", f"{scores.precision:.4f}")
    table.add_row("gate recall", "1.0000", f"{scores.recall:.4f}")
    console.print(table)
    console.print(
        "gate precision: share of open words that decide the label; recall: share of deciding\n"
        "words that are open. Gates see states of a BiLSTM, which know their neighbours too:\n"
        "a gate beside the deciding word can be enough."
    )

    console.print("\nWords that GA-Net attends to:")
    for example in seen[:5]:
        mark = "right" if example.predicted == example.label else "wrong"
        marked = analysis.highlight_terminal(
            example.tokens,
            example.attention,
            example.gates,
            plain=console.color_system is None,
        )
        console.print(marked, Text(f" {clean(example.label)} ({mark})", style="dim"))

    shown = max(range(40), key=lambda i: len(seen[i].tokens) * (seen[i].label == "positive"))
    rows = []
    for system, name in (("ganet", "GA-Net"), ("soft", "soft attention")):
        (one,) = inspect(results[system], test, [shown])
        rows.append((f"{name}: {one.predicted}", one.tokens, one.attention, one.gates))
    analysis.plot_heatmap(rows, options.workdir / "heatmap", title=f"label: {seen[shown].label}")
    console.print(
        f"\n{options.workdir}/heatmap.png shows one sentence under both models; metrics.jsonl,\n"
        "config.json and checkpoints are beside it (soft attention's in soft/)."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
