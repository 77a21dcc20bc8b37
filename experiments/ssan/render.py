"""RESULTS.md: the paper's numbers beside those of the runs that have a record."""

from collections.abc import Callable
from typing import NamedTuple

from experiments.core.records import write_results
from experiments.core.comparison import LEVEL
from experiments.ssan import paper, sections, task_sections
from experiments.ssan.results import Store


class Section(NamedTuple):
    """A part of the page."""

    title: str
    body: Callable[[Store], str]
    note: str


TESTS = (
    "Mean ± sample standard deviation over seeds, parameters of the best validation accuracy. "
    "Minus SAN, in points: bootstrap over test examples of the correctness averaged over seeds "
    "(10,000 samples), exact McNemar test of each pair of runs with one seed. A difference counts "
    f"as shown if the corrected p < {LEVEL}; the tests say nothing about other seeds."
)
F1 = (
    "F1 in percent. The paper's row All agrees with the average by support within 0.3, and with no "
    "other."
)
SECTIONS: dict[str, Section] = {
    "table1": Section(
        "Table 1: four tasks",
        task_sections.table1,
        "Accuracy and F1 in percent, BLEU by sacrebleu (detokenised; the paper's is tokenised). "
        "Differences: paired bootstrap over test examples, for roles and translation of every "
        "seed by itself. The paper also reports "
        f"{paper.REINFORCE_BLEU:.2f} BLEU for En-De with a selector trained by reward.",
    ),
    "table2": Section("Table 2: BShift, selector in one layer", sections.table2, TESTS),
    "table3": Section(
        "Table 3: word reordering detection, selector in one layer",
        sections.table3,
        "Tests are of both positions. " + TESTS,
    ),
    "table4": Section("Table 4: TreeDepth, F1 by depth", sections.table4, F1),
    "table5": Section(
        "Table 5: TopConst, F1 of groups of classes",
        sections.table5,
        F1 + " Groups: average of their classes by support; merged: of the group as one class. "
        "Which classes a group has is inferred.",
    ),
    "table6": Section(
        "Table 6: brackets of trees from attention",
        task_sections.table6,
        "Unlabelled, punctuation left out, the whole sentence counted, single words not. Mean over "
        "heads; the mass inside a span is divided by its words (rows), their square (area), or "
        "not.",
    ),
    "table7": Section(
        "Table 7: attention by part of speech",
        task_sections.table7,
        "Share of all attention that keys of a class receive, mean over heads.",
    ),
    "figures": Section(
        "Figures 2 to 6", task_sections.figures, "Mean over heads of the first encoder layer."
    ),
    "modes": Section(
        "How selections are drawn",
        sections.modes,
        "In evaluation all of them select what is more likely selected than not. " + TESTS,
    ),
    "sharing": Section("Selections of heads", sections.sharing, TESTS),
    "temperature": Section(
        "Temperature", sections.temperature, "The paper gives none; the authors' code has 0.5."
    ),
    "selection_rate": Section(
        "What is selected",
        sections.selection_rate,
        "Of the pairs of real tokens of the test sentences, sentences counting alike.",
    ),
}
"""By the name of the command that makes them."""
RUNS = Section("Runs", sections.provenance, "Records in runs/; seconds are wall time per run.")


def write(store: Store) -> None:
    """Renders every section from the records and replaces RESULTS.md whole."""
    parts = [(title, body(store), note) for title, body, note in (*SECTIONS.values(), RUNS)]
    write_results(
        store.folder,
        "SSAN",
        module="experiments.ssan.tables",
        source='Geng et al., "How Does Selective Mechanism Improve Self-Attention Networks?" '
        "(2020)",
        parts=parts,
    )
