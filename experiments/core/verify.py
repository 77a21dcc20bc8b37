"""`python -m experiments verify`: trains the first steps of a recorded run and compares losses."""

import contextlib
import dataclasses
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from experiments.core import cli
from experiments.core.config import Files, with_changes
from experiments.core.curves import FIRST_STEPS, first_losses, machine_differences
from experiments.core.kinds import Config, Json, Record, Records
from experiments.core.missing import paper_named
from experiments.core.paper import Paper
from experiments.core.papers import PAPERS
from experiments.core.records import NO_FIELD, RESULTS, differences
from gatedjax import training as gtraining
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say

TOLERANCE = 1e-3
"""The relative difference that is allowed between losses of different kinds of machines."""
EXACT = 50
"""Up to this step losses of the same kind of machine agree in all digits."""
DIGITS = 6
"""Digits after the decimal point in a recorded training curve."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(Files):
    """Trains the first steps of a recorded run again and compares the losses.

    The exit status is 0 if they agree, 1 if not, and 2 if there is nothing to compare.
    """

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PAPER/DATA/VARIANT/SEED")]
    """The run."""
    num_steps: int = FIRST_STEPS
    """Steps to compare. Runs on different numbers of cores may be equal at step 50 and not at step
    100."""
    embeddings: Unset[str] = None
    """File of word vectors (default: that of the record)."""
    results: Path = RESULTS
    """Folder with records in a folder per paper."""


@dataclasses.dataclass(frozen=True)
class Point:
    """A recorded loss: the mean over the logged lines after step `after` up to `step`."""

    step: int
    loss: float
    after: int = 0
    is_rounded: bool = False

    def repeated(self, lines: Sequence[tuple[int, float]]) -> float:
        """Returns the same mean over the lines (step, loss) of another run; NaN without a line."""
        losses = [loss for step, loss in lines if self.after < step <= self.step]
        if not losses or not self.is_rounded:
            return losses[-1] if losses else float("nan")
        return round(statistics.fmean(losses), DIGITS)


def recorded_losses(record: Record, steps: int) -> list[Point]:
    """Returns the training losses of a record up to a step, and at least the first. Losses with all
    digits come first. The points of the training curve follow, which older records have for all
    steps. The list is empty if the record has neither."""
    points = [
        Point(int(step), float(loss))
        for step, loss in record.get("first_losses") or ()
        if loss is not None
    ]
    last, after = points[-1].step if points else 0, 0
    for step, loss, *_ in record.get("train_curve") or ():
        if loss is not None and step > last:
            points.append(Point(int(step), float(loss), after, is_rounded=True))
        # A point is the mean since the point before it, also where `first_losses` end in between.
        after = int(step)
    return [point for place, point in enumerate(points) if not place or point.step <= steps]


def recorded_config(paper: Paper, data: str, record: Record, files: Json) -> Config:
    """Returns the configuration of a record as a dataclass, with the folders of this machine.
    `files` has data_dir, manual_dir and embeddings; None leaves the value of the record. Raises
    ValueError for an option of the record that the configuration cannot have."""

    def as_tuple(value: Any) -> Any:
        return tuple(map(as_tuple, value)) if isinstance(value, list) else value

    def remaining_differences(config: Config) -> Any:
        return differences(record["config"], paper.recorded(config))

    config = paper.presets[data]
    for _ in range(2):  # some parts exist only when another option is set
        settable = [
            difference
            for difference in remaining_differences(config)
            if NO_FIELD not in (difference.recorded, difference.wanted)
        ]
        config = with_changes(
            config, {difference.field: as_tuple(difference.recorded) for difference in settable}
        )
    folders = {
        f"data.{n}": v for n, v in files.items() if v is not None and hasattr(config.data, n)
    }
    config = with_changes(config, folders)
    for difference in remaining_differences(config):
        raise ValueError(
            f"the record has {difference.field} {difference.recorded}, wanted {difference.wanted}: "
            "this code cannot repeat its run"
        )
    return config


class _LastStep(Exception):
    """Raised to stop the training after the last step that is compared."""


def first_lines(paper: Paper, config: Config, last: int) -> Records:
    """Trains a configuration up to step `last` in a temporary folder; returns the logged lines. The
    learning rate follows the schedule of the whole run."""
    experiment = paper.experiment(config)
    training = experiment.training or config.train
    count = training.num_steps
    # Evaluations and checkpoints change no loss and take time.
    training = dataclasses.replace(
        training, eval_every=count, checkpoint_every=count, progress=False
    )
    lines: Records = []

    def hook(event: str, step: int, state: object, line: Json) -> None:
        if line:
            lines.append(line)
        if event == "train" and step >= last:
            # A hook that returns True would also save the run.
            raise _LastStep

    validation = experiment.validation
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_LastStep):
        stopped = gtraining.fit(
            experiment.task,
            experiment.train(training.seed),
            validation(training.seed) if callable(validation) else validation,
            training,
            Path(folder) / "run",
            hook=hook,
            parallel=gtraining.make_parallel(training.parallel, accumulate=training.accumulate),
        ).stopped
        # `fit` returns after a signal, and a comparison with fewer steps would be no verdict.
        if stopped == "signal":
            raise KeyboardInterrupt
    return lines


def find_record(name: str, results: Path) -> tuple[Paper, str, Record]:
    """Returns paper, data set and record of PAPER/DATA/VARIANT/SEED; exits without a record."""
    parts = name.split("/")
    if len(parts) != 4 or not parts[3].isdecimal():
        wanted = "PAPER/DATA/VARIANT/SEED, such as ga_net/trec/soft/0"
        cli.fail(f"run must be {wanted}, got {name!r}")
    owner, data, variant, seed = parts
    if owner not in PAPERS:
        cli.fail(f"{name}: unknown paper {owner!r}. Papers: {', '.join(PAPERS)}.")
    paper = paper_named(owner)
    store = paper.store(results / owner)
    path = store.path(data, variant, int(seed))
    if data not in paper.presets or not path.exists():
        names = sorted(p.stem for p in path.parent.glob(f"{data}-*-seed*.json"))
        ending = f"; the records of {data} are {', '.join(names)}" if names else ""
        cli.fail(f"{name}: there is no record {path} of a preset{ending}")
    return paper, data, store.load(path, data)


def verify(options: VerifyOptions) -> int:
    """Repeats the first steps of a recorded run; returns 0 if the losses agree, else 1."""
    paper, data, record = find_record(options.run, options.results)
    recorded = recorded_losses(record, options.num_steps)
    if not recorded:
        cli.fail(
            f"{options.run}: the record must have the training loss of the first steps, got an "
            "older record without it: repeat the run with --rerun of its table"
        )
    if record["hardware"].get("platform") == "cpu":
        # The number of devices decides the order of the sums, and with it the last digits of the
        # losses.
        prepare_cpu(record["hardware"].get("devices", 1))
    files = {name: getattr(options, name) for name in ("data_dir", "manual_dir", "embeddings")}
    last = recorded[-1].step
    lines = first_lines(paper, recorded_config(paper, data, record, files), last)
    repeated = [
        (int(step), float(loss))
        for step, loss in first_losses(lines, last)
        if step is not None and loss is not None
    ]
    losses = [point.repeated(repeated) for point in recorded]
    other = machine_differences(record)
    if record.get("lanes", 1) != 1:
        other.append(f"{record['lanes']} seeds in one program there, 1 here")
    return report(options.run, recorded, losses, other)


def report(name: str, recorded: Sequence[Point], losses: Sequence[float], other: list[str]) -> int:
    """Prints the losses and whether they agree; returns 0 if they do, else 1. `other` is the result
    of `machine_differences`. Up to step `EXACT` all digits have to agree, unless it names a
    difference. Later losses may differ by `TOLERANCE`, because a processor of the same name may
    round differently, and rounding grows."""
    say(f"{name}: training loss")
    unequal, wrong = list[int](), list[int]()
    for point, loss in zip(recorded, losses, strict=True):
        say(f"  step {point.step}: {point.loss!r} in the record, {loss!r} again")
        allowed = TOLERANCE * max(1.0, abs(point.loss))
        if point.step <= EXACT and not other:
            allowed = 0.0
        if loss != point.loss:
            unequal.append(point.step)
        # NaN, the loss of a missing step, is not equal.
        if not abs(loss - point.loss) <= allowed:
            wrong.append(point.step)
    if other:
        say(
            f"another machine, or other cores or packages ({'; '.join(other)}): equal means within "
            f"{TOLERANCE:g} of the loss. Rounding differs there, and grows with the steps: test "
            "results may differ by a point"
        )
    else:
        say(
            "same kind of machine, cores and packages: equal means all digits of the record up to "
            f"step {EXACT}, and within {TOLERANCE:g} of the loss after it"
        )
    ending = f"within {TOLERANCE:g}, with other digits from step {unequal[0]} on" if unequal else ""
    verdict = (
        f"NOT equal, from step {wrong[0]} on"
        if wrong
        else "equal, " + (ending or "in all digits of the record")
    )
    say(f"verdict: {verdict}")
    return 1 if wrong else 0


def main(args: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    options = cli.parse_many(VerifyOptions, list(args), "python -m experiments verify")
    with cli.refusals(cli.TABLE_OPTIONS):
        return verify(options)
