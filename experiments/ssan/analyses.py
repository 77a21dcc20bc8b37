"""Tables 6 and 7 and figures 2 to 6, which show the attention of finished runs; and a linear
reference for the probes.

An analysis is a function of a job (the options and the records of a command) and the name of a data
set. It writes a JSON file of results below the folder of the records, and figures also an image.
The other functions render the results.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.comparison import paragraphs
from experiments.core.curves import panels
from experiments.core.kinds import Json, Record, Records
from experiments.core.origins import NOT_RUN, columns
from experiments.core.paper import Job
from experiments.core.records import Store, read_json, refuse_other, write_json
from experiments.core.text import SPLITS, load_splits
from experiments.ssan import attention, neighbours, reported
from experiments.ssan.attention import GLUED, Encoder, Words
from experiments.ssan.config import BASE, FULL, bounded_name, local_name
from experiments.ssan.experiment import experiment
from experiments.ssan.sentences import sentences
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax._utils.terminal import say
from gatedjax.analysis import trees
from gatedjax.analysis._self_attention import DistanceCounts

Numbers = Json
"""The results of an analysis, as in its JSON file."""
TITLES = {BASE: "SAN", FULL: "SSAN, layer 1"}
NORMS: tuple[trees.Norm, ...] = ("rows", "area", "none")
BASELINES = ("left", "right", "balanced", "random")
GOLD = "gold trees of the English Web Treebank's test part"
MOST = 2_000
"""The number of test sentences, from the first, that figures 2 and 4 average over."""
SHOWN = range(8, 15)
"""The lengths, in words, of the sentences that figures 3, 5 and 6 choose from."""
PROBES = ("bshift", "tree_depth", "top_const")
FIGURES = {
    "figure2": "bshift",
    "figure3": "bshift",
    "figure4": "wrd_small",
    "figure5": "wrd_small",
    "figure6": "mt_multi30k",
}
"""The data set of each figure if the command names none."""


def for_each_data_set(
    analyse: Callable[[Job, str], None], then: Callable[[Job], None] = lambda job: None
) -> Callable[[Job], None]:
    """Returns a function that analyses each data set of a command. `then` is called with the job at
    the end. The function raises ValueError if the command names a data set twice."""

    def all_of_them(job: Job) -> None:
        repeated = [data for data, n in collections.Counter(job.data).items() if n > 1]
        if repeated:
            raise ValueError(f"--data must have different names, got {repeated[0]!r} twice")
        for data in job.data:
            analyse(job, data)
        then(job)

    return all_of_them


def uses_local_heads(job: Job, data: str) -> bool:
    """Returns whether an analysis reads the networks with local heads, which table 2 trains on
    BShift."""
    return data == "bshift" and job.options.local


def load_encoders(job: Job, data: str) -> dict[str, Encoder]:
    """Loads the encoders of seed 0 without a selector (`BASE`) and with one in layer 1 (`FULL`).
    Raises FileNotFoundError if a run has not finished."""
    use_local = uses_local_heads(job, data)
    trained = {role: local_name(role) if use_local else role for role in TITLES}
    return {
        role: attention.load_encoder(job.config(data, variant, 0), job.workdir(data, variant, 0))
        for role, variant in trained.items()
    }


def title_of(data: str, numbers: Numbers) -> str:
    """Returns the title of a data set, with a note if the networks have local heads."""
    ending = ", local heads and a linear head" if numbers.get("local") else ""
    return reported.NAMES.get(data, data) + ending


def file_of(store: Store, name: str, data: str) -> Path:
    """Returns the path of the results of an analysis."""
    return store.folder / "attention" / f"{name}-{data}.json"


def read_results(store: Store, name: str) -> list[tuple[str, Numbers]]:
    """Reads the results of an analysis on all data sets, in the order of their names."""
    paths = sorted((store.folder / "attention").glob(f"{name}-*.json"))
    return [(path.stem.removeprefix(f"{name}-"), read_json(path)) for path in paths]


def _save(job: Job, data: str, numbers: Numbers) -> str:
    """Writes the results of an analysis; only --rerun replaces different results. Returns the title
    of the data set, see `title_of`."""
    path = file_of(job.store, job.options.what, data)
    if uses_local_heads(job, data):
        # The title of a page needs it, and the file has no other trace of the networks.
        numbers["local"] = True
    previous = read_json(path) if path.exists() else None
    refuse_other(path, "result", previous, numbers, rerun=job.options.rerun)
    write_json(path, numbers)
    return title_of(data, numbers)


def figure_of(name: str, data: str) -> str:
    """Returns the name of the files of a figure, which includes any data set but the default."""
    return name if data == FIGURES[name] else f"{name}_{data}"


def _figure_stem(job: Job, data: str) -> Path:
    return job.store.folder / figure_of(job.options.what, data)


def treebank(options: Any, split: str = "test") -> Records:
    """Loads sentences of the English Web Treebank, with tags and constituents."""
    return list(load_splits("ewt_trees", options, [split])[split])


def gold_tree(example: Json) -> trees.SpanTree:
    """Returns the gold tree of an example, without labels."""
    spans = [(first, past) for first, past, _ in example["constituents"]]
    return trees.SpanTree.of(len(example["tokens"]), spans)


def _maps(
    options: Any, encoder: Encoder, texts: Sequence[Words], **attention_options: Any
) -> list[np.ndarray]:
    return attention.attention(
        encoder, texts, layer=options.layer, head=options.head, **attention_options
    )


def _tagged_maps(options: Any, encoder: Encoder, examples: Sequence[Any]) -> list[np.ndarray]:
    """Computes the attention between the words of tagged sentences. The tags mark the words that
    follow the previous word without a space."""
    glued = [[tag in GLUED for tag in example["tags"]] for example in examples]
    return _maps(options, encoder, [example["tokens"] for example in examples], glued=glued)


# Table 6 -----------------------------------------------------------------------------------------


def brackets(job: Job, data: str) -> None:
    """Scores trees from attention, and four trees that ignore the sentence, against gold trees."""
    examples = treebank(job.options)
    gold = [gold_tree(example) for example in examples]
    drop = [[tag in trees.PUNCTUATION for tag in example["tags"]] for example in examples]

    def scores(predicted: Sequence[trees.SpanTree]) -> list[float]:
        pairs = zip(gold, predicted, drop, strict=True)
        without_punctuation = [(true.without(out), tree.without(out)) for true, tree, out in pairs]
        return [round(value, 6) for value in trees.bracket_scores(without_punctuation)]

    numbers: Numbers = {"gold": GOLD, "sentences": len(gold), "layer": job.options.layer}
    for variant, encoder in load_encoders(job, data).items():
        weights = _tagged_maps(job.options, encoder, examples)
        for norm in NORMS:
            of_norm = [trees.from_attention(w, norm=norm) for w in weights]
            numbers[f"{variant}-{norm}"] = scores(of_norm)
    # The seed is fixed so that all runs of the command score the same random trees.
    generator = np.random.default_rng(0)
    makers: tuple[Callable[[int], trees.SpanTree], ...] = (
        trees.left_branching,
        trees.right_branching,
        trees.balanced,
        lambda size: trees.random_binary(size, generator),
    )
    for name, make in zip(BASELINES, makers, strict=True):
        numbers[name] = scores([make(tree.size) for tree in gold])
    _save(job, data, numbers)


def table6(store: Store) -> str:
    """Renders table 6, the scores of unlabelled brackets, as Markdown."""
    headings = ["attention of", "tree", "precision (%)", "recall (%)", "F1 (%)"]
    rows = [
        ["WMT14 En-De, paper", name, *(f"{pair[i]:.2f}" for pair in reported.TABLE6.values())]
        for i, name in enumerate(("SAN", "SSAN"))
    ]
    notes = []
    for data, numbers in read_results(store, "table6"):
        name = title_of(data, numbers)
        named = {
            f"{variant}-{norm}": f"{title}, mass by {norm}"
            for variant, title in TITLES.items()
            for norm in NORMS
        } | {tree: tree for tree in BASELINES}
        for key, title in named.items():
            rows.append([name, title, *(f"{100 * value:.2f}" for value in numbers[key])])
        notes.append(f"- {name}: {numbers['sentences']:,} sentences, {numbers['gold']}.")
    if not notes:
        rows.append(["ours", NOT_RUN, "-", "-", "-"])
    return paragraphs(analysis.render_table(headings, rows), "\n".join(notes))


# Table 7 -----------------------------------------------------------------------------------------


def tag_shares(job: Job, data: str) -> None:
    """Computes the shares of attention by the part of speech of the key, and writes them."""
    examples, note = tagged_sentences(job, data)
    numbers: Numbers = {"note": note, "sentences": len(examples), "layer": job.options.layer}
    for variant, encoder in load_encoders(job, data).items():
        mass = collections.Counter[str]()
        weights = _tagged_maps(job.options, encoder, examples)
        for sentence_weights, example in zip(weights, examples, strict=True):
            mass.update(attention.by_tag(sentence_weights, example["tags"]))
        numbers[variant] = {
            name: round(share, 6) for name, share in attention.shares_of(mass).items()
        }
    _save(job, data, numbers)


def tagged_sentences(job: Job, data: str) -> tuple[Records, str]:
    """Returns tagged sentences on which to run a network, and a note about their source. Tree depth
    and top constituents have test sentences of the treebank, with gold tags; other data sets borrow
    the test sentences of the treebank. Raises ValueError if the treebank contains no test sentence.
    """
    options = job.options
    if not data.startswith(("tree_depth", "top_const")):
        return treebank(options), f"{GOLD.replace('trees', 'tags')}, not the network's own text"
    # The test sentences of a probe may come from any part of the treebank.
    tags = {
        example["tokens"]: example["tags"]
        for split in SPLITS
        for example in treebank(options, split)
    }
    texts = [tuple(example["tokens"]) for example in _test_examples(job, data)]
    tagged = [{"tokens": words, "tags": tags[words]} for words in texts if words in tags]
    if not tagged:
        raise ValueError(f"{data} must have a test sentence in the treebank, got none with tags")
    return tagged, f"gold tags of {len(tagged):,} of {len(texts):,} test sentences"


def _test_examples(job: Job, data: str) -> gdata.Source:
    return sentences(job.config(data, FULL, 0)).splits["test"].source


def table7(store: Store) -> str:
    """Renders table 7, attention by part of speech, as Markdown."""
    ours = read_results(store, "table7")

    def origins(data: str) -> tuple[str, str]:
        return columns([*store.all(data, BASE), *store.all(data, FULL)])

    headings = ["class"]
    for data in reported.TABLE7_DATA:
        of = f"{reported.NAMES[data]}, {origins(data)[0]}"
        headings += [f"{of}: {name}" for name in ("SAN", "SSAN")]
    for data, numbers in ours:
        of = title_of(data, numbers) + origins(data)[1].removeprefix("ours")
        headings += [f"{of}: {name}" for name in ("SAN", "SSAN", "change (%)")]
    rows = []
    for name, quoted in reported.TABLE7.items():
        row = [name, *(f"{value:.3f}" for pair in quoted for value in pair)]
        for _, numbers in ours:
            san, ssan = numbers[BASE][name], numbers[FULL][name]
            # A class without attention has no relative change.
            change = f"{100 * (ssan - san) / san:+.1f}" if san else "-"
            row += [f"{san:.3f}", f"{ssan:.3f}", change]
        rows.append(row)
    notes = [f"- {title_of(data, numbers)}: {numbers['note']}." for data, numbers in ours]
    table = analysis.render_table(headings, rows)
    return paragraphs(table, "\n".join(notes) or f"Ours: {NOT_RUN}.")


# Figures -----------------------------------------------------------------------------------------


def distances(job: Job, data: str) -> None:
    """Draws figures 2 and 4, attention over the distance of query and key, and writes the shares.
    Without the work folders of the networks, the figure is drawn from shares that an earlier
    command wrote for the same layer and the same networks."""
    path = file_of(job.store, job.options.what, data)
    try:
        encoders = load_encoders(job, data)
    except FileNotFoundError:
        numbers = read_json(path) if path.exists() else {}
        settings = (numbers.get("layer"), numbers.get("local", False))
        is_recorded = settings == (job.options.layer, uses_local_heads(job, data))
        # The file has no head, so it answers only for the mean over heads.
        if not is_recorded or job.options.head is not None or job.options.rerun:
            raise
        say(f"the networks are not in {job.options.runs}; {path} has their shares")
    else:
        numbers = _distance_shares(job, data, encoders)
        _save(job, data, numbers)
    # With a single query, the attention masses are the shares. The plot does not read the pairs.
    num_queries = min(numbers["sentences"], 1)
    counts = {}
    for variant, name in TITLES.items():
        mass = np.asarray(numbers[variant]["shares"])
        counts[name] = DistanceCounts(mass, np.ones(len(mass), int), num_queries, empty=0)
    title = f"How far does attention reach? ({title_of(data, numbers)})"
    analysis.plot_distances(counts, _figure_stem(job, data), title=title)


def _distance_shares(job: Job, data: str, encoders: dict[str, Encoder]) -> Numbers:
    """Computes the shares of attention by distance over the first test sentences."""
    texts = [example["tokens"] for example in _test_examples(job, data)[:MOST]]
    numbers: Numbers = {"sentences": len(texts), "layer": job.options.layer}
    for variant, encoder in encoders.items():
        total = analysis.distance_counts(np.zeros((0, 1, 1)), np.zeros(0, int))
        for weights in _maps(job.options, encoder, texts):
            # A sentence without words has no attention to count.
            if len(weights):
                total += analysis.distance_counts(weights[None], [len(weights)])
        numbers[variant] = {
            "shares": [round(float(x), 6) for x in total.shares()],
            "per_neighbour": [round(float(x), 6) for x in total.per_neighbour()],
            "empty_rate": round(total.empty_rate, 6),
        }
    return numbers


def heat_maps(job: Job, data: str) -> None:
    """Draws figures 3 and 5, the attention within a sentence with changed order. Raises ValueError
    if the order of the sentences of a data set was not changed."""
    if not all(name.startswith(("bshift", "wrd")) for name in job.data):
        figure = job.options.what
        raise ValueError(
            f"--data must be reordered sentences (bshift, wrd) for {figure}, got "
            f"{', '.join(job.data)}"
        )
    source = _test_examples(job, data)
    names = source.info.class_names
    short = [example for example in source if len(example["tokens"]) in SHOWN]
    # Sentences of BShift have no position of the move, but the label "I" if words were swapped.
    moved = [x for x in short if "insert" in x or names[x["label"]] == "I"]
    example = _choose_sentence(job.options, moved)
    words = example["tokens"]
    panels = {
        TITLES[variant]: _maps(job.options, encoder, [words])[0]
        for variant, encoder in load_encoders(job, data).items()
    }
    weights = {name: np.round(panel, 4).tolist() for name, panel in panels.items()}
    title = _save(job, data, {"words": list(words), "weights": weights})
    analysis.plot_attention(
        words,
        panels,
        _figure_stem(job, data),
        f"{title}, layer {job.options.layer}",
        marked=[example["insert"], example["original"]] if "insert" in example else [],
    )


def _choose_sentence(options: Any, examples: Sequence[Record]) -> Json:
    if not 0 <= options.sentence < len(examples):
        raise ValueError(f"sentence must be in [0, {len(examples)}), got {options.sentence}")
    return examples[options.sentence]


def tree_figure(job: Job, data: str) -> None:
    """Draws figure 6, the trees of a sentence, and writes their brackets."""
    short = [x for x in treebank(job.options) if len(x["tokens"]) in SHOWN]
    example = _choose_sentence(job.options, short)
    gold = gold_tree(example)
    # The gold tree comes first, because the panels are in the order of this dict.
    trees_of = {"gold": gold}
    for variant, encoder in load_encoders(job, data).items():
        (weights,) = _tagged_maps(job.options, encoder, [example])
        trees_of[TITLES[variant]] = trees.from_attention(weights)
    bracketed = {name: tree.bracketed(example["tokens"]) for name, tree in trees_of.items()}
    title = f"Trees from the attention of {_save(job, data, bracketed)}, layer {job.options.layer}"
    analysis.plot_trees(example["tokens"], trees_of, _figure_stem(job, data), title, gold=gold)


CURVES = "curves_"
"""The beginning of the names of files with learning curves; the data set follows."""
APART = bounded_name("")
"""The end of the names of networks with a bounded gradient, and of the name of their figure."""


def curves(job: Job, data: str) -> None:
    """Draws validation accuracy and the share of selected pairs for all networks that learned.
    Selectors with a bounded gradient get a second figure, together with the networks without a
    selector."""
    store = job.store
    learned = store.learned_records(data)
    bounded_names = {name for name in learned if name.endswith(APART)}
    standard = {name for name, (record, *_) in learned.items() if not record.get("selection_curve")}
    # Without bounded gradients the second figure has no networks and is not drawn.
    for ending, names in {
        "": learned.keys() - bounded_names,
        APART: bounded_names and bounded_names | standard,
    }.items():
        runs = {job.paper.variants[name].title: learned[name] for name in learned if name in names}
        if not runs:
            continue
        rates = {title: _selection_rates(records) for title, records in runs.items()}
        lines = panels(runs, "curve", {"validation accuracy": 2})
        lines |= panels(rates, "rate", {"selected pairs": 1})
        stem = store.folder / f"{CURVES}{data}{ending}"
        title = f"Encoders learn {reported.NAMES[data]}" + ", bounded gradients" * bool(ending)
        analysis.plot_lines(lines, stem, xlabel="step", title=title)
        say(f"wrote {stem}.png and .svg")


def _selection_rates(records: Records) -> Records:
    """Returns {"rate": points (step, share of selected pairs, share of empty queries)} for each
    record of a network with a single selective layer."""
    layers = [list(record.get("selection_curve", {}).values()) for record in records]
    return [{"rate": curves[0]} for curves in layers if len(curves) == 1]


def _link_lines(store: Store) -> Iterator[str]:
    for figure in FIGURES:
        ours = read_results(store, figure)
        if not ours:
            yield f"- {figure}: {NOT_RUN}."
        for data, numbers in ours:
            text = f"- [{figure}]({figure_of(figure, data)}.png): {title_of(data, numbers)}"
            # Only the results of figures 2 and 4 have shares by distance.
            if BASE in numbers and "shares" in numbers[BASE]:
                san, ssan = (100 * numbers[variant]["shares"][1] for variant in TITLES)
                empty = 100 * numbers[FULL]["empty_rate"]
                text += (
                    f"; at distance 1 {san:.1f} % (SAN) and {ssan:.1f} % (SSAN), "
                    f"{empty:.1f} % of SSAN's queries without a key"
                )
            yield text + "."
    for path in sorted(store.folder.glob(f"{CURVES}*.png")):
        data = path.stem.removeprefix(CURVES)
        subject = "all networks that learned their training data"
        if data.endswith(APART):
            subject = "selectors with a bounded gradient and of networks without a selector"
        elif path.with_stem(path.stem + APART).exists():
            subject += ", selectors with a bounded gradient apart"
        yield (
            f"- [{path.stem}]({path.name}): {reported.NAMES[data.removesuffix(APART)]}, validation "
            f"accuracy and selected pairs while training, of {subject}."
        )


def figures(store: Store) -> str:
    """Returns links to the figures, with the shares of attention at distance 1, as Markdown."""
    quoted = "The paper has {} % (SAN) and {} % (SSAN) at distance 1 on BShift."
    return "\n".join([*_link_lines(store), "", quoted.format(*reported.DISTANCE_ONE)])


# A linear reference ------------------------------------------------------------------------------


def linear_reference(job: Job, data: str) -> None:
    """Trains the linear classifier of neighbouring words on a probe, and writes its accuracy.
    Raises ValueError if a data set is not a probe."""
    if unsuitable := [name for name in job.data if name not in PROBES]:
        raise ValueError(
            f"--data must be among {', '.join(PROBES)} for neighbours, got {unsuitable[0]!r}"
        )
    _save(job, data, neighbours.train(experiment(job.config(data, FULL, 0))))


def linear_accuracy(store: Store, data: str) -> float | None:
    """Returns the accuracy of the linear classifier of neighbours, in percent; None without it."""
    path = file_of(store, "neighbours", data)
    return 100 * read_json(path, "test")["test"] if path.exists() else None
