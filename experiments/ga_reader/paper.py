"""GA Reader: Dhingra et al., "Gated-Attention Readers for Text Comprehension" (2017)."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from experiments.core import columns
from experiments.core import paper as core
from experiments.core.claims import untested
from experiments.core.columns import print_metrics, print_parameters, print_time
from experiments.core.comparison import paragraphs, sentence
from experiments.core.config import Changes
from experiments.core.kinds import Json
from experiments.core.origins import NOT_RUN, origin_of, other_data
from experiments.core.records import LAST, Record, Records, Store
from experiments.ga_reader import figures, reported, statistics
from experiments.ga_reader.config import START, GAReaderRunConfig, base_of, feature_of
from experiments.ga_reader.experiment import experiment
from gatedjax import analysis
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say


def reader(name: str, title: str, *, feature: bool = False, **network: Any) -> core.Variant:
    """Returns a reader of a table."""
    changes = {"feature": feature} | network
    return core.Variant(
        name, title, {f"model.{option}": value for option, value in changes.items()}
    )


FIXED: Json = {"freeze_embeddings": True}
TRAINED: Json = {"freeze_embeddings": False}
NO_CHARACTERS: Json = {"characters.char_dim": 0}
OLD: Json = {"token_attention": False, **NO_CHARACTERS}
VARIANTS = core.variants(
    reader("fix", "GA, fixed vectors", **FIXED),
    reader("update", "GA, trained vectors", **TRAINED),
    reader("feature_fix", "GA + feature, fixed vectors", feature=True, **FIXED),
    reader("feature_update", "GA + feature, trained vectors", feature=True, **TRAINED),
    reader("minus", "GA-- (no characters, one query vector, corpus vectors)", **OLD, **TRAINED),
    reader("sum", "gating: sum", gating="sum"),
    reader("concat", "gating: concatenate", gating="concat"),
    reader("no_gating", "no gating", gating="none"),
    reader("feature_no_gating", "no gating + feature", feature=True, gating="none"),
    reader("hops_1", "K = 1", hops=1),
    reader("hops_2", "K = 2", hops=2),
    reader("hops_4", "K = 4", hops=4),
    reader("no_characters", "without characters", **NO_CHARACTERS),
    reader("no_token_attention", "one query vector for all tokens", token_attention=False),
    reader("corpus", "corpus vectors instead of GloVe"),
)
FROM_CORPUS = ("minus", "corpus")
"""Readers that start from word vectors trained on the documents of the questions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderOptions(core.TableOptions):
    """Options of the tables of this paper."""

    embeddings: Unset[str] = None
    """The GloVe file, or "none" for random vectors (default: the preset's)."""
    corpus_vectors: Unset[str] = None
    """A file in GloVe's form with vectors of the training documents. Without it the readers that
    start from such vectors are not run."""
    hidden: Unset[int] = None
    """Another width of the GRUs, for all readers."""
    batch_size: Unset[int] = None
    """Another batch size, for all readers."""
    learning_rate: Unset[float] = None
    """Another learning rate, for all readers."""
    eval_every: Unset[int] = None
    """Steps between evaluations, and between checkpoints."""
    random_vectors: ClassVar = ("toy",)

    def changes(self, preset: GAReaderRunConfig) -> Changes:
        """Returns the changes that the options make to a preset."""
        # A checkpoint at each evaluation lets an interrupted run continue from its last evaluation.
        every = self.eval_every
        changes = {
            "data.batch_size": self.batch_size,
            "model.hidden": self.hidden,
            "train.optimizer.learning_rate": self.learning_rate,
            "train.eval_every": every,
            "train.checkpoint_every": every,
            # The training loss is logged at least once between two evaluations.
            "train.log_every": None if every is None else min(preset.train.log_every, every),
        }
        return {name: value for name, value in changes.items() if value is not None}


def readers(names: Iterable[str], data: str) -> tuple[str, ...]:
    """Returns the names of readers, with "BASE" and "FEATURE" replaced by the readers of a data
    set."""
    of_data = {"BASE": base_of(data), "FEATURE": feature_of(data)}
    return tuple(of_data.get(name, name) for name in names)


def select_readers(job: core.Job, data: str) -> Iterator[core.Variant]:
    """Yields the readers of a table. Readers that start from vectors of the corpus are left out
    without --corpus-vectors."""
    vectors = job.options.corpus_vectors
    for name in readers(job.table.variants, data):
        variant = VARIANTS[name]
        if name not in FROM_CORPUS:
            yield variant
        elif vectors is None:
            # The other readers still run, because only this reader needs the file.
            say(f"{data}, {name}: left out, it needs --corpus-vectors")
        else:
            yield dataclasses.replace(
                variant, changes={**variant.changes, "data.embeddings": vectors}
            )


