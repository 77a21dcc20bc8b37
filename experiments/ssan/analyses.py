"""Tables 6 and 7 and figures 2 to 6, what the attention of finished runs looks like; and a linear
reference."""

import collections
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.records import read_json, refuse_other, write_json
from experiments.ssan import attention
from experiments.ssan.attention import GLUED, Encoder, Words
from experiments.ssan.cells import NAMES
from experiments.ssan.results import Store
from experiments.ssan.variants import BASE, FULL, VARIANTS
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.analysis import trees

NORMS: tuple[trees.Norm, ...] = ("rows", "area", "none")
GOLD = "gold trees of the English Web Treebank's test part"
MOST = 2_000
"""Sentences that figures 2 and 4 look at."""
SHOWN = range(8, 15)
"""Words of a sentence that figures show."""
PROBES = ("bshift", "tree_depth", "top_const")
DATA: dict[str, tuple[str, ...]] = {
    "table6": ("mt_multi30k",),
    "table7": ("tree_depth", "top_const", "mt_multi30k"),
    "figure2": ("bshift",),
    "figure3": ("bshift",),
    "figure4": ("wrd_small",),
    "figure5": ("wrd_small",),
    "figure6": ("mt_multi30k",),
    "neighbours": PROBES,
}
"""What each looks into, if the command names no data."""


def encoders(options: Any, data: str) -> dict[str, Encoder]:
    """The networks without and with a selector in layer 1, of seed 0."""
    from experiments.ssan.tables import run_config

    found = {}
    for variant in (BASE, FULL):
        config = run_config(options, data, 0, **VARIANTS[variant][1])
        workdir = options.runs / f"{data}-{variant}-seed0"
        found[variant] = attention.load_encoder(config, workdir)
    return found


def file_of(store: Store, what: str, data: str) -> Path:
    """Where the numbers of an analysis are."""
    return store.folder / "attention" / f"{what}-{data}.json"


def _save(options: Any, path: Path, found: Any) -> None:
    """Writes the numbers of an analysis; those of another one only give way to --rerun."""
    known = read_json(path) if path.exists() else None
    refuse_other(path, "result", known, found, rerun=options.rerun)
    write_json(path, found)


def figure_of(what: str, data: str) -> str:
    """The name of a figure's files: data other than the figure's own have files of their own."""
    return what if data == DATA[what][0] else f"{what}_{data}"


def treebank(options: Any, split: str = "test") -> list[dict[str, Any]]:
    """The sentences of the English Web Treebank, with tags and constituents."""
    return list(
        gdata.load("ewt_trees", split, data_dir=options.data_dir, manual_dir=options.manual_dir)
    )


def glue(tags: Sequence[str]) -> list[bool]:
    """Which words of a tagged sentence no space stands before."""
    return [tag in GLUED for tag in tags]


def gold_tree(example: dict[str, Any]) -> trees.SpanTree:
    """The gold tree of an example, without labels."""
    spans = [(first, past) for first, past, _ in example["constituents"]]
    return trees.SpanTree.of(len(example["tokens"]), spans)


def table6(options: Any, store: Store, data: str) -> None:
    """Bracket scores of trees from attention, and of the four trees that know nothing."""
    examples = treebank(options)
    gold = [gold_tree(example) for example in examples]
    drop = [[tag in trees.PUNCTUATION for tag in example["tags"]] for example in examples]

    def scores(predicted: Sequence[trees.SpanTree]) -> list[float]:
        counts = trees.BracketCounts()
        for true, tree, out in zip(gold, predicted, drop, strict=True):
            counts += trees.bracket_counts(true, tree, drop=out)
        return [round(value, 6) for value in counts.value()]

    found: dict[str, Any] = {"gold": GOLD, "sentences": len(gold), "layer": options.layer}
    for variant, encoder in encoders(options, data).items():
        weights = _weights(options, encoder, examples)
        for norm in NORMS:
            found[f"{variant}-{norm}"] = scores(
                [trees.from_attention(w, norm=norm) for w in weights]
            )
    generator = np.random.default_rng(0)
    baselines: dict[str, Callable[[int], trees.SpanTree]] = {
        "left": trees.left_branching,
        "right": trees.right_branching,
        "balanced": trees.balanced,
        "random": lambda size: trees.random_binary(size, generator),
    }
    for name, make in baselines.items():
        found[name] = scores([make(tree.size) for tree in gold])
    _save(options, file_of(store, "table6", data), found)


