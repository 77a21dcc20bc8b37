"""RESULTS.md: the paper's numbers beside those of the runs that have a record."""

from experiments.core.records import write_results
from experiments.core.comparison import LEVEL, WINDOW_SAMPLES
from experiments.rau import ablations, sections, settings
from experiments.rau.results import Store


def write(store: Store) -> None:
    """Renders every section from the records and replaces RESULTS.md whole."""
    parts = [
        (
            "Table 1: accuracy and perplexity",
            sections.table1(store),
            "Mean ± sample standard deviation over seeds. Test: parameters of the best validation "
            "result; last step: those at the end. PTB: perplexity, less is better.",
        ),
        (
            "Table 1, paired tests",
            sections.paired(store),
            "Classifiers: bootstrap over test examples of the correctness averaged over seeds "
            "(10,000 samples), exact McNemar test of each pair of runs with one seed. PTB: "
            "bootstrap over windows of the test text of the negative log-likelihood averaged over "
            f"seeds ({WINDOW_SAMPLES:,} samples), in nats per token. A difference counts as shown "
            f"if the corrected p < {LEVEL}; the tests say nothing about other seeds.",
        ),
        (
            "Text: training perplexity in the last epoch",
            sections.training_perplexity(store),
            "PTB small, RAU.",
        ),
        (
            "Table 2: settings and parameters",
            settings.table2(),
            "Parameters of the recurrent layer, biases included; the paper's table has no such "
            "row. Width 28 is the paper's Table 2, 128 its text.",
        ),
        (
            "Other widths and learning rates",
            ablations.other_settings(store),
            "`tables table1 --hidden 28`; `tables table1 --data ptb_small --learning-rate 0.5`.",
        ),
        (
            "Table 3: MNIST error",
            sections.table3(store),
            "The quoted rows are from other papers; nobody trained them here.",
        ),
        (
            "Table 4: settings of PTB",
            settings.table4(),
            "The decay 1/1.5 is taken as a misprint of 1/1.15.",
        ),
        (
            "IMDB: learning rates",
            ablations.learning_rates(store),
            "The paper gives no numbers for these.",
        ),
        (
            "Forms of the attention",
            ablations.variants(store),
            "The paper leaves the form open; feature_proj without rescaling is what table 1 has. "
            "Rescaling gives the weights mean 1. Runs may be shorter than those of table 1.",
        ),
        (
            "Equal parameter counts",
            ablations.matched(store),
            "RAU and LSTM at the width that has the most nearly as many parameters as the GRU.",
        ),
        ("Figures", sections.figures(store), "Curves are drawn from the records."),
        ("Runs", sections.provenance(store), "Records in runs/; seconds are wall time per run."),
    ]
    write_results(
        store.folder,
        "RAU",
        module="experiments.rau.tables",
        source='Zhong, Yue and Ling, "Recurrent Attention Unit" (2018)',
        parts=parts,
    )
