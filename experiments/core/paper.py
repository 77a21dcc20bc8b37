"""A paper as a value: its systems, tables, figures and claims, and the experiment of a run."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from rich.console import Console

from experiments.core import claims, summary
from experiments.core.chart import draw_chart
from experiments.core.claims import Case, Finding, Number
from experiments.core.comparison import Comparison, Groups, compare_all, paragraphs, test_note
from experiments.core.config import Changes, Start, public_config, with_changes
from experiments.core.experiment import Experiment
from experiments.core.kinds import Config, Json
from experiments.core.origins import NOT_RUN, columns, split_row
from experiments.core.records import (
    DIVERGED,
    RESULTS,
    Records,
    Store,
    alive,
    read_json,
    write_results,
)
from gatedjax import analysis
from gatedjax._utils.options import CpuDevices, Several, Unset

TRIALS = "tuning.json"
"""The records of the trials of a search for settings, in a folder of results."""
TUNING = "TUNING.md"
"""The page of a folder of results that lists these trials."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A system of a table.

    Attributes:
      name: the name of its records.
      title: its name in tables.
      changes: its changes to the configuration of a preset.
      same_as: another variant. If both have the same configuration in records, this variant has the
        records of the other.
      tuned: changes for single data sets, from a search of this system's settings.
    """

    name: str
    title: str
    changes: Changes = dataclasses.field(default_factory=dict)
    same_as: str | None = None
    tuned: Mapping[str, Changes] = dataclasses.field(default_factory=dict)

    def on(self, data: str) -> Changes:
        """Returns the changes to the preset of a data set."""
        return {**self.changes, **self.tuned.get(data, {})}


def variants(*systems: Variant) -> dict[str, Variant]:
    """Returns variants by name."""
    return {variant.name: variant for variant in systems}


@dataclasses.dataclass(frozen=True)
class Cell:
    """The runs that a cell needs: data set, name of the records, and a configuration per seed."""

    data: str
    variant: str
    configs: Mapping[int, Config]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Reproduces a table or figure: trains the runs that it lacks and writes RESULTS.md."""

    what: str
    """Table or figure to reproduce."""
    data: Several[str] = ()
    """Data sets, by preset (default: those of the paper's table or figure)."""
    seeds: int = 3
    """Runs per cell, with seeds 0, 1, ..."""
    data_dir: Unset[str] = None
    """Folder with prepared TFDS data sets."""
    manual_dir: Unset[str] = None
    """Folder with the raw files, to work without a network."""
    num_steps: Unset[int] = None
    """Steps per run (default: the preset's)."""
    results: Path = RESULTS
    """Folder for records, figures and RESULTS.md."""
    runs: Path = Path("runs")
    """Folder with the work folders of the runs, from which an interrupted run continues."""
    rerun: bool = False
    """Repeat the runs that have a record or a work folder, from the start."""
    lanes: int = 1
    """Number of seeds of a cell that are trained together in one program. In a cell with an
    interrupted run that run is continued separately. Figures that show the inside of a network need
    a run that was trained separately."""
    cpu_devices: CpuDevices = None
    """CPU devices to split a batch over (default: one per core)."""
    cell: Unset[str] = None
    """Make only this run of the table, DATA/VARIANT/SEED, and write only its record."""
    owned: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Option names, and the tables that accept the option; the other tables refuse it."""
    random_vectors: ClassVar[tuple[str, ...]] = ()
    """Presets with random word vectors, which --embeddings does not change."""

    def check(self) -> None:
        """Exits with status 2 if the options contradict each other."""

    def changes(self, preset: Config) -> Changes:
        """Returns the changes that the options of a paper make to a preset."""
        return {}

    def with_steps(self, config: Config, steps: int) -> Config:
        """Returns a configuration with another number of steps."""
        return with_changes(config, {"train.num_steps": steps})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableRow:
    """A row of a table, with the records of its seeds. `data` and `variant` are the names in the
    records, `label` and `title` those in tables. `diverged` is the number of runs that ended
    without a result."""

    data: str
    label: str
    variant: str
    title: str
    records: Records
    comparison: Comparison | None = None
    diverged: int = 0

    def cell(self, column: "Column") -> str:
        """Returns the text of a column; if runs diverged, that replaces the text "not run"."""
        text = column.text(self)
        return f"{DIVERGED} (n={self.diverged})" if self.diverged and text == NOT_RUN else text


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      heading: the heading. "{theirs}" and "{mine}" become the headings of `origins.columns`;
        "{other}" becomes a remark that our data differ, or disappears.
      text: returns the cell of a row.
      of: the origin of the cells. If our data differ, cells of the paper and ours stand in separate
        rows; "data" is the name of the data set, "both" stands in both rows.
    """

    heading: str
    text: Callable[[TableRow], str]
    of: Literal["paper", "ours", "data", "both"] = "ours"


