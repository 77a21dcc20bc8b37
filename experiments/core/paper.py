"""A paper as a value: its systems, tables and figures, and what a run of it is."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from rich.console import Console

from experiments.core import claims
from experiments.core.comparison import Comparison, compare_all, holm_note, paragraphs
from experiments.core.config import Changes, Start, changed, public_config
from experiments.core.experiment import Experiment
from experiments.core.kinds import Array, Config, Json, Record
from experiments.core.origins import NOT_RUN, apart, columns
from experiments.core.records import (
    DIVERGED,
    RESULTS,
    Records,
    Store,
    alive,
    write_results,
)
from gatedjax import analysis
from gatedjax._utils.options import Several, Unset


@dataclasses.dataclass(frozen=True)
class Variant:
    """A system of a table.

    Attributes:
      name: of its records.
      title: how tables call it.
      changes: what it changes in the configuration of a preset.
      same_as: where a record has the same of its configuration and of that of this variant, it has
        that one's records.
      tuned: by data set, what was searched for it alone there.
    """

    name: str
    title: str
    changes: Changes = dataclasses.field(default_factory=dict)
    same_as: str | None = None
    tuned: Mapping[str, Changes] = dataclasses.field(default_factory=dict)

    def on(self, data: str) -> Changes:
        """What it changes in the preset of a data set."""
        return {**self.changes, **self.tuned.get(data, {})}


def variants(*each: Variant) -> dict[str, Variant]:
    """Variants by name."""
    return {variant.name: variant for variant in each}


@dataclasses.dataclass(frozen=True)
class Cell:
    """The runs that one cell of a table needs: names of its records, a configuration per seed."""

    data: str
    variant: str
    configs: Mapping[int, Config]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to reproduce, on which data, and with how many seeds."""

    what: str
    """What to reproduce."""
    data: Several[str] = ()
    """The data sets, by preset (default: those of the paper's table or figure)."""
    seeds: int = 3
    """The number of runs per cell, with seeds 0, 1, ..."""
    data_dir: Unset[str] = None
    """The folder with prepared TFDS data sets (default: TFDS's own)."""
    manual_dir: Unset[str] = None
    """The folder with the raw files, to work without a network."""
    num_steps: Unset[int] = None
    """The number of steps per run (default: the preset's)."""
    results: Path = RESULTS
    """The folder for records, figures and RESULTS.md."""
    runs: Path = Path("runs")
    """The folder for the work folders of the runs. An interrupted run continues from there."""
    rerun: bool = False
    """Run again, from the start, what has a record or a work folder."""
    lanes: int = 1
    """The number of seeds of a cell that are trained side by side in one program, as far as they
    fit into memory. A cell with an interrupted run continues that run by itself. Figures that look
    into a network need a run that was trained by itself."""
    cpu_devices: Unset[int] = None
    """The number of CPU devices that split a batch (default: one per core)."""
    cell: Unset[str] = None
    """Make only this run of the table, DATA/VARIANT/SEED, and write only its record."""
    owned: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The tables that an option belongs to, by its name; the other tables refuse it."""
    drawn: ClassVar[tuple[str, ...]] = ()
    """Presets whose word vectors --embeddings does not change."""

    def check(self) -> None:
        """Exits with status 2 if the options do not go together."""

    def changes(self, preset: Config) -> Changes:
        """Returns the changes that the options of one paper make to a preset."""
        return {}

    def with_steps(self, config: Config, steps: int) -> Config:
        """Returns a configuration with another number of steps."""
        return changed(config, {"train.num_steps": steps})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A place in a table.

    Attributes:
      data: the data set, by its name in the records.
      label: what tables call it.
      variant: the name of the system in the table.
      title: what tables call it.
      records: of its seeds.
      comparison: with what its table compares it; None without records of both.
      diverged: how many of its runs ended without a result.
    """

    data: str
    label: str
    variant: str
    title: str
    records: Records
    comparison: Comparison | None = None
    diverged: int = 0

    def cell(self, column: "Column") -> str:
        """The text of a column; what has no result is not "not run" if its runs diverged."""
        text = column.text(self)
        return f"{DIVERGED} (n={self.diverged})" if self.diverged and text == NOT_RUN else text


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      heading: "{theirs}" and "{mine}" in it become what `origins.columns` says, and "{other}" says
        ahead of a heading that ours are of other data, or nothing.
      text: the cell of a row.
      of: whose cells these are. The paper's and ours stand in rows of their own where ours are of
        other data; "data" is the name of the data set, "both" stands in both rows.
    """

    heading: str
    text: Callable[[Row], str]
    of: Literal["paper", "ours", "data", "both"] = "ours"


Grid = Iterable[tuple[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table: what it trains, and what it shows.

    Attributes:
      title: its heading in RESULTS.md.
      note: the paragraph below it.
      about: what the help of the command says.
      data: the data sets of the paper's table.
      variants: its systems, by name.
      trained: (job, data set) -> what is trained; None trains `variants`.
      shown: (store) -> (data set, variant) of every row; None shows `variants` on `data`, and on
        other data sets on which one of `seen` was run and did not collapse.
      seen: see `shown`; None stands for `variants`.
      columns: of the table.
      pair: (data set, variant) -> the two systems that the row compares; the p-values of a table
        are corrected together.
      below: (store, rows) -> the paragraphs between table and note.
      body: makes the whole table in place of columns.
      after: what the command does when the runs are done, such as counting or printing.
    """

    title: str = ""
    note: str = ""
    about: str = ""
    data: Several[str] = ()
    variants: tuple[str, ...] = ()
    trained: "Callable[[Job, str], Iterable[Variant | str]] | None" = None
    shown: Callable[[Store], Grid] | None = None
    seen: tuple[str, ...] | None = None
    columns: tuple[Column, ...] = ()
    pair: Callable[[str, str], tuple[str, str] | None] | None = None
    below: Callable[[Store, Sequence[Row]], Iterable[str]] = lambda store, rows: ()
    body: Callable[[Store], str] | None = None
    after: "Callable[[Job], None] | None" = None

    def quoted_rows(self) -> Sequence[Sequence[str]]:
        """Returns rows of the paper alone, ahead of ours; the cells that they lack are dashes."""
        return ()

    def groups(self, record: Record) -> Array:
        """Returns which test examples depend on one another (see `comparison.Groups`)."""
        return None

    def grid(self, paper: "Paper", store: Store) -> Grid:
        """(data set, variant) of every row."""
        if self.shown is not None:
            return self.shown(store)
        seen = self.variants if self.seen is None else self.seen
        return [
            (data, variant)
            for data in paper.names
            if data in self.data or any(alive(store.all(data, name)) for name in seen)
            for variant in self.variants
        ]

    def rows(self, paper: "Paper", store: Store) -> list[Row]:
        """What the table shows, with the records and the tests of every row."""
        grid = list(self.grid(paper, store))

        @functools.cache  # what a table compares with stands in many of its rows
        def records(data: str, name: str) -> Records:
            return store.all(data, paper.record_name(data, name))

        pairs = {place: self.pair(*place) for place in grid} if self.pair is not None else {}
        found = compare_all(
            {
                (data, variant): (records(data, names[0]), records(data, names[1]))
                for (data, variant), names in pairs.items()
                if names is not None
            },
            self.groups,
        )
        return [
            Row(
                data=data,
                label=paper.names.get(data, data),
                variant=variant,
                title=paper.variants[variant].title if variant in paper.variants else variant,
                records=records(data, variant),
                comparison=found.get((data, variant)),
                diverged=len(store.diverged(data, paper.record_name(data, variant))),
            )
            for data, variant in grid
        ]

    def text(self, paper: "Paper", store: Store) -> str:
        """The table and what stands below it, as Markdown."""
        if self.body is not None:
            return self.body(store)
        rows = self.rows(paper, store)
        theirs, mine = columns(record for row in rows for record in row.records)
        words = {"theirs": theirs, "mine": mine, "other": "" if mine == "ours" else f"{mine}: "}
        headings = [one.heading.format(**words) for one in self.columns]
        named = any(one.heading != text for one, text in zip(self.columns, headings, strict=True))
        lines = [[*line, *["-"] * (len(headings) - len(line))] for line in self.quoted_rows()]
        kinds = [column.of for column in self.columns]
        for row in rows:
            cells = [row.cell(column) for column in self.columns]
            lines += [cells] if named else apart(cells, kinds, row.records)
        table = analysis.render_table(headings, lines) if lines else NOT_RUN
        tests = {(row.data, row.variant): row.comparison for row in rows}
        return paragraphs(table, *self.below(store, rows), holm_note(tests))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """What is drawn, and of which runs.

    Attributes:
      draw: draws it when the runs are done.
      about: what the help of the command says.
      data: the data sets of the paper's figure.
      variants: the systems whose runs it shows.
      trained: (job, data set) -> what is trained; None trains `variants`.
    """

    draw: "Callable[[Job], None]"
    about: str = ""
    data: Several[str] = ()
    variants: tuple[str, ...] = ()
    trained: "Callable[[Job, str], Iterable[Variant | str]] | None" = None


