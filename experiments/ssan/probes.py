"""Probes: the sentences of a run and its task."""

import dataclasses
import functools
from typing import Any

import numpy as np

from experiments.core.text import text_batches
from experiments.ssan import paper
from experiments.ssan.config import ProbeConfig, ProbeData
from experiments.ssan.experiment import Experiment, Predictions, by_step
from gatedjax import analysis
from gatedjax import data as gdata
from gatedjax.models import SSANProbe, SSANProbeTask

SPLITS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A probing task as the trainer needs it."""

    splits: dict[str, gdata.Encoded]
    vocabulary: gdata.Vocabulary


def prepare(config: ProbeData) -> Prepared:
    """Loads, counts and encodes the splits; those of the last call are kept."""
    return _prepare(config.name, config.data_dir, config.manual_dir, config.min_count)


@functools.lru_cache(maxsize=1)
def _prepare(name: str, data_dir: str | None, manual_dir: str | None, min_count: int) -> Prepared:
    options: dict[str, Any] = {"data_dir": data_dir, "manual_dir": manual_dir}
    sources = {
        split: gdata.load("senteval_probing", split, task=name, **options) for split in SPLITS
    }
    vocabulary = gdata.Vocabulary.build([sources["train"]], min_count=min_count)
    encoded = {split: gdata.encode(source, vocabulary) for split, source in sources.items()}
    return Prepared(encoded, vocabulary)


def experiment(config: ProbeConfig) -> Experiment:
    """The run of a probe."""
    prepared = prepare(config.data)
    encoded = prepared.splits
    train, validation, test = text_batches(
        encoded["train"],
        encoded["validation"],
        encoded["test"],
        config.data,
        seed=config.train.seed,
    )
    classes = prepared.splits["train"].info.class_names
    model = SSANProbe(config.model, len(prepared.vocabulary), len(classes))
    parts = [prepared.splits[split].info.substitute for split in SPLITS]
    small = paper.SMALL_PROBE if any(parts) else None
    return Experiment(
        task=SSANProbeTask(model),
        train=by_step(train, config.model),
        validation=validation,
        test=test,
        vocabulary=prepared.vocabulary.digest(),
        facts={
            "train_n": len(prepared.splits["train"]),
            "vocabulary_size": len(prepared.vocabulary),
            "class_names": list(classes),
        },
        labels=prepared.splits["train"].labels,
        substitute="; ".join(part for part in (config.data.note, small) if part) or None,
        score=functools.partial(scores, classes=classes),
    )


def scores(predictions: Predictions, classes: tuple[str, ...]) -> dict[str, Any]:
    """F1 by class, of groups where the paper has them, and the confusion matrix."""
    label, predicted = predictions["label"], predictions["predicted"]
    found = analysis.class_scores(label, predicted, len(classes))
    confusion = np.zeros((len(classes), len(classes)), int)
    np.add.at(confusion, (label, predicted), 1)
    groups = {
        name: [classes.index(member) for member in members if member in classes]
        for name, members in paper.TOP_GROUPS.items()
    }
    record = {
        "confusion": confusion.tolist(),
        "support": found.support.tolist(),
        "f1": [round(float(value), 6) for value in found.f1],
        "f1_micro": found.accuracy,
        "f1_weighted": found.weighted,
        "f1_macro": found.macro,
    }
    if any(groups.values()):
        grouped = analysis.group_scores(label, predicted, groups, len(classes))
        record["groups"] = {name: list(values) for name, values in grouped.items()}
    return record
