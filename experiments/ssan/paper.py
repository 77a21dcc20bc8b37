"""SSAN: Geng et al., "How Does Selective Mechanism Improve Self-Attention Networks?" (2020)."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from experiments.core import cli, columns
from experiments.core import paper as core
from experiments.core.claims import Case, case_of, untested
from experiments.core.comparison import TEST, Comparison, paragraphs, sentence, test_note
from experiments.core.config import Changes, with_changes
from experiments.core.kinds import Json, Record, Records
from experiments.core.origins import NOT_RUN, beside
from experiments.core.origins import columns as origins
from experiments.core.records import LAST, Store, alive, format_average, mean_std
from experiments.core.text import find_embeddings, width_of
from experiments.ssan import analyses, reported
from experiments.ssan.analyses import for_each_data_set
from experiments.ssan.bleu import difference
from experiments.ssan.config import (
    BASE,
    BOUNDED,
    FIXED,
    FULL,
    MENDED,
    START,
    RunConfig,
    bounded_name,
    fixed_name,
    local_name,
    with_budget,
)
from experiments.ssan.experiment import experiment
from experiments.ssan.sentences import sentence_of_each
from gatedjax import analysis
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say

ESTIMATORS = {"soft": "soft_gumbel", "expect": "mean_field", "reinforce": "reinforce"}
"""The estimator of each mode of the authors' code; "st" is the default of a selector."""
LAYERS = {n: f"ssan_layer{n}" for n in reported.LAYERS}
NETWORKS = (BASE, *LAYERS.values())
"""The networks without a selector, and with a selector in each layer."""
REWARDED = "ssan_reinforce"
MODES = {
    BASE: "none (SAN)",
    FULL: "st: hard draws, gradient of the relaxation (authors' code)",
    "ssan_soft": "soft: the relaxation itself (paper's text)",
    "ssan_expect": "expect: probabilities, no noise (option of the code)",
    REWARDED: "reinforce: hard draws, gradient of the reward",
}
SHARING = {
    BASE: "none (SAN)",
    FULL: "a selection for every head (authors' code)",
    "ssan_shared": "one selection for all heads (paper's text)",
}
# The other tables have networks with the temperature 0.5.
TEMPERATURES = {"ssan_tau0.1": "0.1", FULL: "0.5", "ssan_tau1": "1", "ssan_tau2": "2"}
DENSITIES = {
    BASE: "none (SAN)",
    FULL: "as training leaves it",
    "ssan_density0.5": "0.5",
    "ssan_density0.2": "0.2",
}

HALVES: dict[str, tuple[str, Changes]] = {
    f"{BASE}_linear": ("SAN, sinusoids, linear head", {"model.order.relative": "none"}),
    f"{FULL}_linear": (
        "SSAN, layer 1, sinusoids, linear head",
        {"model.order.relative": "none", "model.gates.select_layers": (1,)},
    ),
    f"{BASE}_local_rectified": (
        "SAN, local heads, rectified head",
        {"model.head_hidden": (128, 128)},
    ),
}
"""The networks with only part of the recipe `MENDED`, as changes to SAN with that recipe."""


def _mode_variant(mode: str, title: str) -> core.Variant:
    changes = {"model.gates.select_layers": (1,), "model.gates.estimator": ESTIMATORS[mode]}
    return core.Variant(f"ssan_{mode}", f"SSAN, {title}", changes)


def _variants_by_layer(
    named: Callable[[str], str], how: str, changes: Changes
) -> Iterator[core.Variant]:
    """Yields a network with a selector for each layer, trained by a recipe. `named` maps the
    name of the network to its name with the recipe, and `how` ends the title."""
    for n, name in LAYERS.items():
        yield core.Variant(
            named(name), f"SSAN, layer {n}{how}", {"model.gates.select_layers": (n,), **changes}
        )


VARIANTS = core.variants(
    core.Variant(BASE, "SAN", {"model.gates.select_layers": (0,)}),
    *_variants_by_layer(str, "", {}),
    _mode_variant("soft", "soft samples"),
    _mode_variant("expect", "probabilities"),
    _mode_variant("reinforce", "REINFORCE"),
    core.Variant("ssan_shared", "SSAN, one selection for all heads", {"model.share_heads": True}),
    *(
        core.Variant(name, f"SSAN, temperature {tau}", {"model.gates.temperature": float(tau)})
        for name, tau in TEMPERATURES.items()
        if name != FULL
    ),
    *(
        core.Variant(name, f"SSAN, density {share}", {"model.gates.density": float(share)})
        for name, share in DENSITIES.items()
        if name not in (BASE, FULL)
    ),
    core.Variant(
        local_name(BASE), "SAN, local heads", {"model.gates.select_layers": (0,), **MENDED}
    ),
    *_variants_by_layer(local_name, ", local heads", MENDED),
    *(
        core.Variant(name, title, {"model.gates.select_layers": (0,), **MENDED, **back})
        for name, (title, back) in HALVES.items()
    ),
    *_variants_by_layer(bounded_name, ", bounded", BOUNDED),
    core.Variant(
        fixed_name(FULL),
        "SSAN, layer 1, fixed selector",
        {"model.gates.select_layers": (1,), **FIXED},
    ),
    *_variants_by_layer(
        lambda name: bounded_name(local_name(name)), ", local heads, bounded", {**MENDED, **BOUNDED}
    ),
)


