"""Tables of accuracy, from the records."""

from collections.abc import Iterator, Mapping

import numpy as np

from experiments.agt import paper, variants
from experiments.agt.cells import NAMES, milliseconds, parameters, percent
from experiments.agt.config import OPTIMIZERS
from experiments.agt.results import Store
from experiments.agt.variants import ablation_variant, optimizer_variant
from experiments.core.origins import beside, origin_of, other_data, substitute_of
from experiments.core.records import NOT_RUN, alive
from experiments.core.comparison import ONE_SEED, compare_all, holm_note, paragraphs, sentence
from gatedjax import analysis


def datasets(store: Store, *names: str) -> list[str]:
    """The paper's data set, and others that one of the variants was run on."""
    return [data for data in NAMES if data == paper.DATA or any(store.all(data, v) for v in names)]


def table1(store: Store) -> str:
    """SST-1 test accuracy beside the paper's own row and the rows that it quotes."""
    headers = ["system", "test accuracy (%)", "source"]
    rows = [
        [name, f"{value:.1f}", "quoted in the paper, not trained here"]
        for name, value in paper.QUOTED.items()
    ]
    rows.append(["AGT", f"{paper.ACCURACY:.1f}", "the paper's own"])
    ours = {"AGT": paper.DATA, "AGT, trained on sentences only": "sst1_sentences"}
    for name, data in ours.items():
        records = store.all(data, variants.FULL)
        if records or data == paper.DATA:
            whose = f"ours, on {origin_of(records[0])}" if other_data(records) else "ours"
            rows.append([name, percent(records, "test"), whose])
    return analysis.render_table(headers, rows)


def accuracy(store: Store) -> str:
    """AGT on every data set that it was run on."""
    headers = ["data", "trained on", "word vectors", "parameters without them"]
    headers += ["validation (%)", "test (%)", "test, last step (%)"]
    rows = []
    for data in datasets(store, variants.FULL):
        records = store.all(data, variants.FULL)
        trained = sorted({f"{r['train_n']:,} {r['train_on']}" for r in records if "train_n" in r})
        vectors = sorted(
            {f"{r['config']['data']['embeddings']}, {r['embedding_dim']}" for r in records}
        )
        row = [NAMES[data], ", ".join(trained) or "-", "; ".join(vectors) or "-"]
        row += [parameters(records)]
        row += [percent(records, part) for part in ("validation", "test", "test_last")]
        rows.append(row)
    return analysis.render_table(headers, rows)


def _compared(
    store: Store, networks: Mapping[str, str], quoted: Mapping[str, float], *, skip: bool = False
) -> str:
    """Variants beside the full AGT, with paired tests; then the tests in sentences.

    Args:
      store: the records.
      networks: names of the records, and how the table calls them.
      quoted: the paper's accuracy on SST-1 in percent.
      skip: leave out variants without a record.
    """
    headers = ["data", "network", "paper (%)", "validation (%)", "test (%)", "minus AGT"]
    headers += ["95 % interval", "bootstrap p", "McNemar p (each seed)", "parameters"]
    rows, sentences = [], []
    shown = [
        (data, variant)
        for data in datasets(store, *(v for v in networks if v != variants.FULL))
        for variant in networks
        if store.all(data, variant) or not skip
    ]
    pairs = {
        (data, variant): (store.all(data, variant), store.all(data, variants.FULL))
        for data, variant in shown
        if variant != variants.FULL
    }
    found = compare_all(pairs)
    for data, variant in shown:
        records, name, one = store.all(data, variant), networks[variant], found.get((data, variant))
        value = quoted.get(variant) if data == paper.DATA else None
        accuracies = [percent(records, part) for part in ("validation", "test")]
        cells = [*accuracies, *(["-"] * 4 if one is None else one.cells()), parameters(records)]
        if variant != variants.FULL:
            sentences.append(f"- {sentence(NAMES[data], name, 'AGT', one)}")
        known = ["-" if value is None else f"{value:.1f}"]
        for label, *rest in beside(NAMES[data], known, cells, records):
            rows.append([label, name, *rest])
    table = analysis.render_table(headers, rows)
    return paragraphs(table, "\n".join(sentences), holm_note(found))


