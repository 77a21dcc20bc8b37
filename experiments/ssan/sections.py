"""The tables, from the records."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from experiments.core.collapse import COLLAPSED, collapsed
from experiments.core.origins import columns, substitute_of
from experiments.core.records import NOT_RUN, read_json
from experiments.core.comparison import (
    Comparison,
    compare_all,
    holm_note,
    paragraphs,
    sentence,
)
from experiments.ssan import paper, variants
from experiments.ssan.analyses import file_of
from experiments.ssan.cells import NAMES, Records, number, percent, share
from experiments.ssan.results import Store
from experiments.ssan.variants import BASE, FULL, VARIANTS
from gatedjax import analysis


def name_of(data: str) -> str:
    """What tables call a data set."""
    return NAMES.get(data, data)


Found = Mapping[tuple[str, str], Comparison | None]


def compared(store: Store, data: Iterable[str], networks: Iterable[str]) -> Found:
    """The networks of one table against the standard one, by data set and network."""
    named = [variant for variant in networks if variant != BASE]
    return compare_all(
        {
            (one, variant): (store.all(one, variant), store.all(one, BASE))
            for one in data
            for variant in named
        }
    )


def against(found: Found, data: str, variant: str) -> list[str]:
    """Difference to the standard network in points, interval and p-values; dashes if not run."""
    one = found.get((data, variant))
    return ["-"] * 4 if one is None else one.cells(seeds=False)


TESTS = ["minus SAN", "95 % interval", "bootstrap p", "McNemar p (each seed)"]


def verdicts(store: Store, data: str, found: Found) -> str:
    """One sentence per network: does it beat the standard one? Then the substitute, if any."""
    base, lines = store.all(data, BASE), []
    for (name, variant), one in found.items():
        if name == data and store.all(data, variant):
            text = sentence(name_of(data), VARIANTS[variant][0], "SAN", one)
            lines.append(f"- {text}")
    if (path := file_of(store, "neighbours", data)).exists():
        reached = 100 * read_json(path, "test")["test"]
        lines.append(
            f"- {name_of(data)}: a linear classifier of pairs of neighbouring words is right on "
            f"{reached:.2f} % of the test sentences (`tables neighbours`)."
        )
    notes = {note for r in base + store.all(data, FULL) if (note := substitute_of(r))}
    lines += [f"- {name_of(data)}: substitute: {note}." for note in sorted(notes)]
    return "\n".join(lines)


def table2(store: Store) -> str:
    """BShift accuracy without a selector and with one in each layer."""
    networks = [BASE if layer is None else f"ssan_layer{layer}" for layer in paper.BSHIFT]
    theirs, mine = columns(r for variant in networks for r in store.all("bshift", variant))
    mine = "" if mine == "ours" else f"{mine}: "
    headers = ["network", f"{theirs} (%)", f"{mine}validation (%)", "test (%)", *TESTS, "steps"]
    found = compared(store, ["bshift"], networks)
    rows = [
        ["SAN, earlier report", f"{paper.BSHIFT_EARLIER:.2f}", "quoted, not trained here"]
        + ["-"] * (len(headers) - 3)
    ]
    for variant, value in zip(networks, paper.BSHIFT.values(), strict=True):
        records = store.all("bshift", variant)
        row = [VARIANTS[variant][0], f"{value:.2f}", percent(records, "accuracy", "validation")]
        row += [percent(records, "accuracy"), *against(found, "bshift", variant)]
        rows.append([*row, steps(records)])
    table = analysis.render_table(headers, rows)
    return paragraphs(table, verdicts(store, "bshift", found), holm_note(found))


def table3(store: Store) -> str:
    """Word reordering detection: both positions, by layer."""
    headers = ["data", "network", "insert (%)", "original (%)", "both (%)", *TESTS, "steps"]
    rows = [
        ["WMT14, paper", "SAN" if layer is None else f"SSAN, layer {layer}", *map(number, values)]
        + ["-"] * 5
        for layer, values in paper.WRD.items()
    ]
    networks = [BASE if layer is None else f"ssan_layer{layer}" for layer in paper.WRD]
    shown = [
        data
        for data in ("wrd", "wrd_small", "wrd_published")
        if data != "wrd" or store.all(data, BASE) + store.all(data, FULL)
    ]
    found, notes = compared(store, shown, networks), []
    for data in shown:
        for variant in networks:
            records = store.all(data, variant)
            row = [name_of(data), VARIANTS[variant][0]]
            row += [percent(records, name) for name in ("insert", "original", "accuracy")]
            rows.append([*row, *against(found, data, variant), steps(records)])
        notes.append(verdicts(store, data, found))
    return paragraphs(analysis.render_table(headers, rows), *notes, holm_note(found))


def table4(store: Store) -> str:
    """TreeDepth: F1 by depth, and the averages."""
    base, full = (store.all("tree_depth", variant) for variant in (BASE, FULL))
    theirs, mine = columns(base + full)
    headers = ["depth", f"share, {theirs} (%)", f"share, {mine} (%)"]
    headers += [f"{network}, {whose}" for whose in (theirs, mine) for network in ("SAN", "SSAN")]
    found = compared(store, ["tree_depth"], [FULL])
    classes = (base + full)[0]["class_names"] if base + full else list(paper.TREE_DEPTH)
    rows = []
    for depth in dict.fromkeys((*paper.TREE_DEPTH, *classes)):
        san, ssan, ratio = paper.TREE_DEPTH.get(depth, (None, None, None))
        row = [depth, number(ratio), _support(base + full, classes, depth)]
        row += [number(san), number(ssan)]
        place = classes.index(depth) if depth in classes else None
        row += [NOT_RUN if place is None else share(r, "f1", place) for r in (base, full)]
        rows.append(row)
    rows += _averages(base, full, paper.TREE_DEPTH_ALL, 3)
    table = analysis.render_table(headers, rows)
    return paragraphs(table, verdicts(store, "tree_depth", found), holm_note(found))


def _support(records: Records, classes: list[str], name: str) -> str:
    if not records or name not in classes:
        return "-"
    support = records[0]["support"]
    return f"{100 * support[classes.index(name)] / sum(support):.1f}"


def _averages(
    base: Records, full: Records, quoted: tuple[float, float], before: int
) -> list[list[str]]:
    """Rows "All": by support, which agrees with the paper's, and the two other ways."""
    rows = []
    for title, key in (("weighted", "f1_weighted"), ("micro", "f1_micro"), ("macro", "f1_macro")):
        values = [f"{v:.2f}" if title == "weighted" else "-" for v in quoted]
        row = [f"All, {title}", *["-"] * (before - 1), *values]
        rows.append([*row, share(base, key), share(full, key)])
    return rows