OF_ATTENTION = ("table6", "table7", *analyses.FIGURES)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANOptions(core.TableOptions):
    """Options of the tables of this paper."""

    layers: tuple[int, ...] = reported.LAYERS
    """The layers that get a selector, a network for each, in table2, table3 and bound."""
    layer: int = 1
    """The layer of the encoder that table6, table7 and the figures look into, from 1."""
    head: Unset[int] = None
    """The head that they look into, from 0 (default: the mean over heads)."""
    local: bool = True
    """For BShift, look into the networks of table2, which have local heads."""
    sentence: int = 0
    """The index, from 0, of the sentence in figure3, figure5 and figure6, among the sentences of 8
    to 14 words."""
    seeds: int = 1
    """The number of runs per cell, with seeds 0, 1, ..."""
    num_steps: Unset[int] = None
    """The number of steps per run (default: the preset's). At most a quarter of them is warm-up."""
    embeddings: Unset[str] = None
    """The GloVe file for inference, semantic roles and wrd_cited (default: the preset's file, or
    random vectors)."""
    note: Unset[str] = None
    """A description of the files if they are not the published files. Tables show it."""
    random_vectors: ClassVar = ("wrd", "wrd_small", "wrd_published", "wrd_files")
    owned: ClassVar = {
        "layers": ("table2", "table3", "bound"),
        **dict.fromkeys(("layer", "head", "local"), OF_ATTENTION),
        "sentence": ("figure3", "figure5", "figure6"),
    }

    def changes(self, preset: RunConfig) -> Changes:
        """Returns the changes that the options make to a preset. These are the note about the
        files, and the width of the word vectors if it differs from the preset's."""
        changes: Json = {} if self.note is None else {"data.note": self.note}
        has_vectors = preset.preset not in self.random_vectors
        if self.embeddings is None or not (has_vectors and hasattr(preset.data, "embeddings")):
            return changes
        path = find_embeddings(self.embeddings, self.manual_dir)
        width = width_of(path) if path is not None and path.is_file() else None
        if width is not None and width != preset.model.embedding_dim:
            changes["model.embedding_dim"] = width
            if preset.preset.startswith("srl"):
                changes["model.hidden"] = 2 * width
        return changes

    def check(self) -> None:
        """Exits with status 2 for an unknown layer, and for the preset bshift_local. The tables
        have the networks of that preset under the data set bshift."""
        if "bshift_local" in self.data:
            cli.fail(
                "--data must be a data set of the tables, got 'bshift_local', which is for single "
                "runs: table2 trains these networks on bshift"
            )
        if unknown := sorted(set(self.layers) - set(reported.LAYERS)):
            cli.fail(f"--layers must be among {reported.LAYERS}, got {unknown}")

    def with_steps(self, config: RunConfig, steps: int) -> RunConfig:
        """Returns a configuration with another number of steps and a warm-up that fits them."""
        return with_changes(config, {"train": with_budget(config.train, steps)})


# Tables of networks against the standard network -------------------------------------------------

TESTS = (
    "Mean ± sample standard deviation over seeds, with the parameters that validation chose. "
    "The difference is the network minus SAN, in points. McNemar's test is exact and compares "
    "each pair of runs with the same seed."
)
STEPS = columns.parameters("steps", "steps")


def last_loss(row: core.TableRow) -> str:
    """Returns the mean of the last finite training losses of all runs, collapsed runs included."""
    curves = [record.get("train_curve", ()) for record in row.records]
    # A loss that was not finite is stored as null, since JSON has no NaN.
    finite = [[loss for _, loss, *_ in curve if loss is not None] for curve in curves]
    losses = [curve[-1] for curve in finite if curve]
    return mean_std(losses, 3) if losses else NOT_RUN


Pair = Callable[[str, str], tuple[str, str] | None]


def pair_with_san(_: str, variant: str, san: str = BASE) -> tuple[str, str] | None:
    """Returns the pair of a network and the standard network, or None for the standard network."""
    return None if variant == san else (variant, san)


def learning_name(data: str, network: str) -> str:
    """Returns the name of a network with the recipe that learns a data set."""
    return local_name(network) if data == "bshift" else network


def pair_with_learning_san(data: str, variant: str) -> tuple[str, str] | None:
    """Returns the pair of `pair_with_san` for the recipe that learns the data set."""
    return pair_with_san(data, variant, learning_name(data, BASE))


