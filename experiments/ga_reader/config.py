"""The configurations of runs, and the presets of the paper's data sets."""

import dataclasses
import math
from typing import ClassVar, Literal

from experiments.core.config import Files, RunConfig, Start, with_changes
from experiments.core.kinds import Json
from gatedjax.models import GAReaderConfig, ga_reader_optimizer
from gatedjax.models.ga_reader import GAReaderCharacters
from gatedjax.training import OptimizerConfig, TrainConfig

DataName = Literal["two_facts", "cbt_ne", "cbt_cn", "cnn", "daily_mail", "wdw", "wdw_relaxed"]
GLOVE = "glove.6B.100d.txt"
MAX_STEPS = 1_000_000
"""A number of steps that no preset reaches, because its epochs end before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Files):
    """The questions, and the sizes of their batches."""

    name: DataName = "two_facts"
    """The data set. "two_facts" is generated here; the other data sets are read from manual-dir or
    data-dir."""
    embeddings: str = "none"
    """The GloVe text file (plain or .gz) with vectors of the width of the network's word vectors,
    looked up here and in manual-dir. With "none" all vectors are drawn."""
    oov_std: float = 1.0
    """The standard deviation of the vectors of words that the file lacks. They are drawn from a
    normal distribution by the word, and are the same in all runs."""
    lowercase: bool = True
    """Fold the case of words, as GloVe 6B does. Candidates are found by their original letters."""
    batch_size: int = 32
    """The number of questions per training step."""
    eval_batch_size: int = 32
    """The number of questions per evaluation step."""
    max_shapes: int = 8
    """The largest number of padded sizes of (document, query). Each is compiled once."""
    max_doc_len: int | None = None
    """The number of tokens of a document, from its beginning, that are used; None uses all. A
    question is counted if its answer is cut off, because the reader cannot find it."""
    fraction: float = 1.0
    """The share of the training questions to train on. A smaller share is part of a larger
    share."""
    fraction_seed: int = 0
    """The seed of the choice of the share."""

    def __post_init__(self) -> None:
        """Raises ValueError for a share outside of (0, 1]."""
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be in (0, 1], got {self.fraction}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GAReaderRunConfig(RunConfig):
    """A training run: its data, its network and its training."""

    recorded: ClassVar[tuple[str, ...]] = ("epochs", "halve_after", "patience_epochs")
    preset: str = "toy"
    """The preset that the other options change: toy, cbt_ne, cbt_cn, cnn, daily_mail, wdw,
    wdw_relaxed."""
    epochs: int | None = 10
    """The number of passes over the training questions, unless train.num-steps ends the run before.
    With None only train.num-steps ends it."""
    halve_after: int | None = 3
    """The number of epochs at the full learning rate; each later epoch halves it. It is 3 in the
    authors' program and 2 in the paper's text; None leaves the rate to train.optimizer.schedule."""
    patience_epochs: float | None = 1.0
    """The number of epochs without a better validation accuracy after which training stops; None
    leaves it to train.early-stop-patience."""
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    model: GAReaderConfig = dataclasses.field(default_factory=GAReaderConfig)
    several: ClassVar[str | None] = "ga_reader.tables table1"

    def __post_init__(self) -> None:
        """Raises ValueError for a number of epochs that is not positive."""
        super().__post_init__()
        for name in ("epochs", "halve_after", "patience_epochs"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive or None, got {value}")

    def training(self, steps_per_epoch: int) -> TrainConfig:
        """Returns the training options, with numbers of epochs converted to steps."""
        changes: Json = {}
        if self.epochs is not None:
            changes["num_steps"] = min(self.train.num_steps, self.epochs * steps_per_epoch)
        if self.patience_epochs is not None:
            # `fit` counts patience in evaluations. The result is rounded up, so that at least the
            # given number of epochs passes.
            patience = math.ceil(self.patience_epochs * steps_per_epoch / self.train.eval_every)
            # A small data set may have less than one evaluation in an epoch.
            changes["early_stop_patience"] = max(1, patience)
        if self.halve_after is not None:
            # The schedule comes from the function that the library offers for this paper, so that
            # both have the same rule.
            falling = ga_reader_optimizer(steps_per_epoch, halve_after=self.halve_after)
            for name in ("schedule", "decay_rate", "decay_begin", "decay_every"):
                changes[f"optimizer.{name}"] = getattr(falling, name)
        return with_changes(self.train, changes)


def _preset(name: DataName, *, dropout: float, released: bool) -> GAReaderRunConfig:
    """Returns the preset of a data set of the paper.

    It has Adam with a learning rate of 5e-4, gradients clipped at 10, and batches of 32. As in the
    authors' program the network is evaluated once in 100 updates, and training ends after 10
    epochs, or after an epoch without a better result.

    `released` has the authors' released settings: characters of words, fixed word vectors and the
    qe-comm feature. Otherwise the network is wider, trains its vectors and has no feature.
    """
    return GAReaderRunConfig(
        preset=name,
        data=DataConfig(name=name, embeddings=GLOVE),
        model=GAReaderConfig(
            hidden=128 if released else 256,
            dropout=dropout,
            characters=GAReaderCharacters(char_dim=25 if released else 0),
            feature=released,
            freeze_embeddings=released,
        ),
        train=TrainConfig(
            num_steps=MAX_STEPS,
            log_every=50,
            eval_every=100,
            checkpoint_every=100,
            best_metric="accuracy",
            best_mode="max",
            optimizer=OptimizerConfig(name="adam", learning_rate=5e-4, clip_norm=10.0),
        ),
    )


PRESETS: dict[str, GAReaderRunConfig] = {
    "toy": GAReaderRunConfig(
        preset="toy",
        epochs=None,
        halve_after=None,
        patience_epochs=None,
        data=DataConfig(name="two_facts", max_shapes=1, eval_batch_size=100),
        model=GAReaderConfig(
            hops=2,
            hidden=32,
            embedding_dim=32,
            characters=GAReaderCharacters(char_dim=0),
            dropout=0.0,
            init="glorot_orthogonal",
        ),
        train=TrainConfig(
            num_steps=5_000,
            log_every=100,
            eval_every=250,
            checkpoint_every=500,
            best_metric="loss",
            best_mode="min",
            optimizer=OptimizerConfig(learning_rate=3e-3, clip_norm=10.0),
        ),
    ),
    "cbt_ne": _preset("cbt_ne", dropout=0.4, released=True),
    "cbt_cn": _preset("cbt_cn", dropout=0.4, released=True),
    "cnn": _preset("cnn", dropout=0.2, released=False),
    "daily_mail": _preset("daily_mail", dropout=0.1, released=False),
    "wdw": _preset("wdw", dropout=0.3, released=True),
    "wdw_relaxed": _preset("wdw_relaxed", dropout=0.3, released=True),
}


def base_of(data: str) -> str:
    """Returns the reader without the feature, with fixed or trained word vectors as in the preset.
    Its name is "fix" or "update"."""
    return "fix" if PRESETS[data].model.freeze_embeddings else "update"


def feature_of(data: str) -> str:
    """Returns the reader of `base_of` with the feature."""
    return f"feature_{base_of(data)}"


START = Start(
    name="ga_reader",
    about="""Train a gated-attention reader, or a baseline with --model.hops 1 or --model.gating
none, and evaluate it on the test questions. Options that are not given come from --preset. Press
Ctrl-C to stop: the run is saved, and the same command continues it.

Other commands: `answer` asks a trained reader one's own question; `make-cloze` makes questions of
books.""",
    presets=PRESETS,
    default="toy",
)