def table5(store: Store) -> str:
    """TopConst: F1 of groups of classes, and the averages."""
    base, full = (store.all("top_const", variant) for variant in (BASE, FULL))
    theirs, mine = columns(base + full)
    headers = ["group", f"share, {theirs} (%)"]
    headers += [f"{network}, {whose}" for whose in (theirs, mine) for network in ("SAN", "SSAN")]
    headers += ["SAN, merged", "SSAN, merged"]
    found = compared(store, ["top_const"], [FULL])
    rows = []
    for group, (san, ssan, ratio) in paper.TOP_CONST.items():
        row = [group, f"{ratio:.0f}", number(san), number(ssan)]
        row += [share(records, "groups", group, 0) for records in (base, full)]
        row += [share(records, "groups", group, 1) for records in (base, full)]
        rows.append(row)
    rows += [[*row, "-", "-"] for row in _averages(base, full, paper.TOP_CONST_ALL, 2)]
    table = analysis.render_table(headers, rows)
    return paragraphs(table, verdicts(store, "top_const", found), holm_note(found))


def _compared(store: Store, networks: Mapping[str, str], what: str) -> str:
    headers = ["data", what, "validation (%)", "test (%)", *TESTS]
    headers += ["selected in layer 1 (%)", "empty (%)", "steps"]
    rows, notes = [], []
    shown = data_sets(store, networks)
    found = compared(store, shown, networks)
    for data in shown:
        for variant, title in networks.items():
            records = store.all(data, variant)
            row = [name_of(data), title]
            row += [percent(records, "accuracy", part) for part in ("validation", "test")]
            row += against(found, data, variant)
            row += [
                "-" if variant == BASE else percent(records, key)
                for key in ("selected_1", "empty_1")
            ]
            rows.append([*row, steps(records)])
        notes.append(verdicts(store, data, found))
    return paragraphs(analysis.render_table(headers, rows), *notes, holm_note(found))


