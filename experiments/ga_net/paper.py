"""GA-Net: Xue, Li and Zhang, "Not All Attention Is Needed" (AAAI 2020)."""

import dataclasses
import functools
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from rich.console import Console

from experiments.core import columns as c
from experiments.core import paper as core
from experiments.core.claims import Number, number_of, untested
from experiments.core.columns import cell, screen
from experiments.core.config import Changes, value_at
from experiments.core.origins import NOT_RUN
from experiments.core.records import COLLAPSED, LAST, Record, Records, Store, alive, format_average
from experiments.ga_net import faithfulness, figures, reported, roar
from experiments.ga_net.config import BY_ACCURACY, START, SystemName, swept
from experiments.ga_net.experiment import experiment
from gatedjax import analysis
from gatedjax._utils.options import Unset
from gatedjax.models.ga_net import GATE_MODES

UNTUNED = {f"untuned_{name}": title for name, title in reported.SYSTEMS.items()}
"""The systems without dropout and without a search for settings, by the name of their records."""
UNTUNED_STEPS = {"trec": 770, "sst1": 1340, "sst2": 1090}
"""Steps of ten epochs of the training text, with batches of 64 texts."""
WIDTHS = tuple(f"ganet_width_{width}" for width in reported.AUX_WIDTHS)
AT_DENSITY: Changes = {
    "model.system": "ganet",
    "model.gates.density": 0.2,
    "train.early_stop_patience": None,
    **BY_ACCURACY,
}
"""Changes for a given density. All runs take all of their steps and are tested after the last step
(see `experiment.last`), so `train.best_metric` has no effect."""
TUNED = {
    "trec": {
        "bilstm": (2e-3, 0.5),
        "local": (1e-3, 0.5),
        "soft": (2e-3, 0.5),
        "ganet": (4e-3, 0.5),
    },
    "sst2": {
        "bilstm": (2e-3, 0.5),
        "local": (1e-3, 0.3),
        "soft": (4e-3, 0.5),
        "ganet": (4e-3, 0.5),
    },
    "sst1": {
        "bilstm": (1e-3, 0.3),
        "local": (4e-3, 0.3),
        "soft": (2e-3, 0.3),
        "ganet": (2e-3, 0.3),
    },
}
"""Learning rate and dropout by data set and system: the trial of lowest validation loss among the
six trials of seed 0 in TUNING.md."""


def of_system(
    name: str, title: str, system: str, changes: Changes, same_as: str | None
) -> core.Variant:
    """Returns a system with its tuned settings, or a change of such a system."""
    tuned: dict[str, Changes] = {}
    for data, settings in TUNED.items():
        # A change of a system, such as another auxiliary network, has the settings of that system.
        rate, dropout = settings[system]
        tuned[data] = swept({"learning rate": rate, "dropout": dropout})
    return core.Variant(name, title, {"model.system": system, **changes}, same_as, tuned)


def untuned(name: str, system: str) -> core.Variant:
    """Returns a system as a hurried author might train a baseline. It has no dropout, no search for
    settings and no validation: the learning rate is 1e-3, and the parameters after ten epochs are
    tested."""
    # The only evaluation is that of the last step, so validation has nothing to choose from.
    steps: dict[str, Changes] = {
        data: {"train.num_steps": count, "train.eval_every": count}
        for data, count in UNTUNED_STEPS.items()
    }
    changes: Changes = {
        "model.system": system,
        "train.early_stop_patience": None,
        **swept({"learning rate": 1e-3, "dropout": 0.0}),
    }
    return core.Variant(name, UNTUNED[name], changes, None, steps)