Grid = Iterable[tuple[str, str]]
"""The (data set, variant) of the rows of a table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table: the runs that it needs, and its contents.

    Attributes:
      title: its heading in RESULTS.md.
      note: the paragraph below it.
      about: its description in the help of the command.
      data: the data sets of the paper's table.
      variants: its systems, by name.
      trained: a function of (job, data set) that returns the systems to train; None trains
        `variants`.
      list_rows: a function of (store) that returns the rows as (data set, variant). None shows
        `variants` on `data`, and on the other data sets on which a system of `seen` was run and did
        not collapse.
      seen: see `list_rows`; None means `variants`.
      columns: its columns.
      pair: a function of (data set, variant) that returns the two systems that a row compares, or
        None.
      below: a function of (store, rows) that returns the paragraphs between table and note.
      body: a function of (store) that returns the whole table, instead of columns.
      after: a function of (job) that the command calls after the runs, for example to count or
        print.
      is_folded: True if the page shows the table only after a click, because it is long.
      quoted: rows of the paper's numbers, above ours; missing cells become dashes.
      groups: returns the groups of dependent test examples, see `comparison.Groups`.
    """

    title: str = ""
    note: str = ""
    about: str = ""
    data: Several[str] = ()
    variants: tuple[str, ...] = ()
    trained: "Callable[[Job, str], Iterable[Variant | str]] | None" = None
    list_rows: Callable[[Store], Grid] | None = None
    seen: tuple[str, ...] | None = None
    columns: tuple[Column, ...] = ()
    pair: Callable[[str, str], tuple[str, str] | None] | None = None
    below: Callable[[Store, Sequence[TableRow]], Iterable[str]] = lambda store, rows: ()
    body: Callable[[Store], str] | None = None
    after: "Callable[[Job], None] | None" = None
    is_folded: bool = False
    quoted: Sequence[Sequence[str]] = ()
    groups: Groups = lambda record: None

    def folded(self, text: str) -> str:
        """Returns the text of the table, in an element that opens on a click if `is_folded`."""
        # Two of the lines are the headings and the rule below them.
        count = sum(line.startswith("|") for line in text.splitlines()) - 2
        if not self.is_folded or count < 1:
            return text
        # Markdown between HTML tags is rendered only after an empty line.
        return f"<details>\n<summary>Show the {count} rows</summary>\n\n{text}\n\n</details>"

    def grid(self, paper: "Paper", store: Store) -> Grid:
        """Returns (data set, variant) of each row."""
        if self.list_rows is not None:
            return self.list_rows(store)
        # A table has the rows of the paper's data sets, and of a further data set as soon as a run
        # on it exists.
        seen = self.variants if self.seen is None else self.seen
        return [
            (data, variant)
            for data in paper.names
            if data in self.data or any(alive(store.all(data, name)) for name in seen)
            for variant in self.variants
        ]

    def compared(self, data: str, variant: str) -> tuple[str, ...]:
        """Returns the two systems that a row compares, or ()."""
        return (self.pair(data, variant) if self.pair is not None else None) or ()

    def rows(self, paper: "Paper", store: Store) -> list[TableRow]:
        """Returns the rows with their records and tests."""
        grid = list(self.grid(paper, store))

        @functools.cache  # many rows compare with the same system
        def records(data: str, name: str) -> Records:
            return store.all(data, paper.record_name(data, name))

        pairs = {
            (data, variant): (records(data, names[0]), records(data, names[1]))
            for data, variant in grid
            if (names := self.compared(data, variant))
        }
        comparisons = compare_all(pairs, self.groups)
        return [
            TableRow(
                data=data,
                label=paper.names.get(data, data),
                variant=variant,
                title=paper.variants[variant].title if variant in paper.variants else variant,
                records=records(data, variant),
                comparison=comparisons.get((data, variant)),
                diverged=len(store.diverged(data, paper.record_name(data, variant))),
            )
            for data, variant in grid
        ]

    def text(self, paper: "Paper", store: Store) -> str:
        """Returns the table and the paragraphs below it, as Markdown."""
        if self.body is not None:
            return self.body(store)
        rows = self.rows(paper, store)
        # The heading names the data if ours differ from the paper's, so that nobody compares
        # numbers of different test sets.
        theirs, mine = columns(record for row in rows for record in row.records)
        words = {"theirs": theirs, "mine": mine, "other": "" if mine == "ours" else f"{mine}: "}
        headings = [column.heading.format(**words) for column in self.columns]
        named = any(
            column.heading != text for column, text in zip(self.columns, headings, strict=True)
        )
        lines = [[*line, *["-"] * (len(headings) - len(line))] for line in self.quoted]
        kinds = [column.of for column in self.columns]
        for row in rows:
            cells = [row.cell(column) for column in self.columns]
            # If the headings already name the difference of the data, a row is not split.
            lines += [cells] if named else split_row(cells, kinds, row.records)
        table = analysis.render_table(headings, lines) if lines else NOT_RUN
        note = test_note(row.comparison for row in rows)
        return paragraphs(table, *self.below(store, rows), note)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure(Table):
    """A figure, which `after` draws; it is no table of the page."""


