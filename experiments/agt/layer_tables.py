"""What the layers do, from the record of the seed that is best in validation."""

import collections
from typing import Any

import numpy as np

from experiments.agt import paper, variants
from experiments.agt.cells import NAMES
from experiments.agt.results import Store, best
from experiments.core.records import NOT_RUN
from gatedjax import analysis
from gatedjax.analysis import phrases

MEASURES = {
    "mass_low": "r in [0, 0.05) (%)",
    "mass_high": "r in [0.95, 1] (%)",
    "mean_run": "mean run",
    "mean_run_shuffled": "mean run, words shuffled",
    "mean_phrase": "mean phrase",
    "mean_phrase_shuffled": "mean phrase, words shuffled",
}
TOP = 20


def chosen(store: Store, data: str) -> dict[str, Any] | None:
    """The record that figures and lists show."""
    return best(store.all(data, variants.FULL))


def observations(store: Store, data: str) -> str:
    """Attention, lengths of runs and gates, per layer."""
    record = chosen(store, data)
    if record is None or not record.get("layers"):
        return NOT_RUN
    layers = record["layers"]
    rows = []
    for i in range(len(layers["mass_low"])):
        row = [f"L{i + 1}"]
        for name in MEASURES:
            value = layers[name][i]
            if value is None:
                row.append("-")
            else:
                row.append(f"{100 * value:.1f}" if name.startswith("mass") else f"{value:.2f}")
        # the first layer only selects
        row.append("-" if i == 0 else f"{layers['mean_gate'][i - 1]:.3f}")
        rows.append(row)
    text = analysis.render_table(["layer", *MEASURES.values(), "mean gate"], rows).rstrip()
    return f"{_seed(record, data)}\n\n{text}\n\n" + "\n".join(_read(layers))


def _seed(record: dict[str, Any], data: str) -> str:
    return f"{NAMES[data]}, seed {record['seed']} (best in validation)."


def _read(layers: dict[str, Any]) -> list[str]:
    """What the paper observes, and where it holds here."""
    low, high = np.mean(layers["mass_low"]), np.mean(layers["mass_high"])
    lines = [
        f"- Spikes at 0 and 1 (paper: figure 2, top): the outer twentieths hold "
        f"{100 * (low + high):.1f} % of the words on average over layers; even spread would be "
        "10 %. Rescaling alone puts one word of every sentence at each end."
    ]
    runs = [value if value is not None else 0.0 for value in layers["mean_run"]]
    order = sorted(range(len(runs)), key=lambda i: -runs[i])[:2]
    lines.append(
        f"- Longest phrases in the middle (paper: L8 and L9; figure 2, bottom): here the longest "
        f"runs are in {' and '.join(f'L{i + 1}' for i in order)}."
    )
    gates = layers["mean_gate"]
    if gates:
        least, most = int(np.argmin(gates)), int(np.argmax(gates))
        lines.append(
            f"- Gates near 0 in the middle layers (paper: figure 3): here the mean gate is "
            f"smallest in L{least + 2} ({gates[least]:.3f}) and largest in L{most + 2} "
            f"({gates[most]:.3f})."
        )
    return lines


def first_words(store: Store, data: str) -> str:
    """The words that the first layer selects most often."""
    record = chosen(store, data)
    if record is None or not record.get("first_words"):
        return NOT_RUN
    rows = [
        [str(rank), word, str(count)]
        for rank, (word, count) in enumerate(record["first_words"][:TOP], start=1)
    ]
    table = analysis.render_table(["rank", "word", "times selected"], rows)
    lines = []
    for place, word in enumerate(paper.FIRST_WORDS, start=1):
        rank, count = record["paper_words"][word]
        here = "never selected here" if rank is None else f"rank {rank} here ({count} times)"
        lines.append(f"- {word}: rank {place} in the paper, {here}")
    return f"{_seed(record, data)}\n\n{table.rstrip()}\n\n" + "\n".join(lines)


def words_of(example: dict[str, Any], layer: int, threshold: float) -> list[str]:
    """The words of an example that a layer (from 1) selects, lower-cased, in their order.

    Hyphens part words: one of the paper's sentences is known with and without.

    Raises:
      ValueError: if the network has no such layer.
    """
    attention = np.asarray(example["attention"])
    if not 1 <= layer <= len(attention):
        raise ValueError(f"layer must be one of {len(attention)}, got {layer}")
    chosen_words = phrases.select(attention[layer - 1], threshold=threshold)
    found = [example["tokens"][n].lower() for n in np.flatnonzero(chosen_words)]
    return [part for word in found for part in (word.split("-") if len(word) > 1 else [word])]


def _common(ours: list[str], theirs: list[str]) -> int:
    return sum((collections.Counter(ours) & collections.Counter(theirs)).values())


def selected(store: Store, data: str) -> str:
    """Words of the paper's layer at both thresholds, beside the paper's lists."""
    record = chosen(store, data)
    if record is None or not record.get("examples"):
        return NOT_RUN
    layer = min(paper.SELECTION_LAYER, len(record["examples"][0]["attention"]))
    headers = ["sentence", "label, predicted", "r above", "paper", "ours", "in both"]
    rows = []
    for example in record["examples"]:
        number = example["number"] - 1
        strict = paper.SELECTED[number].split()
        lists = {paper.THRESHOLD: strict, paper.RELAXED: strict + paper.ADDED[number].split()}
        for threshold, theirs in lists.items():
            ours = words_of(example, layer, threshold)
            row = [str(number + 1), f"{example['label']}, {example['predicted']}", f"{threshold:g}"]
            if data == "polarity":
                rows.append([*row, "-", " ".join(ours) or "none", "-"])
                continue
            both = f"{_common(ours, theirs)} of {len(ours)} (paper: {len(theirs)})"
            # the relaxed list as a bag: the paper says only what it adds
            shown = " ".join(theirs) if threshold == paper.THRESHOLD else (
                "and " + paper.ADDED[number]
            )  # fmt: skip
            rows.append([*row, shown, " ".join(ours) or "none", both])
    table = analysis.render_table(headers, rows).rstrip()
    return f"{_seed(record, data)} Layer {layer}.\n\n{table}"


def trace(store: Store, data: str) -> str:
    """The third sentence, layer by layer."""
    record = chosen(store, data)
    examples = {example["number"]: example for example in (record or {}).get("examples") or ()}
    if record is None or 3 not in examples:
        return NOT_RUN
    example = examples[3]
    attention = np.asarray(example["attention"])
    told = phrases.trace(example["tokens"], phrases.select(attention, threshold=paper.THRESHOLD))
    rows = []
    for one in told:
        number = one.layer + 1
        quoted = [text for (a, b), text in paper.TRACE.items() if a <= number <= b]
        row = [f"L{number}", " ".join(one.words) or "none", "; ".join(one.phrases) or "none"]
        rows.append([*row, quoted[0] if quoted and data != "polarity" else "-"])
    table = analysis.render_table(["layer", "words", "phrases", "paper"], rows).rstrip()
    return f"{_seed(record, data)}\n\n{table}"