def sentences(
    store: Store, rows: Sequence[core.TableRow], pair: Pair = pair_with_san
) -> Iterator[str]:
    """Yields a paragraph for each data set: a comparison of each network by `pair`, the accuracy of
    the linear classifier of neighbours, and the differences from the paper's data."""
    for name, label in {row.data: row.label for row in rows}.items():
        data_rows = [row for row in rows if row.data == name and row.records]
        lines = [
            f"- {sentence(label, row.title, VARIANTS[names[1]].title, row.comparison)}"
            for row in data_rows
            if (names := pair(name, row.variant)) is not None
        ]
        if (reached := analyses.linear_accuracy(store, name)) is not None:
            lines.append(
                f"- {label}: a linear classifier of pairs of neighbouring words is right on "
                f"{reached:.2f} % of the test sentences (`tables neighbours`)."
            )
        records = [record for row in data_rows for record in row.records]
        # Runs of several networks usually share a remark, which is printed once.
        notes = {note for record in records if (note := record.get("substitute"))}
        lines += [f"- {label}: substitute: {note}." for note in sorted(notes)]
        yield "\n".join(lines)


def show(job: core.Job) -> None:
    """Prints the table, and a line for each data set that it leaves out."""
    table = job.table
    say(table.text(job.paper, job.store))
    if table.body is None:
        # A data set without rows would otherwise vanish without a word after hours of training.
        data_with_rows = {data for data, _ in table.grid(job.paper, job.store)}
        for name in job.data:
            if name not in data_with_rows:
                say(f"{name}: no row, its runs collapsed; `tables recipe` shows how")


def against_san(
    *ahead: core.Column,
    after_tests: Sequence[core.Column] = (),
    pair: Pair = pair_with_san,
    **fields: Any,
) -> core.Table:
    """Returns a table that tests each network against the standard network, or by `pair`. The
    columns `ahead` stand before the tests."""
    headings = ("minus SAN", "95 % interval", "p", "McNemar p (each seed)")
    tests = columns.paired_tests(headings, seeds=False)
    return core.Table(
        # Several test examples may be moves of a single sentence, so that they are dependent.
        groups=sentence_of_each,
        columns=(*ahead, *tests, *after_tests, STEPS),
        pair=pair,
        below=functools.partial(sentences, pair=pair),
        after=show,
        **fields,
    )


def choose_by_layers(job: core.Job, _: str) -> list[str]:
    """Returns the standard network and the networks of --layers."""
    return [BASE, *(name for layer, name in LAYERS.items() if layer in job.options.layers)]


TABLE2 = against_san(
    columns.variant("network"),
    columns.paper_number(
        "{theirs} (%)", dict(zip(map(local_name, NETWORKS), reported.BSHIFT, strict=True)), ".2f"
    ),
    columns.percent("{other}validation (%)", "validation.accuracy"),
    *columns.with_last("test (%)", 2, times=100),
    pair=pair_with_learning_san,
    title="Table 2: BShift, selector in one layer",
    note="Our networks do not follow the paper's recipe, [with which no network "
    "learned](#bshift-recipes) our sentences in 3,000 steps. In each layer a head starts with "
    "attention to the previous word and another with attention to the next word (a learned "
    "bias of attention for each head and offset), and the class layer reads the mean of the "
    "states directly, without rectified layers whose units may stop learning. " + TESTS,
    about="BShift without a selector and with one in layer 1 to 6, by a recipe that learns it",
    data=("bshift",),
    variants=tuple(map(local_name, NETWORKS)),
    seen=(),
    trained=lambda job, data: map(local_name, choose_by_layers(job, data)),
    quoted=(("SAN, earlier report", f"{reported.BSHIFT_EARLIER:.2f}", "quoted, not trained here"),),
)


BOUND_ON = ("bshift", "wrd_small")
CITED_ON = "wrd_cited"


def bounded_layers(data: str, layers: Iterable[int] = reported.LAYERS) -> list[str]:
    """Returns the standard network and a selector with a bounded gradient in each of the layers,
    all by the recipe that learns the data set."""
    networks = (learning_name(data, LAYERS[layer]) for layer in layers)
    return [learning_name(data, BASE), *map(bounded_name, networks)]


BOUND = against_san(
    columns.data(),
    columns.variant("network"),
    *columns.ACCURACY,
    pair=pair_with_learning_san,
    title="A selector whose gradient is bounded",
    note="Keys that a hard draw does not select have a gradient, which grows by the factor e "
    "with each nat by which they exceed the selected keys. The authors' code has no bound, the "
    "tables above have a bound of 10 nats, and this table has a bound of 0 "
    "(`--model.gates.cap 0`). BShift has the recipe of table 2. The networks without a selector "
    "are those of tables 2 and 3. " + TESTS,
    about="tables 2 and 3 with no weight of unselected keys above that of selected ones",
    data=BOUND_ON,
    variants=tuple(name for data in BOUND_ON for name in bounded_layers(data)),
    seen=(),
    list_rows=lambda store: [
        (data, name)
        for data in reported.NAMES
        # The table `cited` has all networks that are trained as the cited program trains.
        if data != CITED_ON
        and (data in BOUND_ON or any(store.all(data, name) for name in bounded_layers(data)[1:]))
        for name in bounded_layers(data)
        if data in BOUND_ON or store.all(data, name)
    ],
    trained=lambda job, data: bounded_layers(data, job.options.layers),
)
RECIPES = (BASE, FULL, "ssan_soft", "ssan_expect", *HALVES, local_name(BASE))


