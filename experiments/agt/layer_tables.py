"""Tables about the layers, from the record of the seed that is best in validation."""

import collections
import functools
from collections.abc import Callable, Iterator

import numpy as np

from experiments.agt import reported
from experiments.agt.reported import NAMES
from experiments.core.comparison import paragraphs
from experiments.core.kinds import Json
from experiments.core.paper import Table
from experiments.core.records import NOT_RUN, Record, Store, best
from gatedjax import analysis
from gatedjax.analysis import phrases

FULL = "agt"
"""The name of the records of the whole network."""
MEASURES = {
    "mass_low": "r in [0, 0.05) (%)",
    "mass_high": "r in [0.95, 1] (%)",
    "mean_run": "mean run",
    "mean_run_shuffled": "mean run, words shuffled",
    "mean_phrase": "mean phrase",
    "mean_phrase_shuffled": "mean phrase, words shuffled",
}
"""The observations per layer in a record, and their headings."""
TOP = 20
"""The number of words in the table of the first layer."""
Text = Callable[[Record, str], str]
"""A function of (record, data set) that renders a section."""


def best_run(store: Store, data: str) -> Record | None:
    """Returns the record that figures and lists show, or None."""
    return best(store.all(data, FULL))


def body(text: Text, data: str, store: Store) -> str:
    """Returns a section from the record of the best run on a data set; "not run" if there is no
    such record or it lacks the entry of the section, see `NEEDS`."""
    record = best_run(store, data)
    return text(record, data) if record is not None and record.get(NEEDS[text]) else NOT_RUN


def _seed(record: Record, data: str) -> str:
    return f"{NAMES[data]}, seed {record['seed']} (best in validation)."


def observations(record: Record, data: str) -> str:
    """Returns attention, lengths of runs and gates per layer."""
    layers = record["layers"]

    def cell(name: str, layer: int) -> str:
        value = layers[name][layer]
        if value is None:
            return "-"
        return f"{100 * value:.1f}" if name.startswith("mass") else f"{value:.2f}"

    # The first layer has no gate, because it only selects.
    gates = ["-", *(f"{gate:.3f}" for gate in layers["mean_gate"])]
    rows = [
        [f"L{i + 1}", *(cell(name, i) for name in MEASURES), gates[i]]
        for i in range(len(layers["mass_low"]))
    ]
    table = analysis.render_table(["layer", *MEASURES.values(), "mean gate"], rows)
    return paragraphs(_seed(record, data), table, "\n".join(_describe(layers)))


def _describe(layers: Json) -> Iterator[str]:
    """Yields a line of Markdown for each observation of the paper, with the result here. layers is
    the entry "layers" of a record, see `layers.summary`."""
    low, high = np.mean(layers["mass_low"]), np.mean(layers["mass_high"])
    yield (
        f"- Spikes at 0 and 1 (paper: figure 2, top): the outer twentieths hold "
        f"{100 * (low + high):.1f} % of the words on average over layers; even spread would be "
        "10 %. Rescaling alone puts one word of every sentence at each end."
    )
    # A layer that selects no word has no mean.
    runs = [value or 0.0 for value in layers["mean_run"]]
    order = sorted(range(len(runs)), key=lambda i: -runs[i])[:2]
    yield (
        f"- Longest phrases in the middle (paper: L8 and L9; figure 2, bottom): here the longest "
        f"runs are in {' and '.join(f'L{i + 1}' for i in order)}."
    )
    gates = layers["mean_gate"]
    if gates:
        least, most = int(np.argmin(gates)), int(np.argmax(gates))
        yield (
            f"- Gates near 0 in the middle layers (paper: figure 3): here the mean gate is "
            f"smallest in L{least + 2} ({gates[least]:.3f}) and largest in L{most + 2} "
            f"({gates[most]:.3f})."
        )


def first_words(record: Record, data: str) -> str:
    """Returns the words that the first layer selects most often."""
    ranked = enumerate(record["first_words"][:TOP], start=1)
    rows = [[str(rank), word, str(count)] for rank, (word, count) in ranked]
    lines = []
    for place, word in enumerate(reported.FIRST_WORDS, start=1):
        rank, count = record["paper_words"][word]
        ours = "never selected here" if rank is None else f"rank {rank} here ({count} times)"
        lines.append(f"- {word}: rank {place} in the paper, {ours}")
    table = analysis.render_table(["rank", "word", "times selected"], rows)
    return paragraphs(_seed(record, data), table, "\n".join(lines))


