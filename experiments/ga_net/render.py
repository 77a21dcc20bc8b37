"""RESULTS.md: the paper's numbers beside those of the runs that have a record."""

from typing import Any

import numpy as np

from experiments.common.collapse import COLLAPSED
from experiments.common.origins import beside, substitute_of
from experiments.common.records import NOT_RUN, alive, averaged, read_json, write_results
from experiments.common.significance import compare_all, holm_note, paragraphs
from experiments.ga_net import paper
from experiments.ga_net.config import PRESETS, SystemName
from experiments.ga_net.results import Store
from gatedjax import analysis

NAMES = {
    "imdb": "IMDB",
    "ag_news": "AG News",
    "sst1": "SST-1",
    "sst2": "SST-2",
    "trec": "TREC",
    "polarity": "polarity",
}


def _cell(records: list[dict[str, Any]], metric: str) -> str:
    return averaged(records, lambda record: record["test"].get(metric))


def _datasets(store: Store, *variants: str) -> list[str]:
    """The paper's data sets, and the embedded corpus if one of the variants was run on it."""
    extra = any(store.all("polarity", variant) for variant in variants)
    return [*paper.DATA, *(["polarity"] if extra else [])]


def table1(store: Store) -> str:
    """Data statistics."""
    path = store.folder / "table1.json"
    known = read_json(path) if path.exists() else {}
    headers = ["data", "paper: length", "C", "train", "test"]
    headers += ["ours: length", "C", "train", "validation", "test", "words"]
    rows = []
    for data in paper.DATA:
        length, classes, train, test = paper.STATISTICS[data]
        row = [NAMES[data], str(length), str(classes), train, test]
        mine = known.get(data)
        if mine is None:
            row += [NOT_RUN] + ["-"] * 5
        else:
            parts = [mine[split] for split in ("train", "validation", "test")]
            total = sum(part["n"] for part in parts)
            mean = sum(part["n"] * part["mean_length"] for part in parts) / total
            row += [f"{mean:.1f}", str(len(parts[0]["class_counts"]))]
            row += [str(part["n"]) for part in parts] + [str(parts[0]["vocabulary_size"])]
        rows.append(row)
    return analysis.render_table(headers, rows)


def table2(store: Store) -> str:
    """Accuracy and density of the four systems."""
    headers = ["data", "system", "paper", "ours", "density: paper", "ours (mean gate)"]
    rows = []
    for data in _datasets(store, *paper.SYSTEMS):
        for system, name in paper.SYSTEMS.items():
            records = store.all(data, system)
            gated = system == "ganet"
            value = paper.ACCURACY[system].get(data)
            accuracy = "-" if value is None else f"{value:.4f}"
            density = f"{paper.DENSITY[data]:.4f}" if gated and data in paper.DENSITY else "-"
            ours = [_cell(records, "accuracy"), _cell(records, "density") if gated else "-"]
            for label, *cells in beside(NAMES[data], [accuracy, density], ours, records):
                rows.append([label, name, cells[0], cells[2], cells[1], cells[3]])
    return analysis.render_table(headers, rows)


def paired(store: Store) -> str:
    """GA-Net against each baseline, example by example."""
    headers = ["data", "baseline", "GA-Net minus baseline", "95 % interval", "bootstrap p"]
    headers += ["McNemar p (each seed)"]
    rows = []
    baselines: tuple[SystemName, ...] = ("bilstm", "local", "soft")
    pairs = {
        (data, system): (store.all(data, "ganet"), store.all(data, system))
        for data in _datasets(store, "ganet")
        for system in baselines
    }
    compared = compare_all(pairs)
    for (data, system), found in compared.items():
        shown = [NOT_RUN, "-", "-", "-"] if found is None else found.cells(points=False)
        rows.append([NAMES[data], paper.SYSTEMS[system], *shown])
    return paragraphs(analysis.render_table(headers, rows), holm_note(compared))


def gate_modes(store: Store) -> str:
    """Accuracy and density of the same parameters under each kind of gate."""
    modes = ("sample", "threshold", "expected", "relaxed")
    headers = ["data", *(f"{m}: accuracy, density" for m in modes), "all closed (sample)"]
    rows = []
    for data in _datasets(store, "ganet"):
        every = store.all(data, "ganet")
        records = alive(every)
        row = [NAMES[data]]
        for mode in modes:
            if not records:
                row.append(COLLAPSED if every else NOT_RUN)
                continue
            accuracy = np.mean([r["test"][f"accuracy_{mode}"] for r in records])
            density = np.mean([r["test"][f"density_{mode}"] for r in records])
            row.append(f"{accuracy:.4f}, {density:.4f}")
        row.append(_cell(every, "closed_sample"))
        rows.append(row)
    return analysis.render_table(headers, rows)


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return f"{number:.0f}"


def _auxiliary_flops(record: dict[str, Any]) -> int:
    model = record["config"]["model"]
    return analysis.auxiliary_flops(
        model["aux"],
        tokens=record["test_tokens"],
        examples=record["test_n"],
        input_dim=model["embedding_dim"],
        hidden=model["aux_hidden"],
    )