def data_sets(store: Store, networks: Iterable[str]) -> list[str]:
    """BShift, and others on which a network was run that only such a table has."""
    own = [variant for variant in networks if variant not in (BASE, FULL)]
    return [d for d in NAMES if d == "bshift" or any(store.all(d, variant) for variant in own)]


def modes(store: Store) -> str:
    """How selections are drawn in training."""
    return _compared(store, variants.MODES, "selector")


def sharing(store: Store) -> str:
    """One selection for all heads, or one each."""
    return _compared(store, variants.SHARING, "selection")


def temperature(store: Store) -> str:
    """Temperature of the relaxation."""
    named = {variant: f"{tau:g}" for variant, tau in variants.temperatures().items()}
    return _compared(store, named, "temperature")


def selection_rate(store: Store) -> str:
    """What the selectors of all finished runs select on the test sentences, by layer and head."""
    headers = ["data", "network", "seed", "layer", "selected (%)", "of each head (%)"]
    headers += ["queries without a key (%)", "at the start of training (%)"]
    rows = []
    for data in NAMES:
        for variant in store.variants(data):
            for record in store.all(data, variant):
                rows += _rates(data, variant, record)
    return analysis.render_table(headers, rows) if rows else NOT_RUN


def _rates(data: str, variant: str, record: dict[str, Any]) -> list[list[str]]:
    rows = []
    for layer, heads in record.get("selected_heads", {}).items():
        if collapsed(record):
            name = VARIANTS.get(variant, (variant,))[0]
            rows.append([name_of(data), name, str(record["seed"]), layer, COLLAPSED, *["-"] * 3])
            continue
        start = (record.get("selection_curve", {}).get(layer) or [[0, float("nan")]])[0]
        rows.append(
            [
                name_of(data),
                VARIANTS.get(variant, (variant,))[0],
                str(record["seed"]),
                layer,
                f"{100 * np.mean(heads):.1f}",
                ", ".join(f"{100 * rate:.1f}" for rate in heads),
                f"{100 * np.mean(record['empty_heads'][layer]):.2f}",
                f"{100 * start[1]:.1f}",
            ]
        )
    return rows


def steps(records: Records) -> str:
    """Steps of the runs; more than one number if they differ."""
    return ", ".join(sorted({f"{record['steps']:,}" for record in records})) or "-"


def _tokens(data: dict[str, Any]) -> str:
    tokens = data.get("batch_tokens")
    return "-" if tokens is None else f"{tokens:,} tokens"


def provenance(store: Store) -> str:
    """What the numbers were made with: one line per group of equal runs."""
    headers = ["data", "variant", "seeds", "batch", "lr", "steps", "best steps", "seconds"]
    headers += ["ms per step", "parameters", "hardware", "substitute"]
    rows = []
    for data in NAMES:
        for variant in store.variants(data):
            records = store.all(data, variant)
            config, hardware = records[0]["config"], records[0].get("hardware", {})
            rates = [r["seconds_per_step"] for r in records if r.get("seconds_per_step")]
            rows.append(
                [
                    name_of(data),
                    variant,
                    ", ".join(str(record["seed"]) for record in records),
                    str(config["data"].get("batch_size") or _tokens(config["data"])),
                    f"{config['train']['optimizer']['learning_rate']:g}",
                    steps(records),
                    ", ".join(f"{record['best_step']:,}" for record in records),
                    f"{np.mean([record.get('seconds', 0.0) for record in records]):.0f}",
                    f"{1000 * np.mean(rates):.1f}" if rates else "-",
                    f"{records[0].get('parameters_without_embeddings', 0):,}",
                    f"{hardware.get('device', '-')} x{hardware.get('devices', '-')}, "
                    f"jax {hardware.get('jax', '-')}",
                    substitute_of(records[0]) or "no",
                ]
            )
    return analysis.render_table(headers, rows) if rows else NOT_RUN
