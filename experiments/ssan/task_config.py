"""What a run of inference, semantic roles or translation is made of, and the presets."""

import dataclasses
from typing import Any, Literal

from experiments.ssan.config import RunConfig, TextConfig
from gatedjax.models import SSANNLIConfig, SSANTaggerConfig, SSANTranslatorConfig
from gatedjax.training import OptimizerConfig, TrainConfig

Corpus = Literal["multi30k", "iwslt14_en_ro", "kftt", "wmt14_en_de"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NLIData(TextConfig):
    """Pairs of sentences."""

    name: Literal["snli", "sick"] = "snli"
    """Data set; the paper has SNLI."""
    embeddings: str = "none"
    """GloVe text file (plain or .gz), looked up here and in manual-dir; "none" starts random."""
    length_quantile: float = 0.97
    """Leave out training pairs of which a sentence is longer than those of this share."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """Where texts are, and how they become batches of about as many tokens."""

    data_dir: str | None = None
    """Where prepared TFDS data sets are (default: TFDS's own folder)."""
    manual_dir: str | None = None
    """Folder with the raw files as they are downloaded, to work without a network."""
    note: str = ""
    """What these files are, if not the published ones: a substitute that records and tables
    name."""
    batch_tokens: int = 4096
    """Tokens of a training step (of either language), padding included."""
    eval_batch_tokens: int = 16_384
    """Tokens of an evaluation step, padding included."""
    max_buckets: int = 6
    """Length buckets, each compiled once; more of them means less padding."""
    max_len: int = 100
    """Leave out training texts with more tokens."""

    def __post_init__(self) -> None:
        """Refuses values that no run could use."""
        for name in ("batch_tokens", "eval_batch_tokens", "max_buckets", "max_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SRLData(BudgetConfig):
    """Predicates and their roles."""

    min_count: int = 1
    """Words that occur less often in the training text are unknown."""
    embeddings: str = "none"
    """GloVe text file (plain or .gz), looked up here and in manual-dir; "none" starts random."""
    vector_std: float | None = None
    """Scale the word vectors of the file to this standard deviation; None takes them as they are.
    GloVe's is .4, which sqrt(hidden) makes eight times the sinusoids of the positions."""
    constrained: bool = True
    """Also score the best label sequences in which I- follows B- or I- of the same role."""

    def __post_init__(self) -> None:
        """Refuses values that no run could use."""
        super().__post_init__()
        if self.vector_std is not None and not 0 < self.vector_std < float("inf"):
            raise ValueError(f"vector_std must be positive and finite, got {self.vector_std}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationData(BudgetConfig):
    """Parallel text, and how it is cut into pieces."""

    name: Corpus = "multi30k"
    """Parallel corpus."""
    source: str = ""
    """Language that is translated; empty is the first of the corpus."""
    vocabulary_size: int = 32_000
    """Byte pairs of both languages together."""
    bpe: str | None = None
    """File of byte pairs to use instead of learning them."""
    max_buckets: int = 8
    """Length buckets, each compiled once; more of them means less padding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How translations are searched."""

    beam_size: int = 4
    """Targets that are followed; 1 is greedy search."""
    length_penalty: float = 0.6
    """Exponent of the length that scores are divided by."""
    extra: int = 50
    """A translation has at most so many pieces more than its source."""
    average: int = 1
    """Translate with the mean of so many of the newest checkpoints; 1 takes the best parameters."""
    batch_sentences: int = 64
    """Sentences that are translated at once."""

    def __post_init__(self) -> None:
        """Refuses a search that finds nothing."""
        for name in ("beam_size", "extra", "average", "batch_sentences"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.length_penalty < float("inf"):
            raise ValueError(f"length_penalty must be at least 0, got {self.length_penalty}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NLIConfig(RunConfig):
    """One training run of inference between sentences."""

    data: NLIData = dataclasses.field(default_factory=NLIData)
    model: SSANNLIConfig = dataclasses.field(default_factory=SSANNLIConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SRLConfig(RunConfig):
    """One training run of semantic role labelling."""

    data: SRLData = dataclasses.field(default_factory=SRLData)
    model: SSANTaggerConfig = dataclasses.field(default_factory=SSANTaggerConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationConfig(RunConfig):
    """One training run of translation."""

    data: TranslationData = dataclasses.field(default_factory=TranslationData)
    model: SSANTranslatorConfig = dataclasses.field(default_factory=SSANTranslatorConfig)
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    init_from: str | None = None
    """Work folder of a run whose parameters this one begins with, as far as they have the same
    names and shapes: a standard Transformer for one that selects."""

    def __post_init__(self) -> None:
        """Refuses what this command does not do."""
        super().__post_init__()
        kept = self.train.keep_checkpoints
        if self.search.average > kept:
            raise ValueError(
                f"search.average must be at most train.keep_checkpoints {kept}, got "
                f"{self.search.average}"
            )


def _train(num_steps: int, every: int, optimizer: OptimizerConfig, **options: Any) -> TrainConfig:
    return TrainConfig(
        num_steps=num_steps,
        eval_every=every,
        checkpoint_every=every,
        log_every=min(100, every),
        optimizer=optimizer,
        **options,
    )


def _translation(
    preset: str,
    name: Corpus,
    *,
    num_steps: int,
    every: int,
    vocabulary_size: int = 32_000,
    batch_tokens: int = 4096,
    warmup: int = 4_000,
    rate: float | None = None,
    average: int = 5,
    model: dict[str, Any] | None = None,
) -> TranslationConfig:
    """Adam as in Vaswani et al. 2017: the peak is d^-0.5 warmup^-0.5, if none is given."""
    network = SSANTranslatorConfig(**(model or {}))
    optimizer = OptimizerConfig(
        learning_rate=(network.hidden * warmup) ** -0.5 if rate is None else rate,
        schedule="rsqrt",
        warmup_steps=warmup,
        beta2=0.98,
        epsilon=1e-9,
    )
    return TranslationConfig(
        preset=preset,
        data=TranslationData(name=name, vocabulary_size=vocabulary_size, batch_tokens=batch_tokens),
        model=network,
        train=_train(
            num_steps,
            every,
            optimizer,
            best_metric="loss",
            best_mode="min",
            keep_checkpoints=max(average, 2),
        ),
        search=SearchConfig(average=average),
    )


_ADADELTA = OptimizerConfig(name="adadelta", learning_rate=0.5, weight_decay=5e-5, ema_decay=0.999)
_NLI: dict[str, Any] = {"max_buckets": 4, "eval_batch_size": 256}
# SNLI: 20 epochs of 549,367 pairs, evaluated once an epoch, ended after three without improvement;
# SICK: 40 epochs of 4,500. Roles: steps and rates of DeepAtt. Translation: 100,000 steps for the
# small networks, 200,000 of four times 8,192 pieces for the large one, as in the authors' code;
# Multi30k: 60 epochs, with the dropout that so small a text needs. Small ones are for a machine
# without an accelerator: roles with 4 of 10 layers, Adam and word vectors of the scale of random
# ones, which needs far fewer steps; Multi30k with half the layers and 16 epochs of small batches.
TASK_PRESETS: dict[str, RunConfig] = {
    "nli": NLIConfig(
        preset="nli",
        data=NLIData(**_NLI),
        train=_train(171_700, 8_585, _ADADELTA, early_stop_patience=3),
    ),
    "nli_sick": NLIConfig(
        preset="nli_sick",
        data=NLIData(name="sick", **_NLI),
        train=_train(2_800, 70, _ADADELTA),
    ),
    "srl": SRLConfig(
        preset="srl",
        train=_train(
            600_000,
            5_000,
            OptimizerConfig(
                name="adadelta",
                learning_rate=1.0,
                rho=0.95,
                epsilon=1e-6,
                clip_norm=1.0,
                schedule="staircase",
                decay_rate=0.5,
                decay_begin=400_000,
                decay_every=100_000,
            ),
        ),
    ),
    "srl_small": SRLConfig(
        preset="srl_small",
        data=SRLData(batch_tokens=2048, eval_batch_tokens=8192, vector_std=0.1),
        model=SSANTaggerConfig(num_layers=4),
        train=_train(
            4_000,
            400,
            OptimizerConfig(
                learning_rate=1e-3, schedule="rsqrt", warmup_steps=400, beta2=0.98, clip_norm=1.0
            ),
        ),
    ),
    "mt_multi30k": _translation(
        "mt_multi30k",
        "multi30k",
        num_steps=9_000,
        every=450,
        vocabulary_size=10_000,
        warmup=2_000,
        model={"num_layers": 6, "decoder_layers": 6, "dropout": 0.3},
    ),
    "mt_multi30k_small": _translation(
        "mt_multi30k_small",
        "multi30k",
        num_steps=5_000,
        every=250,
        vocabulary_size=6_000,
        batch_tokens=2048,
        warmup=500,
        rate=1.4e-3,
        model={"num_layers": 3, "decoder_layers": 3, "filter_size": 512, "dropout": 0.2},
    ),
    "mt_en_ro": _translation("mt_en_ro", "iwslt14_en_ro", num_steps=100_000, every=2_000),
    "mt_en_ja": _translation("mt_en_ja", "kftt", num_steps=100_000, every=2_000),
    "mt_en_de": _translation(
        "mt_en_de",
        "wmt14_en_de",
        num_steps=200_000,
        every=2_000,
        batch_tokens=32_768,
        model={"hidden": 512, "filter_size": 2048, "num_heads": 8},
    ),
}
