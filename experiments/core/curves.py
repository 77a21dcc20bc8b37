"""Entries of a record in addition to its metrics: curves, times, and hardware."""

import functools
import math
import os
import platform
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from experiments.core.kinds import Batches, Json, Params, Record, Records, Task
from experiments.core.origins import origin_of
from experiments.core.records import read_json
from gatedjax import analysis
from gatedjax._utils.cpu import usable_cores
from gatedjax._utils.run_files import processor, source, versions
from gatedjax._utils.terminal import say
from gatedjax.training import FitResult, eval_params, evaluate
from gatedjax.training.distributed import is_main
from gatedjax.training.parallel import Parallel

CURVE = ("loss", "accuracy")
"""The values of a curve point after the step."""
TRAIN_POINTS = 100
"""The largest number of points in the training curve of a record."""
FIRST_STEPS = 200
"""Up to this step a record has the training losses as they were logged, with all digits."""
MAX_POINTS = 40
"""The largest number of points of a drawn line, because the markers of more points overlap."""

Point = tuple[float, float, float | None]
"""Step, mean, and standard deviation, which is None for a single seed."""


def points(records: Records, key: str, column: int) -> list[Point]:
    """Returns the mean curve of the seeds. Each is (step, mean, standard deviation), of at most
    `MAX_POINTS` points; neighbours are averaged. A step that some seeds did not reach is averaged
    over the others. `key` is "curve" or "train_curve", and `column` the position of the value in a
    point."""
    values: dict[float, list[float]] = {}
    for record in records:
        for point in record.get(key) or ():
            if len(point) > column and point[column] is not None:
                values.setdefault(float(point[0]), []).append(float(point[column]))
    every = math.ceil(len(values) / MAX_POINTS)
    steps = sorted(values)
    curve_points = []
    for i in range(0, len(steps), every or 1):
        # Neighbouring steps become a single point at the last of the steps.
        group = steps[i : i + every]
        summary = analysis.summary([v for step in group for v in values[step]])
        # A group of several steps also varies with the step, so its deviation is not that of the
        # seeds and is not drawn.
        spread = (summary.std or 0.0) if every == 1 else 0.0
        curve_points.append((group[-1], summary.mean, None if len(records) == 1 else spread))
    return curve_points


def panels(
    runs: Mapping[str, Records], key: str, columns: Mapping[str, int]
) -> dict[str, dict[str, list[Point]]]:
    """Returns mean curves for `analysis.plot_lines`: a panel per value, with a line per system.
    `columns` has the position of the value in a point, by the title of the panel."""
    return {
        panel: {system: points(records, key, column) for system, records in runs.items()}
        for panel, column in columns.items()
    }


def curve(metrics: Records, split: str, points: int | None = None) -> list[list[float | None]]:
    """Returns the logged lines of a split as points [step, loss, accuracy]. With more lines than
    `points`, neighbours are averaged at the step of the last line."""
    lines = [_likelihood(line) for line in metrics if line.get("split") == split]
    size = 1 if points is None else max(1, math.ceil(len(lines) / points))
    curve_points = []
    for start in range(0, len(lines), size):
        group = lines[start : start + size]
        point: list[float | None] = [group[-1]["step"]]
        for name in CURVE:
            values = [line[name] for line in group if line.get(name) is not None]
            point.append(round(statistics.fmean(values), 6) if values else None)
        curve_points.append(point)
    return curve_points


def _likelihood(line: Json) -> Json:
    """Returns a line with the loss without the penalties that some networks add in training."""
    return line | {"loss": line["cross_entropy"]} if "cross_entropy" in line else line


def first_losses(metrics: Records, last: int = FIRST_STEPS) -> list[list[float | None]]:
    """Returns [step, loss] of the training lines up to a step, not rounded. The loss of a line is
    the mean since the line before it, without penalties, as in `curve`. The first line is returned
    in any case."""
    lines = [_likelihood(line) for line in metrics if line.get("split") == "train"]
    return [
        [line["step"], line["loss"]]
        for i, line in enumerate(lines)
        if not i or line["step"] <= last
    ]


def seconds_per_step(metrics: Records) -> float | None:
    """Returns the median seconds per step without compilation, or None if no line has a rate."""
    # The median is used, because a single slow interval would change a mean.
    rates = [line["steps_per_s"] for line in metrics if line.get("steps_per_s")]
    return round(1 / statistics.median(rates), 6) if rates else None


