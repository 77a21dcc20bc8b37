"""AGT: Guo, "A Deep Network with Visual Text Composition Behavior" (2017)."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
from rich.console import Console

from experiments.agt import figures, layer_tables, reported
from experiments.agt.config import OPTIMIZERS, START, SWEPT, changes_of
from experiments.agt.experiment import experiment, resolve_width
from experiments.agt.layer_tables import FULL
from experiments.agt.pooled import pooled_cases
from experiments.agt.reported import DATA, NAMES
from experiments.core import columns as c
from experiments.core import paper as core
from experiments.core.claims import Number, number_of
from experiments.core.columns import print_metrics, print_parameters, print_time
from experiments.core.comparison import SEEDS, these_runs
from experiments.core.config import swept_changes
from experiments.core.kinds import Json
from experiments.core.records import Records, Store, alive
from experiments.core.tune import best_trial
from gatedjax._utils.options import Unset
from gatedjax.models.agt import AblateMode

MODES: tuple[AblateMode, ...] = get_args(AblateMode)
ABOVE = {0: "only s_0", 2: "s_0, s_1, s_2"}
"""The last layer with its own selection vector, and the remaining vectors."""


def ablation_name(above: int, mode: AblateMode = "highway") -> str:
    """Returns the name of an ablation."""
    return f"agt_above{above}" if mode == "highway" else f"agt_above{above}_{mode}"


def ablation(above: int, mode: AblateMode) -> core.Variant:
    """Returns AGT without the selection vectors of the later layers. `above` is the last layer with
    its own selection vector, and `mode` the replacement of the layers above it."""
    changes = {"model.ablate_above": above, "model.ablate_mode": mode}
    # Without later selection vectors this network has the equations of a plain highway network.
    remark = " (= plain highway network on s_0)" if above == 0 else ""
    title = ABOVE[above] + (remark if mode == "highway" else f"; {mode}")
    return core.Variant(ablation_name(above, mode), title, changes)


VARIANTS = core.variants(
    core.Variant(FULL, "AGT, all selection vectors"),
    *(ablation(above, mode) for mode in MODES for above in ABOVE),
    # This system has a higher learning rate, because with that of AGT it still improves at the end
    # of the 30,000 steps.
    core.Variant(
        "average",
        "mean of the word vectors",
        {"model.system": "average", "train.optimizer.learning_rate": 3e-3},
    ),
    # The paper only states that a bias of 1 encourages composition.
    core.Variant("agt_bias_1", "gate bias 1", {"model.gate_bias": 1.0}, FULL),
    core.Variant("agt_bias_0", "gate bias 0", {"model.gate_bias": 0.0}),
    core.Variant("agt_bias_minus1", "gate bias -1", {"model.gate_bias": -1.0}),
    # These variants are ours, because the paper leaves open whether the class layer is among its
    # two fully connected layers.
    core.Variant("agt_head", "one hidden layer", {}, FULL),
    core.Variant("agt_head_200_200", "two hidden layers", {"model.head_hidden": (200, 200)}),
    *(core.Variant(f"agt_{name}", name, changes_of(name), FULL) for name in OPTIMIZERS),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AGTOptions(core.TableOptions):
    """Options of the tables of this paper."""

    ablate_modes: tuple[AblateMode, ...] = ("highway",)
    """Replacements in ablation for layers without a selection vector: plain highway layers, or the
    same layers with the last remaining selection vector, or with the vector 0."""
    embeddings: Unset[str] = None
    """GloVe file (default: the preset's); "none" starts from random vectors."""
    tuning: Unset[Path] = None
    """File tuning.json of python -m experiments.agt.tune: each system of ablation has the learning
    rate and the dropout of its trial with the lowest validation loss for the data and the word
    vectors (default: those of the preset and the system). Records with such settings need a folder
    without other records (--results DIR)."""
    owned: ClassVar = {
        "ablate_modes": ("ablation",),
        "tuning": ("ablation",),
    }
    random_vectors: ClassVar = ("polarity",)


def systems(store: Store) -> str:
    """Returns the SST-1 test accuracy next to the paper's row and the rows that it quotes."""
    ours = {
        "AGT": store.all(DATA, FULL),
        "AGT, trained on sentences only": store.all("sst1_sentences", FULL),
    }
    return c.beside_quoted(
        "test accuracy (%)",
        {name: f"{value:.1f}" for name, value in reported.QUOTED.items()},
        ("AGT", f"{reported.ACCURACY[FULL]:.1f}"),
        {title: records for title, records in ours.items() if records or title == "AGT"},
        lambda record: 100 * record["test"]["accuracy"],
    )


def several(heading: str, fact: Callable[[Json], str], between: str = ", ") -> core.Column:
    """Returns a column with the distinct values of a fact in the records of a cell."""
    return core.Column(
        heading, lambda row: between.join(sorted(set(map(fact, row.records)))) or "-"
    )


BY_DATA = core.Table(
    title="AGT by data set",
    note="The paper reports SST-1 only. The column of the word vectors has their file and width.",
    data=(DATA,),
    variants=(FULL,),
    columns=(
        c.data(),
        several("trained on", lambda record: f"{record['train_n']:,} {record['train_on']}"),
        several(
            "word vectors",
            lambda record: f"{record['config']['data']['embeddings']}, {record['embedding_dim']}",
            "; ",
        ),
        c.parameters("parameters without them", "parameters_without_embeddings"),
        *c.ACCURACY,
    ),
)


def is_whole(name: str) -> bool:
    """Returns True if a variant is the network with which the others are compared."""
    return name in (FULL, "agt_bias_1", "agt_head")


def comparison_table(
    names: Sequence[str], accuracies: Mapping[str, float], **fields: Any
) -> core.Table:
    """Returns a table of variants with the paper's percentages, and paired tests against AGT."""
    return core.Table(
        data=(DATA,),
        variants=tuple(names),
        seen=tuple(name for name in names if not is_whole(name)),
        pair=lambda data, name: None if is_whole(name) else (name, FULL),
        columns=(
            c.data(),
            c.variant("network"),
            c.paper_number(
                "paper (%)",
                {name: {DATA: accuracy} for name, accuracy in accuracies.items()},
                ".1f",
            ),
            *c.ACCURACY,
            *c.paired_tests(("minus AGT", *c.TESTS)),
            c.parameters(key="parameters_without_embeddings"),
        ),
        below=c.sentences(lambda row: None if is_whole(row.variant) else (row.title, "AGT")),
        **fields,
    )


def with_best_settings(job: core.Job, data: str, name: str) -> core.Variant | str:
    """Returns a system with the settings of its best trial, or its name without `--tuning`. Raises
    ValueError if the file has no trial of the system on the data with the word vectors."""
    path = job.options.tuning
    if path is None:
        return name
    vectors = job.paper.recorded(job.config(data, name, 0))["data"]["embeddings"]
    trial = best_trial(path, {"data": data, "system": name, "embeddings": vectors})
    if trial is None:
        raise ValueError(
            f"{path} must have a trial of {name} on {data} with the word vectors {vectors}, got "
            f"none: make it with python -m experiments.agt.tune --data {data} --system {name}"
        )
    settings = swept_changes(SWEPT, trial["values"])
    return dataclasses.replace(VARIANTS[name], tuned={data: settings})


def ablation_systems(job: core.Job, data: str) -> Iterator[core.Variant | str]:
    """Yields the systems that ablation trains on a data set."""
    modes = job.options.ablate_modes
    for name in (FULL, *(ablation_name(n, mode) for n in ABOVE for mode in modes), "average"):
        yield with_best_settings(job, data, name)


ABLATION = comparison_table(
    (FULL, *map(ablation_name, ABOVE), "average"),
    reported.ACCURACY,
    title="Ablation: selection vectors",
    note="Mean ± sample standard deviation over seeds, with the parameters that validation "
    "chose. The difference is the system minus AGT, in points. McNemar's test is exact and "
    "compares each pair of runs with the same seed.",
    about="without the selection vectors of later layers, and the mean word vector",
    trained=ablation_systems,
)
READINGS = tuple(
    ablation_name(above, mode) for above in ABOVE for mode in MODES if mode != "highway"
)
OTHER_READINGS = comparison_table(
    READINGS,
    {},
    title="Ablation: other readings",
    note="Layers without a selection vector use the last vector that is left, or 0. They do "
    "not become plain highway layers. The paper does not state the rule.",
    list_rows=lambda store: [
        (data, name) for data in NAMES for name in READINGS if store.all(data, name)
    ],
)
GATE_BIAS = comparison_table(
    ("agt_bias_1", "agt_bias_0", "agt_bias_minus1"),
    {"agt_bias_1": reported.ACCURACY[FULL]},
    title="Gate bias",
    note="The paper only states that a bias of 1 encourages composition.",
    about="biases 1, 0 and -1 of the gates at the start",
)
HEADS = comparison_table(
    ("agt_head", "agt_head_200_200"),
    {},
    title="Head",
    note="The hidden layers have width 200; a single hidden layer is that of the preset. The "
    "paper leaves number and widths open.",
    about="one hidden layer before the class layer, or two",
)


def winners(store: Store, rows: Sequence[core.TableRow]) -> Iterator[str]:
    """Yields a line per data set with the optimiser preset that is best in validation."""
    lines = []
    for label in dict.fromkeys(row.label for row in rows):
        runs = {row.title: alive(row.records) for row in rows if row.label == label}
        reached = {
            name: [record["validation"]["accuracy"] for record in records]
            for name, records in runs.items()
            if records
        }
        least = min(map(len, reached.values()), default=0)
        few = [name for name, values in reached.items() if len(values) < SEEDS]
        best = max(reached, key=lambda name: np.mean(reached[name]), default="")
        if len(reached) > 1 and few:
            names = f"{', '.join(few)}: " if len(few) < len(reached) else ""
            lines.append(f"- {label}: {names}{these_runs(least)}, no best preset.")
        elif len(reached) > 1:
            accuracy = f"{100 * np.mean(reached[best]):.2f} %"
            lines.append(
                f"- {label}: {best} reaches the best mean validation accuracy, {accuracy}."
            )
    yield "\n".join(lines)


OPTIMISERS = core.Table(
    title="Optimisers",
    note="The paper's Adadelta has a learning rate of 5e-4. Its steps are 2,000 times shorter "
    "than at the usual rate of 1.",
    about="validation curves of the optimiser presets",
    data=(DATA,),
    variants=tuple(f"agt_{name}" for name in OPTIMIZERS),
    columns=(
        c.data(),
        c.variant("optimiser preset"),
        core.Column("rule", lambda row: OPTIMIZERS[row.title].name),
        core.Column("learning rate", lambda row: f"{OPTIMIZERS[row.title].learning_rate:g}"),
        *c.ACCURACY,
        c.each_value("best step", "best_step"),
        c.each_value("steps", "steps"),
    ),
    below=winners,
    after=figures.draw,
)
RUNS = c.runs(
    NAMES,
    c.BATCH,
    c.first("rule", "config.train.optimizer.name"),
    c.RATE,
    c.first("word vectors", "config.data.embeddings"),
    *c.PROGRESS,
)
TABLE1 = core.Table(
    title="Table 1: SST-1 test accuracy",
    note="The quoted rows are from other papers and were not trained here.",
    about="test accuracy beside the paper's and quoted rows",
    data=(DATA,),
    variants=(FULL,),
    body=systems,
)
FIGURES = core.Table(
    title="Figures",
    note="The figures are drawn from the record of the seed with the best validation result.",
    body=figures.list_figures,
)


def from_records(draw: Callable[[core.Job], None], about: str) -> core.Figure:
    """Returns a figure of the seed that is best in validation; it trains only without a record."""

    def systems_to_train(job: core.Job, data: str) -> tuple[str, ...]:
        return (FULL,) if job.options.rerun or not job.store.all(data, FULL) else ()

    return core.Figure(after=draw, about=about, data=(DATA,), trained=systems_to_train)


def report(console: Console, records: Records, workdir: Path) -> None:
    """Prints the metrics of validation and test, parameters and time."""
    (record,) = records
    title = "{} on {data}, trained on {train_n:,} {train_on} (test: {test_n:,} sentences)".format(
        reported.SYSTEMS[record["system"]], **record
    )
    print_metrics(console, record, title, ("accuracy", "loss"))
    if record["first_words"]:
        words = ", ".join(f"{word} ({count})" for word, count in record["first_words"][:10])
        console.print(f"selected most often by the first layer: {words}")
    print_parameters(console, record)
    print_time(console, record, workdir)


def numbers(store: Store) -> list[Number]:
    """Returns the paper's accuracies of AGT and its ablations, with ours, in percent."""
    titles = {FULL: "AGT"} | {
        ablation_name(above): f"AGT with {above + 1} of 15 selection vectors" for above in ABOVE
    }
    return [
        number
        for name, theirs in reported.ACCURACY.items()
        for number in number_of(
            titles[name],
            NAMES[DATA],
            theirs,
            store.all(DATA, name),
            lambda record: 100 * record["test"]["accuracy"],
            is_method=name == FULL,
        )
    ]


def paper_difference(_: str, reduced: str) -> float:
    """Returns AGT minus a reduced network in the paper, in points. The mean of the word vectors is
    the row NBoW, which the paper quotes."""
    theirs = {**reported.ACCURACY, "average": reported.QUOTED["NBoW"]}
    return reported.ACCURACY[FULL] - theirs[reduced]


REDUCED = {
    **{ablation_name(n): title for n, title in ABOVE.items()},
    "average": "the mean of the word vectors",
}
"""The networks with which the claims compare AGT."""


PAPER = core.Paper(
    start=START,
    title="AGT",
    source='Guo, "A Deep Network with Visual Text Composition Behavior" (2017)',
    names=NAMES,
    variants=VARIANTS,
    tables={
        "table1": TABLE1,
        "ablation": ABLATION,
        "gate_bias": GATE_BIAS,
        "heads": HEADS,
        "optimizers": OPTIMISERS,
        "figure2": from_records(figures.draw, "attention and lengths of phrases per layer"),
        "figure3": from_records(figures.draw, "gates per layer"),
        "figure4": from_records(figures.draw, "words against layers of three sentences"),
        "selected": from_records(figures.show_selected, "words of one layer beside the paper's"),
        "first_layer_words": from_records(figures.first_words, "its most frequent words"),
    },
    page=(
        TABLE1,
        BY_DATA,
        ABLATION,
        OTHER_READINGS,
        GATE_BIAS,
        HEADS,
        OPTIMISERS,
        layer_tables.tables,
        FIGURES,
        RUNS,
    ),
    claims=(
        *(
            core.Claim(
                says=f"AGT is better than {title}",
                table=ABLATION,
                rows=(reduced,),
                data=(DATA,),
                flip=True,
                paper=paper_difference,
                find=functools.partial(
                    pooled_cases, reduced=reduced, paper=paper_difference(DATA, reduced)
                ),
            )
            for reduced, title in REDUCED.items()
        ),
        core.Claim(
            says="A gate bias of 1 is better than 0 or -1",
            table=GATE_BIAS,
            rows=("agt_bias_0", "agt_bias_minus1"),
            data=(DATA,),
            flip=True,
            why_not_run="no run with another bias; the paper gives no size",
        ),
    ),
    numbers=numbers,
    search="the trials behind the presets (moving average, learning rates, word vectors) have no "
    "record",
    experiment=experiment,
    report=report,
    keys=("config", "seed", "system", "validation", "test", "test_n", "correct"),
    resolve=resolve_width,
    options=AGTOptions,
)