def select_on_shares(job: core.Job, data: str) -> Iterator[core.Variant]:
    """Yields the readers of figure 2, each on all shares of the training questions."""
    for variant in select_readers(job, data):
        for share in reported.FRACTIONS:
            # The share is part of the settings and of the name, because each share is a separate
            # record.
            changes = {**variant.changes, "data.fraction": share / 100}
            yield core.Variant(figures.with_share(variant.name, share), variant.title, changes)


def readers_to_draw(job: core.Job, data: str) -> tuple[str, ...]:
    """Returns the readers that figure 3 trains: none if a finished run can be drawn."""
    # The heat maps need a single trained reader, so a finished run is drawn and not repeated.
    has_run = not job.options.rerun and figures.workdir_of(job, data) is not None
    return () if has_run else (base_of(data),)


def accuracies(
    data: Sequence[str], other_papers: Mapping[str, Mapping[str, reported.Pair]], store: Store
) -> str:
    """Renders tables 1 and 3: rows of other papers, then the paper's readers and ours below each
    other. Our accuracies on other questions than the paper's are in a second table."""

    def format_accuracies(values: Mapping[str, reported.Pair]) -> list[str]:
        numbers = (number for name in data for number in values.get(name, (None, None)))
        return ["-" if number is None else f"{number:.1f}" for number in numbers]

    headings, elsewhere = ["model"], []
    # Quoted rows come first, as in the paper, so that the page can be read next to it.
    rows = [[model, *format_accuracies(values), QUOTED] for model, values in other_papers.items()]
    for name in data:
        headings += [f"{reported.NAMES[name]}: validation", "test"]
    for variant in READERS:
        title, ours = VARIANTS[variant].title, [VARIANTS[variant].title]
        rows.append([title, *format_accuracies(reported.OWN[variant]), "the paper's own"])
        for name in data:
            records = store.all(name, variant)
            cells = [statistics.accuracy_text(records, part) for part in ("validation", "test")]
            if other_data(records):
                # Accuracies on another test set do not belong in the paper's column.
                last = columns.at_last_step(records)
                theirs = origin_of(records[0])
                elsewhere.append([reported.NAMES[name], title, *cells, last, theirs])
                cells = [NOT_RUN, NOT_RUN]
            ours += cells
        rows.append([*ours, "ours"])
    text = analysis.render_table([*headings, "source"], rows)
    if not elsewhere:
        return text
    headings = ["questions in the form of", "model", "validation", "test", LAST]
    headings.append("questions of ours")
    return paragraphs(
        text,
        "Our results on questions other than the published ones, which the numbers above do "
        "not include:",
        analysis.render_table(headings, elsewhere),
    )


def paper_accuracy(part: int) -> Callable[[core.TableRow], float | None]:
    """Returns the column of the paper's accuracy of its readers: 0 in validation, 1 in the test."""
    return lambda row: reported.OWN.get(row.variant, {}).get(row.data, (None, None))[part]


def comparison_table(store: Store, table: core.Table, data: str) -> core.Table:
    """Returns a table of readers on a data set with tests against their base, also as sentences."""
    base, feature, names = base_of(data), feature_of(data), readers(table.variants, data)
    records = {name: store.all(data, name) for name in names}
    pairs = {name: (records[base], records[name]) for name in names if name != base}
    if feature in names:
        # The paper claims that the feature helps, so this test has the feature on the better side,
        # in contrast to the rows.
        pairs["helps"] = records[feature], records[base]
    single = statistics.one_sided_texts(pairs)

    def one_sided(row: core.TableRow) -> str:
        return "-" if row.comparison is None else single[row.variant]

    def below(store: Store, rows: Sequence[core.TableRow]) -> Iterator[str]:
        lines = [
            sentence(row.label, VARIANTS[base].title, row.title, row.comparison)
            for row in rows
            if row.variant != base
        ]
        if "helps" in single:
            lines.append(f"{HELPS}: {single['helps']}.")
        lines += table.below(store, rows)
        ours = [record for row in rows for record in row.records]
        if other_data(ours):
            origins = sorted({origin_of(record) for record in ours})
            lines += [f"{rows[0].label}: ours are {origin}." for origin in origins]
        yield "\n".join(f"- {line}" for line in lines)

    return dataclasses.replace(
        table,
        list_rows=lambda store: [(data, name) for name in names],
        pair=lambda data, name: None if name == base else (base, name),
        columns=(
            core.Column("reader", lambda row: row.title + " (base)" * (row.variant == base)),
            columns.paper_number("{theirs}: validation", paper_accuracy(0), ".1f"),
            columns.paper_number("test", paper_accuracy(1), ".1f"),
            columns.percent("{mine}: validation (%)", "validation.accuracy"),
            *columns.with_last("test (%)", 2, times=100),
            *columns.paired_tests(("base minus reader", "95 % interval", "p")),
            core.Column(
                "McNemar p, one-sided, each seed (only base right : only reader)", one_sided
            ),
            columns.parameters(),
        ),
        below=below,
    )


