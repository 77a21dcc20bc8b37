"""What a record has of a run beside its metrics: curves, times, and what it ran on."""

import functools
import math
import os
import platform
import statistics
from collections.abc import Mapping

import jax
import numpy as np

from experiments.core.kinds import Batches, Json, Params, Record, Records, Task
from experiments.core.origins import origin_of
from gatedjax import analysis
from gatedjax._utils.cpu import usable_cores
from gatedjax.training import FitResult, eval_params, evaluate
from gatedjax.training.log import processor, source, versions
from gatedjax.training.parallel import Parallel

CURVE = ("loss", "accuracy")
"""What a point of a curve holds after the step."""
TRAIN_POINTS = 100
"""At most so many points of the training curve are kept in a record."""
FIRST_STEPS = 50
"""Up to this step a record has the training losses as they were logged, with all digits."""
MAX_POINTS = 40
"""Of a line: more would hide each other's markers."""

Point = tuple[float, float, float | None]


def points(records: Records, key: str, column: int) -> list[Point]:
    """The mean curve of the seeds, as (step, mean, standard deviation; None of one seed).

    Args:
      records: of the seeds. A step that only some of them reached (the others stopped early) is
        averaged over those.
      key: "curve" or "train_curve": lists of [step, values...].
      column: which value.
    """
    values: dict[float, list[float]] = {}
    for record in records:
        for point in record.get(key) or ():
            if len(point) > column and point[column] is not None:
                values.setdefault(float(point[0]), []).append(float(point[column]))
    every = math.ceil(len(values) / MAX_POINTS)
    steps = sorted(values)
    found = []
    for i in range(0, len(steps), every or 1):
        # neighbouring steps become one point, at the last of them
        group = steps[i : i + every]
        summary = analysis.summary([v for step in group for v in values[step]])
        spread = (summary.std or 0.0) if every == 1 else 0.0
        found.append((group[-1], summary.mean, None if len(records) == 1 else spread))
    return found


def panels(
    runs: Mapping[str, Records], key: str, columns: Mapping[str, int]
) -> dict[str, dict[str, list[Point]]]:
    """Mean curves for `analysis.plot_lines`: a panel per value, with a line per system.

    Args:
      runs: the records of each system.
      key: "curve" or "train_curve".
      columns: which value of a point a panel shows.
    """
    return {
        panel: {system: points(records, key, column) for system, records in runs.items()}
        for panel, column in columns.items()
    }


def curve(metrics: Records, split: str, points: int | None = None) -> list[list[float | None]]:
    """The lines of metrics.jsonl of "train" or "eval" as [step, loss, accuracy].

    Where they are more than `points`, neighbours are averaged, at the step of the last of them.
    """
    lines = [_likelihood(line) for line in metrics if line.get("split") == split]
    size = 1 if points is None else max(1, math.ceil(len(lines) / points))
    found = []
    for start in range(0, len(lines), size):
        group = lines[start : start + size]
        point: list[float | None] = [group[-1]["step"]]
        for name in CURVE:
            values = [line[name] for line in group if line.get(name) is not None]
            point.append(round(statistics.fmean(values), 6) if values else None)
        found.append(point)
    return found


def _likelihood(line: Json) -> Json:
    """A line whose "loss" is without the penalties that some networks add in training."""
    return line | {"loss": line["cross_entropy"]} if "cross_entropy" in line else line


def first_losses(metrics: Records, last: int = FIRST_STEPS) -> list[list[float | None]]:
    """[step, loss] of the training lines up to a step, not rounded; the first line in any case.

    The loss of a line is the mean since the line before it, less penalties, as in `curve`.
    """
    lines = [_likelihood(line) for line in metrics if line.get("split") == "train"]
    return [
        [line["step"], line["loss"]]
        for i, line in enumerate(lines)
        if not i or line["step"] <= last
    ]


def seconds_per_step(metrics: Records) -> float | None:
    """The median over the logged intervals, without compilation."""
    rates = [line["steps_per_s"] for line in metrics if line.get("steps_per_s")]
    return round(1 / statistics.median(rates), 6) if rates else None


def outcome(result: FitResult, metrics: Records) -> Json:
    """What every record has of a training run and of the lines that it logged."""
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
    """Evaluates the best parameters (`best` where given) and, where they are others, the last.

    Returns:
      ({"test": metrics, "test_last": metrics}, predictions of the best).
    """
    chosen = result.best_params if best is None else best
    found, predictions = evaluate(task, chosen, test, parallel)
    params, last = eval_params(result.state.params, result.state.opt_state), found
    # compared, for they may be neither of the best nor of the last step, as a mean of checkpoints
    if not _equal(chosen, params):
        last, _ = evaluate(task, params, test, parallel)
    return {"test": found, "test_last": last}, predictions


def _equal(params: Params, others: Params) -> bool:
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(others), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def hardware() -> Json:
    """What the run ran on."""
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


@functools.cache  # as it was when the process began: a tree may change below a long run
def software() -> Json:
    """What code made a record: commit, whether the tree was clean, versions of packages."""
    return {**source(), "versions": versions()}


def finish(record: Record, seconds: float) -> None:
    """Adds time, hardware, software and the origin of the data."""
    record |= {"seconds": round(seconds, 1), "hardware": hardware(), "software": software()}
    record["origin"] = origin_of(record)


def stop_message(record: Record) -> str | None:
    """What to say if a signal reached the run: during it, or with its last step."""
    if record["stopped"] == "signal":
        return f"stopped after step {record['steps']}; the same command continues"
    if record.get("signal") is not None:
        return "stopped after this run; the same command continues"
    return None
