"""RESULTS.md: the paper's numbers beside those of the runs that have a record."""

from experiments.agt import layer_sections, paper, sections, variants
from experiments.agt.cells import NAMES
from experiments.agt.figures import stem_of
from experiments.agt.results import Store
from experiments.core.records import NOT_RUN, write_results
from experiments.core.comparison import LEVEL

FIGURES = {
    "figure2": "Figure 2: attention and lengths of phrases per layer",
    "figure3": "Figure 3: gates per layer",
    "figure4_1": "Figure 4, sentence 1",
    "figure4_2": "Figure 4, sentence 2",
    "figure4_3": "Figure 4, sentence 3",
    "optimizers": "Validation curves of the optimisers",
}
TESTS = (
    "Mean ± sample standard deviation over seeds, parameters of the best validation accuracy. "
    "Minus AGT, in points: bootstrap over test sentences of the correctness averaged over seeds "
    "(10,000 samples), exact McNemar test of each pair of runs with one seed. A difference counts "
    f"as shown if the corrected p < {LEVEL}; the tests say nothing about other seeds."
)
ORDER = (
    "The network reads a bag of words: the order changes neither prediction nor which words are "
    "selected, so a phrase is words that are selected each by itself and stand side by side. The "
    "shuffled columns are the same selections with the words of every sentence in random order."
)


def figures(store: Store) -> str:
    """The figures that were drawn."""
    lines = []
    for data in NAMES:
        for what, title in FIGURES.items():
            kind, _, number = what.partition("_")
            stem = stem_of(store.folder, kind, data)
            name = f"{stem.name}_{number}.png" if number else f"{stem.name}.png"
            drawn = (store.folder / name).exists()
            where = "" if data == paper.DATA else f" ({NAMES[data]})"
            if drawn:
                lines.append(f"- {title}{where}: [{name}]({name})")
            elif data == paper.DATA:
                lines.append(f"- {title}: {NOT_RUN}")
    return "\n".join(lines)


def write(store: Store) -> None:
    """Renders every section from the records and replaces RESULTS.md whole."""
    parts = [
        (
            "Table 1: SST-1 test accuracy",
            sections.table1(store),
            "The quoted rows are from other papers; nobody trained them here.",
        ),
        (
            "AGT by data set",
            sections.accuracy(store),
            "The paper reports SST-1 only. Word vectors: file and width.",
        ),
        ("Ablation: selection vectors", sections.ablation(store), TESTS),
        (
            "Ablation: other readings",
            sections.ablation_modes(store),
            "Layers without a selection vector take the last one that is left, or 0, instead of "
            "being plain highway layers. The paper does not say which.",
        ),
        (
            "Gate bias",
            sections.gate_bias(store),
            "The paper only says that 1 encourages composition.",
        ),
        (
            "Head",
            sections.heads(store),
            "Of width 200 (one: as the preset has it). The paper leaves number and widths open.",
        ),
        (
            "Optimisers",
            sections.optimizers(store),
            "The paper's Adadelta at 5e-4 takes steps 2,000 times shorter than at the usual 1.",
        ),
    ]
    extra = [d for d in NAMES if d != paper.DATA and store.all(d, variants.FULL)]
    for data in (paper.DATA, *extra):
        where = "" if data == paper.DATA else f" ({NAMES[data]})"
        parts += [
            (f"Layers{where}", layer_sections.observations(store, data), ORDER),
            (
                f"First-layer words{where}",
                layer_sections.first_words(store, data),
                "Words with r > 0.95 in the first layer over the test set, lower-cased.",
            ),
        ]
        if data != "trec":  # questions have none of the example sentences
            parts += [
                (
                    f"Selected words{where}",
                    layer_sections.selected(store, data),
                    "Compared as bags of words, a hyphen parting two words.",
                ),
                (
                    f"Sentence 3, layer by layer{where}",
                    layer_sections.trace(store, data),
                    "Words with r > 0.95; phrases are two or more of them side by side.",
                ),
            ]
    parts += [
        ("Figures", figures(store), "Drawn from the records, of the seed best in validation."),
        ("Runs", sections.provenance(store), "Records in runs/; seconds are wall time per run."),
    ]
    write_results(
        store.folder,
        "AGT",
        module="experiments.agt.tables",
        source='Guo, "A Deep Network with Visual Text Composition Behavior" (2017)',
        parts=parts,
    )
