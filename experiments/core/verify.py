"""`reproduce --verify`: the first steps of a recorded run again, and whether the losses agree."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table as Screen

from experiments.core import cli
from experiments.core.config import changed
from experiments.core.curves import FIRST_STEPS, first_losses, hardware, software
from experiments.core.kinds import Config, Json, Record, Records
from experiments.core.paper import Paper
from experiments.core.papers import PAPERS
from experiments.core.plan import kind_of, paper_named
from experiments.core.records import NO_FIELD, differences, read_json
from gatedjax import training as gtraining
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.terminal import new_console, say

TOLERANCE = 1e-3
"""Relative: how far losses of the first steps may be from those of another kind of machine."""
DIGITS = 6
"""Digits after the point that a curve keeps."""

Losses = list[tuple[int, float]]
"""(step, loss)."""


@dataclasses.dataclass(frozen=True)
class Recorded:
    """The first losses of a record, and how they come from logged lines.

    Attributes:
      losses: (step, loss).
      together: lines that one loss is the mean of.
      exact: whether it has all digits.
    """

    losses: Losses
    together: int
    exact: bool

    def of(self, lines: Records) -> Losses:
        """The same of the lines of a run."""
        points = first_losses(lines, self.losses[-1][0])
        found = [(int(step or 0), loss) for step, loss in points if loss is not None]
        if self.exact:
            return found[: len(self.losses)]
        groups = [found[i : i + self.together] for i in range(0, len(found), self.together)]
        return [(g[-1][0], round(sum(x for _, x in g) / len(g), DIGITS)) for g in groups]


def recorded_losses(record: Record, steps: int) -> Recorded | None:
    """What a record has of its first steps; at least its first point, None if it has none."""
    found = [point for point in record.get("first_losses") or () if point[1] is not None]
    if found:
        near = [(int(s), float(x)) for i, (s, x) in enumerate(found) if not i or s <= steps]
        return Recorded(near, 1, True)
    points = [point for point in record.get("train_curve") or () if point[1] is not None]
    if not points:
        return None
    every = record["config"]["train"]["log_every"]
    near = [(int(p[0]), float(p[1])) for i, p in enumerate(points) if not i or p[0] <= steps]
    return Recorded(near, max(1, near[0][0] // every), False)


def recorded_config(paper: Paper, data: str, record: Record) -> Config:
    """The configuration of a record, as a value again.

    Raises:
      ValueError: naming an option of the record that there is no more.
    """
    config = paper.presets[data]
    default = paper.store().default(data)
    for _ in range(2):  # some parts exist only when another option is set
        other = differences(record["config"], paper.recorded(config), default)
        changes: Json = {}
        for one in other:
            if NO_FIELD in (one.recorded, one.wanted):
                continue
            changes[one.field] = _value(one.recorded)
        if not changes:
            break
        config = changed(config, changes)
    other = differences(record["config"], paper.recorded(config), default)
    if other:
        one = other[0]
        raise ValueError(
            f"the record has {one.field} {one.recorded}, which cannot be set today (it is "
            f"{one.wanted}): its run cannot be repeated by this code"
        )
    return config


def _value(value: Any) -> Any:
    return tuple(_value(one) for one in value) if isinstance(value, list) else value


class _Enough(Exception):
    """The last step that is wanted was logged."""


def first_lines(paper: Paper, config: Config, last: int) -> Records:
    """Trains a configuration up to a step, in a folder that is removed; returns the logged lines.

    Nothing is evaluated or saved; the schedule of the learning rate is that of the whole run.
    """
    made = paper.experiment(config)
    training = made.training or config.train
    count = training.num_steps
    training = dataclasses.replace(
        training, eval_every=count, checkpoint_every=count, progress=False, tensorboard=False
    )
    lines: Records = []

    def on_log(line: Json) -> None:
        lines.append(line)
        if line["split"] == "train" and line["step"] >= last:
            raise _Enough

    validation = made.validation
    if callable(validation):
        validation = validation(training.seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(_Enough):
        gtraining.fit(
            made.task,
            made.train(training.seed),
            validation,
            training,
            Path(folder) / "run",
            on_log=on_log,
            parallel=gtraining.make_parallel(training.parallel, accumulate=training.accumulate),
        )
    return lines


def same_machine(record: Record) -> list[str]:
    """In what this process differs from the one that made a record; empty if in nothing."""
    found = []
    here: Record = {"hardware": hardware(), "software": software()}
    if kind_of(record) != kind_of(here):
        found.append(f"{' '.join(kind_of(record))} there, {' '.join(kind_of(here))} here")
    counted = {"devices": "devices"}
    if here["hardware"]["platform"] == "cpu":
        counted["usable_cores"] = "usable cores"
    for name, text in counted.items():
        there = record["hardware"].get(name, "an unknown number of")
        if there != here["hardware"][name]:
            found.append(f"{there} {text} there, {here['hardware'][name]} here")
    if record.get("lanes", 1) > 1:
        found.append(f"it was one of {record['lanes']} lanes")
    versions = record.get("software", {}).get("versions") or {"jax": record["hardware"].get("jax")}
    for name, version in here["software"]["versions"].items():
        if name in versions and name != "gatedjax" and versions[name] != version:
            found.append(f"{name} {versions[name]} there, {version} here")
    return found


def agree(there: Losses, here: Losses, same: bool) -> bool:
    """Whether losses are equal in every digit, or within `TOLERANCE`.

    Within it where machines differ, and after `FIRST_STEPS`: a first line that is logged later is
    the mean of steps in which rounding has grown.
    """
    if [step for step, _ in there] != [step for step, _ in here]:
        return False
    return all(
        a == b
        or (not (same and step <= FIRST_STEPS) and abs(a - b) <= TOLERANCE * max(1.0, abs(a)))
        for (step, a), (_, b) in zip(there, here, strict=True)
    )


def find_record(name: str, results: Path) -> tuple[Paper, str, Record]:
    """The paper, the data set and the record of PAPER/DATA/VARIANT/SEED; exits if there is none."""
    parts = name.split("/")
    if len(parts) != 4 or not parts[3].isdecimal():
        cli.fail(f"--verify wants PAPER/DATA/VARIANT/SEED, as ga_net/trec/soft/0, got {name!r}")
    owner, data, variant, seed = parts
    if owner not in PAPERS:
        cli.fail(f"--verify {name}: no paper {owner!r}. Papers: {', '.join(PAPERS)}.")
    paper = paper_named(owner)
    store = paper.store(results / owner)
    path = store.path(data, variant, int(seed))
    if not path.exists():
        there = sorted(p.stem for p in path.parent.glob(f"{data}-*-seed*.json"))
        more = f"; of {data} there are {', '.join(there)}" if there else ""
        cli.fail(f"--verify {name}: there is no record {path}{more}")
    if data not in paper.presets:
        cli.fail(f"--verify {name}: {owner} has no preset {data!r}")
    return paper, data, read_json(path, *store.keys)


def verify(name: str, options: Any) -> int:
    """Repeats the first steps of a record and says whether they agree: 0 if so, else 1.

    Args:
      name: PAPER/DATA/VARIANT/SEED.
      options: has num_steps, results, data_dir, manual_dir and embeddings.
    """
    paper, data, record = find_record(name, options.results)
    recorded = recorded_losses(record, options.num_steps or FIRST_STEPS)
    if recorded is None:
        cli.fail(
            f"--verify {name}: the record is older than curves of the training loss; of its first "
            "steps there is nothing to compare. --rerun of its table makes one that has them"
        )
    if record["hardware"].get("platform") == "cpu":
        prepare_cpu(record["hardware"].get("devices", 1))
    config = recorded_config(paper, data, record)
    files = {n: getattr(options, n) for n in ("data_dir", "manual_dir", "embeddings")}
    files = {f"data.{n}": v for n, v in files.items() if v is not None and hasattr(config.data, n)}
    config = changed(config, files)
    for one in differences(record["config"], paper.recorded(config), paper.store().default(data)):
        cli.fail(f"--verify {name}: the record has {one.field} {one.recorded}, not {one.wanted}")
    here = recorded.of(first_lines(paper, config, recorded.losses[-1][0]))
    other = same_machine(record)
    return report(name, recorded, here, other)


def report(name: str, recorded: Recorded, here: Losses, other: Sequence[str]) -> int:
    """Prints losses, what equality means here, and the verdict; returns the exit status."""
    there, same = recorded.losses, not other
    screen = Screen(title=f"{name}: training loss")
    for heading in ("step", "record", "again", "difference"):
        screen.add_column(heading, justify="right")
    again = dict(here)
    for step, loss in there:
        found = again.get(step)
        shown = ("-", "-") if found is None else (repr(found), f"{found - loss:.3g}")
        screen.add_row(str(step), repr(loss), *shown)
    new_console().print(screen)
    digits = "all digits" if recorded.exact else f"the {DIGITS} digits that the record has"
    if same:
        means = f"{digits} up to step {FIRST_STEPS}, within {TOLERANCE:g} of the loss after it"
        say(f"same kind of machine and packages: equal means {means}")
    else:
        say(
            f"another machine or other cores ({'; '.join(other)}): equal means within "
            f"{TOLERANCE:g} of the loss. Rounding differs there, and grows with the steps: test "
            "results may differ by a point"
        )
    equal = agree(there, here, same)
    exact = there == here
    say(f"verdict: {'equal' if equal else 'NOT equal'}" + (f", in {digits}" if exact else ""))
    return 0 if equal else 1
