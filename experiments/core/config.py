"""Configurations of runs: frozen dataclasses, changed through the dotted paths of their fields."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from experiments.core.kinds import Config, Fields, Json
from gatedjax._utils import fields
from gatedjax._utils.json import to_json_values
from gatedjax._utils.options import CpuDevices, Unset
from gatedjax.training import TrainConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
Changes = Fields
"""New values by the dotted path of a field, such as {"model.gates.select_layers": (3,)}."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """Locations of the files of a data set."""

    data_dir: Unset[str] = None
    """Folder with prepared TFDS data sets (default: TFDS's own folder)."""
    manual_dir: Unset[str] = None
    """Folder with the raw files as they were downloaded, to work without a network."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Options of a training run: data, network, training."""

    preset: str = ""
    """Preset with the values that the other options change."""
    workdir: Unset[str] = None
    """Folder for metrics.jsonl, checkpoints and results (default: below runs, named by the preset).
    A run continues if the folder has a checkpoint of the same configuration."""
    cpu_devices: CpuDevices = None
    """CPU devices to split a batch over (default: one per core); no effect on GPU or TPU."""
    data: Any
    model: Any
    train: TrainConfig = dataclasses.field(
        default_factory=lambda: TrainConfig(best_metric="accuracy", best_mode="max")
    )
    several: ClassVar[str | None] = None
    """The command for several seeds, if this command makes a single run; None allows several
    seeds."""
    recorded: ClassVar[tuple[str, ...]] = ()
    """The fields that a record has in addition to data, model and train."""

    @property
    def run_name(self) -> str:
        """The name of the default work folder."""
        return self.preset

    @property
    def allows_lanes(self) -> bool:
        """True if several seeds can be trained in one program, as lanes."""
        return True

    def __post_init__(self) -> None:
        """Refuses several seeds and sweeps if this command makes a single run."""
        # This command writes a single record into the work folder, and several seeds need a record
        # each.
        if self.several is not None and (self.train.seeds != 1 or self.train.sweep):
            raise ValueError(
                f"train.seeds must be 1 and train.sweep empty, got {self.train.seeds} and "
                f"{self.train.sweep}; for several seeds use python -m "
                f"experiments.{self.several} --seeds N"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The part of a paper that the command of a run reads before it loads the rest. `presets_for`
    is a function of (command line, presets) that returns the presets as other options change them.
    """

    name: str
    about: str
    presets: Mapping[str, Config]
    default: str
    presets_for: Callable[[list[str], Mapping[str, Any]], Mapping[str, Any]] | None = None


BY_LOSS: Changes = {"train.best_metric": "loss", "train.best_mode": "min"}
"""Changes by which the lowest validation loss chooses the parameters. With fewer than 2,000
validation examples the best of twenty accuracies is mostly noise."""


def evaluate_every(num_steps: int, every: int) -> Changes:
    """Returns changes for the number of steps and of evaluations."""
    return {
        "train.num_steps": num_steps,
        "train.eval_every": every,
        "train.checkpoint_every": every,
        # A run shorter than 50 steps would otherwise log no training loss.
        "train.log_every": min(50, every),
    }


def with_changes(config: C, changes: Changes) -> C:
    """Returns a copy of a configuration with other values. All new values of a dataclass are set
    together, so that its checks see them together. Raises ValueError if a path leads to no field.
    """

    def unknown(kind: type, path: str, name: str) -> ValueError:
        return ValueError(f"{kind.__name__} has no field {name!r}, got {path!r}")

    return fields.with_changes(config, changes, unknown)


def swept_changes(swept: Mapping[str, Sequence[str]], values: Mapping[str, float]) -> Changes:
    """Returns the changes for the values of a trial of a search. `swept` has for each value that
    varies the option with the values to try, and the fields of the configuration."""
    return {path: value for name, value in values.items() for path in swept[name][1:]}


def at_least_1(options: object, *names: str) -> None:
    """Refuses options that are below 1; raises ValueError naming the first such option."""
    for name in names:
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(options, name)}")


def value_at(record: Any, path: str) -> Any:
    """Returns the value of a record at a dotted path. The path has keys and positions, such as
    "test.accuracy" or "f1.0". The value is None if the path leads to none."""
    for name in path.split("."):
        if isinstance(record, Mapping):
            record = record.get(name)
        elif isinstance(record, list) and name.isdecimal() and int(name) < len(record):
            record = record[int(name)]
        else:
            return None
    return record


def public_config(config: Config) -> Json:
    """Returns the configuration for a record, without the folders of this machine."""
    recorded = to_json_values(config)
    data = recorded["data"]
    for folder in ("data_dir", "manual_dir"):
        data.pop(folder, None)
    if data.get("embeddings") is not None:
        data["embeddings"] = Path(data["embeddings"]).name.removesuffix(".gz")
    return {name: recorded[name] for name in (*config.recorded, "data", "model", "train")}
