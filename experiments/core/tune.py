"""A search for settings: trains combinations of values and records their validation results."""

import dataclasses
import itertools
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.core.cli import TABLE_OPTIONS, parse_many, refusals
from experiments.core.command import run_of
from experiments.core.config import Changes, Files, with_changes
from experiments.core.kinds import Config, Json, Record, Records
from experiments.core.paper import TRIALS, TUNING, Paper, read_trials
from experiments.core.records import RESULTS, read_json, write_json, write_text
from gatedjax import analysis
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.options import CpuDevices, Several, Unset
from gatedjax._utils.terminal import say


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneOptions(Files):
    """Trains all combinations of the given values; the test split is never evaluated."""

    data: str
    """Data set, by preset."""
    system: str
    """System to train."""
    learning_rates: Several[float] = ()
    """Learning rates to try."""
    dropouts: Several[float] = ()
    """Dropout rates to try."""
    num_steps: Unset[int] = None
    """Steps per trial (default: the preset's)."""
    seed: int = 0
    """Seed of all trials."""
    embeddings: Unset[str] = None
    """GloVe file (default: the preset's)."""
    results: Path = RESULTS
    """Folder for tuning.json and TUNING.md."""
    runs: Path = Path("runs")
    """Folder with the work folders of the trials, from which an interrupted trial continues."""
    cpu_devices: CpuDevices = None
    """CPU devices to split a batch over (default: one per core)."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A run of a search: the entries that identify its record, and its configuration. The entry
    "values" has the values that vary."""

    key: Json
    config: Config

    @property
    def by_loss(self) -> bool:
        """True if the validation loss chooses the parameters, False if the accuracy does."""
        best_metric: str = self.config.train.best_metric
        return best_metric == "loss"

    @property
    def folder(self) -> str:
        """The name of its work folder."""
        parts: list[str] = []
        for name, entry in self.key.items():
            parts += [f"{v:g}" for v in entry.values()] if name == "values" else [str(entry)]
        return "-".join(parts)


def preset_of(options: TuneOptions, preset: Config, system: Changes) -> Config:
    """Returns a preset with the changes that all trials share."""
    changes: Json = {"train.seed": options.seed, **system}
    files = ("data_dir", "manual_dir", "embeddings")
    overrides = {f"data.{name}": getattr(options, name) for name in files}
    overrides["train.num_steps"] = options.num_steps
    changes |= {path: value for path, value in overrides.items() if value is not None}
    return with_changes(preset, changes)


def combinations(
    options: TuneOptions, preset: Config, swept: Mapping[str, Sequence[str]]
) -> list[dict[str, float]]:
    """Returns the values of each trial, by the names in `swept`, see `config.swept_changes`."""
    # An option without values is a grid of a single value, the value of the preset.
    grids = [
        getattr(options, option) or (operator.attrgetter(path)(preset),)
        for option, path, *_ in swept.values()
    ]
    return [dict(zip(swept, values, strict=True)) for values in itertools.product(*grids)]


def make_trial(
    options: TuneOptions, config: Config, values: Mapping[str, float], **entries: str
) -> Trial:
    """Makes a trial, with a key by which a repeated search finds its record."""
    key: Json = {"data": options.data, "system": options.system, "values": values, **entries}
    # The number of steps belongs to the key, because a short trial predicts little about a long
    # run.
    return Trial(key | {"seed": options.seed, "num_steps": config.train.num_steps}, config)


def in_order(records: Records) -> Records:
    """Returns the records of each system together, with the smallest validation loss first. Trials
    that were chosen by accuracy follow the trials that were chosen by loss."""
    return sorted(
        records,
        key=lambda record: (
            record["data"],
            record["system"],
            record.get("embeddings", ""),
            record.get("loss", math.inf),
            -record["accuracy"],
        ),
    )


def best_trial(path: Path, key: Json) -> Record | None:
    """Returns the record of the trial with the smallest validation loss, or None."""
    # The loss of a trial that was chosen by accuracy is not recorded.
    trials = [
        record for record in read_json(path) if record.items() >= key.items() and "loss" in record
    ]
    return min(trials, key=operator.itemgetter("loss"), default=None)


def run_trials(
    paper: Paper, trials: Sequence[Trial], options: TuneOptions, metrics: Sequence[str]
) -> int | None:
    """Makes the trials without a record and adds their records to tuning.json. Returns the exit
    status if a signal stopped a trial (after SIGTERM it is 0), else None."""
    path = options.results / TRIALS
    for trial in trials:
        # Trials of earlier versions were chosen by accuracy. They stay in the file, but they do not
        # replace a trial chosen by loss.
        records_of_kind = [
            r for r in read_trials(options.results) if ("loss" in r) == trial.by_loss
        ]
        if any(record.items() >= trial.key.items() for record in records_of_kind):
            continue
        say(f"{options.data}, {options.system}: {trial.key['values']}")
        config = dataclasses.replace(trial.config, workdir=str(options.runs / trial.folder))
        # Hyperparameters chosen on the test split would make its accuracy too high.
        result = run_of(paper, config, test=False)
        if result.fit.stopped == "signal":
            say("stopped; the same command continues", file=sys.stderr)
            return result.fit.exit_code
        best = result.fit.best_metrics
        names = ("loss", *metrics) if trial.by_loss else metrics
        figures = {name: best.get(name) for name in names}
        record = {**trial.key, **figures, "best_step": result.fit.best_step}
        # The file is written after each trial, so that an interrupted search loses only the trial
        # in progress. It is read again, because another search may have added a trial meanwhile.
        write_json(path, [*read_trials(options.results), record])
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """The search for settings of a paper: `python -m experiments.PAPER.tune`."""

    paper: Paper
    options: type[TuneOptions]
    trials: Callable[[Any], Sequence[Trial]]
    """Returns the trials of the options."""
    metrics: tuple[str, ...]
    """The validation metrics in a record, in addition to the loss."""
    headings: tuple[str, ...]
    row: Callable[[Record], list[str]]
    """Returns the cells of a record in TUNING.md."""

    def page(self, records: Records) -> str:
        """Returns TUNING.md, see `in_order`."""
        rows = [self.row(record) for record in in_order(records)]
        return (
            f"# {self.paper.title}: tuning record\n\nWritten by `python -m "
            f"experiments.{self.paper.name}.tune`; not edited by hand. Trials never evaluate on "
            f"the test split.\n\n{analysis.render_table(list(self.headings), rows)}"
        )

    def main(self, args: list[str] | None = None) -> int:
        """Makes the trials without a record and writes TUNING.md; returns the exit status."""
        prog = f"python -m experiments.{self.paper.name}.tune"
        options = parse_many(self.options, args, prog)
        prepare_cpu(options.cpu_devices)
        with refusals(TABLE_OPTIONS):
            status = run_trials(self.paper, self.trials(options), options, self.metrics)
            if status is not None:
                return status
            table = options.results / TUNING
            write_text(table, self.page(read_json(options.results / TRIALS)))
        say(f"wrote {table}")
        return 0