def for_each_data_set(
    make: Callable[[Store, core.Table, str], core.Table],
    table: core.Table,
    *only: str,
    more_data: tuple[str, ...] = (),
) -> Callable[[Store], Iterator[core.Table]]:
    """Returns a function that makes a section of RESULTS.md for each data set with records. A data
    set of the table, of `more_data`, or with a record of a reader of the table (of `only`, if
    given) has a section."""

    def sections(store: Store) -> Iterator[core.Table]:
        for name, label in reported.NAMES.items():
            # Sections without a record of these readers would be empty tables.
            if name in (*table.data, *more_data) or any(store.all(name, reader) for reader in only):
                title = table.title.format(data=label)
                yield dataclasses.replace(make(store, table, name), title=title)

    return sections


QUOTED = "quoted in the paper, not trained here"
HELPS = "The feature helps: McNemar p, one-sided, of each seed"
ONE_HOP = f"K = 1 in the paper is {reported.K1_QUOTED:.0f} on the test set: {QUOTED}."
READERS = ("minus", "update", "fix", "feature_update", "feature_fix")
"""The readers of tables 1 and 3."""
OTHERS = "The rows of other papers are quoted and were not trained here."
TESTS = (
    "Mean ± sample standard deviation over seeds, with the parameters of the best validation "
    "accuracy. The difference is the base minus the reader, in points. The exact one-sided "
    "McNemar test compares each pair of runs with the same seed: is the base better? The "
    "McNemar p in the sentences are two-sided. A question whose answer cannot be found counts "
    "as wrong."
)
_Table = functools.partial(core.Table, trained=select_readers)
TABLE1 = _Table(
    title="Table 1: Who-did-What, accuracy (%)",
    note=OTHERS,
    about="WDW with fixed or trained word vectors, with and without the feature",
    data=reported.WDW,
    variants=READERS,
    body=functools.partial(accuracies, reported.WDW, reported.QUOTED_WDW),
)
TABLE2 = _Table(
    title="Table 2: gating and hops, {data}",
    note=TESTS,
    about="gating functions and hops",
    data=("wdw",),
    variants=("sum", "concat", "BASE", "hops_1", "hops_2", "hops_4"),
    below=lambda store, rows: [ONE_HOP] * (rows[0].data == "wdw"),
)
TABLE3 = dataclasses.replace(
    TABLE1,
    title="Table 3: CNN, Daily Mail and CBT, accuracy (%)",
    about="the same readers as table1 on CNN, Daily Mail and CBT",
    data=reported.CLOZE,
    body=functools.partial(accuracies, reported.CLOZE, reported.QUOTED_CLOZE),
)
TABLE4 = _Table(
    title="Table 4: ablations, {data}",
    note="Corpus vectors are not trained here; `--corpus-vectors FILE` reads them.",
    about="ablations",
    data=("wdw",),
    variants=("BASE", "no_characters", "no_token_attention", "corpus", "minus"),
)
CBT = _Table(
    title="One budget: {data}",
    note="`tables cbt` trains the readers of tables 2 and 4 for the same number of steps at "
    "most; a run ends when validation no longer improves. " + TESTS,
    about="the readers of tables 2 and 4 at one budget on CBT",
    data=("cbt_ne",),
    variants=(
        *("BASE", "hops_1", "no_gating", "no_token_attention", "sum", "concat"),
        *("no_characters", "FEATURE"),
    ),
)
TOY = _Table(
    title="Two facts",
    note="`tables toy` trains on generated questions, each of which needs two facts.",
    about="two hops and one on the two facts",
    data=("toy",),
    variants=("BASE", "hops_1"),
)
FIGURE2 = _Table(
    title="Figure 2: gating by training size, {data}",
    note="The shares are nested: 75 % includes the 50 %. All have the same test questions. Our "
    "p are not corrected, like those of the paper.",
    about="with and without gating on shares of the training questions",
    data=reported.FIGURE2,
    variants=("BASE", "no_gating", "FEATURE", "feature_no_gating"),
    trained=select_on_shares,
    after=figures.bars,
)
FIGURE3 = core.Table(
    title="Figures",
    note="The commands `tables figure2`, `tables figure3` and `tables curves` draw the figures.",
    about="heat maps of attention on validation questions, trained only if there is no run",
    data=("wdw",),
    trained=readers_to_draw,
    body=figures.figure_links,
    after=figures.heat_maps,
)
PROPORTIONS = core.Table(
    title="Proportion tests against the second best",
    note="The test is one-sided and takes the quoted accuracy as exact. The paper's p rest on "
    "accuracies with more digits than it prints. Neither its p nor ours are corrected. There "
    "is no test if our questions differ from those of the quoted row.",
    body=statistics.proportions,
)
TABLE5 = core.Table(
    title="Table 5: statistics",
    note="The words of documents and queries of all splits are counted in lower case.",
    about="counts of the data sets that are here; nothing is trained",
    data=(*reported.CLOZE, *reported.WDW),
    body=statistics.table5,
    after=statistics.count,
)
TABLE6 = core.Table(
    title="Table 6: tuned values",
    note="The width of the GRU is that of a direction.",
    body=statistics.table6,
)