RENDER = Table(about="only rewrite RESULTS.md from the finished runs")
"""What every paper has beside its own tables, as "render"."""
Section = Table | Callable[[Store], Iterable[Table]]
"""A part of RESULTS.md: a table, or those that the records ask for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """That one system is better than another, as the paper says, and the table that tests it.

    Attributes:
      says: the claim, as "GA-Net is better than soft attention".
      table: whose comparisons decide: a table with `pair`, or those that the records ask for.
      rows: names of the variants whose rows are of this claim.
      data: the data sets of the claim; none named is every one of the table.
      flip: the claim is that the second of a pair is better.
      found: (store) -> findings, of a claim that no table has rows for.
    """

    says: str
    table: Section | None = None
    rows: tuple[str, ...] = ()
    data: Several[str] = ()
    flip: bool = False
    found: Callable[[Store], Iterable[claims.Finding]] | None = None

    def findings(self, paper: "Paper", store: Store) -> list[claims.Finding]:
        """What came of it, on every data set."""
        if self.found is not None:
            return list(self.found(store))
        tables = () if self.table is None else _tables(self.table, store)
        return [
            claims.found(row.label, row.comparison, row.records, flip=self.flip)
            for table in tables
            for row in table.rows(paper, store)
            if row.variant in self.rows and (not self.data or row.data in self.data)
        ]


def _tables(section: Section, store: Store) -> list[Table]:
    return [section] if isinstance(section, Table) else list(section(store))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper, as the commands and RESULTS.md use it.

    Attributes:
      start: name, help and presets.
      title: its short name, for RESULTS.md.
      source: authors, title and year.
      names: data sets in the order of tables, and what tables call them.
      variants: its systems.
      tables: what `python -m experiments.PAPER.tables` makes, in the order of its help.
      page: RESULTS.md, from the top.
      experiment: makes the run of a configuration.
      report: prints finished runs (console, records, work folder).
      claims: what the first section of RESULTS.md judges.
      level: (store) -> (data set, the paper's number, ours) of its main system.
      keys: what every record has.
      resolve: what a configuration becomes before it is run, as the width of a file.
      options: of the command for tables.
      twins: whether a record with equal settings is that of the same run, whatever its name. Not
        where two systems differ in a file that a record names by its last part alone.
    """

    start: Start
    title: str
    source: str
    names: Mapping[str, str]
    variants: Mapping[str, Variant]
    tables: Mapping[str, Table | Figure]
    page: Sequence[Section]
    experiment: Callable[[Config], Experiment]
    report: Callable[[Console, Records, Path], None]
    claims: tuple[Claim, ...] = ()
    level: Callable[[Store], Iterable[tuple[str, str, str]]] = lambda store: ()
    keys: tuple[str, ...] = ("config", "seed", "test", "correct")
    resolve: Callable[[Config], Config] = lambda config: config
    options: type[Options] = Options
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
        """Where its results are."""
        return RESULTS / self.name

    def store(self, folder: Path | None = None) -> Store:
        """The records of a folder; those of the repository without one."""
        return Store(self.folder if folder is None else folder, self.keys, self._default)

    def _default(self, data: str) -> Json:
        """A configuration with defaults, for records that are older than an option."""
        presets = [self.presets[data]] if data in self.presets else self.presets.values()
        kinds = {type(preset) for preset in presets}
        return public_config(kinds.pop()()) if len(kinds) == 1 else {}

    def recorded(self, config: Config) -> Json:
        """What the record of a run has as "config"."""
        return public_config(config)

    def workdir_of(self, config: Config) -> Path:
        """Where a run is: as it says, or runs/PAPER/NAME."""
        if config.workdir is not None:
            return Path(config.workdir)
        return Path("runs") / self.name / config.run_name

    def record_name(self, data: str, variant: str) -> str:
        """The name of the records of a variant on a data set, see `Variant.same_as`."""
        known = self.variants.get(variant)
        if known is None or known.same_as is None or data not in self.presets:
            return variant
        preset, other = self.presets[data], self.variants[known.same_as]
        one, two = (self.recorded(changed(preset, v.on(data))) for v in (known, other))
        return other.name if one == two else variant

    def sections(self, store: Store) -> Iterator[Table]:
        """The tables of RESULTS.md."""
        for section in self.page:
            yield from _tables(section, store)

    def in_short(self, store: Store, lacking: Sequence[str]) -> str:
        """What came of the claims, in at most a dozen lines.

        Args:
          store: the records.
          lacking: headings of what nobody ran.
        """
        judged = [(one.says, one.findings(self, store)) for one in self.claims]
        records = {name: store.any_of(name) for name in self.names}
        there = {name: ours for name, ours in records.items() if ours}
        beside = [f"{label} {ours} ({theirs})" for label, theirs, ours in self.level(store)]
        lines = [
            claims.count(finding for _, findings in judged for finding in findings),
            "",
            *(claims.line(says, findings) for says, findings in judged),
            f"- Ours, and in brackets the paper's: {', '.join(beside)}." if beside else "",
            f"- Not run at all: {', '.join(lacking)}." if lacking else "",
            claims.data_line(self.names, there),
            claims.vectors_line(record for ours in there.values() for record in ours),
        ]
        return "\n".join(lines[:2] + [line for line in lines[2:] if line])

    def diverged(self, store: Store) -> str:
        """A line per run that ended without a result."""
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
        """Renders every section from the records and replaces RESULTS.md whole."""
        parts = [(t.title, t.text(self, store), t.note) for t in self.sections(store)]
        if self.claims:
            lacking = [title for title, text, _ in parts if text.strip() == NOT_RUN]
            parts.insert(0, ("In short", self.in_short(store, lacking), claims.NOTE))
        if lost := self.diverged(store):
            parts.append(("Runs that diverged", lost, ""))
        write_results(
            store.folder,
            self.title,
            module=f"experiments.{self.name}.tables",
            source=self.source,
            parts=parts,
        )