def pair_of_recipes(_: str, variant: str) -> tuple[str, str] | None:
    """Returns the pair that is tested in the table of recipes, or None. Only networks with the
    paper's sinusoids are tested: the selector against no selector."""
    end = variant.removeprefix(FULL)
    return (variant, BASE + end) if variant in (FULL, f"{FULL}_linear") else None


RECIPE = core.Table(
    columns=(
        columns.data(),
        columns.variant("network"),
        *columns.ACCURACY,
        core.Column("training loss at the end (nats)", last_loss),
        columns.first("warm-up", "config.train.optimizer.warmup_steps", ","),
        STEPS,
    ),
    title="BShift: recipes",
    note='"SAN" and "SSAN" have a head with two rectified layers of 128 units, as in the '
    "paper, and our choice where the paper is silent: sinusoids only, and the mean of the "
    'states. "Local heads" have a linear head and are those of table 2. Three rows have a '
    "single change each. The loss of a constant prediction is ln 2 = 0.693. SAN with sinusoids "
    "stays at chance here, and nearly so in the paper (52.23 %; 49.30 % in the report that it "
    "quotes). SSAN's 62.55 % is not reached with sinusoids.",
    about="BShift by the paper's recipe, by that of table2, and by each of its two changes",
    data=("bshift",),
    variants=RECIPES,
    seen=(),
    pair=pair_of_recipes,
    below=functools.partial(sentences, pair=pair_of_recipes),
    after=show,
)
REORDERED = ("wrd", "wrd_small", "wrd_published", "wrd_files")
SHOWN = ("wrd_small", "wrd_published")
"""The data sets that table 3 shows without records."""
POSITIONS = (
    *(columns.percent(f"{name} (%)", f"test.{name}") for name in ("insert", "original")),
    *columns.with_last("both (%)", 2, times=100),
)
"""The accuracies of the positions of word reordering detection."""
TABLE3 = against_san(
    columns.data(),
    columns.variant("network"),
    *POSITIONS,
    title="Table 3: word reordering detection, selector in one layer",
    note="A test counts both positions. Each sentence of Multi30k is moved several times, and "
    "its moves are not independent. The test therefore treats sentences as independent, and "
    "there is no McNemar test. " + TESTS,
    about="word reordering detection without a selector and with one in layer 1 to 6",
    data=SHOWN,
    variants=NETWORKS,
    list_rows=lambda store: [
        (name, network)
        for name in REORDERED
        if name in SHOWN or store.all(name, BASE) + store.all(name, FULL)
        for network in NETWORKS
    ],
    trained=choose_by_layers,
    quoted=[
        ("WMT14, paper", VARIANTS[name].title, *(f"{value:.2f}" for value in values))
        for name, values in zip(NETWORKS, reported.WRD, strict=True)
    ],
)


def of_selector(heading: str, path: str) -> core.Column:
    """Returns a column with a share in percent; the standard network has a dash."""
    return columns.metric(heading, path, 2, times=100, where=lambda row: row.variant != BASE)


CITED = against_san(
    columns.data(),
    columns.variant("network"),
    *POSITIONS,
    after_tests=(of_selector("selected in layer 1 (%)", "test.selected_1"),),
    title="Word reordering detection, trained as the cited program trains",
    note="The paper has no such table. For this task it cites a program that trains without "
    "dropout, with fixed word vectors, batches of 500 sentences and Adam with the constant "
    "learning rate 0.0001. These networks are trained in this way, but they are smaller, and their "
    "word vectors are those of GloVe, scaled to the standard deviation 1. In that program the "
    "selector has no gradient: it stays at its random start, and training selects as evaluation "
    "does. This is the row with a fixed selector. The bounded gradient has a bound of 0 "
    "(`--model.gates.cap 0`). A test counts both positions. " + TESTS,
    about="word reordering detection, trained as by the program that the paper cites",
    data=(CITED_ON,),
    variants=(BASE, FULL, bounded_name(FULL), fixed_name(FULL)),
    seen=(),
)


def cited_tables(store: Store) -> Iterator[core.Table]:
    """Yields the table of networks that are trained as the cited program trains, if any is."""
    if any(store.all(CITED_ON, name) for name in CITED.variants):
        yield CITED