def word_vectors(record: Record) -> str:
    """Returns the file of word vectors, and the share of the words in it."""
    coverage = record.get("embedding_coverage")
    share = "" if coverage is None else f" ({100 * coverage:.1f} %)"
    return f"{record['config']['data']['embeddings']}{share}"


RUNS = columns.runs(
    reported.NAMES,
    columns.first("training questions", "train_n", ","),
    columns.BATCH,
    columns.first("H", "config.model.hidden"),
    columns.first("K", "config.model.hops"),
    columns.RATE,
    columns.first("word vectors (found)", word_vectors),
    columns.each_value("steps", "steps"),
    columns.each_value("best steps", "best_step"),
    columns.first("per epoch", "steps_per_epoch", ","),
    columns.SECONDS,
    columns.MILLISECONDS,
    heading="reader",
)


def report(console: Console, records: Records, workdir: Path) -> None:
    """Prints the metrics of validation and test, the counts of questions, and the time."""
    (record,) = records
    title = f"GA Reader on {record['data']} (test: {record['test_n']:,} questions)"
    print_metrics(console, record, title, ("accuracy", "loss"))
    for split, counts in record["counts"].items():
        parts = [f"{counts['questions']:,} questions"]
        if counts["set_aside"]:
            parts.append(f"{counts['set_aside']:,} more set aside")
        parts += [f"{outcome}: {count:,}" for outcome, count in counts["notes"].items()]
        if counts["documents_cut"]:
            parts.append(f"documents cut: {counts['documents_cut']:,}")
        if counts["answer_not_in_document"]:
            outcome = "left out of the loss" if split == "train" else "counted as wrong"
            parts.append(f"answer not to be found: {counts['answer_not_in_document']:,}, {outcome}")
        console.print(f"{split}: {'; '.join(parts)}", markup=False, highlight=False)
    print_parameters(console, record)
    print_time(console, record, workdir)


COMPARED = (
    for_each_data_set(comparison_table, TABLE2, "hops_2", "hops_4"),
    for_each_data_set(comparison_table, TABLE4),
    for_each_data_set(comparison_table, CBT, "no_gating", more_data=("cbt_cn",)),
    for_each_data_set(comparison_table, TOY),
)
"""The tables that compare readers with their base, on the paper's data and on ours."""


def compared_readers(store: Store) -> Iterator[core.Table]:
    """Yields the tables of `COMPARED`."""
    return itertools.chain.from_iterable(section(store) for section in COMPARED)


FEATURES = ("feature_fix", "feature_update")
PAPER_DATA = ("toy", *reported.CLOZE, *reported.WDW)


def paper_difference(data: str, reader: str) -> float | None:
    """Returns the paper's difference for a claim, in points of test accuracy. The paper has the
    ablations only on WDW; this difference is also the measure for other questions. Its row K = 1 is
    quoted from another paper, for WDW only. It gives only p-values of gating against none, and no
    result of the generated questions."""
    if data == "toy" or reader == "no_gating" or (reader == "hops_1" and data != "wdw"):
        return None
    base, feature = base_of(data), feature_of(data)
    if reader in FEATURES:
        return difference_of(reported.OWN[feature][data], base, data)
    theirs = (None, reported.K1_QUOTED) if reader == "hops_1" else reported.OWN[reader]["wdw"]
    (_, first), (_, second) = reported.OWN[base_of("wdw")]["wdw"], theirs
    return None if first is None or second is None else first - second