def outcome(result: FitResult, metrics: Records) -> Json:
    """Returns the entries of a record about training."""
    return {
        "stopped": result.stopped,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "steps": result.steps,
        "best_step": result.best_step,
        "validation": result.best_metrics,
        "curve": curve(metrics, "eval"),
        "train_curve": curve(metrics, "train", TRAIN_POINTS),
        "first_losses": first_losses(metrics),
        "seconds_per_step": seconds_per_step(metrics),
    }


def results_on_test(
    task: Task, result: FitResult, test: Batches, parallel: Parallel, best: Params = None
) -> tuple[Json, Json]:
    """Evaluates the best and the last parameters on the test split. Returns ({"test": metrics,
    "test_last": metrics}, predictions of the best parameters)."""
    best_params = result.best_params if best is None else best
    metrics, predictions = evaluate(task, best_params, test, parallel)
    params, last = eval_params(result.state.params, result.state.opt_state), metrics
    # Arrays are compared instead of steps, because the chosen parameters may belong to no step, for
    # example if they are a mean of checkpoints.
    if not all(map(np.array_equal, jax.tree.leaves(best_params), jax.tree.leaves(params))):
        last, _ = evaluate(task, params, test, parallel)
    return {"test": metrics, "test_last": last}, predictions


def hardware() -> Json:
    """Describes the hardware of this process, with the versions of Python and JAX."""
    device = jax.devices()[0]
    return {
        "platform": device.platform,
        "device": device.device_kind,
        "processor": processor(),
        "devices": jax.device_count(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jax": jax.__version__,
    }


@functools.cache  # cached, because the working tree may change during a long run
def software() -> Json:
    """Describes the code of this process: commit, changes to the tree, versions of packages."""
    return {**source(), "versions": versions()}


def machine_differences(record: Record, *, unknown: bool = True) -> list[str]:
    """Describes the differences between this process and the process that made a record. They are
    the platform, the processor and the usable cores (on an accelerator the device), the number of
    devices, and the versions of packages. `unknown=False` leaves out what the record lacks."""
    # The first losses, which are compared, are those of the machine on which the run was started.
    start = record.get("started_on", {})
    machine, recorded = hardware(), record.get("hardware", {}) | start
    versions = record.get("software", {}).get("versions") or {"jax": recorded.get("jax")}
    versions = versions | {"jax": start["jax"]} if start else versions
    # On an accelerator the processor of the host computes no loss.
    kind = ("processor", "usable_cores") if machine["platform"] == "cpu" else ("device",)
    compared = [
        (fact, recorded.get(fact, "unknown" if unknown else machine[fact]), machine[fact])
        for fact in ("platform", *kind, "devices")
    ]
    compared += [
        (package, versions.get(package, new), new)
        for package, new in software()["versions"].items()
    ]
    return [
        f"{name.replace('_', ' ')} {old} there, {new} here"
        for name, old, new in compared
        if old != new and name != "gatedjax"
    ]


def say_differences(record: Record) -> None:
    """Prints on stderr how this process differs from the process that made a record, if it does.
    Facts that the record lacks are left out: they are no known difference."""
    known = machine_differences(record, unknown=False)
    if known and is_main():
        say(
            f"note: the record of seed {record['seed']} was made elsewhere ({'; '.join(known)}), "
            "so that this run may differ from it; `taskset` binds a run to cores, see "
            "docs/reproduce.md",
            file=sys.stderr,
        )


def other_start(workdir: Path) -> Json | None:
    """Returns the machine on which a run was started, with its commit; None if device, processor
    and JAX are those of this process."""
    path = workdir / "environment.json"
    if not path.exists():
        return None
    first = read_json(path, "devices", "processor", "versions", "commit")
    devices = first["devices"]
    start = {
        "device": devices[0] if devices else None,
        "processor": first["processor"],
        "jax": first["versions"].get("jax"),
    }
    machine = hardware()
    same = all(machine[name] == value for name, value in start.items())
    return None if same else start | {"commit": first["commit"]}


def finish(record: Record, seconds: float, workdir: Path | None = None) -> None:
    """Adds time, hardware, software and the origin of the data to a record. The entry "started_on"
    is only in the record of a run that continued on another machine."""
    start = None if workdir is None else other_start(workdir)
    record |= {"seconds": round(seconds, 1), "hardware": hardware(), "software": software()}
    record |= {} if start is None else {"started_on": start}
    record["origin"] = origin_of(record)


def stop_message(record: Record) -> str | None:
    """Returns the message for a run that a signal reached, also with its last step; or None."""
    if record["stopped"] == "signal":
        return f"stopped after step {record['steps']}; the same command continues"
    if record.get("signal") is not None:
        return "stopped after this run; the same command continues"
    return None
