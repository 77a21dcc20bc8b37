"""`reproduce --verify`: trains the first steps of a recorded run again and compares the losses."""

import contextlib
import dataclasses
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.core import cli
from experiments.core.config import with_changes
from experiments.core.curves import FIRST_STEPS, first_losses, hardware, software
from experiments.core.kinds import Config, Json, Record, Records
from experiments.core.paper import Paper
from experiments.core.papers import PAPERS
from experiments.core.plan import paper_named
from experiments.core.records import NO_FIELD, differences
from gatedjax import training as gtraining
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.terminal import say

TOLERANCE = 1e-3
"""The relative difference that is allowed between losses of different kinds of machines."""
DIGITS = 6
"""Digits after the decimal point in a recorded training curve."""
Losses = list[tuple[int, float]]
"""Pairs (step, loss)."""


def losses_of(points: Sequence[Any]) -> Losses:
    """Returns (step, loss) of the curve points [step, loss, ...] that have a loss."""
    return [(int(point[0]), float(point[1])) for point in points if point[1] is not None]


def recorded_losses(record: Record, steps: int) -> tuple[Losses, bool]:
    """Returns the first training losses of a record, and whether they have all digits.

    Args:
      record: the record.
      steps: losses up to this step are returned, and at least the first.

    Returns:
      The losses and True. For an older record the first point of its training curve, which is a
      rounded mean over one or more logged losses, and False. The list is empty if the record has
      neither.
    """
    # Only newer records have losses with all digits.
    exact = losses_of(record.get("first_losses") or ())
    if exact:
        return [point for i, point in enumerate(exact) if not i or point[0] <= steps], True
    return losses_of(record.get("train_curve") or ())[:1], False


def recorded_config(paper: Paper, data: str, record: Record, files: Json) -> Config:
    """Returns the configuration of a record as a dataclass, with the folders of this machine.

    Args:
      paper: the paper.
      data: the data set.
      record: the record.
      files: values for data_dir, manual_dir and embeddings; None leaves the value of the record.

    Raises:
      ValueError: naming the first option of the record that the configuration cannot have.
    """

    def as_tuple(value: Any) -> Any:
        """Returns a value with tuples instead of lists."""
        return tuple(map(as_tuple, value)) if isinstance(value, list) else value

    def remaining_differences(config: Config) -> Any:
        """Returns the differences between the record and a configuration."""
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
    """Trains a configuration up to a step, in a temporary folder.

    Neither evaluations nor checkpoints are made before that step; the learning rate follows the
    schedule of the whole run.

    Args:
      paper: the paper.
      config: the configuration of the run.
      last: the step.

    Returns:
      The logged lines.
    """
    experiment = paper.experiment(config)
    training = experiment.training or config.train
    count = training.num_steps
    # Evaluations and checkpoints change no loss and take time.
    training = dataclasses.replace(
        training, eval_every=count, checkpoint_every=count, progress=False, tensorboard=False
    )
    lines: Records = []

    def on_log(line: Json) -> None:
        lines.append(line)
        if line["split"] == "train" and line["step"] >= last:
            # `stop_when` of `fit` would also save the run.
            raise _LastStep

    validation = experiment.validation
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_LastStep):
        stopped = gtraining.fit(
            experiment.task,
            experiment.train(training.seed),
            validation(training.seed) if callable(validation) else validation,
            training,
            Path(folder) / "run",
            on_log=on_log,
            parallel=gtraining.make_parallel(training.parallel, accumulate=training.accumulate),
        ).stopped
        # `fit` returns after a signal, and a comparison with fewer steps would be no verdict.
        if stopped == "signal":
            raise KeyboardInterrupt
    return lines


def machine_differences(record: Record) -> list[str]:
    """Describes the differences between this process and the process that made a record."""
    # The first losses, which are compared, are those of the machine on which the run was started.
    start = record.get("started_on", {})
    machine, recorded = hardware(), record["hardware"] | start
    versions = record.get("software", {}).get("versions") or {"jax": recorded.get("jax")}
    versions = versions | {"jax": start["jax"]} if start else versions
    # On an accelerator the processor of the host computes no loss.
    kind = ("processor", "usable_cores") if machine["platform"] == "cpu" else ("device",)
    compared = [
        (fact, recorded.get(fact, "unknown"), machine[fact])
        for fact in ("platform", *kind, "devices")
    ]
    compared += [
        (package, versions.get(package, new), new)
        for package, new in software()["versions"].items()
    ]
    compared.append(("lanes", record.get("lanes", 1), 1))
    return [
        f"{name.replace('_', ' ')} {old} there, {new} here"
        for name, old, new in compared
        if old != new and name != "gatedjax"
    ]


