"""What a run is made of, and the presets of the probes and of word reordering detection.

Every kind of task has a `RunConfig` of its own, whose `model` has `select_layers`; `families` knows
how each is built, and `PRESETS` has all of their presets.
"""

import dataclasses
from typing import Any, Literal

from gatedjax.models import SSANProbeConfig, WordReorderingConfig
from gatedjax.training import OptimizerConfig, TrainConfig

ProbeName = Literal["bigram_shift", "tree_depth", "top_constituents"]
ReorderingText = Literal["multi30k", "published"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Where texts are, and how they become batches."""

    data_dir: str | None = None
    """Where prepared TFDS data sets are (default: TFDS's own folder)."""
    manual_dir: str | None = None
    """Folder with the raw files as they are downloaded, to work without a network."""
    batch_size: int = 64
    """Examples per training step."""
    eval_batch_size: int = 512
    """Examples per evaluation step."""
    max_buckets: int = 4
    """Length buckets, each compiled once; more of them means less padding."""
    note: str = ""
    """What these files are, if not the published ones: a substitute that records and tables
    name."""
    min_count: int = 2
    """Words that occur less often in the training text are unknown, which trains the vector of
    unknown words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeData(TextConfig):
    """A probing task of SentEval."""

    name: ProbeName = "bigram_shift"
    """Task: were two words inverted, how deep is the tree, which are its top constituents."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReorderingData(TextConfig):
    """Sentences of which one token was moved."""

    text: ReorderingText = "multi30k"
    """English of Multi30k, reordered here; or the published sentences: the validation file is
    restored and reordered again for training, but for its last tenth, and the test file is as it
    is (the published training file is not needed)."""
    copies: int = 10
    """Moves of every training sentence."""
    eval_copies: int = 4
    """multi30k: moves of every validation and test sentence."""

    def __post_init__(self) -> None:
        """Refuses values that no run could use."""
        for name in ("copies", "eval_copies"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run: data, network, training."""

    preset: str = "bshift"
    """Starting point that the other options change."""
    workdir: str | None = None
    """Where metrics, checkpoints and results go (default: runs/ssan/PRESET-SYSTEM). A workdir that
    holds a checkpoint of the same configuration is resumed."""
    cpu_devices: int | None = None
    """CPU devices to split a batch over (default: one per core); no effect on GPU or TPU."""
    data: Any
    model: Any
    train: TrainConfig

    def __post_init__(self) -> None:
        """Refuses what this command does not do."""
        if self.train.seeds != 1 or self.train.sweep:
            raise ValueError(
                "train.seeds must be 1 and train.sweep empty; for several seeds use "
                "python -m experiments.ssan.tables table2 --seeds N"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeConfig(RunConfig):
    """One training run of a probe."""

    data: ProbeData = dataclasses.field(default_factory=ProbeData)
    model: SSANProbeConfig = dataclasses.field(default_factory=SSANProbeConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReorderingConfig(RunConfig):
    """One training run of word reordering detection."""

    data: ReorderingData = dataclasses.field(default_factory=ReorderingData)
    model: WordReorderingConfig = dataclasses.field(default_factory=WordReorderingConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


def train_config(
    num_steps: int, eval_every: int, *, learning_rate: float, warmup: int, **options: Any
) -> TrainConfig:
    """Adam with a warm-up and the inverse square root of the step, gradients clipped at norm 5."""
    return TrainConfig(
        num_steps=num_steps,
        eval_every=eval_every,
        checkpoint_every=eval_every,
        log_every=min(100, eval_every),
        optimizer=OptimizerConfig(
            learning_rate=learning_rate, schedule="rsqrt", warmup_steps=warmup, clip_norm=5.0
        ),
        **options,
    )


def short_warmup(train: TrainConfig, num_steps: int) -> TrainConfig:
    """A warm-up of at most a quarter of so many steps."""
    warmup = min(train.optimizer.warmup_steps, num_steps // 4)
    optimizer = dataclasses.replace(train.optimizer, warmup_steps=warmup)
    return dataclasses.replace(train, optimizer=optimizer)


def with_budget(train: TrainConfig, num_steps: int) -> TrainConfig:
    """Other steps in all: at least ten evaluations, a warm-up of at most a quarter."""
    every = min(train.eval_every, max(num_steps // 10, 1))
    return dataclasses.replace(
        short_warmup(train, num_steps),
        num_steps=num_steps,
        eval_every=every,
        checkpoint_every=every,
        log_every=min(train.log_every, every),
    )


# The published files have 100,000 training sentences: 1,563 steps an epoch, 20 epochs. TreeDepth
# and TopConst can only be rebuilt small from treebanks that may be had, 40 and 57 steps an epoch:
# their presets are for such files. Evaluation is once an epoch, or every fifth epoch.
PRESETS: dict[str, RunConfig] = {
    "bshift": ProbeConfig(
        preset="bshift",
        train=train_config(31_260, 1_563, learning_rate=1e-3, warmup=4_000),
    ),
    "tree_depth": ProbeConfig(
        preset="tree_depth",
        data=ProbeData(name="tree_depth"),
        train=train_config(2_000, 200, learning_rate=1e-3, warmup=400),
    ),
    "top_const": ProbeConfig(
        preset="top_const",
        data=ProbeData(name="top_constituents"),
        train=train_config(2_850, 285, learning_rate=1e-3, warmup=400),
    ),
    "wrd": ReorderingConfig(
        preset="wrd",
        data=ReorderingData(batch_size=500),
        train=train_config(25_000, 1_000, learning_rate=1e-4, warmup=0),
    ),
    # the same in an hour on a CPU
    "wrd_small": ReorderingConfig(
        preset="wrd_small",
        model=WordReorderingConfig(hidden=128, filter_size=512, num_heads=4),
        train=train_config(20_000, 1_000, learning_rate=1e-3, warmup=2_000),
    ),
    "wrd_published": ReorderingConfig(
        preset="wrd_published",
        data=ReorderingData(text="published", copies=20),
        model=WordReorderingConfig(hidden=128, filter_size=512, num_heads=4),
        train=train_config(20_000, 1_000, learning_rate=1e-3, warmup=2_000),
    ),
}
