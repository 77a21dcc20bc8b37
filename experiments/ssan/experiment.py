"""A run of SSAN, put together from the parts of its kind of task."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from experiments.core.curves import TRAIN_POINTS
from experiments.core.experiment import Experiment, Predictions
from experiments.core.kinds import Config, Json, Params, Records
from experiments.ssan import config as configs
from experiments.ssan import sentences, tasks, translation
from gatedjax.data import for_schedule

KINDS: dict[type[configs.RunConfig], Callable[[Any], Experiment]] = {
    configs.ProbeConfig: sentences.probe,
    configs.ReorderingConfig: sentences.reordering,
    configs.NLIConfig: tasks.inference,
    configs.SRLConfig: tasks.roles,
    configs.TranslationConfig: translation.experiment,
}


def experiment(config: configs.RunConfig) -> Experiment:
    """Returns the run of a configuration. Its record has the parameters of selectors, the selection
    rates in training, and the selection rates on the test sentences, in addition to the facts of
    the task."""
    of_task, model = KINDS[type(config)](config), config.model
    return dataclasses.replace(
        of_task,
        # The temperature of a selector may depend on the step, so the batches carry the number of
        # the step.
        train=lambda seed: for_schedule(of_task.train(seed), model),
        facts={"data": config.preset, "system": config.system, **of_task.facts},
        count=count_parameters,
        logged=lambda metrics: {"selection_curve": selection_curve(metrics)},
        score=lambda predictions: of_task.score(predictions) | selection(model, predictions),
    )


def count_parameters(params: Params) -> dict[str, int]:
    """Counts the trained numbers: in total, without word vectors, and in selectors."""
    names = ("parameters", "parameters_without_embeddings", "parameters_of_selectors")
    counts = dict.fromkeys(names, 0)
    for path, values in jax.tree.leaves_with_path(params):
        # A path also has the positions of lists, which have no name.
        modules = [str(getattr(key, "key", "")) for key in path]
        selects = any(module.startswith("selector_") for module in modules)
        for name, counted in zip(names, (True, "embed" not in modules, selects), strict=True):
            counts[name] += values.size if counted else 0
    return counts


def selection(model: Config, predictions: Predictions) -> Json:
    """Averages the selection rate and the share of empty queries over the test sentences. Returns
    "selected_heads" and "empty_heads", each with a list of the heads for each selective layer;
    empty for a network without a selector."""
    if "selected_heads" not in predictions:
        return {}
    return {
        name: {
            str(layer): [round(float(x), 6) for x in predictions[name][:, place].mean(axis=0)]
            for place, layer in enumerate(model.gates.selective)
        }
        for name in ("selected_heads", "empty_heads")
    }


def selection_curve(metrics: Records) -> dict[str, list[list[float]]]:
    """Extracts the curve of each selective layer from the metrics of training. Its points are
    [step, selection rate, share of empty queries]."""
    curves: dict[str, list[list[float]]] = {}
    lines = [line for line in metrics if line.get("split") == "train"]
    for line in lines[:: max(len(lines) // TRAIN_POINTS, 1)]:
        for name, value in line.items():
            if name.startswith("selected_") and value is not None:
                layer = name.removeprefix("selected_")
                empty = line.get(f"empty_{layer}") or 0.0
                point = [line["step"], round(value, 6), round(empty, 6)]
                curves.setdefault(layer, []).append(point)
    return curves
