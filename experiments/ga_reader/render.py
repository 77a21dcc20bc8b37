"""RESULTS.md: the paper's numbers beside those of the runs that have a record."""

from experiments.core.records import NOT_RUN, write_results
from experiments.core.comparison import LEVEL
from experiments.ga_reader import paper, sections, statistics
from experiments.ga_reader.results import Store

TESTS = (
    "Mean ± sample standard deviation over seeds, parameters of the best validation accuracy. "
    "Base minus reader, in points: bootstrap over test questions of the correctness averaged over "
    "seeds (10,000 samples); exact one-sided McNemar test of each pair of runs with one seed: is "
    f"the base better? A difference counts as shown if the corrected bootstrap p < {LEVEL}; the "
    "McNemar p of the sentences are two-sided, and those of the column are corrected together. "
    "The tests say nothing about other seeds. A question whose answer "
    "cannot be found counts as wrong."
)


def shown(store: Store, usual: tuple[str, ...], *own: str) -> list[str]:
    """The paper's data sets of a table, and others with a run of a reader that only it has."""
    return [data for data in paper.NAMES if data in usual or any(store.all(data, v) for v in own)]


def figures(store: Store) -> str:
    """The figures that were drawn."""
    lines = []
    for data, name in paper.NAMES.items():
        stems = sorted(path.stem for path in store.folder.glob(f"figure3_{data}_[0-9]*.png"))
        for stem in (f"figure2_{data}", *stems):
            if (store.folder / f"{stem}.png").exists():
                lines.append(f"- {name}: [{stem}.png]({stem}.png)")
        if data == "wdw" and not stems:
            lines.append(f"- {name}, figure 3: {NOT_RUN}")
        if data in paper.FIGURE2 and not (store.folder / f"figure2_{data}.png").exists():
            lines.append(f"- {name}, figure 2: {NOT_RUN}")
    return "\n".join(lines)


def write(store: Store) -> None:
    """Renders every section from the records and replaces RESULTS.md whole."""
    quoted = "Rows of other papers are quoted; nobody trained them here."
    parts = [
        ("Table 1: Who-did-What, accuracy (%)", sections.table1(store), quoted),
        *(
            (f"Table 2: gating and hops, {paper.NAMES[data]}", sections.table2(store, data), TESTS)
            for data in shown(store, ("wdw",), "hops_2", "hops_4")
        ),
        (
            "Table 3: CNN, Daily Mail and CBT, accuracy (%)",
            sections.table3(store),
            quoted,
        ),
        (
            "Table 4: ablations, WDW strict",
            sections.table4(store, "wdw"),
            "Corpus vectors are not trained here: `--corpus-vectors FILE` takes them.",
        ),
        *(
            (
                f"One budget: {paper.NAMES[data]}",
                sections.cbt(store, data),
                "`tables cbt`; the readers of tables 2 and 4 with the same number of steps. "
                + TESTS,
            )
            for data in shown(store, ("cbt_ne", "cbt_cn"), "no_gating")
        ),
        (
            "Two facts",
            sections.toy(store),
            "`tables toy`: questions made here, each of which takes two facts.",
        ),
        *(
            (
                f"Figure 2: gating by training size, {paper.NAMES[data]}",
                sections.figure2(store, data),
                "Shares are nested: 50 % is part of 75 %. One test question set for all. The p of "
                "ours are corrected together (Holm).",
            )
            for data in shown(store, paper.FIGURE2, "no_gating_50", "no_gating_75")
        ),
        (
            "Proportion tests against the second best",
            statistics.proportions(store),
            "One-sided, the quoted accuracy taken as exact; the paper's p rest on accuracies with "
            "more digits than it prints, and are not corrected. On other questions than the quoted "
            "row's there is no test; p of ours are corrected together (Holm).",
        ),
        (
            "Table 5: statistics",
            statistics.table5(store),
            "Counted: lower-cased words of documents and queries of all splits.",
        ),
        ("Table 6: tuned values", statistics.table6(), "GRU width per direction."),
        ("Figures", figures(store), "Drawn by `tables figure2` and `tables figure3`."),
        ("Runs", sections.provenance(store), "Records in runs/; seconds are wall time per run."),
    ]
    write_results(
        store.folder,
        "GA Reader",
        module="experiments.ga_reader.tables",
        source='Dhingra et al., "Gated-Attention Readers for Text Comprehension" (2017)',
        parts=parts,
    )
