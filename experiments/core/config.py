"""Configurations of runs: frozen dataclasses, changed by the dotted paths of their fields."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from experiments.core.kinds import Config, Fields, Json
from gatedjax._utils.groups import grouped_paths
from gatedjax._utils.json import to_json_values
from gatedjax._utils.options import Unset
from gatedjax.training import TrainConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
Changes = Fields
"""Dotted path of a field -> its value: {"model.select_layers": (3,)}."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """Where the files of a data set are."""

    data_dir: Unset[str] = None
    """The folder with prepared TFDS data sets (default: TFDS's own)."""
    manual_dir: Unset[str] = None
    """The folder with the raw files as they are downloaded, to work without a network."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run: data, network, training."""

    preset: str = ""
    """The preset that the other options change."""
    workdir: Unset[str] = None
    """The folder for metrics.jsonl, checkpoints and results (default: below runs, named by the
    preset). A folder that holds a checkpoint of the same configuration is resumed."""
    cpu_devices: Unset[int] = None
    """The number of CPU devices that split a batch (default: one per core)."""
    data: Any
    model: Any
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    several: ClassVar[str | None] = None
    """The command for several seeds, where this one makes a single run; None allows several."""
    recorded: ClassVar[tuple[str, ...]] = ()
    """Fields that a record has beside data, model and train."""

    @property
    def run_name(self) -> str:
        """The name of the default work folder."""
        return self.preset

    @property
    def allows_lanes(self) -> bool:
        """Whether several seeds can be trained side by side."""
        return True

    def __post_init__(self) -> None:
        """Refuses what this command does not do."""
        if self.several is not None and (self.train.seeds != 1 or self.train.sweep):
            raise ValueError(
                "train.seeds must be 1 and train.sweep empty; for several seeds use "
                f"python -m experiments.{self.several} --seeds N"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """What the command of a run reads before it loads the rest of a paper.

    Attributes:
      name: of the paper's package and folders.
      about: what the help says.
      presets: configurations by name.
      default: the preset without --preset.
      presets_for: (command line, presets) -> presets as other options make them.
    """

    name: str
    about: str
    presets: Mapping[str, Config]
    default: str
    presets_for: Callable[[list[str], Mapping[str, Any]], Mapping[str, Any]] | None = None


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


def public_config(config: Config) -> Json:
    """Returns the configuration that a record has, without the folders of one machine."""
    recorded = to_json_values(config)
    data = recorded["data"]
    for folder in ("data_dir", "manual_dir"):
        data.pop(folder, None)
    if data.get("embeddings") is not None:
        data["embeddings"] = Path(data["embeddings"]).name.removesuffix(".gz")
    return {name: recorded[name] for name in (*config.recorded, "data", "model", "train")}