VARIANTS = core.variants(
    *(of_system(name, title, name, {}, None) for name, title in reported.SYSTEMS.items()),
    *(untuned(name, name.removeprefix("untuned_")) for name in UNTUNED),
    *(
        of_system(f"ganet_aux_{kind}", title, "ganet", {"model.aux": kind}, "ganet")
        for kind, title in reported.AUXILIARY.items()
    ),
    *(
        of_system(name, f"{width}", "ganet", {"model.aux_hidden": width}, "ganet")
        for name, width in zip(WIDTHS, reported.AUX_WIDTHS, strict=True)
    ),
    *(
        core.Variant(f"ganet_by_{name}", title, {"model.gates.estimator": name, **AT_DENSITY})
        for name, title in reported.ESTIMATORS.items()
    ),
    *(
        core.Variant(name, title, {"model.gates.gates_on": on, **AT_DENSITY})
        for (name, title), on in zip(
            faithfulness.VARIANTS.items(), ("attention", "input"), strict=True
        )
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GANetOptions(core.TableOptions):
    """Options of the tables of this paper."""

    embeddings: Unset[str] = None
    """GloVe file (default: the preset's); "none" starts from random vectors."""
    random_vectors: ClassVar = ("polarity",)


def gated(row: core.TableRow) -> bool:
    """Returns True if the row is of a system with gates."""
    return row.variant.startswith("ganet")


TABLE1 = core.Table(
    title="Table 1: data",
    note="Our length is the mean over all splits, and our number of words is that of the "
    "training texts.",
    about="data statistics",
    data=reported.DATA,
    after=figures.count,
    body=figures.statistics,
)
TABLE2 = core.Table(
    title="Table 2: test accuracy and density",
    note="Mean ± sample standard deviation over seeds. The gates of GA-Net are sampled as in "
    "the paper, and its numbers are means of 5 draws for each run. The density is the mean "
    "over texts of the share of open gates.",
    about="accuracy and density of the four systems",
    data=reported.DATA,
    variants=("bilstm", "local", "soft", "ganet"),
    columns=(
        c.data(),
        c.variant(),
        c.paper_number("paper", reported.ACCURACY),
        *c.with_last("ours"),
        c.paper_number("density: paper", reported.DENSITY, where=gated),
        c.metric("ours (mean gate)", "test.density", where=gated),
    ),
)
PAIRED = core.Table(
    title="Table 2, paired tests",
    note="The difference is that of table 2, where GA-Net's accuracy is the mean of 5 draws of "
    "the gates. The variance over texts and McNemar's test use the first draw; McNemar's test "
    "is exact and compares each pair of runs with the same seed.",
    data=reported.DATA,
    variants=("bilstm", "local", "soft"),
    seen=("ganet",),
    pair=lambda data, baseline: ("ganet", baseline),
    columns=(
        c.data(),
        c.variant("baseline"),
        *c.paired_tests(("GA-Net minus baseline", *c.TESTS), points=False, missing=NOT_RUN),
    ),
)


def paper_difference(data: str, baseline: str) -> float:
    """Returns GA-Net minus a baseline in the paper's table 2, in points."""
    return 100 * (reported.ACCURACY["ganet"][data] - reported.ACCURACY[baseline][data])


def tuned_name(row: core.TableRow) -> SystemName:
    """Returns the system of a row of untuned systems."""
    return cast(SystemName, row.variant.removeprefix("untuned_"))


UNTUNED_TABLE = core.Table(
    title="Systems without dropout and without a search",
    note="The paper does not have this table. The four systems are trained for ten epochs at a "
    "learning rate of 0.001 without dropout and are tested after the last step, as a baseline "
    "without a search may be trained. The differences are to GA-Net of this table.",
    about="accuracy of the four systems without dropout and without a search",
    data=tuple(UNTUNED_STEPS),
    variants=tuple(UNTUNED),
    pair=lambda data, name: ("untuned_ganet", name) if name != "untuned_ganet" else None,
    columns=(
        c.data(),
        c.variant(),
        c.paper_number("paper", lambda row: reported.ACCURACY[tuned_name(row)][row.data]),
        c.metric("ours, untuned", "test.accuracy"),
        c.paper_number(
            "paper: GA-Net minus system",
            lambda row: paper_difference(row.data, tuned_name(row)),
            "+.2f",
            where=lambda row: tuned_name(row) != "ganet",
        ),
        *c.paired_tests(("ours", "95 % interval", "p")),
    ),
)


def gap(mode: str) -> Callable[[Record], float | None]:
    """Returns a function of a record: the loss under a kind of gates minus its exact expectation,
    or None without exact losses."""

    def gap_of(record: Record) -> float | None:
        exact = record.get("exact")
        # Differences are formed within a run, because the loss varies more between seeds than
        # between kinds of gates.
        return None if exact is None else exact[mode]["loss"] - exact["exact"]["loss"]

    return gap_of


BY_GUMBEL = "ganet_by_soft_gumbel"


def mode(name: str) -> core.Column:
    """Returns a column with the mean accuracy and density of a kind of gates."""

    def text(row: core.TableRow) -> str:
        # Collapsed runs would shift the mean, and other tables report their number.
        tested = [record["test"] for record in alive(row.records)]
        if not tested:
            return COLLAPSED if row.records else NOT_RUN
        accuracy = np.mean([metrics[f"accuracy_{name}"] for metrics in tested])
        density = np.mean([metrics[f"density_{name}"] for metrics in tested])
        return f"{accuracy:.4f}, {density:.4f}"

    return core.Column(f"{name}: accuracy, density", text)


ESTIMATORS = core.Table(
    title="Estimators of the gates' gradient",
    note="Mean ± sample standard deviation over seeds. A Lagrange multiplier keeps the mean "
    "open probability of all systems at 0.2. They take the same number of steps with the "
    "settings that a search found for the Gumbel-sigmoid, and are tested after the last step. "
    '"Exact" is the expected cross-entropy over all patterns of the gates, for test texts of '
    "at most 20 words. Other columns have the differences from it: with thresholds, and "
    "with the best pattern of each text.",
    about="GA-Net trained by other estimators, at one density",
    data=("trec", "sst2"),
    variants=tuple(f"ganet_by_{name}" for name in reported.ESTIMATORS),
    pair=lambda data, name: (name, BY_GUMBEL) if name != BY_GUMBEL else None,
    columns=(
        c.data(),
        c.variant("estimator"),
        c.metric("sampled gates", "test.accuracy_sample"),
        c.metric("[a > 0]", "test.accuracy_threshold"),
        c.metric("open words", "test.density_sample"),
        c.metric("exact loss", "exact.exact.loss"),
        c.metric("[a > 0] less exact", gap("threshold")),
        c.metric("best less exact", gap("best")),
        c.MILLISECONDS,
        *c.paired_tests(("minus Gumbel-sigmoid", "95 % interval", "p")),
    ),
)
MODES = core.Table(
    title="One set of parameters under four kinds of gates",
    note="Means over seeds with four kinds of gates: Bernoulli draws, open where the "
    "probability is above 1/2, the probabilities as gates, and the relaxed gates of training.",
    data=reported.DATA,
    variants=("ganet",),
    columns=(
        c.data(),
        *map(mode, ("sample", "threshold", "expected", "relaxed")),
        c.metric("all closed (sample)", "test.closed_sample"),
    ),
)


def short(number: float) -> str:
    """Formats a number of operations."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return f"{number:.0f}"


def paper_operations(heading: str, cell: Any) -> core.Column:
    """Returns a column of the paper's numbers of operations. `cell` is a function of (operations of
    soft attention, of GA-Net)."""

    def text(row: core.TableRow) -> str:
        # The paper reports operations only where it reports densities.
        if row.data not in reported.DENSITY:
            return "-"
        return cell(*(reported.FLOPS[system][row.data] for system in ("soft", "ganet")))

    return core.Column(heading, text, "paper")


def operations(record: Record) -> tuple[float, float]:
    """Returns attention operations over the test set: for all words, and for the open words."""
    model = record["config"]["model"]
    # The attention reads both directions of the encoder, which are either joined or added.
    width = model["hidden"] * (2 if model["merge"] == "concat" else 1)
    return (
        analysis.attention_flops(record["test_tokens"], width),
        analysis.attention_flops(record["attended_tokens"], width),
    )


def our_operations(heading: str, cell: Any, *, says_why: bool = False) -> core.Column:
    """Returns a column of our numbers of operations. `cell` is a function of (operations of soft
    attention, mean of GA-Net, first record). `says_why` gives the reason of a missing number."""

    def text(row: core.TableRow) -> str:
        records = alive(row.records)
        if not records:
            return (COLLAPSED if row.records else NOT_RUN) if says_why else "-"
        # The operations of soft attention depend only on the texts and are the same for all seeds.
        full = operations(records[0])[0]
        mean = float(np.mean([operations(record)[1] for record in records]))
        return cell(full, mean, records[0])

    return core.Column(heading, text)


def auxiliary(full: float, mean: float, record: Record) -> str:
    """Returns the operations of the auxiliary network, formatted."""
    model = record["config"]["model"]
    count = analysis.auxiliary_flops(
        model["aux"],
        tokens=record["test_tokens"],
        examples=record["test_n"],
        input_dim=model["embedding_dim"],
        hidden=model["aux_hidden"],
    )
    return short(count)


TABLE3 = core.Table(
    title="Table 3: attention operations over the test set",
    note="Multiplications and additions are counted: n (4D + 3) for a text with n attended "
    "words. The auxiliary network costs more than the attention that it saves.",
    about="attention operations",
    data=reported.DATA,
    variants=("ganet",),
    trained=lambda job, data: reported.FLOPS,
    columns=(
        c.data(),
        paper_operations("paper: soft", lambda soft, ganet: short(soft)),
        paper_operations("GA-Net", lambda soft, ganet: short(ganet)),
        paper_operations("ratio", lambda soft, ganet: f"{ganet / soft:.3f}"),
        our_operations("ours: soft", lambda full, mean, record: short(full), says_why=True),
        our_operations("GA-Net", lambda full, mean, record: short(mean), says_why=True),
        our_operations("ratio", lambda full, mean, record: f"{mean / full:.3f}"),
        our_operations(
            "GA-Net per text", lambda full, mean, record: short(mean / record["test_n"])
        ),
        our_operations("auxiliary network", auxiliary),
    ),
)
TABLE5 = core.Table(
    title="Table 5: auxiliary networks",
    note="The paper used IMDB only.",
    about="auxiliary networks",
    data=("imdb",),
    variants=("ganet_aux_fnn", "ganet_aux_att", "ganet_aux_lstm"),
    seen=("ganet_aux_fnn",),
    columns=(
        c.data(),
        c.variant("auxiliary network"),
        c.paper_number("paper: accuracy", reported.AUX_ACCURACY),
        c.paper_number("density", reported.AUX_DENSITY),
        *c.with_last("ours: accuracy"),
        c.metric("density", "test.density"),
    ),
)


AUXILIARY_PAIRS = core.Table(
    data=("imdb",),
    variants=("ganet_aux_fnn", "ganet_aux_att"),
    pair=lambda data, name: ("ganet_aux_lstm", name),
)
"""The comparisons for the claim of table 5, which is no table of the page."""
WIDTH_MEASURES = {
    "test.accuracy": "accuracy",
    "test_last.accuracy": f"accuracy, {LAST}",
    "test.density": "density",
    "test.closed_sample": "all gates closed",
}
"""The values in a record that figure 5 shows, and their names."""


def widths(store: Store) -> str:
    """Returns the table with the points of figure 5."""
    rows = []
    for name in reported.NAMES:
        cells = [store.all(name, PAPER.record_name(name, width)) for width in WIDTHS]
        if name in FIGURE5.data or any(store.all(name, width) for width in WIDTHS):
            for of, title in WIDTH_MEASURES.items():
                value = functools.partial(value_at, path=of)
                means = (format_average(records, value) for records in cells)
                rows.append([reported.NAMES[name], title, *means])
    return analysis.render_table(["data", "metric", *map(str, reported.AUX_WIDTHS)], rows)


FIGURE5 = core.Table(
    title="Figure 5: width of the auxiliary LSTM",
    note='"All gates closed" is the share of the texts without an open gate in the draw that '
    "is tested. All attention of such a text falls on the word whose gate is the nearest to "
    "opening.",
    about="auxiliary width",
    data=("imdb", "sst1", "trec"),
    variants=WIDTHS,
    body=widths,
    after=figures.figure5,
)


FIGURE_TITLES = {
    "figure4_1": "Figures 1 and 4, sentence 1 of SST-2",
    "figure4_2": "Figure 4, sentence 2 of SST-2",
    "figure5": "Figure 5: width of the auxiliary LSTM",
    "roar_trec": "Recursive ROAR, TREC",
}
FIGURES = core.Table(
    title="Figures and table 4",
    note="Table 4 shows two reviews of IMDB. `tables table4` writes its page to the work "
    "folders, because the texts belong to the data set.",
    body=lambda store: c.figure_links(store, FIGURE_TITLES),
)


FAITHFULNESS = core.Table(
    title="Faithfulness of the gates",
    note="The paper does not have this table. Words are deleted from the test texts, and the "
    "network runs again (`gatedjax.analysis.faithfulness`). A high comprehensiveness and a low "
    "sufficiency are better. AOPC is the mean over 1, 5, 10, 20 and 50 % of the words. The "
    "gate leak tests the claim that words behind closed gates were not used; for the other "
    "rationales the gates of the same network are opened at their words. The leak is 0 if the "
    "gates act on the input.",
    about="comprehensiveness, sufficiency and gate leak at one density",
    data=("trec",),
    variants=tuple(faithfulness.VARIANTS),
    body=faithfulness.body,
    after=faithfulness.measure,
)
FAITHFULNESS_PAIRED = core.Table(
    title="Faithfulness of the gates, paired tests",
    note="Student's t over seeds and test texts (`gatedjax.analysis.two_way_test`). The p are "
    "corrected together (Holm), and a star marks p below 0.05. Fewer than three seeds have no "
    "p.",
    body=faithfulness.paired_table,
)
ROAR = core.Table(
    title="Recursive ROAR: accuracy by share of masked words",
    note="The paper does not have this table. The method is that of Madsen et al. (2021), see "
    "`gatedjax.analysis.roar`. The numbers are means over seeds, and roar_trec.png shows the "
    "deviations. At each share a network is trained from the start on texts in which the words "
    "that were most important to the previous network are replaced by the unknown word. RACU "
    "is 0 for random words and 1 for a perfect importance. Its interval is Student's, over the "
    "seeds.",
    about="recursive ROAR: accuracy after masking words by importance and training again",
    data=("trec",),
    body=roar.body,
    after=roar.run,
)
TRUSTED = (FAITHFULNESS, FAITHFULNESS_PAIRED, ROAR)


def of_gates(path: str) -> Any:
    """Returns a function that reads a setting of the gates; None for systems without gates."""
    return lambda record: value_at(record, path) if record["system"] == "ganet" else None


RATES = "{embedding_dropout:g}/{pool_dropout:g}"
RUNS = c.runs(
    reported.NAMES,
    c.BATCH,
    c.RATE,
    c.first("tau", of_gates("config.model.gates.temperature"), "g"),
    c.first("lambda", of_gates("config.model.gates.penalty"), "g"),
    c.first("dropout", lambda record: RATES.format(**record["config"]["model"]["dropouts"])),
    c.each_value("steps", "best_step"),
    c.SECONDS,
    heading="system",
)


def report(console: Console, records: Records, workdir: Path) -> None:
    """Prints test results: of a single run under each kind of gates, of several runs their mean."""
    record, several = records[0], len(records) > 1
    title = f"{record['system']} on {record['data']} (test, n = {record['test_n']})"
    if record["substitute"] and not several:
        title += f"\n{record['substitute']}"
    headings, rows = _lanes(records) if several else _gates(record)
    console.print(screen(title, headings, rows))
    if not several:
        console.print(
            f"best of {record['steps']} steps: step {record['best_step']} "
            f"(validation accuracy {record['validation']['accuracy']:.4f}); "
            f"{record['seconds']} s; results in {workdir}"
        )
        return
    # Runs of a sweep share their seeds. A mean over different settings would have no meaning.
    if len({record["seed"] for record in records}) == len(records):
        accuracies = [record["test"]["accuracy"] for record in records]
        console.print(
            f"accuracy {statistics.mean(accuracies):.4f} +- {statistics.stdev(accuracies):.4f} "
            f"(mean and standard deviation, n = {len(accuracies)})"
        )
    console.print(f"{len(records)} runs, {record['seconds']} s each; results in {workdir}")


def _lanes(records: Records) -> tuple[list[str], list[list[str]]]:
    """Returns headings and rows for runs that were trained in a single program."""
    settings = {
        "learning rate": "config.train.optimizer.learning_rate",
        "tau": "config.model.gates.temperature",
        "lambda": "config.model.gates.penalty",
    }
    rows = [
        [
            str(record["seed"]),
            *(f"{value_at(record, path):g}" for path in settings.values()),
            str(record["steps"]),
            *(cell(record["test"], name) for name in ("accuracy", "density")),
        ]
        for record in records
    ]
    return ["seed", *settings, "steps", "accuracy", "density"], rows


def _gates(record: Record) -> tuple[list[str], list[list[str]]]:
    """Returns headings and rows for a run under each kind of gates."""
    names = {
        "accuracy": "accuracy",
        "density": "density",
        "density_tok": "density (tokens)",
        "closed": "all closed",
    }
    test = record["test"]
    rows = [["none", cell(test, "accuracy"), "-", "-", "-"]]
    if record["system"] == "ganet":
        rows = [[mode, *(cell(test, f"{key}_{mode}") for key in names)] for mode in GATE_MODES]
    return ["gates", *names.values()], rows


def numbers(store: Store) -> list[Number]:
    """Returns the paper's accuracies of GA-Net and its baselines, with ours, in percent."""
    return [
        number
        for system in ("ganet", "bilstm", "local", "soft")
        for name, theirs in reported.ACCURACY[system].items()
        for number in number_of(
            VARIANTS[system].title,
            reported.NAMES[name],
            100 * theirs,
            store.all(name, system),
            lambda record: 100 * record["test"]["accuracy"],
            is_method=system == "ganet",
        )
    ]


PAPER = core.Paper(
    start=START,
    title="GA-Net",
    source='Xue, Li and Zhang, "Not All Attention Is Needed" (AAAI 2020)',
    names=reported.NAMES,
    variants=VARIANTS,
    tables={
        "table1": TABLE1,
        "table2": TABLE2,
        "table3": TABLE3,
        "table4": core.Figure(
            after=figures.table4, about="open words of two IMDB reviews", data=("imdb",)
        ),
        "table5": TABLE5,
        "untuned": UNTUNED_TABLE,
        "estimators": ESTIMATORS,
        "figure1": core.Figure(after=figures.figure4, about="as figure4"),
        "figure4": core.Figure(after=figures.figure4, about="heat maps of SST-2 sentences"),
        "figure5": FIGURE5,
        "faithfulness": FAITHFULNESS,
        "roar": ROAR,
    },
    page=(
        *(
            TABLE1,
            TABLE2,
            PAIRED,
            UNTUNED_TABLE,
            MODES,
            TABLE3,
            TABLE5,
            FIGURE5,
            ESTIMATORS,
            *TRUSTED,
        ),
        *(FIGURES, RUNS),
    ),
    experiment=experiment,
    report=report,
    options=GANetOptions,
    claims=(
        *(
            core.Claim(
                says=f"GA-Net is better than {VARIANTS[name].title}",
                table=PAIRED,
                rows=(name,),
                data=reported.DATA,
                paper=paper_difference,
            )
            for name in PAIRED.variants
        ),
        core.Claim(
            says="An auxiliary LSTM is better than an FNN or an attention",
            table=AUXILIARY_PAIRS,
            rows=AUXILIARY_PAIRS.variants,
            data=AUXILIARY_PAIRS.data,
            paper=lambda data, name: (
                100
                * (
                    reported.AUX_ACCURACY["ganet_aux_lstm"][data]
                    - reported.AUX_ACCURACY[name][data]
                )
            ),
            why_not_run="no run of the other two networks",
        ),
        core.Claim(
            says="The width of the auxiliary LSTM matters little",
            find=untested("figure 5 has the accuracies; equality is not tested"),
        ),
        core.Claim(
            says="GA-Net needs fewer operations",
            find=untested("table 3 has the counts, which have no test"),
        ),
    ),
    numbers=numbers,
    search="the settings of IMDB have no record of a search; tau and lambda of GA-Net were not "
    "searched, while the learning rate and the dropout of all four systems were",
)