def difference_of(pair: reported.Pair, reader: str, data: str) -> float | None:
    """Returns the test accuracy of `pair` minus that of a reader on a data set, in points."""
    (_, first), (_, second) = pair, reported.OWN[reader][data]
    return None if first is None or second is None else first - second


def of_other_questions(data: str, reader: str) -> str:
    """Returns the mark of a size that the paper has only on other questions, or ""."""
    is_lent = reader not in FEATURES and data not in reported.WDW
    return "size of Who-did-What" if is_lent and paper_difference(data, reader) else ""


FIXED_OR_TRAINED = core.Table(
    data=(*reported.CLOZE, *reported.WDW),
    variants=("update",),
    seen=(),
    pair=lambda data, reader: ("fix", reader),
)
"""The comparisons of word vectors in tables 1 and 3, which is no table of the page."""


def without_numbers(store: Store) -> str:
    """Returns the first paragraph of the page, with our accuracies on other questions."""
    parts = [
        f"{statistics.accuracy_text(records)} by {VARIANTS[reader].title} on "
        f"{reported.NAMES[data]}, where the paper has {reported.OWN[reader][data][1]}"
        for data in reported.CLOZE
        for reader in (base_of(data), feature_of(data))
        if (records := store.all(data, reader)) and other_data(records)
    ]
    text = "**No run is on the paper's questions, so none of its numbers is tested.**"
    return text + f" On rebuilt questions the accuracy in % is {'; '.join(parts)}." * bool(parts)


PAPER = core.Paper(
    start=START,
    title="GA Reader",
    source='Dhingra et al., "Gated-Attention Readers for Text Comprehension" (2017)',
    names=reported.NAMES,
    variants=VARIANTS,
    tables={
        "table1": TABLE1,
        "table2": TABLE2,
        "table3": TABLE3,
        "table4": TABLE4,
        "figure2": FIGURE2,
        "figure3": FIGURE3,
        "statistics": TABLE5,
        "cbt": CBT,
        "toy": TOY,
        "curves": core.Figure(
            about="of finished runs that learned, accuracy while training",
            data=("cbt_ne",),
            after=figures.curves,
        ),
    },
    page=(
        TABLE1,
        COMPARED[0],
        TABLE3,
        *COMPARED[1:],
        for_each_data_set(figures.shares, FIGURE2, "no_gating_50", "no_gating_75"),
        PROPORTIONS,
        TABLE5,
        TABLE6,
        FIGURE3,
        RUNS,
    ),
    claims=(
        *(
            core.Claim(
                says=says,
                table=compared_readers,
                rows=rows,
                data=PAPER_DATA,
                flip=rows == FEATURES,
                paper=paper_difference,
                mark=of_other_questions,
            )
            for says, rows in {
                "Multiplying is better than adding": ("sum",),
                "Multiplying is better than concatenating": ("concat",),
                "Gating is better than none": ("no_gating",),
                "A query vector for each word is better than one for all": ("no_token_attention",),
                "Several hops are better than one": ("hops_1",),
                "Three hops are better than two": ("hops_2",),
                "Characters help": ("no_characters",),
                "The feature helps": FEATURES,
            }.items()
        ),
        core.Claim(
            says="Fixed vectors are better than trained vectors",
            table=FIXED_OR_TRAINED,
            rows=("update",),
            data=FIXED_OR_TRAINED.data,
            paper=lambda data, reader: difference_of(reported.OWN["fix"][data], reader, data),
            why_not_run="no run of trained vectors",
        ),
        core.Claim(
            says="GloVe is better than corpus vectors",
            table=compared_readers,
            rows=("corpus",),
            data=PAPER_DATA,
            paper=paper_difference,
            why_not_run="no vectors of the corpus were trained",
        ),
        core.Claim(
            says="Four hops are as good as three",
            find=untested("no run; equality is not tested"),
        ),
        core.Claim(
            says="Gating helps more with more questions",
            find=untested("no run on parts of the questions"),
        ),
    ),
    without_numbers=without_numbers,
    search="the trials behind the presets (steps, width 64, learning rates) have no record",
    experiment=experiment,
    report=report,
    keys=("config", "seed", "data", "validation", "test", "test_n", "correct"),
    options=ReaderOptions,
)
