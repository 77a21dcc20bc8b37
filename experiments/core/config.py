"""Configurations of runs: frozen dataclasses, changed by the dotted paths of their fields."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from experiments.core.kinds import Config, Fields, Json
from gatedjax._utils.groups import as_dict, grouped_paths
from gatedjax.training import TrainConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
Changes = Fields
"""Dotted path of a field -> its value: {"model.select_layers": (3,)}."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """Where the files of a data set are."""

    data_dir: str | None = None
    """Where prepared TFDS data sets are (default: TFDS's own folder)."""
    manual_dir: str | None = None
    """Folder with the raw files as they are downloaded, to work without a network."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run: data, network, training."""

    preset: str = ""
    """Starting point that the other options change."""
    workdir: str | None = None
    """Where metrics.jsonl, checkpoints and results go (default: below runs, named by the preset). A
    workdir that holds a checkpoint of the same configuration is resumed."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core); no effect on GPU or TPU."""
    data: Any
    model: Any
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    several: ClassVar[str | None] = None
    """The command for several seeds, where this one makes a single run; None allows several."""

    def __post_init__(self) -> None:
        """Refuses what this command does not do."""
        if self.several is not None and (self.train.seeds != 1 or self.train.sweep):
            raise ValueError(
                "train.seeds must be 1 and train.sweep empty; for several seeds use "
                f"python -m experiments.{self.several} --seeds N"
            )


BY_LOSS: Changes = {"train.best_metric": "loss", "train.best_mode": "min"}
"""The best parameters are those of the lowest validation loss. Of fewer than 2,000 examples the
best of twenty accuracies is mostly noise."""


def evaluated(num_steps: int, every: int) -> Changes:
    """So many steps, with an evaluation and a checkpoint after every so many of them."""
    return {
        "train.num_steps": num_steps,
        "train.eval_every": every,
        "train.checkpoint_every": every,
        "train.log_every": min(50, every),
    }


def changed(config: C, changes: Changes) -> C:
    """A configuration with other values.

    All values of one dataclass are replaced together, so that its checks see them together.

    Args:
      config: a dataclass, whose fields may be dataclasses.
      changes: by dotted path.

    Raises:
      ValueError: for a path that leads to no field.
    """
    parts: dict[str, Json] = {}
    values: Json = {}
    known = {field.name for field in dataclasses.fields(config)}
    paths = grouped_paths(type(config))
    for path, value in changes.items():
        name, _, rest = paths.get(path, path).partition(".")
        if name not in known:
            raise ValueError(f"{type(config).__name__} has no field {name!r}, got {path!r}")
        if rest:
            parts.setdefault(name, {})[rest] = value
        else:
            values[name] = value
    for name, inner in parts.items():
        values[name] = changed(values.get(name, getattr(config, name)), inner)
    return dataclasses.replace(config, **values) if values else config


def at_least_1(options: object, *names: str) -> None:
    """Refuses options that are below 1.

    Raises:
      ValueError: naming the first one.
    """
    for name in names:
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(options, name)}")


def value_at(record: Any, path: str) -> Any:
    """What a record has at a dotted path ("test.accuracy", "f1.0"); None if it has nothing."""
    for name in path.split("."):
        if isinstance(record, Mapping):
            record = record.get(name)
        elif isinstance(record, list) and name.isdecimal() and int(name) < len(record):
            record = record[int(name)]
        else:
            return None
    return record


def public_config(config: Config, *more: str) -> Json:
    """A run's configuration without what belongs to one machine: data, model and train.

    Args:
      config: of the run; its folders and file names are left out.
      *more: other fields that make a run what it is.
    """
    recorded = as_dict(config)
    data = recorded["data"]
    for folder in ("data_dir", "manual_dir"):
        data.pop(folder, None)
    if data.get("embeddings") is not None:
        data["embeddings"] = Path(data["embeddings"]).name.removesuffix(".gz")
    return {name: recorded[name] for name in (*more, "data", "model", "train")}
