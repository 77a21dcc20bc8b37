"""`make demo`: three networks on the embedded corpus, and the effect of words without attention.

Soft attention has no gates; GA-Net has gates on its attention, as in the paper, or gates on its
input. For each test text the demo removes the closed words and runs the network again.
"""

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.core.cli import parse_many, refusals
from experiments.core.columns import screen
from experiments.core.command import run_of
from experiments.core.config import with_changes
from experiments.core.experiment import Run
from experiments.ga_net.config import PRESETS
from experiments.ga_net.experiment import experiment, texts_of
from experiments.ga_net.figures import Inspected, Inspector
from experiments.ga_net.paper import PAPER, operations
from experiments.ga_net.picture import DARK, LIGHT, Row, draw_picture
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import clean, new_console


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Trains three small models on the embedded corpus (no download) and compares them."""

    workdir: Path = Path("runs/demo")
    """Folder for metrics, checkpoints and the picture; finished runs in it are not repeated."""
    num_steps: Unset[int] = None
    """Training steps per model (default: the preset's)."""


SYSTEMS = {
    "soft": "soft attention",
    "attention": "GA-Net, gates on attention",
    "input": "GA-Net, gates on the input",
}
"""The three systems and their names."""
DENSITY = 0.25
"""The share of open words of both networks with gates."""
_GATES = {"model.system": "ganet", "model.gates.density": DENSITY}
# With sampled gates a removed word would also change which noise its neighbours get.
_GATES |= {"model.gates.test_gate": "threshold"}
# The auxiliary network "fnn" sees a word without its neighbours. The gates start open and become
# harder, so that the network has learnt from all words before it loses some.
_ON_INPUT = {
    "model.gates.gates_on": "input",
    "model.aux": "fnn",
    "model.gates.estimator": "st_gumbel",
    "model.gates.gate_bias_init": 2.0,
    "model.gates.final_temperature": 0.4,
    "model.gates.temperature_steps": 400,
}
CHANGES: dict[str, Mapping[str, Any]] = {
    "soft": {"model.system": "soft"},
    "attention": _GATES,
    "input": {**_GATES, **_ON_INPUT},
}
"""The changes of the preset for each system."""
_SHOWN = 5


DEMO = dataclasses.replace(
    PAPER,
    experiment=lambda config: dataclasses.replace(experiment(config), measure=lambda params: {}),
)
"""The paper without the exact losses of a run, which the demo does not show."""


@dataclasses.dataclass(frozen=True)
class Removal:
    """The test texts under a network, before and after closed words are removed."""

    before: Sequence[Inspected]
    after: Sequence[Inspected]

    @property
    def changed(self) -> int:
        """The number of texts in which the removal changes the predicted class."""
        pairs = zip(self.before, self.after, strict=True)
        return sum(before.predicted != after.predicted for before, after in pairs)


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = parse_many(DemoConfig, args, "python -m experiments.ga_net.demo")
    prepare_cpu(None)
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
        # The systems have the same seed, so that they see the same batches in the same order.
        workdir = options.workdir if system == "attention" else options.workdir / system
        changes = {"workdir": str(workdir), "train.seed": 0}
        with refusals():
            runs[system] = run_of(DEMO, with_changes(preset, {**changes, **CHANGES[system]}))
        if runs[system].fit.stopped == "signal":
            console.print("stopped; the same command continues")
            return runs[system].fit.exit_code
    test = splits["test"]
    removals = {system: remove_closed(run, test) for system, run in runs.items()}
    console.print(comparison_table(runs, test, removals))
    console.print(
        "gate precision: share of open words that decide the label; recall: share of\n"
        "deciding words that are open. other answer: texts whose predicted class changes\n"
        f"when the closed words are removed (soft attention: the faintest {1 - DENSITY:.0%})."
    )
    show_words(console, removals["input"].before[:_SHOWN])
    draw(removals, options.workdir)
    console.print(
        f"\n{options.workdir}/picture.png shows one sentence under the three networks\n"
        "(picture_dark.png for a dark page). metrics.jsonl, config.json and checkpoints\n"
        "are beside it; those of soft attention in soft/, of gates on the input in input/."
    )
    return 0


def remove_closed(run: Run, test: gdata.Encoded) -> Removal:
    """Runs a network on each text, and again without the closed words. Without gates the words with
    the smallest weights are removed, so that ceil(0.25 T) of T words are left."""
    indices, inspector = range(len(test)), Inspector(run, test)
    before = inspector.inspect(indices)
    return Removal(before, inspector.inspect(indices, [open_words(text) for text in before]))


def open_words(text: Inspected) -> np.ndarray:
    """Returns a bool [T]: True at open words or, without gates, at the largest weights."""
    if text.gates is not None:
        return text.gates > 0
    is_open = np.zeros(len(text.tokens), bool)
    count = math.ceil(DENSITY * len(text.tokens))
    is_open[np.argsort(-text.attention, kind="stable")[:count]] = True
    return is_open


def comparison_table(
    runs: Mapping[str, Run], test: gdata.Encoded, removals: Mapping[str, Removal]
) -> Table:
    """Returns a table of accuracy, operations, truth of the gates, and effect of removal."""
    truth = [test.extra(index, "decides") for index in range(len(test))]
    columns = []
    for system, run in runs.items():
        record, texts = run.record, removals[system].before
        full, sparse = operations(record)
        if texts[0].gates is None:
            # Soft attention opens all words. Its precision is therefore the share of deciding
            # words, the value that gates without knowledge would have.
            density, cost = 1.0, f"{full:,}"
            precision, recall = sum(map(sum, truth)) / record["test_tokens"], 1.0
        else:
            scores = analysis.gate_truth(
                analysis.pad([text.gates for text in texts]),
                analysis.pad(truth),
                [len(text.tokens) for text in texts],
            )
            density, cost = record["test"]["density"], f"{sparse:,} ({sparse / full:.0%})"
            precision, recall = scores.precision, scores.recall
        columns.append(
            [
                f"{record['test']['accuracy']:.4f}",
                f"{density:.4f}",
                cost,
                f"{precision:.4f}",
                f"{recall:.4f}",
                f"{removals[system].changed:,} of {len(test):,}",
            ]
        )
    names = ["accuracy", "gate density", "attention FLOPs", "gate precision", "gate recall"]
    rows = list(zip([*names, "other answer"], *columns, strict=True))
    return screen("polarity, test set", ("", *SYSTEMS.values()), rows)


def show_words(console: Console, seen: Sequence[Inspected]) -> None:
    """Prints sentences with the words that GA-Net reads."""
    console.print("\nWords that GA-Net with gates on the input reads:")
    for text in seen:
        mark = "right" if text.predicted == text.label else "wrong"
        # Without colours the gates are shown by characters, so that the text can be piped into a
        # file.
        marked = analysis.highlight_terminal(
            text.tokens, text.attention, text.gates, plain=console.color_system is None
        )
        console.print(marked, Text(f" {clean(text.label)} ({mark})", style="dim"))


def draw(removals: Mapping[str, Removal], workdir: Path) -> None:
    """Draws a positive sentence under the models, on a light and on a dark ground. The sentence is
    the first positive text that all models classify correctly and in which the removal of closed
    words changes the answer of gates on attention; without such a text it is the first text."""
    number = choose_text(removals)
    rows = []
    for system, removal in removals.items():
        before, after = removal.before[number], removal.after[number]
        title, finding = describe(system, removal.changed, len(removal.before))
        rows.append(
            Row(
                title=title,
                finding=finding,
                words=before.tokens,
                weights=before.attention,
                is_open=open_words(before),
                answers=(before.predicted, after.predicted),
                closes=before.gates is not None,
            )
        )
    heading = (
        f"One sentence under three networks (its label: {removals['soft'].before[number].label})"
    )
    for theme, name in ((LIGHT, "picture"), (DARK, "picture_dark")):
        draw_picture(rows, heading, workdir / name, theme)


def choose_text(removals: Mapping[str, Removal]) -> int:
    """Returns the number of the text in the picture, see `draw`."""
    attention = removals["attention"]
    for number, (before, after) in enumerate(zip(attention.before, attention.after, strict=True)):
        right = all(r.before[number].predicted == before.label for r in removals.values())
        if right and before.label == "positive" and after.predicted != before.predicted:
            return number
    return 0


def describe(system: str, changed: int, texts: int) -> tuple[str, str]:
    """Returns the title of a row of the picture, and the sentence with its measurement."""
    name = SYSTEMS[system][0].upper() + SYSTEMS[system][1:]
    result = f"changes the answer in {changed:,} of {texts:,} texts."
    if system == "soft":
        finding = f"Removing the faintest words, {1 - DENSITY:.0%} of a text, {result}"
        effect = ", but faint words count too" if changed else ""
        return f"{name}: no word is closed{effect}", finding
    finding = f"Removing the closed words {result}"
    if changed:
        return f"{name}: closed words can still change the answer", finding
    if system == "input":
        return f"{name}: closed words cannot change the answer", finding
    return f"{name}: closed words changed no answer here", finding


if __name__ == "__main__":
    sys.exit(main())
