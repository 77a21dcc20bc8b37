"""A classifier of texts out of the work folder of a run of GA-Net or one of its baselines."""

import dataclasses
from pathlib import Path

import jax

from gatedjax.data import Vocabulary
from gatedjax.models import GANetConfig
from gatedjax.text._folders import CLASSES, VOCABULARY, described, open_folder
from gatedjax.text._model import TrainedModel
from gatedjax.training.log import read_json

_WORDS = 1000
"""Words of a text that are read where the run cut none."""


def load_run(folder: Path) -> TrainedModel:
    """Reads the best parameters of a run of `experiments.ga_net`, or its export.

    Args:
      folder: the work folder, or what `gatedjax export` made of it.

    Raises:
      FileNotFoundError, ValueError: for a folder that holds no such run.
    """
    found = open_folder(folder, "run", VOCABULARY, CLASSES)
    with described(folder):
        settings = found.config["config"]
        config, data = GANetConfig(**settings["model"]), settings["data"]
        if data.get("truncate_side", "right") != "right" and data.get("max_len") is not None:
            raise ValueError(f"{folder} reads the ends of long texts: only their beginnings can be")
        made = TrainedModel(
            kind="text",
            network=config.system,
            config=config,
            vocabulary=Vocabulary.load(folder / VOCABULARY),
            classes=tuple(read_json(folder / CLASSES)),
            params={},
            max_len=data.get("max_len") or _WORDS,
        )
    return dataclasses.replace(made, params=found.params(jax.eval_shape(made._init)))


def data_of(folder: Path) -> str:
    """The name of the data set of a run."""
    return str(read_json(folder / "config.json", "config")["config"].get("data", {}).get("name"))
