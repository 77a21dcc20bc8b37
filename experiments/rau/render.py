"""RESULTS.md: the paper's numbers beside those of the runs that have a record."""

from typing import Any

import numpy as np

from experiments.common.records import NOT_RUN, mean_std, write_text
from experiments.rau import paper
from experiments.rau.results import Store
from experiments.rau.settings import table2, table4
from experiments.rau.significance import compare, sentence
from gatedjax import analysis

__all__ = ["table2", "table4", "write"]

NAMES = {
    "digits": "digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "imdb": "IMDB",
    "imdb_100": "IMDB, width 100",
    "ptb_small": "PTB small",
    "ptb_medium": "PTB medium",
    "ptb_large": "PTB large",
}
PAIRS = (("gru", "GRU"), ("lstm", "LSTM"))


def metric_of(data: str) -> tuple[str, int]:
    """The metric of a data set, and its digits."""
    return ("perplexity", 2) if data in paper.LANGUAGE else ("accuracy", 4)


def cell_text(records: list[dict[str, Any]], part: str, data: str) -> str:
    """Mean and deviation of "validation", "test" or "test_last" over the seeds."""
    name, digits = metric_of(data)
    values = [r[part][name] for r in records if name in r.get(part, {})]
    return mean_std(values, digits) if values else NOT_RUN


def parameters(records: list[dict[str, Any]]) -> str:
    """How many parameters the runs trained."""
    counts = sorted({record["parameters"] for record in records if "parameters" in record})
    return ", ".join(f"{count:,}" for count in counts) or "-"


def datasets(store: Store) -> list[str]:
    """The paper's data sets, and those of ours that were run."""
    extra = [d for d in ("digits", "imdb_100") if any(store.all(d, c) for c in paper.CELLS)]
    return [*paper.CLASSIFICATION, *paper.LANGUAGE, *extra]


def quoted(data: str, cell: str) -> tuple[str, str]:
    """The paper's validation and test number."""
    if data in paper.PERPLEXITY:
        validation, test = paper.PERPLEXITY[data][cell]
        return f"{validation:.2f}", f"{test:.2f}"
    known = paper.VALIDATION_ACCURACY.get(data, {}).get(cell)
    right = paper.ACCURACY.get(data, {}).get(cell)
    return "-" if known is None else f"{known:.4f}", "-" if right is None else f"{right:.4f}"


def table1(store: Store) -> str:
    """Test accuracy or perplexity of every cell."""
    headers = ["data", "cell", "parameters", "validation: paper", "ours", "test: paper", "ours"]
    headers += ["ours, last step"]
    rows = []
    for data in datasets(store):
        for cell, name in paper.CELLS.items():
            records = store.all(data, cell)
            validation, test = quoted(data, cell)
            row = [NAMES[data], name, parameters(records)]
            row += [validation, cell_text(records, "validation", data)]
            row += [test, cell_text(records, "test", data)]
            rows.append([*row, cell_text(records, "test_last", data)])
    return analysis.render_table(headers, rows)


def training_perplexity(store: Store) -> str:
    """The training perplexity that the paper's text gives."""
    headers = ["data", "cell", "paper", "ours"]
    rows = []
    for (data, cell), value in paper.TRAIN_PERPLEXITY.items():
        key = "train_last_epoch_perplexity"
        found = [r[key] for r in store.all(data, cell) if r.get(key) is not None]
        ours = mean_std(found, 2) if found else NOT_RUN
        rows.append([NAMES[data], paper.CELLS[cell], f"{value:.2f}", ours])
    return analysis.render_table(headers, rows)


def paired(store: Store) -> str:
    """RAU against each baseline, example by example; then the same in sentences."""
    headers = ["data", "baseline", "RAU minus baseline", "95 % interval", "bootstrap p"]
    headers += ["McNemar p (each seed)", "better"]
    rows, sentences = [], []
    for data in datasets(store):
        for other, name in PAIRS:
            found = compare(store.all(data, "rau"), store.all(data, other))
            sentences.append(f"- {sentence(NAMES[data], 'RAU', name, found)}")
            if found is None:
                rows.append([NAMES[data], name, NOT_RUN, "-", "-", "-", "-"])
                continue
            boot = found.bootstrap
            winner = {None: "neither is shown", True: "RAU", False: name}[found.better]
            rows.append(
                [
                    NAMES[data],
                    name,
                    f"{boot.difference:+.4f} (n={len(found.seeds)} seeds)",
                    f"[{boot.low:+.4f}, {boot.high:+.4f}]",
                    f"{boot.p_value:.4f}",
                    ", ".join(f"{p:.3f}" for p in found.exact) or "-",
                    winner,
                ]
            )
    return analysis.render_table(headers, rows).rstrip() + "\n\n" + "\n".join(sentences)