def selectors(titles: Mapping[str, str], heading: str, data: str, **fields: Any) -> core.Table:
    """Returns a table of selectors on a data set, and on any data set where a selector learned."""
    return against_san(
        columns.data(),
        core.Column(heading, lambda row: titles[row.variant], "both"),
        *columns.ACCURACY,
        after_tests=(
            of_selector("selected in layer 1 (%)", "test.selected_1"),
            of_selector("empty (%)", "test.empty_1"),
        ),
        data=(data,),
        variants=tuple(titles),
        seen=tuple(name for name in titles if name not in (BASE, FULL)),
        **fields,
    )


DRAWS = selectors(
    MODES,
    "selector",
    "nli_sick",
    title="How selections are drawn",
    note="In evaluation all networks select the pairs with an open probability above 1/2. " + TESTS,
    about="how selections are drawn",
)
HEADS = selectors(
    SHARING,
    "selection",
    "wrd_small",
    title="Selections of heads",
    note=TESTS,
    about="one selection for all heads",
)
TEMPERATURE = selectors(
    TEMPERATURES,
    "temperature",
    "nli_sick",
    title="Temperature",
    note="The paper gives no temperature; the authors' code has 0.5.",
    about="of the relaxation",
    trained=lambda job, data: (BASE, *TEMPERATURES),
)
DENSITY = selectors(
    DENSITIES,
    "density",
    "wrd_small",
    title="A selector that has to close",
    note="The density is the share of the pairs that a multiplier keeps open on average over "
    "the training examples. The paper has no such term. " + TESTS,
    about="what it costs to hold the selector at a share of the pairs",
)

# Tables that no columns describe -----------------------------------------------------------------


def number(value: float | None) -> str:
    """Formats a number of the paper; None gives a dash."""
    return "-" if value is None else f"{value:.2f}"


Score = str | Callable[[Record], float | None]


def mean(records: Records, score: Score, times: float = 100) -> str:
    """Formats the mean and deviation of a score over the seeds."""
    return format_average(records, columns.scaled_value(score, times), 2)


TASKS: dict[str, tuple[str, str, float]] = {
    "nli": ("accuracy", "test.accuracy", 100),
    "srl": ("F1", "test_roles_greedy.f1", 100),
    "mt_": ("BLEU", "test_bleu", 1),
}
"""The metric of each kind of task, its path in the records, and its factor to percent. The keys are
the first three letters of the names of data sets."""


QUOTED = {FULL: reported.TABLE1, REWARDED: reported.REINFORCE}
"""The paper's results on the tasks (SAN, SSAN) for a selector that is trained by its relaxation or
by reward."""


@dataclasses.dataclass(frozen=True)
class TaskRow:
    """A task and a network of table 1, with the records of the standard network and its own."""

    data: str
    variant: str
    pair: tuple[Records, Records]
    shift: Comparison | None


def task_rows(store: Store) -> list[TaskRow]:
    """Returns the rows of table 1. All tasks have a row for the paper's selector; tasks with
    results of the paper or records of ours also have a row for the selector that is trained by
    reward."""
    pairs = {
        (data, variant): (store.all(data, BASE), records)
        for data in reported.NAMES
        if data[:3] in TASKS
        for variant, quoted in QUOTED.items()
        if (records := store.all(data, variant)) or variant == FULL or data in quoted
    }
    return [
        TaskRow(data, variant, pair, difference(*pair, TASKS[data[:3]][0]))
        for (data, variant), pair in pairs.items()
    ]


def four_tasks(store: Store) -> str:
    """Renders table 1, the four tasks without and with a selector in layer 1, as Markdown."""
    headings = ["task", "metric", "SAN, paper", "SSAN, paper", "SAN, ours", "SSAN, ours"]
    headings += [f"SAN, {LAST}", f"SSAN, {LAST}"]
    headings += ["difference", "95 % interval", "p"]
    table_rows = task_rows(store)
    lines, notes = [], []
    for row in table_rows:
        of, path, times = TASKS[row.data[:3]]
        label = reported.NAMES[row.data]
        records = [*row.pair[0], *row.pair[1]]
        theirs = [number(value) for value in QUOTED[row.variant].get(row.data, (None, None))]
        ours = [mean(runs, path, times) for runs in row.pair]
        ours += [columns.at_last_step(runs) if of == "accuracy" else "-" for runs in row.pair]
        ours += ["-"] * 3 if row.shift is None else row.shift.cells(seeds=False)[:3]
        title = label + ", selector trained by reward" * (row.variant == REWARDED)
        lines += [[line[0], of, *line[1:]] for line in beside(title, theirs, ours, records)]
        if row.variant != FULL or not records:
            continue  # Each task has its notes from a single row.
        first = records[0]
        if first.get("substitute"):
            notes.append(f"- {label}: substitute: {first['substitute']}.")
        if "bleu_signature" in first:
            notes.append(f"- {label}: {first['bleu_signature']}")
    return paragraphs(analysis.render_table(headings, lines), "\n".join(notes))


