"""Tables of ours, from the records: widths, learning rates, forms, equal sizes."""

from experiments.core.records import NOT_RUN
from experiments.core.comparison import compare_all, holm_note, paragraphs
from experiments.rau import paper
from experiments.rau.cells import NAMES, cell_text, milliseconds, parameters
from experiments.rau.results import Store
from gatedjax import analysis


def other_settings(store: Store) -> str:
    """Table 1 at other widths of the state and other learning rates.

    Those that the paper tried on IMDB have a table of their own.
    """
    headers = ["data", "cell", "changed", "parameters", "validation", "test"]
    rates = paper.LEARNING_RATES.values()
    of_paper = {paper.rate_variant(cell, rate) for cell in paper.CELLS for rate in rates}
    rows = []
    for data in NAMES:
        for variant in store.variants(data):
            changed = _changed(variant)
            if changed is None or (data == "imdb" and variant in of_paper):
                continue
            records = store.all(data, variant)
            row = [NAMES[data], *changed, parameters(records)]
            row += [cell_text(records, part, data) for part in ("validation", "test")]
            rows.append(row)
    if not rows:
        rows = [["MNIST", "RAU", "width 28", "-", NOT_RUN, NOT_RUN]]
    return analysis.render_table(headers, rows)


def _changed(variant: str) -> tuple[str, str] | None:
    """The cell of a variant and the setting that it changes, or None for other variants."""
    for cell, name in paper.CELLS.items():
        for mark, setting in (("hidden", "width"), ("lr", "learning rate")):
            value = variant.removeprefix(f"{cell}_{mark}")
            if value != variant:
                return name, f"{setting} {value}"
    return None


def learning_rates(store: Store) -> str:
    """IMDB at the learning rates that the paper tried."""
    headers = ["learning rate", "cell", "validation accuracy", "test accuracy"]
    rows = []
    for known, rate in paper.LEARNING_RATES.items():
        for cell, name in paper.CELLS.items():
            records = store.all("imdb", paper.rate_variant(cell, rate))
            row = [cell_text(records, part, "imdb") for part in ("validation", "test")]
            rows.append([known, name, *row])
    return analysis.render_table(headers, rows)


def variants(store: Store) -> str:
    """Forms of the attention."""
    headers = ["data", "attention", "rescale", "parameters", "validation", "test"]
    headers += ["minus feature_proj", "bootstrap p", "ms per step"]
    rows = []
    plain = next(iter(paper.variants_of("feature_proj")))
    shown = [d for d in NAMES if d == "mnist" or any(_forms(store, d))]
    found = compare_all(
        {
            (data, variant): (store.all(data, variant), store.all(data, plain))
            for data in shown
            for form in paper.FORMS
            for variant in paper.variants_of(form)
            if variant != plain
        }
    )
    for data in shown:
        for form in paper.FORMS:
            for variant, model in paper.variants_of(form).items():
                records = store.all(data, variant)
                row = [NAMES[data], form, "yes" if model.get("rescale") else "no"]
                row += [parameters(records)]
                row += [cell_text(records, part, data) for part in ("validation", "test")]
                one = found.get((data, variant))
                cells = ["-"] * 3 if one is None else one.cells(points=False, seeds=False)
                rows.append([*row, cells[0], cells[2], milliseconds(records)])
    return paragraphs(analysis.render_table(headers, rows), holm_note(found))


def _forms(store: Store, data: str) -> list[str]:
    return [v for v in store.variants(data) if v.startswith("attention_")]


def matched(store: Store) -> str:
    """Cells with as many parameters as the GRU."""
    headers = ["data", "cell", "width", "parameters", "validation", "test", "minus GRU"]
    headers += ["95 % interval", "bootstrap p"]
    rows = []
    known = ("mnist", "fashion_mnist")
    shown = [d for d in NAMES if d in known or store.all(d, "rau_matched")]
    found = compare_all(
        {
            (data, variant): (store.all(data, variant), store.all(data, "gru"))
            for data in shown
            for variant in ("rau_matched", "lstm_matched")
        }
    )
    for data in shown:
        for variant in ("gru", "rau_matched", "lstm_matched"):
            records = store.all(data, variant)
            widths = {r["config"]["model"]["hidden"] for r in records}
            row = [NAMES[data], paper.CELLS[variant.removesuffix("_matched")]]
            row += [", ".join(map(str, sorted(widths))) or "-", parameters(records)]
            row += [cell_text(records, part, data) for part in ("validation", "test")]
            one = found.get((data, variant))
            if one is None:
                rows.append([*row, "-", "-", "-"])
            else:
                rows.append([*row, *one.cells(points=False, seeds=False, digits=4)[:3]])
    return paragraphs(analysis.render_table(headers, rows), holm_note(found))