def table3(store: Store) -> str:
    """MNIST error in percent beside rows that the paper quotes."""
    headers = ["system", "error (%)", "source"]
    rows = [
        [name, f"{error:.2f}", "quoted in the paper, not trained here"]
        for name, error in paper.QUOTED_ERRORS.items()
    ]
    rows.append(["RAU", f"{paper.MNIST_ERROR:.2f}", "the paper's own"])
    for cell, name in paper.CELLS.items():
        errors = [100 * (1 - r["test"]["accuracy"]) for r in store.all("mnist", cell)]
        rows.append([name, mean_std(errors, 2) if errors else NOT_RUN, "ours"])
    return analysis.render_table(headers, rows)


def other_widths(store: Store) -> str:
    """Table 1 at other widths of the state."""
    headers = ["data", "cell", "width", "parameters", "validation", "test"]
    rows = []
    for data in NAMES:
        for variant in store.variants(data):
            cell, _, width = variant.partition("_hidden")
            if width and cell in paper.CELLS:
                records = store.all(data, variant)
                row = [NAMES[data], paper.CELLS[cell], width, parameters(records)]
                row += [cell_text(records, part, data) for part in ("validation", "test")]
                rows.append(row)
    if not rows:
        rows = [["MNIST", "RAU", "28", "-", NOT_RUN, NOT_RUN]]
    return analysis.render_table(headers, rows)


def learning_rates(store: Store) -> str:
    """IMDB at the learning rates that the paper tried."""
    headers = ["learning rate", "cell", "validation accuracy", "test accuracy"]
    rows = []
    for rate in paper.LEARNING_RATES:
        for cell, name in paper.CELLS.items():
            records = store.all("imdb", f"{cell}_lr{rate}")
            row = [cell_text(records, part, "imdb") for part in ("validation", "test")]
            rows.append([rate, name, *row])
    return analysis.render_table(headers, rows)


def variants(store: Store) -> str:
    """Forms of the attention."""
    headers = ["data", "attention", "rescale", "parameters", "validation", "test"]
    headers += ["minus feature_proj", "bootstrap p", "ms per step"]
    rows = []
    plain = next(iter(paper.variants_of("feature_proj")))
    for data in [d for d in NAMES if d == "mnist" or any(_forms(store, d))]:
        base = store.all(data, plain)
        for form in paper.FORMS:
            for variant, model in paper.variants_of(form).items():
                records = store.all(data, variant)
                row = [NAMES[data], form, "yes" if model.get("rescale") else "no"]
                row += [parameters(records)]
                row += [cell_text(records, part, data) for part in ("validation", "test")]
                found = compare(records, base) if variant != plain else None
                if found is None:
                    row += ["-", "-"]
                else:
                    boot = found.bootstrap
                    row += [f"{boot.difference:+.4f}", f"{boot.p_value:.3f}"]
                rows.append([*row, _milliseconds(records)])
    return analysis.render_table(headers, rows)


def _forms(store: Store, data: str) -> list[str]:
    return [v for v in store.variants(data) if v.startswith("attention_")]


def _milliseconds(records: list[dict[str, Any]]) -> str:
    values = [r["seconds_per_step"] for r in records if r.get("seconds_per_step")]
    return f"{1000 * np.mean(values):.1f}" if values else "-"


def matched(store: Store) -> str:
    """Cells with as many parameters as the GRU."""
    headers = ["data", "cell", "width", "parameters", "validation", "test", "minus GRU"]
    headers += ["95 % interval", "bootstrap p"]
    rows = []
    known = ("mnist", "fashion_mnist")
    for data in [d for d in NAMES if d in known or store.all(d, "rau_matched")]:
        base = store.all(data, "gru")
        for variant in ("gru", "rau_matched", "lstm_matched"):
            records = store.all(data, variant)
            widths = {r["config"]["model"]["hidden"] for r in records}
            row = [NAMES[data], paper.CELLS[variant.removesuffix("_matched")]]
            row += [", ".join(map(str, sorted(widths))) or "-", parameters(records)]
            row += [cell_text(records, part, data) for part in ("validation", "test")]
            found = compare(records, base) if variant != "gru" else None
            if found is None:
                rows.append([*row, "-", "-", "-"])
                continue
            boot = found.bootstrap
            row += [f"{boot.difference:+.4f}", f"[{boot.low:+.4f}, {boot.high:+.4f}]"]
            rows.append([*row, f"{boot.p_value:.4f}"])
    return analysis.render_table(headers, rows)


