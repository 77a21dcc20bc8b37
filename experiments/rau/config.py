"""What a run is made of, and the presets of the image data sets."""

import dataclasses
from typing import Literal

from gatedjax.models import RAUConfig
from gatedjax.training import OptimizerConfig, TrainConfig

DataName = Literal["digits", "mnist", "fashion_mnist", "ptb"]


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
    """Images per evaluation step; of a text, rows that are read side by side in validation."""
    window: int = 20
    """ptb: tokens of a row in a batch; gradients go back that far."""


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


# What 20 rows of the 929,589 tokens of PTB's training part hold each.
PTB_ROW = 46_480


def _ptb(
    size: str,
    *,
    hidden: int,
    scale: float,
    window: int,
    epochs: int,
    full_rate_epochs: int,
    decay: float,
    dropout: float,
    clip_norm: float,
) -> Config:
    epoch = -(-PTB_ROW // window)
    optimizer = OptimizerConfig(
        name="sgd",
        learning_rate=1.0,
        schedule="staircase",
        decay_rate=decay,
        decay_begin=full_rate_epochs * epoch,
        decay_every=epoch,
        clip_norm=clip_norm,
    )
    model = RAUConfig(
        hidden=hidden,
        embedding_dim=hidden,
        num_layers=2,
        init_scale=scale,
        embedding_dropout=dropout,
        layer_dropout=dropout,
        state_dropout=dropout,
    )
    train = TrainConfig(
        num_steps=epochs * epoch,
        eval_every=epoch,
        checkpoint_every=epoch,
        best_metric="loss",
        best_mode="min",
        optimizer=optimizer,
    )
    data = DataConfig(name="ptb", batch_size=20, eval_batch_size=20, window=window)
    return Config(preset=f"ptb_{size}", data=data, model=model, train=train)


# Adam, 1e-3, batches of 128. About 10 epochs of 55,000 images; the paper trains for 213 epochs
# (--train.num-steps 100000). Digits: about 55 epochs of 1,294 images.
PRESETS = {
    "digits": _preset("digits", 600, 100),
    "mnist": _preset("mnist", 4300, 430),
    "fashion_mnist": _preset("fashion_mnist", 4300, 430),
    # SGD; the paper's Table 4, and for what it leaves open the settings usual for these sizes
    "ptb_small": _ptb(
        "small",
        hidden=200,
        scale=0.1,
        window=20,
        epochs=13,
        full_rate_epochs=4,
        decay=0.5,
        dropout=0.0,
        clip_norm=5.0,
    ),
    "ptb_medium": _ptb(
        "medium",
        hidden=650,
        scale=0.05,
        window=30,
        epochs=35,
        full_rate_epochs=6,
        decay=0.8,
        dropout=0.5,
        clip_norm=5.0,
    ),
    # the paper prints a decay of 1/1.5; its numbers fit 1/1.15
    "ptb_large": _ptb(
        "large",
        hidden=1500,
        scale=0.04,
        window=35,
        epochs=55,
        full_rate_epochs=14,
        decay=1 / 1.15,
        dropout=0.65,
        clip_norm=10.0,
    ),
}
