"""Records of finished runs: a JSON file per run, written only by the run itself."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from experiments.core.config import public_config as public_config
from experiments.core.kinds import Array, Fields, Json, Record, Records
from experiments.core.origins import NOT_RUN as NOT_RUN
from experiments.core.origins import origin_of
from gatedjax import analysis
from gatedjax._utils.json import to_json_values
from gatedjax._utils.run_files import read_json as read_json
from gatedjax._utils.run_files import write_json as write_json
from gatedjax._utils.terminal import say
from gatedjax._utils.write import write_text as write_text

RESULTS = Path(__file__).resolve().parent.parent / "results"
"""The folder with the results of all papers."""

DIVERGED = "diverged"
"""The folder for records of diverged runs, and their key for the step at which they ended."""
COLLAPSED = "collapsed"
MARGIN = 0.0005
"""The largest distance, in nats, at which a training loss counts as equal to the label entropy."""
RULE = (
    '"Collapsed": the training loss of the last third stays within 0.0005 of the entropy of '
    "the labels, or all test predictions are one class."
)
LAST = "last step"
"""The heading of results at the last step, next to the results that validation chose."""
LAST_RULE = (
    '"Last step": the test result with the parameters of the last step. The other test results '
    "are with the parameters that validation chose."
)


def entropy(counts: Array) -> float:
    """Computes -sum p log p in nats for the shares p of the given counts. It is the smallest
    cross-entropy that a constant prediction can have."""
    p = np.asarray(counts, np.float64)
    # The limit of p log p at 0 is 0, and NumPy would compute NaN.
    p = p[p > 0] / p.sum()
    return float(-(p * np.log(p)).sum())


def class_facts(train_labels: Array, predicted: Array) -> Json:
    """Returns the entries of a record that `has_collapsed` needs. They are "label_entropy" in nats,
    and "predicted_classes", the number of predictions per class."""
    _, counts = np.unique(np.asarray(train_labels), return_counts=True)
    return {
        "label_entropy": round(entropy(counts), 6),
        "predicted_classes": np.bincount(np.asarray(predicted, np.int64)).tolist(),
    }


def has_collapsed(record: Record) -> bool:
    """Returns True if the network of a run became a constant.

    Either its training loss stays within `MARGIN` of the label entropy over the last third of its
    curve, or all its predictions for the test examples are the same class. A record without the
    entries of `class_facts` is judged by its confusion matrix, by the labels of the test examples
    instead of the training labels, or by the shares of the classes.
    """
    return _one_class(record) or _at_entropy(record)


def _one_class(record: Record) -> bool:
    """Returns True if the test predictions of a record are all the same class."""
    if "predicted_classes" in record:
        return sum(count > 0 for count in record["predicted_classes"]) == 1
    if "confusion" in record:
        return int(np.count_nonzero(np.sum(record["confusion"], axis=0))) == 1
    return False


def _at_entropy(record: Record) -> bool:
    """Returns True if the last third of the training curve stays at the label entropy."""
    support = record.get("support")
    label_entropy = record.get("label_entropy", None if support is None else entropy(support))
    points = [point for point in record.get("train_curve") or () if point[1] is not None]
    if label_entropy is None or not points:
        return False
    # The beginning of a curve may be near the entropy in any run, so only its last third counts.
    last = [loss for step, loss, *_ in points if step > points[-1][0] * 2 / 3]
    return all(abs(loss - label_entropy) <= MARGIN for loss in last)


PASSING = ("exit_code", "signal")
"""Entries of a run that only the command needs; they are not written to the record."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A setting that differs between a record and the run that a command asks for."""

    field: str
    recorded: object
    wanted: object


def differences(saved: Fields, wanted: Fields) -> list[Difference]:
    """Returns the settings in which two configurations differ. The list is empty if the
    configurations describe the same run."""
    a, b = _flat(saved), _flat(wanted)
    # The order of the wanted settings decides which difference a message names.
    names = [*b, *(name for name in a if name not in b)]
    triples = ((name, a.get(name, NO_FIELD), b.get(name, NO_FIELD)) for name in names)
    return [Difference(*triple) for triple in triples if triple[1] != triple[2]]


NO_FIELD = "no such option"
"""Stands for the value of a setting that a configuration does not have."""


def _flat(config: Fields, above: str = "") -> Json:
    """Returns a nested configuration as a dict from dotted paths to values."""
    flat: Json = {}
    for name, value in config.items():
        path = above + name
        flat |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


FACTS = ("train_n", "test_n", "test_digest", "vocabulary_size", "embedding_coverage")
"""The entries of a record that identify its data, in addition to the origin of the data."""
SEED = "train.seed"
"""The dotted path of the seed in a configuration."""


