"""One run of SSAN or its baseline: data in, trained parameters and test results out."""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.core import collapse
from experiments.core.records import jsonable
from experiments.core.curves import TRAIN_POINTS, finish, outcome, results_on_test
from experiments.core.text import correct_string
from experiments.ssan.config import RunConfig
from experiments.ssan.families import build
from experiments.ssan.results import public_config
from gatedjax import analysis
from gatedjax.training import fit, make_parallel


def system_of(model: Any) -> str:
    """ "san" without a layer that selects, else "ssan"."""
    return "ssan" if any(model.select_layers) else "san"


def default_workdir(config: RunConfig) -> Path:
    """runs/ssan/PRESET-SYSTEM, unless the configuration names one."""
    if config.workdir is not None:
        return Path(config.workdir)
    return Path("runs") / "ssan" / f"{config.preset}-{system_of(config.model)}"


def run(config: RunConfig) -> dict[str, Any]:
    """Trains, and evaluates the best parameters of the validation metric and the last ones on test.

    Returns:
      The record; `results.json` in the workdir holds it, less "exit_code" and "signal". A run that
      was stopped by a signal has no test results and writes none.
    """
    start = time.perf_counter()
    made = build(config)
    workdir = default_workdir(config)
    settings = jsonable(public_config(config))
    metadata = {"config": settings, "vocabulary": made.vocabulary}
    parallel = make_parallel(config.train.parallel, accumulate=config.train.accumulate)
    workdir.mkdir(parents=True, exist_ok=True)
    made.before(workdir)
    result = fit(
        made.task,
        made.train,
        made.validation,
        config.train,
        workdir,
        metadata=metadata,
        parallel=parallel,
    )
    metrics = analysis.read_metrics(workdir / "metrics.jsonl")
    record = {
        "data": config.preset,
        "system": system_of(config.model),
        "seed": config.train.seed,
        "config": settings,
        "substitute": made.substitute,
        **made.facts,
        **count_parameters(result.best_params),
        **outcome(result, metrics),
        "selection_curve": selection_curve(metrics),
    }
    if result.stopped != "signal":
        chosen, how = made.choose(workdir, result.best_params)
        found, predictions = results_on_test(made.task, result, made.test, parallel, chosen)
        record |= {
            **how,
            **found,
            "test_n": len(predictions["example_id"]),
            **made.score(predictions),
            **selection(config.model, predictions),
            **made.measure(chosen),
        }
        if made.labels is not None:
            record |= collapse.facts(made.labels, predictions["predicted"])
        if "correct" in predictions:
            record["correct"] = correct_string(predictions)
    return finish(record, start, workdir)


def count_parameters(params: Any) -> dict[str, int]:
    """How many numbers are trained: all of them, word vectors aside, and those of selectors."""
    found = {"parameters": 0, "parameters_without_embeddings": 0, "parameters_of_selectors": 0}
    for path, values in jax.tree.leaves_with_path(params):
        names = [str(getattr(key, "key", "")) for key in path]
        found["parameters"] += values.size
        if "embed" not in names:
            found["parameters_without_embeddings"] += values.size
        if any(name.startswith("selector_") for name in names):
            found["parameters_of_selectors"] += values.size
    return found


def selection(model: Any, predictions: dict[str, np.ndarray]) -> dict[str, Any]:
    """Selection rate and share of empty queries over the test sentences, by layer and head."""
    if "selected_heads" not in predictions:
        return {}
    layers = [layer for layer in model.select_layers if layer]
    return {
        name: {
            str(layer): [round(float(x), 6) for x in predictions[key][:, place].mean(axis=0)]
            for place, layer in enumerate(sorted(layers))
        }
        for name, key in {"selected_heads": "selected_heads", "empty_heads": "empty_heads"}.items()
    }


def selection_curve(metrics: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """What each layer selected in training: [step, selection rate, share of empty queries]."""
    found: dict[str, list[list[float]]] = {}
    lines = [line for line in metrics if line.get("split") == "train"]
    for line in lines[:: max(len(lines) // TRAIN_POINTS, 1)]:
        for name, value in line.items():
            if name.startswith("selected_") and value is not None:
                layer = name.removeprefix("selected_")
                empty = line.get(f"empty_{layer}") or 0.0
                found.setdefault(layer, []).append([line["step"], round(value, 6), round(empty, 6)])
    return found