def task_cases(claim: str, store: Store) -> Iterator[Case]:
    """Yields the case of each task. A smaller task has the paper's difference of the full task."""
    for row in task_rows(store):
        if row.variant != FULL:
            continue
        of = TASKS[row.data[:3]][0]
        san, ssan = reported.TABLE1.get(reported.FULL_TASK.get(row.data, row.data), (None, None))
        full = reported.FULL_TASK.get(row.data)
        # A part of the paper's data is no other task.
        is_other = full is not None and reported.NAMES[full] not in reported.NAMES[row.data]
        yield case_of(
            claim,
            reported.NAMES[row.data],
            row.shift,
            [*row.pair[0], *row.pair[1]],
            paper=None if san is None or ssan is None else ssan - san,
            unit="" if of == "accuracy" else of,
            remarks=(f"size of {reported.NAMES[full]}",) if full is not None and is_other else (),
        )


def probe_pair(data: str) -> tuple[float, float]:
    """Returns the paper's results on a probe without and with a selector in layer 1, in percent:
    accuracy, of both positions of moved words, or F1 over all classes."""
    return {
        "bshift": reported.BSHIFT[:2],
        "tree_depth": reported.TREE_DEPTH_ALL,
        "top_const": reported.TOP_CONST_ALL,
        **dict.fromkeys((*REORDERED, CITED_ON), (reported.WRD[0][2], reported.WRD[1][2])),
    }[data]


def floor(store: Store, data: str) -> tuple[float, float | None]:
    """Returns the floor of a probe: half of the paper's accuracy without a selector, and the
    accuracy of a linear classifier of pairs of neighbouring words, if that was run."""
    return probe_pair(data)[0] / 2, analyses.linear_accuracy(store, data)


def probe_claim(where: str, table: core.Section, network: str = FULL, mark: str = "") -> core.Claim:
    """Returns the claim that a selector in layer 1 helps with a probe. `mark` is a difference
    between the paper's size and ours."""

    def gain(data: str, variant: str) -> float:
        san, ssan = probe_pair(data)
        return ssan - san

    return core.Claim(
        says=f"SSAN is better than SAN at {where}",
        table=table,
        rows=(network,),
        paper=gain,
        floor=floor,
        mark=lambda data, variant: mark,
    )


TABLE1 = core.Table(
    title="Table 1: four tasks",
    note="Accuracy and F1 in percent, BLEU by sacrebleu (detokenised; the paper's is tokenised). "
    f"{TEST} For roles and translation the variance over examples is that of a paired bootstrap.",
    about="inference, semantic roles and translation",
    data=("nli_sick", "srl", "mt_multi30k"),
    variants=(BASE, FULL, REWARDED),
    body=four_tasks,
    after=show,
)
Part = tuple[Sequence[str], Sequence[float | None], Sequence[Score]]
"""A row of tables 4 and 5: first cells, the paper's numbers, and the scores of the records."""


def probe(name: str) -> core.Table:
    """Returns the comparison of a probe without and with a selector."""
    return core.Table(list_rows=lambda store: [(name, BASE), (name, FULL)], pair=pair_with_san)


def f1_table(
    name: str,
    headings: Sequence[str],
    parts: Callable[[Records], Iterable[Part]],
    average: tuple[float, float],
    merged: Sequence[str] = (),
    **fields: Any,
) -> core.Table:
    """Returns a table of F1 for parts of a probe, without and with a selector. `average` has the
    paper's averages by support (SAN, SSAN), and `parts` maps the records to the rows."""
    grid = probe(name)

    def body(store: Store) -> str:
        rows = grid.rows(PAPER, store)
        pair = [row.records for row in rows]
        theirs, mine = origins(pair[0] + pair[1])
        texts = [text.format(theirs=theirs, mine=mine) for text in headings]
        texts += [f"{text}, {of}" for of in (theirs, mine) for text in ("SAN", "SSAN")]
        texts += merged
        table_parts = [*parts(pair[0] + pair[1])]
        for way in ("weighted", "micro", "macro"):
            dashes = ["-"] * (len(headings) - 1)
            quoted = average if way == "weighted" else (None, None)
            table_parts.append(([f"All, {way}", *dashes], quoted, [f"f1_{way}"]))
        # The micro average is the accuracy, because each sentence has exactly one class.
        last = ([f"All, micro, {LAST}", *dashes], (None, None), ["test_last.accuracy"])
        table_parts.append(last)
        lines = []
        for ahead, paper, scores in table_parts:
            ours = [mean(records, score) for score in scores for records in pair]
            line: list[str] = [*ahead, *map(number, paper), *ours]
            lines.append([*line, *["-"] * (len(texts) - len(line))])
        table = analysis.render_table(texts, lines)
        note = test_note(row.comparison for row in rows)
        return paragraphs(table, *sentences(store, rows), note)

    return core.Table(data=(name,), variants=(BASE, FULL), body=body, after=show, **fields)