def check_one_kind(records: Records, name: str) -> None:
    """Refuses records of a cell that must not be averaged. Raises ValueError if a setting other
    than the seed differs, or the data; the message names both seeds."""
    # All pairs are compared, because an old record without a fact agrees with any other record.
    for first, record in itertools.combinations(records, 2):
        other = differences(first["config"], record["config"])
        faults = [
            difference for difference in other if difference.field != SEED
        ] + data_differences(first, record)
        if faults:
            fault = faults[0]
            raise ValueError(
                f"records of {name}: {fault.field} is {fault.recorded} in seed {first['seed']} and "
                f"{fault.wanted} in seed {record['seed']}; they are not averaged: make them again "
                "with --rerun, or move the records of one kind to another folder (--results DIR)"
            )


def data_differences(first: Record, second: Record) -> list[Difference]:
    """Returns the differences between the data of two records, for the facts that both have."""
    pairs = [(name, first.get(name), second.get(name)) for name in FACTS]
    # Older records lack some facts, which then cannot differ.
    facts = [pair for pair in pairs if None not in pair]
    origins = ("origin of the data", origin_of(first), origin_of(second))
    return [Difference(*triple) for triple in (origins, *facts) if triple[1] != triple[2]]


def saved_record(record: Record) -> Json:
    """Returns the part of a record that is written to a file."""
    return {key: value for key, value in record.items() if key not in PASSING}


def best(records: Records) -> Json | None:
    """Returns the record that is best in validation, of the smallest seed; None without records."""
    return max(records, key=lambda record: record["validation"]["accuracy"]) if records else None


def refuse_other(
    path: Path, name: str, earlier: Record | None, measured: Record, *, rerun: bool
) -> None:
    """Refuses to replace an earlier measurement in a file with a different measurement. Other
    hardware alone is not a difference. Raises ValueError, naming the first difference, unless
    `rerun` allows the replacement."""
    if earlier is None or rerun:
        return
    # The hardware is not part of the measurement.
    pair = ({**values, "hardware": None} for values in (earlier, to_json_values(measured)))
    other = differences(*pair)
    if other:
        difference = other[0]
        raise ValueError(
            f"{path} has another {name}: {difference.field} "
            f"{_short(difference.recorded)}, wanted {_short(difference.wanted)}; keep it and give "
            "another folder (--results DIR), or replace it (--rerun)"
        )


def count_each(
    path: Path, names: Iterable[str], count: Callable[[str], Json], *, rerun: bool
) -> None:
    """Counts each data set that is available here, and adds the counts to the file of a table. A
    data set without files is reported and left out. Raises ValueError if the file has other counts
    for a data set, see `refuse_other`."""
    for name in names:
        try:
            counted = count(name)
        # A data set that is missing here does not keep the others from being counted.
        except (FileNotFoundError, ValueError) as error:
            say(f"{name}: not counted: {error}")
            continue
        # The file is read here, because another command may have added a count meanwhile.
        counts = read_json(path) if path.exists() else {}
        refuse_other(path, f"count of {name}", counts.get(name), counted, rerun=rerun)
        write_json(path, counts | {name: counted})
        say(f"{name}: counted")


def _short(value: object) -> str:
    """Returns the text of a value, cut to 80 characters."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def mean_std(values: list[float], digits: int = 4) -> str:
    """Formats a table cell: mean, sample standard deviation and number of runs. For example "0.9124
    ± 0.0031 (n=3)"; a single run has no deviation."""
    summary = analysis.summary(values)
    spread = "" if summary.std is None else f" ± {summary.std:.{digits}f}"
    return f"{summary.mean:.{digits}f}{spread} (n={summary.n})"


def format_average(
    records: Records, figure: Callable[[Json], float | None], digits: int = 4
) -> str:
    """Formats a table cell: mean, deviation and number of runs of a value in the records. Runs that
    collapsed are counted instead of averaged. The text is `NOT_RUN` if no record has the value."""
    pairs = [(record, value) for record in records if (value := figure(record)) is not None]
    if not pairs:
        return NOT_RUN
    # A run that collapsed would shift the mean although it shows nothing about the system, so it is
    # counted and not averaged.
    values = [value for record, value in pairs if not has_collapsed(record)]
    lost = len(pairs) - len(values)
    if not values:
        return f"{COLLAPSED} (n={lost})"
    return mean_std(values, digits) + (f", {lost} {COLLAPSED}" if lost else "")


def alive(records: Records) -> Records:
    """Returns the records of the runs that did not collapse."""
    return [record for record in records if not has_collapsed(record)]