def figures(store: Store) -> str:
    """The figures that were drawn."""
    titles = {
        "figure5": "Figure 5: validation while training, Fashion-MNIST",
        "figure6": "Figure 6: validation while training, PTB",
        "figure7": "Figure 7: training on IMDB",
    }
    lines = []
    for stem, title in titles.items():
        drawn = (store.folder / f"{stem}.png").exists()
        lines.append(f"- {title}: " + (f"[{stem}.png]({stem}.png)" if drawn else NOT_RUN))
    return "\n".join(lines)


def provenance(store: Store) -> str:
    """What the numbers were made with: one line per group of equal runs."""
    headers = ["data", "variant", "seeds", "batch", "lr", "schedule", "clip", "width", "steps"]
    headers += ["best steps", "seconds", "ms per step", "hardware", "substitute"]
    rows = []
    for data in NAMES:
        for variant in store.variants(data):
            records = store.all(data, variant)
            config = records[0]["config"]
            optimizer, hardware = config["train"]["optimizer"], records[0].get("hardware", {})
            clip = optimizer.get("clip_norm")
            rows.append(
                [
                    NAMES[data],
                    variant,
                    ", ".join(str(record["seed"]) for record in records),
                    str(config["data"]["batch_size"]),
                    f"{optimizer['learning_rate']:g}",
                    optimizer["schedule"],
                    "-" if clip is None else f"{clip:g}",
                    str(config["model"].get("hidden", "-")),
                    ", ".join(str(record.get("steps", "-")) for record in records),
                    ", ".join(str(record.get("best_step", "-")) for record in records),
                    f"{np.mean([record.get('seconds', 0.0) for record in records]):.0f}",
                    _milliseconds(records),
                    f"{hardware.get('device', '-')} x{hardware.get('devices', '-')}, "
                    f"jax {hardware.get('jax', '-')}",
                    records[0].get("substitute") or "no",
                ]
            )
    return analysis.render_table(headers, rows)


def write(store: Store) -> None:
    """Renders every section from the records and replaces RESULTS.md whole."""
    sections = [
        (
            "Table 1: accuracy and perplexity",
            table1(store),
            "Mean ± sample standard deviation over seeds. Test: parameters of the best validation "
            "result; last step: those at the end. PTB: perplexity, less is better.",
        ),
        (
            "Table 1, paired tests",
            paired(store),
            "Classifiers: bootstrap over test examples of the correctness averaged over seeds "
            "(10,000 samples), exact McNemar test of each pair of runs with one seed. PTB: "
            "bootstrap over windows of the test text of the negative log-likelihood averaged over "
            f"seeds ({2000:,} samples), in nats per token. A difference is shown if p < 0.05; the "
            "tests say nothing about other seeds.",
        ),
        (
            "Text: training perplexity in the last epoch",
            training_perplexity(store),
            "PTB small, RAU.",
        ),
        (
            "Table 2: settings and parameters",
            table2(),
            "Parameters of the recurrent layer, biases included; the paper's table has no such "
            "row. Width 28 is the paper's Table 2, 128 its text.",
        ),
        ("Other widths", other_widths(store), "`tables table1 --hidden 28`."),
        (
            "Table 3: MNIST error",
            table3(store),
            "The quoted rows are from other papers; nobody trained them here.",
        ),
        ("Table 4: settings of PTB", table4(), "The decay 1/1.5 is taken as a misprint of 1/1.15."),
        ("IMDB: learning rates", learning_rates(store), "The paper gives no numbers for these."),
        (
            "Forms of the attention",
            variants(store),
            "The paper leaves the form open; feature_proj without rescaling is what table 1 has. "
            "Rescaling gives the weights mean 1. Runs may be shorter than those of table 1.",
        ),
        (
            "Equal parameter counts",
            matched(store),
            "RAU and LSTM at the width that has the most nearly as many parameters as the GRU.",
        ),
        ("Figures", figures(store), "Curves are drawn from the records."),
        ("Runs", provenance(store), "Records in runs/; seconds are wall time per run."),
    ]
    lines = [
        "# RAU: results",
        "",
        "Written by `python -m experiments.rau.tables`; not edited by hand.",
        'Paper: Zhong, Yue and Ling, "Recurrent Attention Unit" (2018).',
        '"not run" means that nobody ran it here.',
        "",
    ]
    for title, body, note in sections:
        lines += [f"## {title}", "", body.rstrip(), "", note, ""]
    path = store.folder / "RESULTS.md"
    write_text(path, "\n".join(lines))
    print(f"wrote {path}", flush=True)