def _weights(options: Any, encoder: Encoder, examples: Sequence[dict[str, Any]]) -> Any:
    return attention.attention(
        encoder,
        [example["tokens"] for example in examples],
        glued=[glue(example["tags"]) for example in examples],
        layer=options.layer,
        head=options.head,
    )


def table7(options: Any, store: Store, data: str) -> None:
    """Shares of attention by part of speech."""
    examples, note = tagged_sentences(options, data)
    found: dict[str, Any] = {"note": note, "sentences": len(examples), "layer": options.layer}
    for variant, encoder in encoders(options, data).items():
        counts = analysis.TagCounts(dict.fromkeys(analysis.TAG_CLASSES, 0.0))
        for weights, example in zip(_weights(options, encoder, examples), examples, strict=True):
            counts += analysis.tag_counts(weights, example["tags"])
        found[variant] = {name: round(share, 6) for name, share in counts.shares().items()}
    _save(options, file_of(store, "table7", data), found)


def tagged_sentences(options: Any, data: str) -> tuple[list[dict[str, Any]], str]:
    """Sentences with tags to look at the attention of a network with: its own where they have."""
    if not data.startswith(("tree_depth", "top_const")):
        return treebank(options), f"{GOLD.replace('trees', 'tags')}, not the network's own text"
    tags = {
        example["tokens"]: example["tags"]
        for split in ("train", "validation", "test")
        for example in treebank(options, split)
    }
    own = _test_sentences(options, data)
    known = [{"tokens": words, "tags": tags[tuple(words)]} for words in own if tuple(words) in tags]
    if not known:
        raise ValueError(f"{data}: no test sentence is in the treebank, so none has tags")
    note = f"gold tags of {len(known):,} of {len(own):,} test sentences"
    return known, note


def _test_sentences(options: Any, data: str) -> list[Words]:
    return [example["tokens"] for example in _test_examples(options, data)]


def _test_examples(options: Any, data: str) -> list[dict[str, Any]]:
    from experiments.ssan.config import ProbeConfig
    from experiments.ssan.tables import run_config

    config: Any = run_config(options, data, 0)
    if isinstance(config, ProbeConfig):
        from experiments.ssan.probes import prepare as probes

        return list(probes(config.data).splits["test"].source)
    from experiments.ssan.reordering import prepare as reordering

    return list(reordering(config.data).splits["test"].source)


def distances(options: Any, store: Store, data: str) -> None:
    """Figures 2 and 4: attention over the distance of query and key."""
    sentences = _test_sentences(options, data)[:MOST]
    counts = {}
    found: dict[str, Any] = {"sentences": len(sentences), "layer": options.layer}
    for variant, encoder in encoders(options, data).items():
        maps = attention.attention(encoder, sentences, layer=options.layer, head=options.head)
        total = _distance_counts(maps)
        counts[VARIANTS[variant][0]] = total
        found[variant] = {
            "shares": [round(float(x), 6) for x in total.shares()],
            "per_neighbour": [round(float(x), 6) for x in total.per_neighbour()],
            "empty_rate": round(total.empty_rate, 6),
        }
    _save(options, file_of(store, options.what, data), found)
    path = store.folder / figure_of(options.what, data)
    analysis.plot_distances(counts, path, title=NAMES.get(data, data))


def _distance_counts(maps: Sequence[np.ndarray]) -> analysis.DistanceCounts:
    total = analysis.distance_counts(np.zeros((0, 1, 1)), np.zeros(0, int))
    for weights in maps:
        if len(weights):
            total += analysis.distance_counts(weights[None], [len(weights)])
    return total


