"""The paper's tables, from the records."""

import numpy as np

from experiments.core.origins import beside, origin_of, other_data, substitute_of
from experiments.core.records import NOT_RUN, averaged
from experiments.core.comparison import compare_all, holm_note, paragraphs, sentence
from experiments.rau import paper
from experiments.rau.cells import NAMES, cell_text, milliseconds, parameters
from experiments.rau.results import Store
from gatedjax import analysis

PAIRS = (("gru", "GRU"), ("lstm", "LSTM"))


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
            ours = [cell_text(records, part, data) for part in ("validation", "test", "test_last")]
            count = parameters(records)
            for label, known, right, *found in beside(
                NAMES[data], [validation, test], ours, records
            ):
                rows.append([label, name, count, known, found[0], right, *found[1:]])
    return analysis.render_table(headers, rows)


def training_perplexity(store: Store) -> str:
    """The training perplexity that the paper's text gives."""
    headers = ["data", "cell", "paper", "ours"]
    rows = []
    for (data, cell), value in paper.TRAIN_PERPLEXITY.items():
        records = store.all(data, cell)
        ours = averaged(records, lambda record: record.get("train_last_epoch_perplexity"), 2)
        for label, *cells in beside(NAMES[data], [f"{value:.2f}"], [ours], records):
            rows.append([label, paper.CELLS[cell], *cells])
    return analysis.render_table(headers, rows)


def paired(store: Store) -> str:
    """RAU against each baseline, example by example; then the same in sentences."""
    headers = ["data", "baseline", "RAU minus baseline", "95 % interval", "bootstrap p"]
    headers += ["McNemar p (each seed)", "better"]
    rows, sentences = [], []
    pairs = {
        (data, other): (store.all(data, "rau"), store.all(data, other))
        for data in datasets(store)
        for other, _ in PAIRS
    }
    compared = compare_all(pairs)
    for (data, other), found in compared.items():
        name = dict(PAIRS)[other]
        sentences.append(f"- {sentence(NAMES[data], 'RAU', name, found)}")
        if found is None:
            rows.append([NAMES[data], name, NOT_RUN, "-", "-", "-", "-"])
            continue
        winner = {None: found.why_not or "neither is shown", True: "RAU", False: name}
        shown = found.cells(points=False, digits=4)
        rows.append([NAMES[data], name, *shown, winner[found.better]])
    table = analysis.render_table(headers, rows)
    return paragraphs(table, "\n".join(sentences), holm_note(compared))


def table3(store: Store) -> str:
    """MNIST error in percent beside rows that the paper quotes."""
    headers = ["system", "error (%)", "source"]
    rows = [
        [name, f"{error:.2f}", "quoted in the paper, not trained here"]
        for name, error in paper.QUOTED_ERRORS.items()
    ]
    rows.append(["RAU", f"{paper.MNIST_ERROR:.2f}", "the paper's own"])
    for cell, name in paper.CELLS.items():
        records = store.all("mnist", cell)
        error = averaged(records, lambda r: 100 * (1 - r["test"]["accuracy"]), 2)
        whose = f"ours, on {origin_of(records[0])}" if other_data(records) else "ours"
        rows.append([name, error, whose])
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
                    milliseconds(records),
                    f"{hardware.get('device', '-')} x{hardware.get('devices', '-')}, "
                    f"jax {hardware.get('jax', '-')}",
                    substitute_of(records[0]) or "no",
                ]
            )
    return analysis.render_table(headers, rows)
