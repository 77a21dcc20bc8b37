"""A text classifier from the work folder of a run of GA-Net or of one of its baselines."""

import dataclasses
from pathlib import Path

import jax

from gatedjax.data import Vocabulary
from gatedjax.models import GANetConfig
from gatedjax.text._folders import CLASSES, VOCABULARY, explain_faults, open_folder
from gatedjax.text._model import TrainedModel
from gatedjax.training.log import read_json

_WORDS = 1000
"""Number of words of a text that are read if the run did not cut texts."""


def load_run(folder: Path) -> TrainedModel:
    """Opens a run of `experiments.ga_net`, or its export, with its best parameters."""
    run_folder = open_folder(folder, "run", VOCABULARY, CLASSES)
    with explain_faults(folder):
        settings = run_folder.config["config"]
        config, data = GANetConfig(**settings["model"]), settings["data"]
        if data.get("truncate_side", "right") != "right" and data.get("max_len") is not None:
            raise ValueError(
                f"{folder} must be trained with truncate_side='right', got "
                f"{data['truncate_side']!r}: its model reads the ends of long texts, so train a "
                "run that reads their beginnings"
            )
        model = TrainedModel(
            kind="text",
            network=config.system,
            config=config,
            vocabulary=Vocabulary.load(folder / VOCABULARY),
            classes=tuple(read_json(folder / CLASSES)),
            params={},
            max_len=data.get("max_len") or _WORDS,
        )
    return dataclasses.replace(model, params=run_folder.params(jax.eval_shape(model._init)))


def data_of(folder: Path) -> str:
    """Returns the name of the data set of a run, from config.json in its work folder."""
    return str(read_json(folder / "config.json", "config")["config"].get("data", {}).get("name"))