RENDER = Table(about="only rewrite RESULTS.md from the finished runs")
CHART = Figure(
    after=lambda job: draw_chart(
        job.paper.title,
        job.paper.findings(job.store),
        job.paper.judged_numbers(job.store),
        job.store.folder / summary.CHART,
    ),
    about="chart of the paper's differences and numbers against ours, from the finished runs",
)
COMMON: Mapping[str, Table] = {"chart": CHART, "render": RENDER}
"""The tables and figures that all papers have, by the names of their commands."""
Section = Table | Callable[[Store], Iterable[Table]]
"""A part of RESULTS.md: a table, or a function that returns tables for the records."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper that a system is better than another, and the table that tests it.

    Attributes:
      says: the claim, such as "GA-Net is better than soft attention".
      table: the table with the comparisons: a table with `pair`, or a function that returns such
        tables.
      rows: the variants in the rows that test the claim.
      data: the data sets of the claim; () means all data sets of the table.
      flip: True if the claim favours the second system of a pair.
      paper: a function of (data set, variant) that returns the paper's difference in the direction
        of the claim, in points, or for language models in nats per token; None if the paper gives
        no size.
      units: the unit of the differences by data set, if it is not points of accuracy.
      find: a function of (claim, store) that returns cases in addition to the rows of the table.
      floor: a function of (store, data set) that returns the floor of the task, the arguments after
        the first of `claims.learns`; None if the task has no floor.
      mark: a function of (data set, variant) that returns a difference between the paper's size and
        ours that can carry the result, such as another metric; or "".
      why_not_run: the reason why some of its comparisons were not run.
    """

    says: str
    table: Section | None = None
    rows: tuple[str, ...] = ()
    data: Several[str] = ()
    flip: bool = False
    paper: Callable[[str, str], float | None] = lambda data, variant: None
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)
    find: Callable[[str, Store], Iterable[Case]] | None = None
    floor: Callable[[Store, str], tuple[float, float | None] | None] = lambda store, data: None
    mark: Callable[[str, str], str] = lambda data, variant: ""
    why_not_run: str = ""

    def cases(self, paper: "Paper", store: Store) -> list[Case]:
        """Returns the comparisons that test the claim, for each data set."""
        found = [] if self.find is None else list(self.find(self.says, store))
        tables = () if self.table is None else _tables(self.table, store)
        trials = count_trials(store)
        return [
            claims.case_of(
                self.says,
                row.label,
                row.comparison,
                row.records,
                flip=self.flip,
                paper=self.paper(row.data, row.variant),
                unit=self.units.get(row.data, ""),
                equal_search=_have_equal_searches(trials, table, row),
                has_learned=self._has_learned(paper, store, table, row),
                remarks=tuple(filter(None, [self.mark(row.data, row.variant)])),
                why_not_run=self.why_not_run,
            )
            for table in tables
            for row in table.rows(paper, store)
            if row.variant in self.rows and (not self.data or row.data in self.data)
        ] + found

    def _has_learned(self, paper: "Paper", store: Store, table: Table, row: TableRow) -> bool:
        """Returns True unless neither system of a row is above the floor of its task."""
        floor = self.floor(store, row.data)
        systems = table.compared(row.data, row.variant)
        if floor is None or not systems:
            return True
        names = [paper.record_name(row.data, name) for name in systems]
        return claims.learns([store.all(row.data, name) for name in names], *floor)


