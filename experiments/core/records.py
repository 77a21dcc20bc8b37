"""Records of finished runs: one JSON file each, written only by the run itself."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from experiments.core.config import public_config as public_config
from experiments.core.kinds import Array, Config, Fields, Json, Record, Records
from experiments.core.origins import NOT_RUN as NOT_RUN
from experiments.core.origins import origin_of, substitute_of
from gatedjax import analysis
from gatedjax._utils.json import to_json_values
from gatedjax._utils.removed import without_removed_fields
from gatedjax._utils.terminal import say
from gatedjax.training import TrainConfig
from gatedjax.training.log import read_json as read_json
from gatedjax.training.log import write_json as write_json
from gatedjax.training.log import write_text as write_text

RESULTS = Path(__file__).resolve().parent.parent / "results"
"""Where the results of every paper are."""

DIVERGED = "diverged"
"""Folder of the records of such runs, and their key of the step where they ended."""
COLLAPSED = "collapsed"
MARGIN = 0.0005
"""Nats: how near to the entropy of the labels a training loss counts as equal to it."""
RULE = (
    '"Collapsed": the training loss of the last third stays within .0005 of the entropy of the '
    "labels, or all test predictions are one class."
)
LAST = "last step"
"""Heads what is not chosen by validation, beside what is."""
LAST_RULE = (
    '"Last step": the test by the parameters of the last step, beside that by those which '
    "validation chose."
)

# Class counts of (validation, test) of data sets, by class, for records that are older than their
# predictions: a network that knows one class has its share right in both.
_COUNTS = {
    "sst1": ((139, 289, 229, 279, 165), (279, 633, 389, 510, 399)),
}


def entropy(counts: Array) -> float:
    """-sum p log p in nats of the shares of these counts; no constant has a smaller loss."""
    p = np.asarray(counts, np.float64)
    p = p[p > 0] / p.sum()
    return float(-(p * np.log(p)).sum())


def class_facts(train_labels: Array, predicted: Array) -> Json:
    """What a record has for `collapsed`: of labels [n] of training, predictions [m] of the test."""
    _, counts = np.unique(np.asarray(train_labels), return_counts=True)
    return {
        "label_entropy": round(entropy(counts), 6),
        "predicted_classes": np.bincount(np.asarray(predicted, np.int64)).tolist(),
    }


def collapsed(record: Record) -> bool:
    """Whether the run of a record became a constant.

    Either its training loss stays within `MARGIN` of the entropy of the labels over the last third
    of its curve, or its predictions for the test examples are one class. Records that are older
    than these facts are judged by what they have: the confusion matrix, the labels of the test
    examples in place of those of the training examples, or the shares of classes.
    """
    return _one_class(record) or _at_entropy(record)


def _one_class(record: Record) -> bool:
    if "predicted_classes" in record:
        return sum(count > 0 for count in record["predicted_classes"]) == 1
    if "confusion" in record:
        return int(np.count_nonzero(np.sum(record["confusion"], axis=0))) == 1
    counts = _COUNTS.get(record.get("data", ""))
    if counts is None:
        return False
    reached = [record.get(part, {}).get("accuracy") for part in ("validation", "test")]
    if None in reached:
        return False
    shares = np.array([np.array(part) / sum(part) for part in counts])
    return bool(np.any(np.all(np.abs(shares - np.array(reached)[:, None]) < 1e-7, axis=0)))


def _at_entropy(record: Record) -> bool:
    support = record.get("support")
    known = record.get("label_entropy", None if support is None else entropy(support))
    points = [point for point in record.get("train_curve") or () if point[1] is not None]
    if known is None or not points:
        return False
    last = [loss for step, loss, *_ in points if step > points[-1][0] * 2 / 3]
    return all(abs(loss - known) <= MARGIN for loss in last)


PASSING = ("exit_code", "signal")
"""What of a run's figures only the command that ran it needs to know."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A setting in which a record is not the run that is wanted."""

    field: str
    recorded: object
    wanted: object


def differences(saved: Json, wanted: Json, default: Fields | None = None) -> list[Difference]:
    """The settings in which two configurations differ; none if they are of the same run.

    An option that is younger than a configuration was what it is by default.

    Args:
      saved: the configuration of a record.
      wanted: the configuration of a run, or of another record.
      default: a configuration whose options have their defaults; those of "train" are known.
    """
    a, b = (_flat(filled(one, default or {})) for one in (saved, wanted))
    names = [*b, *(name for name in a if name not in b)]
    found = ((name, a.get(name, NO_FIELD), b.get(name, NO_FIELD)) for name in names)
    return [Difference(*one) for one in found if one[1] != one[2]]