def ablation(store: Store) -> str:
    """Without the selection vectors of later layers, and without attention at all."""
    names = {variant: name for variant, (name, _) in variants.ABLATIONS.items()}
    names[variants.HIGHWAY] += " (= plain highway network on s_0)"
    return _compared(store, names, {variants.FULL: paper.ACCURACY, **paper.ABLATION_ACCURACY})


def ablation_modes(store: Store) -> str:
    """The other readings of "remove s_i": what a layer takes instead."""
    names = {}
    for variant, (name, model) in variants.ABLATIONS.items():
        for mode in ("reuse_last_s", "zero") if "ablate_above" in model else ():
            names[ablation_variant(variant, mode)] = f"{name}; {mode}"
    if not any(store.all(data, variant) for data in NAMES for variant in names):
        return NOT_RUN
    return _compared(store, names, {}, skip=True)


def gate_bias(store: Store) -> str:
    """Biases of the gates at the start."""
    names = {variant: f"gate bias {bias:g}" for variant, bias in variants.GATE_BIASES.items()}
    return _compared(store, names, {variants.FULL: paper.ACCURACY})


def heads(store: Store) -> str:
    """One hidden layer before the class layer, or two."""
    layers = {1: "one hidden layer", 2: "two hidden layers"}
    names = {variant: layers[len(widths)] for variant, widths in variants.HEADS.items()}
    return _compared(store, names, {})


def optimizers(store: Store) -> str:
    """What the optimiser presets reach; then which is best in validation."""
    headers = ["data", "optimiser preset", "rule", "learning rate", "validation (%)", "test (%)"]
    headers += ["best step", "steps"]
    rows, sentences = [], []
    named = [f"agt_{name}" for name in OPTIMIZERS]
    for data in datasets(store, *named):
        reached: dict[str, float] = {}
        single: list[str] = []
        for name, optimizer in OPTIMIZERS.items():
            records = store.all(data, optimizer_variant(data, name))
            row = [NAMES[data], name, optimizer.name, f"{optimizer.learning_rate:g}"]
            row += [percent(records, part) for part in ("validation", "test")]
            row += [_each(record.get("best_step") for record in records)]
            rows.append([*row, _each(record.get("steps") for record in records)])
            values = [record["validation"]["accuracy"] for record in alive(records)]
            if values:
                reached[name] = float(np.mean(values))
            single += [name] if len(values) == 1 else []
        if len(reached) > 1 and single:
            names = f"{', '.join(single)}: " if len(single) < len(reached) else ""
            sentences.append(f"- {NAMES[data]}: {names}{ONE_SEED}.")
        elif len(reached) > 1:
            winner = max(reached, key=lambda name: reached[name])
            sentences.append(
                f"- {NAMES[data]}: {winner} reaches the best mean validation accuracy, "
                f"{100 * reached[winner]:.2f} %."
            )
    return analysis.render_table(headers, rows).rstrip() + "\n\n" + "\n".join(sentences)


def _each(values: Iterator) -> str:
    return ", ".join(str(value) for value in values if value is not None) or "-"


def provenance(store: Store) -> str:
    """What the numbers were made with: one line per group of equal runs."""
    headers = ["data", "variant", "seeds", "batch", "rule", "lr", "word vectors", "steps"]
    headers += ["best steps", "seconds", "ms per step", "hardware", "substitute"]
    rows = []
    for data in NAMES:
        for variant in store.variants(data):
            records = store.all(data, variant)
            config, hardware = records[0]["config"], records[0].get("hardware", {})
            optimizer = config["train"]["optimizer"]
            rows.append(
                [
                    NAMES[data],
                    variant,
                    _each(record["seed"] for record in records),
                    str(config["data"]["batch_size"]),
                    optimizer["name"],
                    f"{optimizer['learning_rate']:g}",
                    config["data"]["embeddings"],
                    _each(record.get("steps") for record in records),
                    _each(record.get("best_step") for record in records),
                    f"{np.mean([record.get('seconds', 0.0) for record in records]):.0f}",
                    milliseconds(records),
                    f"{hardware.get('device', '-')} x{hardware.get('devices', '-')}, "
                    f"jax {hardware.get('jax', '-')}",
                    substitute_of(records[0]) or "no",
                ]
            )
    return analysis.render_table(headers, rows)