def heat_maps(options: Any, store: Store, data: str) -> None:
    """Figures 3 and 5: attention of one sentence whose order was changed."""
    examples = _test_examples(options, data)
    changed = [
        example
        for example in examples
        if len(example["tokens"]) in SHOWN and ("insert" in example or _inverted(options, example))
    ]
    example = _one(options, changed)
    words = example["tokens"]
    panels = {
        VARIANTS[variant][0]: attention.attention(
            encoder, [words], layer=options.layer, head=options.head
        )[0]
        for variant, encoder in encoders(options, data).items()
    }
    found = {name: np.round(weights, 4).tolist() for name, weights in panels.items()}
    _save(options, file_of(store, options.what, data), {"words": list(words), "weights": found})
    marked = [example["insert"], example["original"]] if "insert" in example else []
    analysis.plot_attention(
        words,
        panels,
        store.folder / figure_of(options.what, data),
        f"{NAMES.get(data, data)}, layer {options.layer}",
        marked=marked,
    )


def _inverted(options: Any, example: dict[str, Any]) -> bool:
    from experiments.ssan.probes import prepare
    from experiments.ssan.tables import run_config

    info = prepare(run_config(options, "bshift", 0).data).splits["test"].info
    return info.class_names[example["label"]] == "I"


def _one(options: Any, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not 0 <= options.sentence < len(examples):
        raise ValueError(f"sentence must be in [0, {len(examples)}), got {options.sentence}")
    return examples[options.sentence]


def tree_figure(options: Any, store: Store, data: str) -> None:
    """Figure 6: the trees of one sentence."""
    example = _one(options, [x for x in treebank(options) if len(x["tokens"]) in SHOWN])
    gold = gold_tree(example)
    drawn = {"gold": gold}
    for variant, encoder in encoders(options, data).items():
        (weights,) = _weights(options, encoder, [example])
        drawn[VARIANTS[variant][0]] = trees.from_attention(weights)
    found = {name: tree.bracketed(example["tokens"]) for name, tree in drawn.items()}
    _save(options, file_of(store, options.what, data), found)
    analysis.plot_trees(
        example["tokens"],
        drawn,
        store.folder / figure_of(options.what, data),
        f"Trees from the attention of {NAMES.get(data, data)}, layer {options.layer}",
        gold=gold,
    )


def linear_reference(options: Any, store: Store, data: str) -> None:
    """How many labels pairs of neighbouring words tell."""
    from experiments.ssan import neighbours
    from experiments.ssan.families import build
    from experiments.ssan.tables import run_config

    found = neighbours.train(build(run_config(options, data, 0)))
    _save(options, file_of(store, "neighbours", data), found)


ANALYSES: dict[str, Callable[[Any, Store, str], None]] = {
    "table6": table6,
    "table7": table7,
    "figure2": distances,
    "figure3": heat_maps,
    "figure4": distances,
    "figure5": heat_maps,
    "figure6": tree_figure,
    "neighbours": linear_reference,
}


def analyse(options: Any, store: Store) -> None:
    """Runs the analysis that the command names, for every data set that it names.

    Raises:
      FileNotFoundError: if a run is not finished.
      ValueError: if a table's data have no such analysis.
    """
    wanted = options.data or DATA[options.what]
    repeated = [d for d, n in collections.Counter(wanted).items() if n > 1]
    if repeated:
        raise ValueError(f"--data names {repeated[0]} twice")
    reordered = all(data.startswith(("bshift", "wrd")) for data in wanted)
    if options.what in ("figure3", "figure5") and not reordered:
        raise ValueError(f"{options.what} shows sentences whose order was changed, got {wanted}")
    if options.what == "neighbours" and (others := [x for x in wanted if x not in PROBES]):
        raise ValueError(f"neighbours is for the probes {', '.join(PROBES)}, got {others[0]}")
    for data in wanted:
        ANALYSES[options.what](options, store, data)