def read_trials(folder: Path) -> Records:
    """Returns the recorded trials of a folder of results, or none before the first trial."""
    path = folder / TRIALS
    records: Records = read_json(path) if path.exists() else []
    return records


def count_trials(store: Store) -> dict[str, Counter[str]]:
    """Returns the numbers of trials in the folder's record of a search: {data set: {system: n}}."""
    counts: dict[str, Counter[str]] = {}
    for record in read_trials(store.folder):
        # Earlier trials, chosen by accuracy, have no loss. No settings come from them.
        if "loss" in record:
            counts.setdefault(record["data"], Counter())[record["system"]] += 1
    return counts


def _have_equal_searches(trials: Mapping[str, Counter[str]], table: Table, row: TableRow) -> bool:
    counts = trials.get(row.data, Counter())
    numbers = {counts[system] for system in table.compared(row.data, row.variant)}
    return len(numbers) == 1 and 0 not in numbers


def _tables(section: Section, store: Store) -> list[Table]:
    return [section] if isinstance(section, Table) else list(section(store))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper, for the commands and RESULTS.md.

    Attributes:
      start: name, help and presets.
      title: its short name, for RESULTS.md.
      source: authors, title and year.
      names: data sets in the order of tables, and their names in tables.
      variants: its systems.
      tables: the tables and figures of `python -m experiments.PAPER.tables`, in the order of its
        help.
      page: the sections of RESULTS.md, from the top.
      experiment: returns the experiment of a configuration.
      report: prints finished runs (console, records, work folder).
      claims: the claims in the first section of RESULTS.md.
      numbers: a function of (store) that returns the paper's numbers of its method and of its
        baselines, with ours.
      without_numbers: a function of (store) that returns the first paragraph of a page without such
        numbers.
      search: a clause about the search for the settings of the presets. The page puts the number of
        recorded trials before it, if the folder has such records.
      keys: the keys that all its records have.
      resolve: returns a configuration completed before its run, for example with the width of a
        file.
      options: the class of the options of the command for tables.
      twins: True if a record with equal settings is that of the same run, whatever its name. It is
        False if two systems differ in a file of which a record has only the last part of the path.
    """

    start: Start
    title: str
    source: str
    names: Mapping[str, str]
    variants: Mapping[str, Variant]
    tables: Mapping[str, Table]
    page: Sequence[Section]
    experiment: Callable[[Config], Experiment]
    report: Callable[[Console, Records, Path], None]
    numbers: Callable[[Store], Iterable[Number]] = lambda store: ()
    claims: tuple[Claim, ...] = ()
    without_numbers: Callable[[Store], str] = lambda store: (
        "**No run here is on the paper's data, so none of its numbers is compared.**"
    )
    search: str = ""
    keys: tuple[str, ...] = ("config", "seed", "test", "correct")
    resolve: Callable[[Config], Config] = lambda config: config
    options: type[TableOptions] = TableOptions
    twins: bool = False

    @property
    def name(self) -> str:
        """The name of its package and folders."""
        return self.start.name

    @property
    def presets(self) -> Mapping[str, Config]:
        """Configurations by name."""
        return self.start.presets

    @property
    def folder(self) -> Path:
        """The folder of its results in the repository."""
        return RESULTS / self.name

    def store(self, folder: Path | None = None) -> Store:
        """Returns the records in a folder; None means the folder of the repository."""
        return Store(self.folder if folder is None else folder, self.keys)

    def recorded(self, config: Config) -> Json:
        """Returns the entry "config" of the record of a run."""
        return public_config(config)

    def workdir_of(self, config: Config) -> Path:
        """Returns the work folder of a configuration: its option, or runs/PAPER/NAME."""
        if config.workdir is not None:
            return Path(config.workdir)
        return Path("runs") / self.name / config.run_name

    def record_name(self, data: str, variant: str) -> str:
        """Returns the name of the records of a variant on a data set, see `Variant.same_as`."""
        system = self.variants.get(variant)
        if system is None or system.same_as is None or data not in self.presets:
            return variant
        preset, other = self.presets[data], self.variants[system.same_as]
        # The whole settings are compared and not the changes, because a preset may already have the
        # changed value.
        settings, other_settings = (
            self.recorded(with_changes(preset, v.on(data))) for v in (system, other)
        )
        return other.name if settings == other_settings else variant

    def sections(self, store: Store) -> Iterator[Table]:
        """Yields the tables of RESULTS.md."""
        for section in self.page:
            yield from _tables(section, store)

    def findings(self, store: Store) -> list[Finding]:
        """Returns the results for all claims; their p-values are corrected together."""
        return claims.judge([case for claim in self.claims for case in claim.cases(self, store)])

    def judged_numbers(self, store: Store) -> list[Number]:
        """Returns the paper's numbers and ours with their words."""
        return claims.judge_numbers(list(self.numbers(store)))

    def in_short(self, store: Store, findings: Sequence[Finding]) -> str:
        """Returns the results for the claims, in at most a dozen lines, and their chart."""
        by_claim = {
            claim.says: [finding for finding in findings if finding.case.claim == claim.says]
            for claim in self.claims
        }
        return paragraphs(
            summary.opening(self.judged_numbers(store), self.without_numbers(store)),
            summary.count(findings),
            "\n".join(summary.lines(by_claim)),
            summary.chart_link(store, self.title, findings),
        )

    def conditions(self, store: Store) -> str:
        """Returns a list of the data, the word vectors and the search for the settings."""
        records = {name: store.any_of(name) for name in self.names}
        existing = {name: ours for name, ours in records.items() if ours}
        search = "; ".join(filter(None, [*self._searches(store), self.search]))
        lines = [
            *summary.data_lines(self.names, existing),
            *summary.settings_lines(self.names, existing),
            summary.vectors_line(record for ours in existing.values() for record in ours),
            f"- Search for settings: {search}." if search else "",
        ]
        return "\n".join(line for line in lines if line)

    def _searches(self, store: Store) -> Iterator[str]:
        """Yields a sentence, without its point, on the recorded trials of the folder."""
        labels: dict[tuple[int, ...], list[str]] = {}
        for data, counts in count_trials(store).items():
            ends = sorted({min(counts.values()), max(counts.values())})
            labels.setdefault(tuple(ends), []).append(self.names.get(data, data))
        for sizes, names in sorted(labels.items()):
            number, data = " to ".join(map(str, sizes)), summary.join(sorted(names))
            trials = "trial" if sizes == (1,) else "trials"
            yield f"{number} {trials} of each system on {data} (`{TUNING}` in this folder)"

    def diverged_lines(self, store: Store) -> str:
        """Returns a line for each run that ended without a result."""
        lines = []
        for data, label in self.names.items():
            for name, record in store.diverged(data):
                variant = self.variants.get(name)
                rate = record["config"]["train"]["optimizer"]["learning_rate"]
                lines.append(
                    f"- {label}, {variant.title if variant else name} ({name}), seed "
                    f"{record['seed']}: the updates up to step {record[DIVERGED]:,} were not "
                    f"finite, at learning rate {rate:g}."
                )
        return "\n".join(lines)

    def write(self, store: Store) -> None:
        """Renders all sections from the records and replaces RESULTS.md."""
        empty = dataclasses.replace(store, folder=store.folder / "no records")
        parts, lacking = [], []
        for table in self.sections(store):
            text = table.text(self, store)
            # A table lacks its runs if it is the same for a folder without records.
            if NOT_RUN in text and text == table.text(self, empty):
                lacking.append(table.title)
            else:
                parts.append((table.title, table.folded(text), table.note))
        if self.claims:
            findings, numbers = self.findings(store), self.judged_numbers(store)
            first = [
                ("In short", self.in_short(store, findings), summary.NOTE),
                ("Claims", summary.claims_table(findings), summary.RULES),
                ("Numbers", summary.numbers_table(numbers), summary.NUMBERS_NOTE),
                ("Data and settings", self.conditions(store), ""),
            ]
            # A page without numbers to compare has no empty table of them.
            parts = [part for part in first if numbers or part[0] != "Numbers"] + parts
        if lost := self.diverged_lines(store):
            parts.append(("Runs that diverged", lost, ""))
        if lacking:
            parts.append(("Tables without a run", "\n".join(f"- {title}" for title in lacking), ""))
        write_results(
            store.folder,
            self.title,
            module=f"experiments.{self.name}.tables",
            source=self.source,
            parts=parts,
        )