def words_of(example: Json, layer: int, threshold: float) -> list[str]:
    """Returns the words of an example that a layer selects, lower-cased, in their order. Words are
    split at hyphens, because a sentence of the paper is known with and without them. A word is
    selected if its rescaled attention is above `threshold`; layers count from 1."""
    attention = np.asarray(example["attention"])
    selected = np.flatnonzero(phrases.select(attention[layer - 1], threshold=threshold))
    # The paper's lists are in lower case.
    words = [example["tokens"][place].lower() for place in selected]
    return [part for word in words for part in (word.split("-") if len(word) > 1 else [word])]


def selected_words(record: Record, data: str) -> str:
    """Returns the words of the paper's layer at both thresholds, next to the paper's lists."""
    layer = min(reported.SELECTION_LAYER, len(record["examples"][0]["attention"]))
    rows = []
    for example in record["examples"]:
        number = example["number"] - 1
        strict, added = reported.SELECTED[number], reported.ADDED[number]
        # The relaxed list is compared as a bag, because the paper gives only the words that it
        # adds.
        lists = {
            reported.THRESHOLD: (strict, strict),
            reported.RELAXED: (f"and {added}", f"{strict} {added}"),
        }
        for threshold, (quoted, words) in lists.items():
            ours, theirs = words_of(example, layer, threshold), words.split()
            common = (collections.Counter(ours) & collections.Counter(theirs)).total()
            both = f"{common} of {len(ours)} (paper: {len(theirs)})"
            if data == "polarity":  # it has none of the paper's sentences
                quoted = both = "-"
            label = f"{example['label']}, {example['predicted']}"
            mine = " ".join(ours) or "none"
            rows.append([f"{number + 1}", label, f"{threshold:g}", quoted, mine, both])
    headings = ["sentence", "label, predicted", "r above", "paper", "ours", "in both"]
    table = analysis.render_table(headings, rows)
    return paragraphs(f"{_seed(record, data)} Layer {layer}.", table)


def trace(record: Record, data: str) -> str:
    """Returns the words of the third sentence, layer by layer."""
    example = next((example for example in record["examples"] if example["number"] == 3), None)
    if example is None:
        return NOT_RUN
    words = phrases.select(np.asarray(example["attention"]), threshold=reported.THRESHOLD)
    rows = []
    for step in phrases.trace(example["tokens"], words):
        number = step.layer + 1
        quoted = [text for (a, b), text in reported.TRACE.items() if a <= number <= b]
        row = [f"L{number}", " ".join(step.words) or "none", "; ".join(step.phrases) or "none"]
        rows.append([*row, quoted[0] if quoted and data != "polarity" else "-"])
    table = analysis.render_table(["layer", "words", "phrases", "paper"], rows)
    return paragraphs(_seed(record, data), table)


ORDER = (
    "The network reads a bag of words: the order changes neither prediction nor which words are "
    "selected, so a phrase is words that are selected each by itself and stand side by side. The "
    "shuffled columns are the same selections with the words of every sentence in random order."
)
NEEDS: dict[Text, str] = {
    observations: "layers",
    first_words: "first_words",
    selected_words: "examples",
    trace: "examples",
}
"""The entry of a record that each section renders."""
SECTIONS: tuple[tuple[str, Text, str], ...] = (
    ("Layers", observations, ORDER),
    (
        "First-layer words",
        first_words,
        "Words with r > 0.95 in the first layer over the test set, lower-cased.",
    ),
    (
        "Selected words",
        selected_words,
        "The sentences are compared as bags of words, and a hyphen separates two words.",
    ),
    (
        "Sentence 3, layer by layer",
        trace,
        "Words with r > 0.95; phrases are two or more of them side by side.",
    ),
)
"""Heading, text and note of the sections about the layers."""


def tables(store: Store) -> Iterator[Table]:
    """Yields the sections of the paper's data set and of each other data set with a record."""
    for data, name in NAMES.items():
        if data != reported.DATA and not store.all(data, FULL):
            continue
        where = "" if data == reported.DATA else f" ({name})"
        for title, text, note in SECTIONS:
            if data == "trec" and NEEDS[text] == "examples":
                continue  # questions have none of the example sentences
            yield Table(
                title=title + where,
                body=functools.partial(body, text, data),
                note=note,
                is_folded=bool(where) or text in (first_words, trace),
            )