def depths(records: Records) -> Iterator[Part]:
    """Yields the rows of table 4."""
    record = records[0] if records else {"class_names": [], "support": []}
    classes, support = record["class_names"], record["support"]
    for depth in dict.fromkeys((*reported.TREE_DEPTH, *classes)):
        *paper, ratio = reported.TREE_DEPTH.get(depth, (None, None, None))
        place = classes.index(depth) if depth in classes else None
        share = "-" if place is None else f"{100 * support[place] / sum(support):.1f}"
        yield [depth, number(ratio), share], paper, [f"f1.{place}"]


def groups(_: Records) -> Iterator[Part]:
    """Yields the rows of table 5. The scores are functions because names of groups contain dots."""

    def score(record: Record, group: str, way: int) -> float | None:
        return record["groups"][group][way] if "groups" in record else None

    for group, (*paper, ratio) in reported.TOP_CONST.items():
        scores = [functools.partial(score, group=group, way=way) for way in (0, 1)]
        yield [group, f"{ratio:.0f}"], paper, scores


F1 = (
    'F1 in percent. The paper\'s row "All" agrees with the average by support within 0.3, and '
    "with no other average."
)
TABLE4 = f1_table(
    "tree_depth",
    ("depth", "share, {theirs} (%)", "share, {mine} (%)"),
    depths,
    reported.TREE_DEPTH_ALL,
    title="Table 4: TreeDepth, F1 by depth",
    note=F1,
    about="TreeDepth by depth",
)
TABLE5 = f1_table(
    "top_const",
    ("group", "share, {theirs} (%)"),
    groups,
    reported.TOP_CONST_ALL,
    ("SAN, merged", "SSAN, merged"),
    title="Table 5: TopConst, F1 of groups of classes",
    note=F1 + ' A group has the average of its classes by support; "merged" takes the group as '
    "a single class. The classes of a group are inferred.",
    about="TopConst by groups of classes",
)

# The attention of finished runs ------------------------------------------------------------------

TABLE6 = core.Table(
    title="Table 6: brackets of trees from attention",
    note="The brackets have no labels. Punctuation is left out, the whole sentence is counted, "
    "and single words are not. The attention is the mean over heads. The mass inside a span is "
    "divided by its number of words (rows), by the square of it (area), or not at all.",
    about="of finished runs, brackets of trees from attention",
    data=("mt_multi30k",),
    body=analyses.table6,
    after=for_each_data_set(analyses.brackets, show),
)
TABLE7 = core.Table(
    title="Table 7: attention by part of speech",
    note="The share of all attention that keys of a class receive, as the mean over heads.",
    about="of finished runs, attention by part of speech",
    data=("tree_depth", "top_const", "mt_multi30k"),
    body=analyses.table7,
    after=for_each_data_set(analyses.tag_shares, show),
)
TABLES = (TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6, TABLE7)
FIGURES = core.Table(
    title="Figures 2 to 6, and curves",
    note="The attention is the mean over the heads of the first encoder layer.",
    body=analyses.figures,
)
DRAWINGS = {
    "figure2": ("attention over the distance", analyses.distances),
    "figure3": ("attention of a sentence", analyses.heat_maps),
    "figure4": ("as figure2", analyses.distances),
    "figure5": ("as figure3", analyses.heat_maps),
    "figure6": ("trees of a sentence", analyses.tree_figure),
}


def selection_table(store: Store) -> str:
    """Renders the selection rates on the test sentences by layer and head, as Markdown. Collapsed
    runs are left out."""
    headings = ["data", "network", "seed", "layer", "selected (%)", "of each head (%)"]
    headings += ["queries without a key (%)", "at the start of training (%)"]
    rows = [
        [label, VARIANTS[name].title if name in VARIANTS else name, str(record["seed"]), *cells]
        for data_name, label in reported.NAMES.items()
        for name in store.variants(data_name)
        for record in alive(store.all(data_name, name))
        for cells in rates(record)
    ]
    return analysis.render_table(headings, rows) if rows else NOT_RUN


def rates(record: Record) -> Iterator[list[str]]:
    """Yields the cells of each selective layer of a run, those of `selection_table` from the
    layer."""
    for layer, heads in record.get("selected_heads", {}).items():
        start = (record.get("selection_curve", {}).get(layer) or [[0, float("nan")]])[0]
        yield [
            layer,
            f"{100 * np.mean(heads):.1f}",
            ", ".join(f"{100 * rate:.1f}" for rate in heads),
            f"{100 * np.mean(record['empty_heads'][layer]):.2f}",
            f"{100 * start[1]:.1f}",
        ]


RATES = core.Table(
    title="What is selected",
    note="The share is that of the pairs of real tokens of the test sentences, and all "
    "sentences count equally.",
    about="of finished runs that learned, what they select",
    body=selection_table,
    after=show,
    is_folded=True,
)