NO_FIELD = "no such option"


def filled(config: Config, default: Fields) -> Json:
    """A recorded configuration with defaults for the options that are younger than it."""
    parts = {
        name: {**values, **config[name]}
        for name, values in default.items()
        if isinstance(values, dict) and name in config
    }
    return {**default, **config, **parts, "train": train_settings(config)}


def _flat(config: Fields, above: str = "") -> Json:
    flat: Json = {}
    for name, value in config.items():
        path = above + name
        flat |= _flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


FACTS = ("train_n", "test_n", "test_digest", "vocabulary_size", "embedding_coverage")
"""What of a record tells its data, beside their origin."""
SEED = "train.seed"


def check_one_kind(records: Records, name: str, default: Fields | None = None) -> None:
    """Refuses records of one cell that nobody may average.

    Args:
      records: of the seeds.
      name: of the cell, for the message.
      default: as for `differences`.

    Raises:
      ValueError: naming the seeds and what differs: a setting other than the seed, or the data.
    """
    # every two of them: one that is older than a fact says nothing of the others
    for first, record in itertools.combinations(records, 2):
        other = differences(first["config"], record["config"], default)
        found = [one for one in other if one.field != SEED] + data_differences(first, record)
        if found:
            one = found[0]
            raise ValueError(
                f"records of {name}: {one.field} is {one.recorded} in seed {first['seed']} and "
                f"{one.wanted} in seed {record['seed']}; they are not averaged: make them again "
                "with --rerun, or move those of one kind to a folder of their own (--results DIR)"
            )


def data_differences(first: Record, second: Record) -> list[Difference]:
    """Where the data of two records differ, as far as both tell."""
    pairs = [(name, first.get(name), second.get(name)) for name in FACTS]
    known = [pair for pair in pairs if None not in pair]
    origins = ("origin of the data", origin_of(first), origin_of(second))
    return [Difference(*one) for one in (origins, *known) if one[1] != one[2]]


def saved_record(record: Record) -> Json:
    """The record as it is written to a file."""
    return {key: value for key, value in record.items() if key not in PASSING}


def best(found: Records) -> Json | None:
    """The record of the seed that is best in validation; the smallest seed of equals."""
    return max(found, key=lambda record: record["validation"]["accuracy"]) if found else None


def train_settings(saved: Json) -> Json:
    """Returns how a record's run was trained, with the options of this version.

    An option younger than the record has its default; an option that was removed since is left out.

    Raises:
      ValueError: if a removed option has another value than its default.
    """
    default = to_json_values(TrainConfig())
    given = saved.get("train", {})
    train = default | given
    optimizer = without_removed_fields("OptimizerConfig", given.get("optimizer", {}))
    train["optimizer"] = default["optimizer"] | optimizer
    return train


def refuse_other(
    path: Path, name: str, known: Record | None, found: Record, *, rerun: bool
) -> None:
    """Refuses to replace what an earlier command measured by something else, before it is written.

    `known` is what the file has, None if it has nothing of the kind; with `rerun` that is replaced.
    """
    if known is None or rerun:
        return
    pair = ({"": {**one, "hardware": None}, "train": {}} for one in (known, to_json_values(found)))
    other = differences(*pair)  # what it ran on is not what it measured
    if other:
        one = other[0]
        raise ValueError(
            f"{path} has another {name}: {one.field.strip('.') or 'it'} is {_short(one.recorded)}, "
            f"found {_short(one.wanted)}; keep it and give another folder (--results DIR), or "
            "replace it (--rerun)"
        )


def count_each(
    path: Path, names: Iterable[str], count: Callable[[str], Json], *, rerun: bool
) -> None:
    """Counts every data set that can be had here, and writes the counts to a file of a table.

    Raises:
      ValueError: if the file has another count of a set, as `refuse_other`.
    """
    counts = read_json(path) if path.exists() else {}
    for name in names:
        try:
            counted = count(name)
        except (FileNotFoundError, ValueError) as error:
            say(f"{name}: not counted: {error}")
            continue
        known = counts.get(name)
        if known is not None:
            known = known | {"substitute": substitute_of(known)}
        refuse_other(path, f"count of {name}", known, counted, rerun=rerun)
        counts[name] = counted
        say(f"{name}: counted")
    write_json(path, counts)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def mean_std(values: list[float], digits: int = 4) -> str:
    """A cell of a table: mean, sample standard deviation and number of runs."""
    summary = analysis.summary(values)
    spread = "" if summary.std is None else f" ± {summary.std:.{digits}f}"
    return f"{summary.mean:.{digits}f}{spread} (n={summary.n})"