@dataclasses.dataclass(frozen=True)
class Job:
    """A command for tables at work: the paper and the options."""

    paper: Paper
    options: Any

    @property
    def store(self) -> Store:
        """The records in the folder of the options."""
        return self.paper.store(self.options.results)

    @property
    def table(self) -> Table:
        """The table or figure of the options."""
        return {**self.paper.tables, **COMMON}[self.options.what]

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets of the options, or by default those of the table or figure."""
        return self.options.data or self.table.data

    def config(self, data: str, variant: Variant | str, seed: int) -> Config:
        """Returns the configuration of a run. The preset is changed by the options, the system and
        the seed."""
        preset, options = self.paper.presets[data], self.options
        if isinstance(variant, str):
            variant = self.paper.variants[variant]
        changes: Json = {"train.seed": seed, "cpu_devices": options.cpu_devices}
        for name in ("data_dir", "manual_dir", "embeddings"):
            value = getattr(options, name, None)
            # Generated data have no files, and some networks no word vectors.
            if value is None or not hasattr(preset.data, name):
                continue
            if name != "embeddings" or data not in options.random_vectors:
                changes[f"data.{name}"] = value
        # The changes of the system come last, because they define it and no option may undo them.
        changes |= {**options.changes(preset), **variant.on(data)}
        config = with_changes(preset, changes)
        if options.num_steps is not None:
            config = options.with_steps(config, options.num_steps)
        return self.paper.resolve(config)

    def cell(self, data: str, variant: Variant | str) -> Cell:
        """Returns all seeds of a system on a data set."""
        name = variant if isinstance(variant, str) else variant.name
        configs = {seed: self.config(data, variant, seed) for seed in range(self.options.seeds)}
        return Cell(data, self.paper.record_name(data, name), configs)

    def workdir(self, data: str, variant: str, seed: int) -> Path:
        """Returns the work folder of a run that is trained separately."""
        return Path(self.options.runs) / f"{data}-{variant}-seed{seed}"

    def cells(self) -> Iterator[Cell]:
        """Yields the cells that the table or figure needs."""
        for data in self.data:
            trained = self.table.trained
            systems = self.table.variants if trained is None else trained(self, data)
            for variant in systems:
                yield self.cell(data, variant)

    def only(self, name: str) -> Cell:
        """Returns the cell with only the run DATA/VARIANT/SEED. Raises ValueError if the table or
        figure has no such run."""
        data, _, run_name = name.partition("/")
        variant, _, seed = run_name.rpartition("/")
        cells = {
            (cell_of_run.data, cell_of_run.variant): cell_of_run for cell_of_run in self.cells()
        }
        cell = cells.get((data, variant))
        if cell is None or not seed.isdecimal() or int(seed) not in cell.configs:
            raise ValueError(
                f"cell must be DATA/VARIANT/SEED of a run of {self.options.what} with "
                f"{self.options.seeds} seeds, got {name!r}; its cells are "
                f"{', '.join('/'.join(place) for place in cells) or 'none'}"
            )
        return dataclasses.replace(cell, configs={int(seed): cell.configs[int(seed)]})