def batch_of(record: Record) -> str:
    """Returns the size of a training batch, in examples or in tokens."""
    sizes = record["config"]["data"]
    tokens = sizes.get("batch_tokens")
    return str(sizes.get("batch_size") or ("-" if tokens is None else f"{tokens:,} tokens"))


RUNS = columns.runs(
    reported.NAMES,
    columns.first("batch", batch_of),
    columns.RATE,
    STEPS,
    columns.each_value("best steps", "best_step", ","),
    columns.SECONDS,
    columns.MILLISECONDS,
    columns.first("parameters", lambda record: record.get("parameters_without_embeddings", 0), ","),
)

# The commands ------------------------------------------------------------------------------------


def report(console: Console, records: Records, workdir: Path) -> None:
    """Prints the metrics of validation and test, the number of parameters and the time."""
    (record,) = records
    layers = [layer for layer in record["config"]["model"]["gates"]["select_layers"] if layer]
    where = f" (selector in layer {', '.join(map(str, layers))})" if layers else ""
    title = (
        f"{record['system'].upper()}{where} on {record['data']}, trained on "
        f"{record['train_n']:,} examples (test: {record['test_n']:,})"
    )
    columns.print_metrics(console, record, title, tuple(record["test"]))
    for part in ("validation", "test"):
        if f"{part}_bleu" in record:
            console.print(f"{part} BLEU {record[f'{part}_bleu']:.2f}")
    if "bleu_signature" in record:
        console.print(record["bleu_signature"])
    for way in ("greedy", "constrained"):
        if f"test_roles_{way}" in record:
            scores = record[f"test_roles_{way}"]
            texts = ", ".join(f"{name} {100 * value:.2f}" for name, value in scores.items())
            console.print(f"test arguments, {way}: {texts}")
    columns.print_parameters(
        console, record, f", {record['parameters_of_selectors']:,} of selectors"
    )
    columns.print_time(console, record, workdir)


def without_numbers(store: Store) -> str:
    """Returns the first paragraph of the page, with our accuracies on other sentences."""
    parts = [
        f"{mean(records, 'test.accuracy')} by {VARIANTS[name].title} on {reported.NAMES[data]}, "
        f"where the paper has {theirs:.2f}"
        for data, of, quoted in (
            ("bshift", local_name, reported.BSHIFT),
            ("wrd_small", str, [both for *_, both in reported.WRD]),
        )
        for name, theirs in zip((of(BASE), of(FULL)), quoted[:2], strict=True)
        if (records := store.all(data, name))
    ]
    text = "**No run is on the paper's data, so none of its numbers is tested.**"
    return text + f" On other sentences the accuracy in % is {'; '.join(parts)}." * bool(parts)


PAPER = core.Paper(
    start=START,
    title="SSAN",
    source='Geng et al., "How Does Selective Mechanism Improve Self-Attention Networks?" (2020)',
    names=reported.NAMES,
    variants=VARIANTS,
    tables={
        **{f"table{number}": table for number, table in enumerate(TABLES, 1)},
        **{
            name: core.Figure(
                about=about, after=for_each_data_set(draw), data=(analyses.FIGURES[name],)
            )
            for name, (about, draw) in DRAWINGS.items()
        },
        "recipe": RECIPE,
        "modes": DRAWS,
        "sharing": HEADS,
        "temperature": TEMPERATURE,
        "density": DENSITY,
        "bound": BOUND,
        "cited": CITED,
        "selection_rate": RATES,
        "curves": core.Figure(
            about="of finished runs that learned, validation and selected pairs while training",
            data=("bshift",),
            after=for_each_data_set(analyses.curves),
        ),
        "neighbours": core.Figure(
            about="what a linear classifier of pairs of neighbouring words makes of the probes",
            data=analyses.PROBES,
            after=for_each_data_set(analyses.linear_reference),
        ),
    },
    page=(
        *TABLES,
        FIGURES,
        DRAWS,
        HEADS,
        TEMPERATURE,
        DENSITY,
        BOUND,
        cited_tables,
        RATES,
        RECIPE,
        RUNS,
    ),
    claims=(
        core.Claim(says="SSAN is better than SAN on tasks (selector in layer 1)", find=task_cases),
        probe_claim("swapped words", RECIPE),
        probe_claim("swapped words, by a recipe that learns them", TABLE2, local_name(FULL)),
        probe_claim("moved words", TABLE3),
        probe_claim(
            "probes of structure",
            lambda store: map(probe, ("tree_depth", "top_const")),
            mark="the paper's size is of F1",
        ),
        core.Claim(
            says="SSAN attends to more distant words and to more content words",
            find=untested("figures 2 and 4 and table 7 have the shares, which have no test"),
        ),
    ),
    without_numbers=without_numbers,
    search="the trials behind the presets (recipe of BShift, steps, learning rates, scale of the "
    "word vectors) have no record",
    experiment=experiment,
    report=report,
    keys=("config", "seed", "system", "validation", "test", "test_n"),
    options=SSANOptions,
)
