"""Tables of accuracy, from the records."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.core.origins import columns, origin_of, other_data, substitute_of
from experiments.core.records import NOT_RUN
from experiments.core.comparison import compare_all, holm_note, paragraphs, sentence
from experiments.ga_reader import paper
from experiments.ga_reader.cells import (
    Pair,
    milliseconds,
    one_sided_texts,
    parameters,
    percent,
    quoted,
)
from experiments.ga_reader.results import Store
from experiments.ga_reader.variants import VARIANTS, base_of, feature_of, of_table, with_fraction
from gatedjax import analysis

QUOTED = "quoted in the paper, not trained here"


def accuracies(
    store: Store,
    data: Sequence[str],
    others: Mapping[str, Mapping[str, paper.Pair]],
    readers: Sequence[str],
) -> str:
    """Tables 1 and 3: quoted rows, then the paper's own and ours, one below the other.

    Args:
      store: the records.
      data: the columns.
      others: rows of other papers.
      readers: names of our variants.
    """
    headers = ["model"]
    for name in data:
        headers += [f"{paper.NAMES[name]}: validation", "test"]
    headers.append("source")
    rows, others_rows = [], []
    for model, values in others.items():
        cells = [cell for name in data for cell in quoted(values.get(name))]
        rows.append([model, *cells, QUOTED])
    for variant in readers:
        known = paper.OWN.get(variant, {})
        label = VARIANTS[variant].name
        rows.append([label, *(c for n in data for c in quoted(known.get(n))), "the paper's own"])
        ours = []
        for name in data:
            records = store.all(name, variant)
            cells = [percent(records, "validation"), percent(records, "test")]
            if other_data(records):
                # another test set: not in the paper's column
                shown = [paper.NAMES[name], label, *cells, origin_of(records[0])]
                others_rows.append(shown)
                cells = [NOT_RUN, NOT_RUN]
            ours += cells
        rows.append([label, *ours, "ours"])
    table = analysis.render_table(headers, rows)
    if not others_rows:
        return table
    others_table = analysis.render_table(
        ["questions in the form of", "model", "validation", "test", "questions of ours"],
        others_rows,
    )
    return paragraphs(
        table,
        "Ours on other questions than the published ones, which no number above is of:",
        others_table,
    )


def table1(store: Store) -> str:
    """Who-did-What."""
    return accuracies(store, paper.WDW, paper.QUOTED_WDW, of_table("table1", "wdw"))


def table3(store: Store) -> str:
    """CNN, Daily Mail and CBT."""
    return accuracies(store, paper.CLOZE, paper.QUOTED_CLOZE, of_table("table3", "cbt_ne"))


def compared(
    store: Store,
    data: str,
    base: str,
    readers: Sequence[str],
    notes: Mapping[str, str] | None = None,
    more: Mapping[str, Pair] | None = None,
    quotes: Sequence[str] = (),
) -> str:
    """Readers beside one of them, with paired tests; then the tests in sentences.

    Args:
      store: the records.
      data: the data set.
      base: the reader that the others are compared with.
      readers: the rows.
      notes: sentences about more one-sided tests, by their name.
      more: the readers of those tests.
      quotes: what the paper says about the readers.
    """
    notes, more = notes or {}, more or {}
    full = store.all(data, base)
    every = {variant: store.all(data, variant) for variant in readers}
    theirs, mine = columns([record for found in every.values() for record in found])
    headers = ["reader", f"{theirs}: validation", "test", f"{mine}: validation (%)", "test (%)"]
    headers += ["base minus reader", "95 % interval", "bootstrap p"]
    headers += ["McNemar p, one-sided, each seed (only base right : only reader)", "parameters"]
    others = {variant: (full, every[variant]) for variant in readers if variant != base}
    found, single = compare_all(others), one_sided_texts({**others, **more})
    rows, sentences = [], []
    for variant, records in every.items():
        label = VARIANTS[variant].name
        row = [f"{label} (base)" if variant == base else label]
        row += quoted(paper.OWN.get(variant, {}).get(data))
        row += [percent(records, "validation"), percent(records, "test")]
        one = found.get(variant)
        if variant != base:
            name = VARIANTS[base].name
            sentences.append(f"- {sentence(paper.NAMES[data], name, label, one)}")
        row += ["-"] * 4 if one is None else [*one.cells()[:3], single[variant]]
        rows.append([*row, parameters(records)])
    sentences += [f"- {text}: {single[name]}." for name, text in notes.items()]
    sentences += [f"- {text}" for text in quotes]
    origins = {origin_of(record) for records in every.values() for record in records}
    if mine != "ours":
        sentences += [f"- {paper.NAMES[data]}: ours are {one}." for one in sorted(origins)]
    table = analysis.render_table(headers, rows)
    return paragraphs(table, "\n".join(sentences), holm_note(found))


def table2(store: Store, data: str) -> str:
    """Gating functions and hops."""
    quote = f"K = 1 in the paper is {paper.K1_QUOTED:.0f} on the test set: {QUOTED}."
    quotes = (quote,) if data == "wdw" else ()
    return compared(store, data, base_of(data), of_table("table2", data), quotes=quotes)


def table4(store: Store, data: str) -> str:
    """Ablations."""
    return compared(store, data, base_of(data), of_table("table4", data))


def cbt(store: Store, data: str) -> str:
    """The readers of tables 2 and 4 at one budget, and the feature."""
    base, feature = (store.all(data, name) for name in (base_of(data), feature_of(data)))
    return compared(
        store,
        data,
        base_of(data),
        of_table("cbt", data),
        {"feature": "The feature helps: McNemar p, one-sided, of each seed"},
        {"feature": (feature, base)},
    )


def toy(store: Store) -> str:
    """Two hops and one on questions that take two facts."""
    return compared(store, "toy", base_of("toy"), of_table("toy", "toy"))


def figure2(store: Store, data: str) -> str:
    """With and without gating on shares of the training questions."""
    headers = ["feature", "training share (%)", "training questions", "no gating: test (%)"]
    headers += [
        "gating: test (%)",
        "McNemar p, one-sided, each seed (only gating right : only none)",
    ]
    headers += ["p in the paper"]
    rows, pairs = [], {}
    for feature in (False, True):
        own = feature_of(data) if feature else base_of(data)
        plain = "feature_no_gating" if feature else "no_gating"
        for share in paper.FRACTIONS:
            names = with_fraction(own, share), with_fraction(plain, share)
            pairs[feature, share] = store.all(data, names[0]), store.all(data, names[1])
    p_values = one_sided_texts(pairs)
    for feature in (False, True):
        for share in paper.FRACTIONS:
            gated, bare = pairs[feature, share]
            sizes = sorted({r["train_n"] for r in (*gated, *bare)})
            known = paper.FIGURE2_P.get((data, feature), {}).get(share, "-")
            row = ["yes" if feature else "no", str(share)]
            row += [", ".join(f"{size:,}" for size in sizes) or "-"]
            row += [percent(bare, "test"), percent(gated, "test"), p_values[feature, share]]
            rows.append([*row, known])
    return analysis.render_table(headers, rows)


def provenance(store: Store) -> str:
    """What the numbers were made with: one line per group of equal runs."""
    headers = ["data", "reader", "seeds", "training questions", "batch", "H", "K", "lr"]
    headers += ["word vectors (found)", "steps", "best steps", "per epoch", "seconds"]
    headers += ["ms per step", "hardware", "substitute"]
    rows = []
    for data in paper.NAMES:
        for variant in store.variants(data):
            records = store.all(data, variant)
            config, hardware = records[0]["config"], records[0].get("hardware", {})
            model, coverage = config["model"], records[0].get("embedding_coverage")
            found = "" if coverage is None else f" ({100 * coverage:.1f} %)"
            rows.append(
                [
                    paper.NAMES[data],
                    variant,
                    ", ".join(str(record["seed"]) for record in records),
                    f"{records[0]['train_n']:,}",
                    str(config["data"]["batch_size"]),
                    str(model["hidden"]),
                    str(model["hops"]),
                    f"{config['train']['optimizer']['learning_rate']:g}",
                    f"{config['data']['embeddings']}{found}",
                    ", ".join(str(record["steps"]) for record in records),
                    ", ".join(str(record["best_step"]) for record in records),
                    f"{records[0]['steps_per_epoch']:,}",
                    f"{np.mean([record['seconds'] for record in records]):.0f}",
                    milliseconds(records),
                    f"{hardware.get('device', '-')} x{hardware.get('devices', '-')}, "
                    f"jax {hardware.get('jax', '-')}",
                    substitute_of(records[0]) or "no",
                ]
            )
    return analysis.render_table(headers, rows) if rows else NOT_RUN
