"""RAU: Zhong, Yue and Ling, "Recurrent Attention Unit" (2018)."""

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, get_args

from rich.console import Console

from experiments.core import columns as c
from experiments.core import paper as core
from experiments.core.claims import Number, number_of
from experiments.core.cli import fail
from experiments.core.columns import print_metrics, print_time
from experiments.core.config import Changes
from experiments.core.origins import NOT_RUN
from experiments.core.records import LAST, Record, Records, Store, format_average
from experiments.rau import figures, reported
from experiments.rau.config import START, CellName
from experiments.rau.experiment import experiment
from experiments.rau.figures import at, at_rate, long_name, matched_width, rate_of, table2, table4
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say
from gatedjax.functional import RAUAttention

LANGUAGE = reported.LANGUAGE
CELLS = tuple(reported.CELLS)
# These settings of PTB small were found on its validation text: the mean of the parameters over
# some 1,000 steps is best after four to six epochs, and at the learning rate 1 a GRU is unstable
# and a RAU worse.
AVERAGED: Changes = {"train.optimizer.ema_decay": 0.999, "train.early_stop_patience": 2}
SLOWER: Changes = {"train.optimizer.learning_rate": 0.5}
SYSTEMS = [
    core.Variant(
        name,
        title,
        {"model.cell": name},
        tuned={"ptb_small": {**AVERAGED, **({} if name == "lstm" else SLOWER)}},
    )
    for name, title in reported.CELLS.items()
]
FASTER_RAU = core.Variant("rau_faster", reported.CELLS["rau"], {"model.cell": "rau", **AVERAGED})
"""The averaged RAU at the paper's learning rate of PTB small."""
# The paper's equation 6 leaves these forms of the attention open (spec section 3). The form
# "sigmoid" is not rescaled, because its weights have no fixed sum.
HEAVY: tuple[RAUAttention, ...] = ("matrix",)
LIGHT = tuple(form for form in get_args(RAUAttention) if form not in HEAVY)
FORMS = [
    core.Variant(
        f"attention_{form}{'_rescale' if rescale else ''}",
        form,
        {"model.cell": "rau", "model.attention": form, "model.rescale": rescale},
    )
    for form in (*LIGHT, *HEAVY)
    for rescale in (False, True)
    # A sigmoid has no sum over features, so there is nothing to rescale.
    if not (rescale and form == "sigmoid")
]
PLAIN = FORMS[0].name
IMAGES = ("mnist", "fashion_mnist")
LONG = tuple(map(long_name, reported.CELLS))
"""The names of the records of the cells after the paper's 100,000 steps."""
LONG_SYSTEMS = [
    core.Variant(
        long_name(name),
        title,
        {
            "model.cell": name,
            "train.num_steps": 100_000,
            "train.eval_every": 2_000,
            "train.checkpoint_every": 2_000,
            # The paper names Adam and nothing else: no schedule and no clipping.
            "train.optimizer.learning_rate": 1e-3,
            "train.optimizer.schedule": "constant",
            "train.optimizer.clip_norm": None,
        },
    )
    for name, title in reported.CELLS.items()
]
RATES = [at_rate(cell, rate) for rate in reported.LEARNING_RATES.values() for cell in CELLS]
VARIANTS = (*SYSTEMS, *LONG_SYSTEMS, FASTER_RAU, *RATES, *FORMS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RAUOptions(core.TableOptions):
    """Options of the tables of this paper."""

    cells: tuple[CellName, ...] = ("rau", "gru", "lstm")
    """The cells that are trained."""
    forms: tuple[RAUAttention, ...] = LIGHT
    """Forms of the attention to train in variants; the default leaves out matrix, with weights in a
    matrix [H, D + H] per example and step."""
    hidden: Unset[int] = None
    """table1: another width of the state, such as 28 (the paper's Table 2), in separate rows."""
    learning_rate: Unset[float] = None
    """table1: another learning rate, in separate rows; figure7: the learning rate of the runs to
    draw (default: 1e-5, as in the paper)."""
    owned: ClassVar = {"hidden": ("table1",), "learning_rate": ("table1", "figure7")}

    def check(self) -> None:
        """Exits with status 2 if the table or figure does not have an option."""
        if self.hidden is not None and self.learning_rate is not None:
            fail("--hidden or --learning-rate must be left out, got both: give one of the two")
        if self.what in ("learning_rates", "figure7", "variants", "matched"):
            # The table compares accuracies, and language models have perplexities.
            for name in self.data:
                if name in LANGUAGE:
                    fail(f"--data must be classifiers for {self.what}, got {name!r}")
        if self.what in ("long", "figure5"):
            for name in self.data:
                if name not in IMAGES:
                    fail(f"--data must be of {', '.join(IMAGES)} for {self.what}, got {name!r}")


def requested_cells(job: core.Job, data: str) -> Iterable[core.Variant | str]:
    """Yields the cells that --cells names, at the width or the learning rate of the options."""
    hidden, rate = job.options.hidden, job.options.learning_rate
    for cell in job.options.cells:
        if hidden is not None:
            yield at(cell, f"hidden{hidden}", "model.hidden", hidden)
        else:
            yield cell if rate is None else at_rate(cell, rate)


def at_rates(job: core.Job, data: str) -> list[core.Variant]:
    """Returns the cells that --cells names, at the table's learning rates or figure 7's."""
    rates = [rate_of(job)] if job.options.what == "figure7" else reported.LEARNING_RATES.values()
    return [at_rate(cell, rate) for rate in rates for cell in job.options.cells]


def forms(job: core.Job, data: str) -> Iterable[core.Variant]:
    """Returns the forms of the attention that --forms names."""
    for form in HEAVY:
        # The remark is the same for all data sets and is printed for the first only.
        if form not in job.options.forms and data == job.data[0]:
            say(f"{form}: left out, it is heavy on memory; --forms {form} runs it")
    return [variant for form in job.options.forms for variant in FORMS if variant.title == form]


def matched_cells(job: core.Job, data: str) -> Iterable[core.Variant | str]:
    """Yields the cells that --cells names, with as many parameters as the GRU."""
    for cell in job.options.cells:
        # A RAU has more weight matrices than a GRU of the same width, so equal widths would favour
        # it.
        width = matched_width(data, cell)
        yield cell if cell == "gru" else at(cell, "matched", "model.hidden", width)


def result(heading: str, part: str) -> core.Column:
    """Returns a column with accuracy or perplexity of "validation", "test" or "test_last"."""

    def text(row: core.TableRow) -> str:
        # A column may mix data sets, so the metric depends on the row.
        name, digits = ("perplexity", 2) if row.data in LANGUAGE else ("accuracy", 4)
        if part == "test_last":
            return c.at_last_step(row.records, name, digits, times=1)
        return c.metric(heading, f"{part}.{name}", digits).text(row)

    return core.Column(heading, text)


def cell_of(row: core.TableRow) -> str:
    """Returns the cell of a row, whose system may have other settings than the preset's."""
    return row.variant.partition("_")[0]


CELL = core.Column("cell", lambda row: reported.CELLS[cell_of(row)], "both")
RESULTS = (
    result("validation", "validation"),
    result("test", "test"),
    result(LAST, "test_last"),
)
TABLE1 = core.Table(
    title="Table 1: accuracy and perplexity",
    note="Mean ± sample standard deviation over seeds. The test has the parameters of the best "
    "validation result, and the last step the final parameters. For PTB the number is the "
    "perplexity, where less is better. On PTB small the parameters are a moving average "
    "(0.999), which the paper does not have; results without it stand below.",
    about="test accuracy or perplexity of every cell",
    data=reported.DATA,
    variants=CELLS,
    trained=requested_cells,
    columns=(
        c.data(),
        CELL,
        c.parameters(of="both"),
        c.paper_number("validation: paper", reported.VALIDATION, ""),
        result("ours", "validation"),
        c.paper_number("test: paper", reported.TEST, ""),
        result("ours", "test"),
        result(f"ours, {LAST}", "test_last"),
    ),
)


PAIRED = core.Table(
    title="Table 1, paired tests",
    note="For classifiers the difference is that of the accuracy, and McNemar's test is exact "
    "and compares each pair of runs with the same seed. For PTB it is the difference of the "
    "negative log-likelihood of windows of the test text, in nats per token. On PTB small the "
    "LSTM has the learning rate 1, RAU and GRU have 0.5.",
    data=reported.DATA,
    variants=("gru", "lstm"),
    seen=CELLS,
    pair=lambda data, baseline: ("rau", baseline),
    columns=(
        c.data(),
        c.variant("baseline"),
        *c.paired_tests(("RAU minus baseline", *c.TESTS), points=False, digits=4, missing=NOT_RUN),
    ),
    below=c.sentences(lambda row: ("RAU", row.title)),
)


PTB_EPOCHS = int(reported.PTB_SETTINGS["ptb_small"][reported.PTB_COLUMNS.index("epochs")])


def last_epoch(record: Record) -> float:
    """Returns the epochs of a run of PTB small, whose `num_steps` is that of all 13 epochs."""
    return PTB_EPOCHS * float(record["steps"]) / record["config"]["train"]["num_steps"]


TRAINING = core.Table(
    title="Text: training perplexity in the last epoch",
    note="RAU on PTB small. The two perplexities are from different epochs: the paper trains "
    "for 13 epochs, and our run stops two epochs after the best, so that it had less time to "
    "learn the training text.",
    data=("ptb_small",),
    variants=("rau",),
    seen=(),
    columns=(
        c.data(),
        CELL,
        core.Column("last epoch: paper", lambda row: str(PTB_EPOCHS), "paper"),
        c.metric("ours", last_epoch, 1),
        c.paper_number("perplexity: paper", reported.TRAIN_PERPLEXITY, ""),
        c.metric("ours", "train_last_epoch_perplexity", 2),
    ),
)
TABLE2 = core.Table(
    title="Table 2: settings and parameters",
    note="The parameters are those of the recurrent layer with its biases; the paper's table "
    "has no such row. Width 28 is that of the paper's Table 2, and 128 that of its text.",
    about="settings and parameter counts (trains nothing)",
    body=lambda store: table2(),
    after=lambda job: say(table2()),
)


def changed_setting(name: str) -> str:
    """Returns the setting that the name of a record names, or "" for a preset's settings."""
    for mark, setting in (("_hidden", "width"), ("_lr", "learning rate")):
        # Records have no entry for their place in a table. Their name shows which setting differs
        # from the preset.
        if mark in name:
            return f"{setting} {name.partition(mark)[2]}"
    return ""


def other_settings(store: Store) -> list[tuple[str, str]]:
    """Returns (data set, system) of the records at other settings. The learning rates that the
    paper tried on IMDB are left out, because they have their own table."""
    in_paper = [("imdb", variant.name) for variant in RATES]
    names = [
        (name, variant)
        for name in reported.NAMES
        for variant in store.variants(name)
        if changed_setting(variant)
    ]
    # The table always has a row, so that the page names the command before its first run.
    return [row for row in names if row not in in_paper] or [("mnist", "rau_hidden28")]


OTHERS = core.Table(
    title="Other widths and learning rates",
    note="The commands are `tables table1 --hidden 28` and `tables table1 --data ptb_small "
    "--learning-rate 0.5`. The latter trains for all epochs of the preset and without a moving "
    "average.",
    list_rows=other_settings,
    columns=(
        *(c.data(), CELL, core.Column("changed", lambda row: changed_setting(row.variant))),
        *(c.parameters(), *RESULTS),
    ),
)


def errors(store: Store) -> str:
    """Returns the MNIST error in percent, next to rows that the paper quotes."""
    return c.beside_quoted(
        "error (%)",
        reported.QUOTED_ERRORS,
        ("RAU", reported.MNIST_ERROR),
        {title: store.all("mnist", cell) for cell, title in reported.CELLS.items()},
        lambda record: 100 * (1 - record["test"]["accuracy"]),
    )


TABLE3 = core.Table(
    title="Table 3: MNIST error",
    note="The quoted rows are from other papers and were not trained here.",
    about="MNIST error beside quoted rows",
    data=("mnist",),
    trained=requested_cells,
    body=errors,
)
TABLE4 = core.Table(
    title="Table 4: settings of PTB",
    note="The decay 1/1.5 is taken as a misprint of 1/1.15. Our rows are the presets. Table 1 "
    "averages the parameters of PTB small, stops two epochs after the best, and has a learning "
    "rate of 0.5 for RAU and GRU.",
    about="settings of PTB (trains nothing)",
    body=lambda store: table4(),
    after=lambda job: say(table4()),
)
LEARNING_RATES = core.Table(
    title="IMDB: learning rates",
    note="The paper gives no numbers for these.",
    about="those that the paper tried on IMDB",
    data=("imdb",),
    variants=tuple(variant.name for variant in RATES),
    seen=(),
    trained=at_rates,
    columns=(
        core.Column("learning rate", lambda row: row.variant.partition("_lr")[2]),
        CELL,
        result("validation accuracy", "validation"),
        result("test accuracy", "test"),
        result(LAST, "test_last"),
    ),
)
ATTENTION = core.Table(
    title="Forms of the attention",
    note="The paper leaves the form of the attention open. Table 1 has feature_proj without "
    "rescaling. Rescaling gives the weights a mean of 1. Runs may be shorter than those of "
    "table 1.",
    about="forms of the attention on MNIST",
    data=("mnist",),
    variants=tuple(variant.name for variant in FORMS),
    trained=forms,
    pair=lambda data, form: None if form == PLAIN else (form, PLAIN),
    columns=(
        c.data(),
        c.variant("attention"),
        core.Column("rescale", lambda row: "yes" if row.variant.endswith("_rescale") else "no"),
        c.parameters(),
        *RESULTS,
        *c.paired_tests(("minus feature_proj", "", "p"), points=False, seeds=False),
        c.MILLISECONDS,
    ),
)
MATCHED = core.Table(
    title="Equal parameter counts",
    note="RAU and LSTM have the width at which their number of parameters is the nearest to "
    "that of the GRU.",
    about="RAU and LSTM as small as the GRU",
    data=IMAGES,
    variants=("gru", "rau_matched", "lstm_matched"),
    seen=("rau_matched",),
    trained=matched_cells,
    pair=lambda data, name: None if name == "gru" else (name, "gru"),
    columns=(
        *(c.data(), CELL, c.first("width", "config.model.hidden"), c.parameters(), *RESULTS),
        *c.paired_tests(("minus GRU", *c.TESTS[:2]), points=False, seeds=False, digits=4),
    ),
)


def long_cells(job: core.Job, data: str) -> Iterable[str]:
    """Yields the cells that --cells names, for the paper's number of steps."""
    return map(long_name, job.options.cells)


def at_last(heading: str, place: int) -> core.Column:
    """Returns a column of RAU minus the cell of the row at the last step, in points. `place` is 0
    for the difference, and 1 for its interval."""

    def text(row: core.TableRow) -> str:
        return "-" if row.comparison is None else row.comparison.last_cells()[place]

    return core.Column(heading, text)


LONG_TABLE = core.Table(
    title="Images: the paper's 100,000 steps",
    note="Adam at the constant rate 0.001, without clipping. The paper trains for 100,000 steps "
    "without validation and gives no learning rate. Differences are in points. Validation chose "
    "parameters every 2,000 steps. The intervals at the last step have the variance over test "
    "examples of the chosen parameters. No claim uses this table.",
    about="accuracy on images after the paper's 100,000 steps",
    data=IMAGES,
    variants=LONG,
    seen=(),
    trained=long_cells,
    pair=lambda data, name: (long_name("rau"), name) if name != long_name("rau") else None,
    columns=(
        *(c.data(), CELL),
        c.parameters("steps", "steps"),
        c.paper_number("paper", lambda row: reported.TEST[cell_of(row)][row.data], ""),
        result("ours, chosen by validation", "test"),
        result(f"ours, {LAST}", "test_last"),
        c.paper_number(
            "RAU minus cell: paper",
            lambda row: paper_difference(row.data, cell_of(row)),
            "+.2f",
            where=lambda row: cell_of(row) != "rau",
        ),
        *c.paired_tests(("ours, chosen by validation", "95 % interval", "p")),
        at_last(f"ours, {LAST}", 0),
        at_last("95 % interval", 1),
    ),
)
FASTER_TABLE = core.Table(
    title="PTB small: RAU at the paper's learning rate",
    note="Table 1 has the learning rate 0.5 for RAU and GRU, and their other settings are equal. "
    "At the paper's learning rate 1, with the moving average, the RAU is worse on the validation "
    "text. The tests compare with the GRU of table 1, in nats per token, where less is better. No "
    "claim uses this table.",
    about="RAU on PTB small at the paper's learning rate",
    data=("ptb_small",),
    variants=("rau", FASTER_RAU.name, "gru"),
    seen=(FASTER_RAU.name,),
    trained=lambda job, data: [FASTER_RAU],
    pair=lambda data, name: None if name == "gru" else (name, "gru"),
    columns=(
        *(c.data(), CELL),
        c.first("learning rate", "config.train.optimizer.learning_rate", "g"),
        *RESULTS[:2],
        *c.paired_tests(("minus GRU", *c.TESTS[:2]), points=False, digits=4),
    ),
)
FIGURES = core.Table(
    title="Figures",
    note="Curves are drawn from the records. Figure 7 shows 314 steps of IMDB, of 30,000 in the "
    "paper.",
    body=figures.list_figures,
)
RUNS = c.runs(
    reported.NAMES,
    c.BATCH,
    c.RATE,
    c.first("schedule", "config.train.optimizer.schedule"),
    c.first("clip", "config.train.optimizer.clip_norm", "g"),
    c.first("width", "config.model.hidden"),
    *c.PROGRESS,
)


def curves_figure(about: str, data: str, trained: Any = requested_cells) -> core.Figure:
    """Returns a figure with curves of the cells that --cells names."""
    return core.Figure(after=figures.curves, about=about, data=(data,), trained=trained)


def report(console: Console, records: Records, workdir: Path) -> None:
    """Prints the metrics of validation and test, parameters and time."""
    (record,) = records  # only the command for tables trains several seeds
    unit = "tokens" if record["data"] in LANGUAGE else "examples"
    cell = reported.CELLS[record["cell"]]
    title = f"{cell} on {record['data']} (test: {record['test_n']:,} {unit})"
    names = [name for name in ("accuracy", "perplexity", "loss") if name in record["test"]]
    print_metrics(console, record, title, tuple(names))
    recurrent = f"{record['recurrent_parameters']:,} of them recurrent"
    console.print(f"{record['parameters']:,} parameters, {recurrent}")
    print_time(console, record, workdir)


def paper_recipe(store: Store) -> str:
    """Returns a remark on PTB small: how our recipe differs, and RAU by the paper's."""
    remark = "with a moving average, a lower learning rate and an early stop"
    records = store.all("ptb_small", "rau_lr1")
    if not records:
        return remark
    text = format_average(records, lambda record: record["test"]["perplexity"], 2)
    return f"{remark}; {text} by the paper's recipe"


def numbers(store: Store) -> list[Number]:
    """Returns the paper's numbers of all cells with ours: accuracy in percent, or perplexity."""
    numbers = []
    for cell in CELLS:
        for name, theirs in reported.TEST[cell].items():
            language = name in LANGUAGE
            metric, times = ("perplexity", 1) if language else ("accuracy", 100)
            numbers += number_of(
                reported.CELLS[cell],
                reported.NAMES[name],
                times * float(theirs),
                store.all(name, cell),
                c.scaled_value(f"test.{metric}", times),
                is_method=cell == "rau",
                unit=metric if language else "points",
                remark=paper_recipe(store) if (cell, name) == ("rau", "ptb_small") else "",
            )
    return numbers


def paper_difference(data: str, baseline: str) -> float:
    """Returns how much better RAU is in the paper: points, or nats per token of the test text."""
    ours, theirs = (float(reported.TEST[cell][data]) for cell in ("rau", baseline))
    return math.log(theirs / ours) if data in LANGUAGE else 100 * (ours - theirs)


PAPER = core.Paper(
    start=START,
    twins=True,
    title="RAU",
    source='Zhong, Yue and Ling, "Recurrent Attention Unit" (2018)',
    names=reported.NAMES,
    variants=core.variants(*VARIANTS),
    tables={
        "table1": TABLE1,
        "table2": TABLE2,
        "table3": TABLE3,
        "table4": TABLE4,
        "figure3": core.Figure(
            after=lambda job: figures.samples(job, "mnist"), about="images of MNIST"
        ),
        "figure4": core.Figure(
            after=lambda job: figures.samples(job, "fashion_mnist"), about="of Fashion-MNIST"
        ),
        "figure5": curves_figure("validation curves of Fashion-MNIST", "fashion_mnist", long_cells),
        "figure6": curves_figure("of PTB", "ptb_medium"),
        "figure7": curves_figure("training curves of IMDB", "imdb", at_rates),
        "learning_rates": LEARNING_RATES,
        "variants": ATTENTION,
        "matched": MATCHED,
        "long": LONG_TABLE,
        "faster": FASTER_TABLE,
    },
    page=(
        *(TABLE1, PAIRED, TRAINING, TABLE2, OTHERS, TABLE3, TABLE4),
        *(LEARNING_RATES, ATTENTION, MATCHED, LONG_TABLE, FASTER_TABLE, FIGURES, RUNS),
    ),
    claims=(
        *(
            core.Claim(
                says=f"RAU is better than {reported.CELLS[name]}",
                table=PAIRED,
                rows=(name,),
                data=reported.DATA,
                paper=paper_difference,
                units=dict.fromkeys(LANGUAGE, "nats per token"),
            )
            for name in PAIRED.variants
        ),
        core.Claim(
            says="RAU is better than GRU with as many parameters",
            table=MATCHED,
            rows=("rau_matched",),
            data=IMAGES,
        ),
    ),
    numbers=numbers,
    search="the trials behind the presets (learning rates, the moving average on PTB small) have "
    "no record",
    experiment=experiment,
    report=report,
    keys=("config", "seed", "cell", "validation", "test", "test_n"),
    options=RAUOptions,
)