def find_record(name: str, results: Path) -> tuple[Paper, str, Record]:
    """Returns paper, data set and record of a run; exits if the run has no record.

    Args:
      name: PAPER/DATA/VARIANT/SEED.
      results: the folder with a folder of records per paper.
    """
    parts = name.split("/")
    if len(parts) != 4 or not parts[3].isdecimal():
        wanted = "PAPER/DATA/VARIANT/SEED, such as ga_net/trec/soft/0"
        cli.fail(f"--verify must be {wanted}, got {name!r}")
    owner, data, variant, seed = parts
    if owner not in PAPERS:
        cli.fail(f"--verify {name}: unknown paper {owner!r}. Papers: {', '.join(PAPERS)}.")
    paper = paper_named(owner)
    store = paper.store(results / owner)
    path = store.path(data, variant, int(seed))
    if data not in paper.presets or not path.exists():
        names = sorted(p.stem for p in path.parent.glob(f"{data}-*-seed*.json"))
        ending = f"; the records of {data} are {', '.join(names)}" if names else ""
        cli.fail(f"--verify {name}: there is no record {path} of a preset{ending}")
    return paper, data, store.load(path, data)


def verify(name: str, options: Any) -> int:
    """Repeats the first steps of a recorded run and prints whether the losses agree.

    Args:
      name: PAPER/DATA/VARIANT/SEED.
      options: has num_steps, results, data_dir, manual_dir and embeddings.

    Returns:
      The exit status: 0 if the losses agree, else 1.
    """
    paper, data, record = find_record(name, options.results)
    recorded, exact = recorded_losses(record, options.num_steps or FIRST_STEPS)
    if not recorded:
        cli.fail(
            f"--verify {name}: the record must have the training loss of the first steps, got an "
            "older record without it: repeat the run with --rerun of its table"
        )
    if record["hardware"].get("platform") == "cpu":
        # The number of devices decides the order of the sums, and with it the last digits of the
        # losses.
        prepare_cpu(record["hardware"].get("devices", 1))
    files = {
        name_of_file: getattr(options, name_of_file)
        for name_of_file in ("data_dir", "manual_dir", "embeddings")
    }
    last = recorded[-1][0]
    lines = first_lines(paper, recorded_config(paper, data, record, files), last)
    repeated = losses_of(first_losses(lines, last))[: len(recorded) if exact else None]
    # An older record has only the mean of the lines up to this step, so the same mean is computed.
    if not exact:
        repeated = [
            (repeated[-1][0], round(statistics.fmean(loss for _, loss in repeated), DIGITS))
        ]
    return report(name, recorded, repeated, machine_differences(record), exact=exact)


def report(
    name: str, recorded: Losses, repeated: Losses, other: Sequence[str], *, exact: bool = True
) -> int:
    """Prints the losses, the meaning of "equal" for them, and the verdict.

    On another machine the losses may differ by `TOLERANCE`. After `FIRST_STEPS` they may do so on
    the same machine, because a first line that is logged later is a mean over steps in which
    rounding errors have grown.

    Args:
      name: PAPER/DATA/VARIANT/SEED.
      recorded: the losses of the record.
      repeated: the losses of this process.
      other: the result of `machine_differences`.
      exact: False if the recorded losses are rounded to `DIGITS`.

    Returns:
      The exit status: 0 if the losses agree, else 1.
    """
    say(f"{name}: training loss")
    is_equal, again = len(repeated) == len(recorded), dict(repeated)
    for step, loss in recorded:
        repeated_loss = again.get(step, float("nan"))
        say(f"  step {step}: {loss!r} in the record, {repeated_loss!r} again")
        # NaN, the loss of a missing step, fails the comparison below.
        allowed = TOLERANCE * max(1.0, abs(loss)) if other or step > FIRST_STEPS else 0.0
        is_equal = is_equal and abs(repeated_loss - loss) <= allowed
    digits = "all digits" if exact else f"the {DIGITS} digits that the record has"
    if other:
        say(
            f"another machine or other cores ({'; '.join(other)}): equal means within "
            f"{TOLERANCE:g} of the loss. Rounding differs there, and grows with the steps: test "
            "results may differ by a point"
        )
    else:
        means = f"{digits} up to step {FIRST_STEPS}, within {TOLERANCE:g} of the loss after it"
        say(f"same kind of machine and packages: equal means {means}")
    ending = f", in {digits}" if recorded == repeated else ""
    say(f"verdict: {'equal' if is_equal else 'NOT equal'}{ending}")
    return 0 if is_equal else 1
