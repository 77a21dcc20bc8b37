"""GA-Net: Xue, Li and Zhang, "Not All Attention Is Needed" (AAAI 2020)."""

import dataclasses
import functools
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from experiments.core import columns as c
from experiments.core.columns import cell, screen
from experiments.core.config import value_at
from experiments.core.origins import NOT_RUN
from experiments.core.paper import Column, Figure, Job, Options, Paper, Row, Table, Variant
from experiments.core.paper import variants as by_name
from experiments.core.records import COLLAPSED, Record, Records, Store, alive, averaged
from experiments.ga_net import figures, reported
from experiments.ga_net.config import START, SystemName
from experiments.ga_net.experiment import experiment
from gatedjax import analysis
from gatedjax.models.ga_net import GATE_MODES

WIDTHS = tuple(f"ganet_width_{width}" for width in reported.AUX_WIDTHS)
VARIANTS = by_name(
    *(Variant(name, title, {"model.system": name}) for name, title in reported.SYSTEMS.items()),
    *(
        Variant(f"ganet_aux_{kind}", title, {"model.system": "ganet", "model.aux": kind}, "ganet")
        for kind, title in reported.AUXILIARY.items()
    ),
    *(
        Variant(name, f"{width}", {"model.system": "ganet", "model.aux_hidden": width}, "ganet")
        for name, width in zip(WIDTHS, reported.AUX_WIDTHS, strict=True)
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GANetOptions(Options):
    """Options of the tables of this paper."""

    systems: tuple[SystemName, ...] = tuple(reported.SYSTEMS)
    """Systems of table2 and table3."""
    embeddings: str | None = None
    """GloVe file (default: the preset's); "none" starts from random vectors."""


def gated(row: Row) -> bool:
    """Whether the row is of a system with gates."""
    return row.variant.startswith("ganet")


def asked(job: Job, data: str) -> list[str]:
    """The systems of a table that --systems names."""
    return [name for name in job.table.variants if name in job.options.systems]


TABLE1 = Table(
    title="Table 1: data",
    note="Ours: mean length over all splits; words of train",
    about="data statistics",
    data=reported.DATA,
    after=figures.count,
    body=figures.statistics,
)
TABLE2 = Table(
    title="Table 2: test accuracy and density",
    note="Mean ± sample standard deviation over seeds. GA-Net: gates sampled as in the paper, mean "
    "of 5 draws per run; density is the mean over texts of the share of open gates.",
    about="accuracy and density of the four systems",
    data=reported.DATA,
    variants=("bilstm", "local", "soft", "ganet"),
    trained=asked,
    columns=(
        c.data(),
        c.variant(),
        c.quoted("paper", reported.ACCURACY),
        c.metric("ours", "test.accuracy"),
        c.quoted("density: paper", reported.DENSITY, where=gated),
        c.metric("ours (mean gate)", "test.density", where=gated),
    ),
)
PAIRED = Table(
    title="Table 2, paired tests",
    note="Bootstrap over test texts of the correctness averaged over seeds (10,000 samples); exact "
    "McNemar test of each pair of runs with one seed, first draw of the gates.",
    data=reported.DATA,
    variants=("bilstm", "local", "soft"),
    seen=("ganet",),
    pair=lambda data, baseline: ("ganet", baseline),
    columns=(
        c.data(),
        c.variant("baseline"),
        *c.paired(("GA-Net minus baseline", *c.TESTS), points=False, missing=NOT_RUN),
    ),
)


def mode(name: str) -> Column:
    """Mean accuracy and density of a kind of gates."""

    def text(row: Row) -> str:
        tested = [record["test"] for record in alive(row.records)]
        if not tested:
            return COLLAPSED if row.records else NOT_RUN
        accuracy = np.mean([one[f"accuracy_{name}"] for one in tested])
        density = np.mean([one[f"density_{name}"] for one in tested])
        return f"{accuracy:.4f}, {density:.4f}"

    return Column(f"{name}: accuracy, density", text)


MODES = Table(
    title="One set of parameters under four kinds of gates",
    note="Means over seeds: Bernoulli draws, probability above 1/2, probabilities as gates, and "
    "the relaxed gates of training.",
    data=reported.DATA,
    variants=("ganet",),
    columns=(
        c.data(),
        *map(mode, ("sample", "threshold", "expected", "relaxed")),
        c.metric("all closed (sample)", "test.closed_sample"),
    ),
)


def short(number: float) -> str:
    """A number of operations."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return f"{number:.0f}"


def paper_operations(heading: str, cell: Any) -> Column:
    """A column from the paper's operations (soft attention, GA-Net)."""

    def text(row: Row) -> str:
        if row.data not in reported.DENSITY:
            return "-"
        return cell(*(reported.FLOPS[system][row.data] for system in ("soft", "ganet")))

    return Column(heading, text, "paper")


def operations(record: Record) -> tuple[float, float]:
    """Attention operations over the test set: of soft attention, and of the open words."""
    model = record["config"]["model"]
    width = model["hidden"] * (2 if model["merge"] == "concat" else 1)
    return (
        analysis.attention_flops(record["test_tokens"], width),
        analysis.attention_flops(record["attended_tokens"], width),
    )


def our_operations(heading: str, cell: Any, *, says_why: bool = False) -> Column:
    """A column from our operations (soft attention, mean of GA-Net, first record)."""

    def text(row: Row) -> str:
        records = alive(row.records)
        if not records:
            return (COLLAPSED if row.records else NOT_RUN) if says_why else "-"
        full = operations(records[0])[0]
        mean = float(np.mean([operations(record)[1] for record in records]))
        return cell(full, mean, records[0])

    return Column(heading, text)


def auxiliary(full: float, mean: float, record: Record) -> str:
    """Operations of the auxiliary network."""
    model = record["config"]["model"]
    count = analysis.auxiliary_flops(
        model["aux"],
        tokens=record["test_tokens"],
        examples=record["test_n"],
        input_dim=model["embedding_dim"],
        hidden=model["aux_hidden"],
    )
    return short(count)


TABLE3 = Table(
    title="Table 3: attention operations over the test set",
    note="N(4D + 3) per text with n attended words, multiplications and additions counted. The "
    "auxiliary network costs more than the attention that it saves.",
    about="attention operations",
    data=reported.DATA,
    variants=("ganet",),
    trained=lambda job, data: [name for name in reported.FLOPS if name in job.options.systems],
    columns=(
        c.data(),
        paper_operations("paper: soft", lambda soft, ganet: short(soft)),
        paper_operations("GA-Net", lambda soft, ganet: short(ganet)),
        paper_operations("ratio", lambda soft, ganet: f"{ganet / soft:.3f}"),
        our_operations("ours: soft", lambda full, mean, one: short(full), says_why=True),
        our_operations("GA-Net", lambda full, mean, one: short(mean), says_why=True),
        our_operations("ratio", lambda full, mean, one: f"{mean / full:.3f}"),
        our_operations("GA-Net per text", lambda full, mean, one: short(mean / one["test_n"])),
        our_operations("auxiliary network", auxiliary),
    ),
)
TABLE5 = Table(
    title="Table 5: auxiliary networks",
    note="The paper used IMDB only.",
    about="auxiliary networks",
    data=("imdb",),
    variants=("ganet_aux_fnn", "ganet_aux_att", "ganet_aux_lstm"),
    seen=("ganet_aux_fnn",),
    columns=(
        c.data(),
        c.variant("auxiliary network"),
        c.quoted("paper: accuracy", reported.AUX_ACCURACY),
        c.quoted("density", reported.AUX_DENSITY),
        c.metric("ours: accuracy", "test.accuracy"),
        c.metric("density", "test.density"),
    ),
)


def widths(store: Store) -> str:
    """The points of figure 5."""
    rows = []
    for name in reported.NAMES:
        cells = [store.all(name, PAPER.record_name(name, width)) for width in WIDTHS]
        if name in FIGURE5.data or any(store.all(name, width) for width in WIDTHS):
            for of in ("accuracy", "density"):
                value = functools.partial(value_at, path=f"test.{of}")
                means = (averaged(records, value) for records in cells)
                rows.append([reported.NAMES[name], of, *means])
    return analysis.render_table(["data", "metric", *map(str, reported.AUX_WIDTHS)], rows)


FIGURE5 = Table(
    title="Figure 5: width of the auxiliary LSTM",
    note="Figure5.png where it was run.",
    about="auxiliary width",
    data=("imdb", "sst1", "trec"),
    variants=WIDTHS,
    body=widths,
    after=figures.figure5,
)


def of_gates(path: str) -> Any:
    """A setting of the gates, for systems that have some."""
    return lambda record: value_at(record, path) if record["system"] == "ganet" else None


RATES = "{embedding_dropout:g}/{pool_dropout:g}"
RUNS = c.runs(
    reported.NAMES,
    c.BATCH,
    c.RATE,
    c.first("tau", of_gates("config.model.temperature"), "g"),
    c.first("lambda", of_gates("config.model.penalty"), "g"),
    c.first("dropout", lambda record: RATES.format(**record["config"]["model"])),
    c.each("steps", "best_step"),
    c.seconds(),
    heading="system",
)


def report(console: Console, records: Records, workdir: Path) -> None:
    """Prints the test results: of one run under every kind of gates, of several their mean."""
    one, several = records[0], len(records) > 1
    title = f"{one['system']} on {one['data']} (test, n = {one['test_n']})"
    if one["substitute"] and not several:
        title += f"\n{one['substitute']}"
    headings, rows = _lanes(records) if several else _gates(one)
    console.print(screen(title, headings, rows))
    if not several:
        console.print(
            f"best of {one['steps']} steps: step {one['best_step']} "
            f"(validation accuracy {one['validation']['accuracy']:.4f}); "
            f"{one['seconds']} s; results in {workdir}"
        )
        return
    if len({record["seed"] for record in records}) == len(records):
        accuracies = [record["test"]["accuracy"] for record in records]
        console.print(
            f"accuracy {statistics.mean(accuracies):.4f} +- {statistics.stdev(accuracies):.4f} "
            f"(mean and standard deviation, n = {len(accuracies)})"
        )
    console.print(f"{len(records)} runs, {one['seconds']} s each; results in {workdir}")


def _lanes(records: Records) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of runs that were trained side by side."""
    settings = {
        "learning rate": "config.train.optimizer.learning_rate",
        "tau": "config.model.temperature",
        "lambda": "config.model.penalty",
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
    """Headings and rows of one run under every kind of gates."""
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


PAPER = Paper(
    **START,
    title="GA-Net",
    source='Xue, Li and Zhang, "Not All Attention Is Needed" (AAAI 2020)',
    names=reported.NAMES,
    variants=VARIANTS,
    tables={
        "table1": TABLE1,
        "table2": TABLE2,
        "table3": TABLE3,
        "table4": Figure(draw=figures.table4, about="open words of two IMDB reviews"),
        "table5": TABLE5,
        "figure1": Figure(draw=figures.figure4, about="as figure4"),
        "figure4": Figure(draw=figures.figure4, about="heat maps of SST-2 sentences"),
        "figure5": FIGURE5,
    },
    page=(TABLE1, TABLE2, PAIRED, MODES, TABLE3, TABLE5, FIGURE5, RUNS),
    experiment=experiment,
    report=report,
    workdir=lambda config: f"{config.data.name}-{config.model.system}",
    options=GANetOptions,
    drawn=("polarity",),
)