RECORD = ("config", "seed", "test", "correct")
"""The keys that all records of finished classifiers have."""


@dataclasses.dataclass(frozen=True)
class Store:
    """A folder of run records.

    The methods take `data`, the name of a data set, `variant`, the name of a system's records, and
    `seed`.

    Attributes:
      folder: the folder with records, figures and RESULTS.md.
      keys: the keys that all records have.
    """

    folder: Path
    keys: tuple[str, ...] = RECORD

    def path(self, data: str, variant: str, seed: int) -> Path:
        """Returns the path of the record of a run."""
        return self.folder / "runs" / f"{data}-{variant}-seed{seed}.json"

    def get(self, data: str, variant: str, seed: int) -> Json | None:
        """Returns the record of a run, or None if the run has no record."""
        path = self.path(data, variant, seed)
        return self.load(path, data) if path.exists() else None

    def load(self, path: Path, data: str) -> Json:
        """Returns the record of a finished run in a file, completed with defaults."""
        return read_json(path, *self.keys)

    def diverged_path(self, data: str, variant: str, seed: int) -> Path:
        """Returns the path of the record of a run that diverged, which has no results."""
        return self.folder / DIVERGED / self.path(data, variant, seed).name

    def diverged(self, data: str, variant: str = "*") -> list[tuple[str, Record]]:
        """Returns (variant, record) for each diverged run of a data set."""
        paths = sorted(self.folder.glob(f"{DIVERGED}/{data}-{variant}-seed*.json"))
        names = [path.stem.split("-", 1)[1].rsplit("-seed", 1)[0] for path in paths]
        records = [read_json(path, "config") for path in paths]
        return list(zip(names, records, strict=True))

    def existing_path(self, data: str, variant: str, seed: int) -> Path | None:
        """Returns the path of the record of a run, with or without results; or None."""
        places = (place(data, variant, seed) for place in (self.path, self.diverged_path))
        return next((path for path in places if path.exists()), None)

    def is_over(self, data: str, variant: str, seed: int) -> bool:
        """Returns True if a run has a record, with or without results."""
        return self.existing_path(data, variant, seed) is not None

    def all(self, data: str, variant: str) -> Records:
        """Returns the records of all seeds of a cell, in the order of the seeds. Raises ValueError
        if they differ in configuration or in the origin of the data."""
        records = self.read(data, variant)
        check_one_kind(records, f"{data}, {variant}")
        return records

    def read(self, data: str, variant: str) -> Records:
        """Returns the records of all seeds of a cell without checking that they belong together."""
        paths = self.folder.glob(f"runs/{data}-{variant}-seed*.json")
        records = [self.load(path, data) for path in paths]
        # The order of a folder differs between file systems, and a page must not.
        return sorted(records, key=lambda record: record["seed"])

    def any_of(self, data: str) -> Records:
        """Returns the records of all variants on a data set."""
        paths = sorted(self.folder.glob(f"runs/{data}-*-seed*.json"))
        return [self.load(path, data) for path in paths]

    def variants(self, data: str) -> Iterator[str]:
        """Yields the names of the variants that have a record on a data set, sorted."""
        # The name of a data set has no hyphen, the name of a variant may have hyphens.
        names = {p.name.split("-", 1)[1] for p in self.folder.glob(f"runs/{data}-*-seed*.json")}
        yield from sorted({name.rsplit("-seed", 1)[0] for name in names})

    def learned_records(self, data: str) -> dict[str, Records]:
        """Returns the records of the runs that did not collapse, by variant. Raises ValueError if
        there is no such run."""
        records_of = {name: alive(self.all(data, name)) for name in self.variants(data)}
        records_of = {name: records for name, records in records_of.items() if records}
        if not records_of:
            raise ValueError(
                f"{self.folder} must have a record of a run on {data} that learned, got none"
            )
        return records_of


def write_results(
    folder: Path, paper: str, *, module: str, source: str, parts: list[tuple[str, str, str]]
) -> None:
    """Writes the RESULTS.md of a paper: heading, body and note of each section."""
    lines = [
        f"# {paper}: results",
        "",
        f"Written by `python -m {module}`; not edited by hand.",
        f"Paper: {source}.",
        f'"{NOT_RUN}" means that nobody ran it with the settings of this page.',
    ]
    rules = {COLLAPSED: RULE, LAST: LAST_RULE}
    lines += [rule for word, rule in rules.items() if any(word in body for _, body, _ in parts)]
    lines.append("")
    for title, body, note in parts:
        lines += [f"## {title}", "", body.rstrip(), "", *([note, ""] if note else [])]
    path = folder / "RESULTS.md"
    write_text(path, "\n".join(lines))
    say(f"wrote {path}")
