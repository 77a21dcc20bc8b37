"""What a run is made of, and the presets of the image data sets."""

import dataclasses
from typing import Literal

from gatedjax.models import RAUConfig
from gatedjax.training import TrainConfig

DataName = Literal["digits", "mnist", "fashion_mnist"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images."""

    name: DataName = "digits"
    """Data set; "digits" (scikit-learn's) is not in the paper."""
    data_dir: str | None = None
    """Where prepared TFDS data sets are (default: TFDS's own folder)."""
    manual_dir: str | None = None
    """Folder with the raw files as they are downloaded, to work without a network."""
    batch_size: int = 128
    """Images per training step."""
    eval_batch_size: int = 512
    """Images per evaluation step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """One training run: data, network, training."""

    preset: str = "digits"
    """Starting point that the other options change: digits, mnist, fashion_mnist."""
    workdir: str | None = None
    """Where metrics, checkpoints and results go (default: runs/rau/DATA-CELL). A workdir that
    holds a checkpoint of the same configuration is resumed."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core)."""
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: RAUConfig = dataclasses.field(default_factory=RAUConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


def _preset(name: DataName, num_steps: int, eval_every: int) -> Config:
    train = TrainConfig(num_steps=num_steps, eval_every=eval_every, checkpoint_every=eval_every)
    return Config(preset=name, data=DataConfig(name=name), train=train)


# Adam, 1e-3, batches of 128. About 10 epochs of 55,000 images; the paper trains for 213 epochs
# (--train.num-steps 100000). Digits: about 55 epochs of 1,294 images.
PRESETS = {
    "digits": _preset("digits", 600, 100),
    "mnist": _preset("mnist", 4300, 430),
    "fashion_mnist": _preset("fashion_mnist", 4300, 430),
}