def table3(store: Store) -> str:
    """Attention operations over the test set, with and without the auxiliary network."""
    headers = ["data", "paper: soft", "GA-Net", "ratio", "ours: soft", "GA-Net", "ratio"]
    headers += ["GA-Net per text", "auxiliary network"]
    rows = []
    for data in _datasets(store, "ganet"):
        quoted = ["-"] * 3
        if data in paper.DENSITY:
            soft, ganet = paper.FLOPS["soft"][data], paper.FLOPS["ganet"][data]
            quoted = [_short(soft), _short(ganet), f"{ganet / soft:.3f}"]
        every = store.all(data, "ganet")
        records = alive(every)
        if not records:
            missing = COLLAPSED if every else NOT_RUN
            rows.append([NAMES[data], *quoted, missing, missing, "-", "-", "-"])
            continue
        model = records[0]["config"]["model"]
        width = model["hidden"] * (2 if model["merge"] == "concat" else 1)
        full = analysis.attention_flops(records[0]["test_tokens"], width)
        mine = [analysis.attention_flops(r["attended_tokens"], width) for r in records]
        mean = float(np.mean(mine))
        auxiliary = _auxiliary_flops(records[0])
        ours = [_short(full), _short(mean), f"{mean / full:.3f}"]
        ours += [_short(mean / records[0]["test_n"]), _short(auxiliary)]
        rows += beside(NAMES[data], quoted, ours, records)
    return analysis.render_table(headers, rows)


def table5(store: Store) -> str:
    """Auxiliary networks."""
    headers = ["data", "auxiliary network", "paper: accuracy", "density", "ours: accuracy"]
    headers += ["density"]
    rows = []
    others = [d for d in NAMES if d != "imdb" and store.all(d, "ganet_aux_fnn")]
    for data in ["imdb", *others]:
        for kind, name in paper.AUXILIARY.items():
            records = store.all(data, "ganet" if kind == "lstm" else f"ganet_aux_{kind}")
            known = paper.AUX_IMDB[kind] if data == "imdb" else None
            quoted = ["-", "-"] if known is None else [f"{value:.4f}" for value in known]
            ours = [_cell(records, "accuracy"), _cell(records, "density")]
            found = beside(NAMES[data], quoted, ours, records)
            rows += [[label, name, *cells] for label, *cells in found]
    return analysis.render_table(headers, rows)


def figure5(store: Store) -> str:
    """The points of figure 5."""
    headers = ["data", "metric", *(str(width) for width in paper.AUX_WIDTHS)]
    rows = []
    for data in NAMES:
        own = PRESETS[data].model.aux_hidden
        found = {
            # the preset's width is the GA-Net of table 2: the same runs
            width: store.all(data, "ganet" if width == own else f"ganet_width_{width}")
            for width in paper.AUX_WIDTHS
        }
        if data not in ("imdb", "sst1", "trec") and not any(
            found[width] for width in paper.AUX_WIDTHS if width != own
        ):
            continue
        for metric in ("accuracy", "density"):
            rows.append([NAMES[data], metric, *(_cell(r, metric) for r in found.values())])
    return analysis.render_table(headers, rows)


def provenance(store: Store) -> str:
    """What the numbers were made with: one line per group of equal runs."""
    headers = ["data", "system", "seeds", "batch", "lr", "tau", "lambda", "dropout", "steps"]
    headers += ["seconds", "hardware", "substitute"]
    rows = []
    for data in NAMES:
        for variant in store.variants(data):
            records = store.all(data, variant)
            first = records[0]
            model, train = first["config"]["model"], first["config"]["train"]
            hardware = first["hardware"]
            gated = first["system"] == "ganet"
            rows.append(
                [
                    NAMES[data],
                    variant,
                    ", ".join(str(record["seed"]) for record in records),
                    str(first["config"]["data"]["batch_size"]),
                    f"{train['optimizer']['learning_rate']:g}",
                    f"{model['temperature']:g}" if gated else "-",
                    f"{model['penalty']:g}" if gated else "-",
                    f"{model['embedding_dropout']:g}/{model['pool_dropout']:g}",
                    ", ".join(str(record["best_step"]) for record in records),
                    f"{np.mean([record['seconds'] for record in records]):.0f}",
                    f"{hardware['device']} x{hardware['devices']}, jax {hardware['jax']}",
                    substitute_of(first) or "no",
                ]
            )
    return analysis.render_table(headers, rows)


def write(store: Store, command: str) -> None:
    """Renders every section from the records and replaces RESULTS.md whole."""
    del command
    sections = [
        ("Table 1: data", table1(store), "ours: mean length over all splits; words of train"),
        (
            "Table 2: test accuracy and density",
            table2(store),
            "mean ± sample standard deviation over seeds. GA-Net: gates sampled as in the paper, "
            "mean of 5 draws per run; density is the mean over texts of the share of open gates.",
        ),
        (
            "Table 2, paired tests",
            paired(store),
            "Bootstrap over test texts of the correctness averaged over seeds (10,000 samples); "
            "exact McNemar test of each pair of runs with one seed, first draw of the gates.",
        ),
        (
            "One set of parameters under four kinds of gates",
            gate_modes(store),
            "Means over seeds: Bernoulli draws, probability above 1/2, probabilities as gates, "
            "and the relaxed gates of training.",
        ),
        (
            "Table 3: attention operations over the test set",
            table3(store),
            "n(4D + 3) per text with n attended words, multiplications and additions counted. The "
            "auxiliary network costs more than the attention that it saves.",
        ),
        ("Table 5: auxiliary networks", table5(store), "the paper used IMDB only."),
        ("Figure 5: width of the auxiliary LSTM", figure5(store), "figure5.png where it was run."),
        ("Runs", provenance(store), "records in runs/; seconds are wall time per run."),
    ]
    parts = [(title, table, f"{note[0].upper()}{note[1:]}") for title, table, note in sections]
    write_results(
        store.folder,
        "GA-Net",
        module="experiments.ga_net.tables",
        source='Xue, Li and Zhang, "Not All Attention Is Needed" (AAAI 2020)',
        parts=parts,
    )