def averaged(records: Records, figure: Callable[[Json], float | None], digits: int = 4) -> str:
    """A cell of a table: mean, deviation and number of runs of a figure that records may have.

    What collapsed is counted instead; `NOT_RUN` if no record has the figure.
    """
    known = [(record, value) for record in records if (value := figure(record)) is not None]
    if not known:
        return NOT_RUN
    values = [value for record, value in known if not collapsed(record)]
    lost = len(known) - len(values)
    if not values:
        return f"{COLLAPSED} (n={lost})"
    return mean_std(values, digits) + (f", {lost} {COLLAPSED}" if lost else "")


def alive(records: Records) -> Records:
    """The records of runs that did not collapse."""
    return [record for record in records if not collapsed(record)]


RECORD = ("config", "seed", "test", "correct")
"""What every record of a finished classifier has."""


@dataclasses.dataclass(frozen=True)
class Store:
    """A folder of run records.

    Attributes:
      folder: where records, figures and RESULTS.md are.
      keys: what every record has.
      default: from a data set to a configuration with defaults, for records older than an option.
    """

    folder: Path
    keys: tuple[str, ...] = RECORD
    default: Callable[[str], Json] = lambda data: {}

    def path(self, data: str, variant: str, seed: int) -> Path:
        """Where the record of a run is."""
        return self.folder / "runs" / f"{data}-{variant}-seed{seed}.json"

    def get(self, data: str, variant: str, seed: int) -> Json | None:
        """The record, or None if the run is missing."""
        path = self.path(data, variant, seed)
        return read_json(path, *self.keys) if path.exists() else None

    def diverged_path(self, data: str, variant: str, seed: int) -> Path:
        """Where the record of a run is whose updates were no longer finite; it has no results."""
        return self.folder / DIVERGED / self.path(data, variant, seed).name

    def diverged(self, data: str, variant: str = "*") -> list[tuple[str, Record]]:
        """The variant and the record of every run of a data set that diverged."""
        found = sorted(self.folder.glob(f"{DIVERGED}/{data}-{variant}-seed*.json"))
        return [
            (path.stem.split("-", 1)[1].rsplit("-seed", 1)[0], read_json(path)) for path in found
        ]

    def existing_path(self, data: str, variant: str, seed: int) -> Path | None:
        """Where a run has its record, with results or without; None if it is missing."""
        places = (place(data, variant, seed) for place in (self.path, self.diverged_path))
        return next((path for path in places if path.exists()), None)

    def is_over(self, data: str, variant: str, seed: int) -> bool:
        """Whether a run has a record, with results or without."""
        return self.existing_path(data, variant, seed) is not None

    def all(self, data: str, variant: str) -> Records:
        """The records of every seed, in the order of the seeds.

        Raises:
          ValueError: if they are not of one configuration and one origin of the data.
        """
        records = self.read(data, variant)
        check_one_kind(records, f"{data}, {variant}", self.default(data))
        return records

    def read(self, data: str, variant: str) -> Records:
        """As `all`, whatever they are of."""
        found = self.folder.glob(f"runs/{data}-{variant}-seed*.json")
        records = [read_json(path, *self.keys) for path in found]
        return sorted(records, key=lambda record: record["seed"])

    def any_of(self, data: str) -> Records:
        """Every record of a data set, whatever its variant."""
        paths = sorted(self.folder.glob(f"runs/{data}-*-seed*.json"))
        return [read_json(path, *self.keys) for path in paths]

    def variants(self, data: str) -> Iterator[str]:
        """Names of the variants that have a record."""
        names = {p.name.split("-", 1)[1] for p in self.folder.glob(f"runs/{data}-*-seed*.json")}
        yield from sorted({name.rsplit("-seed", 1)[0] for name in names})

    def learned(self, data: str) -> dict[str, Records]:
        """The variants with a run that did not collapse, and their records of such runs.

        Raises:
          ValueError: if there is none.
        """
        learned = {name: alive(self.all(data, name)) for name in self.variants(data)}
        learned = {name: records for name, records in learned.items() if records}
        if not learned:
            raise ValueError(f"{data}: no run that learned has a record in {self.folder}")
        return learned


def write_results(
    folder: Path, paper: str, *, module: str, source: str, parts: list[tuple[str, str, str]]
) -> None:
    """Writes RESULTS.md of a paper: heading, body and note of every section.

    Below the title stand the module of the command that writes it and authors, title and year.
    """
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
        lines += [f"## {title}", "", body.rstrip(), "", note, ""]
    path = folder / "RESULTS.md"
    write_text(path, "\n".join(lines))
    say(f"wrote {path}")