@dataclasses.dataclass(frozen=True)
class Job:
    """A command for tables at work: of a paper, with what was asked for."""

    paper: Paper
    options: Any

    @property
    def store(self) -> Store:
        """The records of its folder."""
        return self.paper.store(self.options.results)

    @property
    def table(self) -> Table | Figure:
        """What it makes."""
        return self.paper.tables.get(self.options.what, RENDER)

    @property
    def data(self) -> tuple[str, ...]:
        """The data sets: as asked for, or those of the table or figure."""
        return self.options.data or self.table.data

    def config(self, data: str, variant: Variant | str, seed: int) -> Config:
        """The configuration of one run: the preset, what the options say, the system, the seed."""
        preset, options = self.paper.presets[data], self.options
        if isinstance(variant, str):
            variant = self.paper.variants[variant]
        changes: Json = {"train.seed": seed, "cpu_devices": options.cpu_devices}
        for name in ("data_dir", "manual_dir", "embeddings"):
            value = getattr(options, name, None)
            if value is None or not hasattr(preset.data, name):
                continue
            if name != "embeddings" or data not in options.drawn:
                changes[f"data.{name}"] = value
        changes |= {**options.changes(preset), **variant.on(data)}
        config = changed(preset, changes)
        if options.num_steps is not None:
            config = options.with_steps(config, options.num_steps)
        return self.paper.resolve(config)

    def cell(self, data: str, variant: Variant | str) -> Cell:
        """Every seed of a system on a data set."""
        name = variant if isinstance(variant, str) else variant.name
        configs = {seed: self.config(data, variant, seed) for seed in range(self.options.seeds)}
        return Cell(data, self.paper.record_name(data, name), configs)

    def workdir(self, cell: Cell, seed: int) -> Path:
        """The work folder of a run that is trained alone."""
        return Path(self.options.runs) / f"{cell.data}-{cell.variant}-seed{seed}"

    def cells(self) -> Iterator[Cell]:
        """The cells that its table or figure needs."""
        for data in self.data:
            trained = self.table.trained
            wanted = self.table.variants if trained is None else trained(self, data)
            for variant in wanted:
                yield self.cell(data, variant)

    def only(self, name: str) -> Cell:
        """The cell of one run, by its DATA/VARIANT/SEED.

        Raises:
          ValueError: if the table or figure has no such run.
        """
        data, _, rest = name.partition("/")
        variant, _, seed = rest.rpartition("/")
        cells = {(one.data, one.variant): one for one in self.cells()}
        cell = cells.get((data, variant))
        if cell is None or not seed.isdecimal() or int(seed) not in cell.configs:
            raise ValueError(
                f"cell must be DATA/VARIANT/SEED of a run of {self.options.what} with "
                f"{self.options.seeds} seeds, got {name!r}; its cells are "
                f"{', '.join('/'.join(one) for one in cells) or 'none'}"
            )
        return dataclasses.replace(cell, configs={int(seed): cell.configs[int(seed)]})
