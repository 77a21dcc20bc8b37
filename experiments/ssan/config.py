"""What a run is made of: a kind of configuration for every kind of task, and the presets."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from experiments.core import config
from experiments.core.cli import option_value
from experiments.core.kinds import Json
from gatedjax import models
from gatedjax._utils.terminal import say
from gatedjax.models.ssan import SSANDropout
from gatedjax.text._translator import SearchConfig
from gatedjax.training import OptimizerConfig, TrainConfig

Corpus = Literal["multi30k", "iwslt14_en_ro", "kftt", "wmt14_en_de"]
BASE, FULL = "san", "ssan_layer1"
"""The networks that all tables compare: without a selector, and with one in layer 1."""


MENDED: Json = {
    "model.order.relative": "local",
    "model.head_hidden": (),
    "train.optimizer.warmup_steps": 300,
}
"""The recipe that learns BShift: heads that look at the words beside, a linear class layer."""


def local(network: str) -> str:
    """The name of a network by the recipe that learns BShift."""
    return f"{network}_local"


BOUNDED: Json = {"model.gates.cap": 0.0}
"""Keys that are not selected weigh no more than selected ones in the gradient of their gates."""


def bounded(network: str) -> str:
    """The name of a network whose selector has this gradient."""
    return f"{network}_bounded"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesConfig(config.Files):
    """Where texts are."""

    note: str = ""
    """What these files are, if not the published ones: a substitute that records and tables
    name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig(FilesConfig):
    """Where texts are, and how they become batches."""

    batch_size: int = 64
    """Examples per training step."""
    eval_batch_size: int = 512
    """Examples per evaluation step."""
    max_buckets: int = 4
    """Length buckets, each compiled once; more of them means less padding."""
    min_count: int = 2
    """Words that occur less often in the training text are unknown, which trains the vector of
    unknown words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeData(TextConfig):
    """A probing task of SentEval."""

    name: Literal["bigram_shift", "tree_depth", "top_constituents"] = "bigram_shift"
    """Task: were two words inverted, how deep is the tree, which are its top constituents."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReorderingData(TextConfig):
    """Sentences of which one token was moved."""

    text: Literal["multi30k", "published"] = "multi30k"
    """English of Multi30k, reordered here; or the published sentences: the validation file is
    restored and reordered again for training, but for its last tenth, and the test file is as it
    is (the published training file is not needed)."""
    copies: int = 10
    """Moves of every training sentence."""
    eval_copies: int = 4
    """multi30k: moves of every validation and test sentence."""

    def __post_init__(self) -> None:
        """Refuses values that no run could use."""
        config.at_least_1(self, "copies", "eval_copies")


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
class BudgetConfig(FilesConfig):
    """Where texts are, and how they become batches of about as many tokens."""

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
        config.at_least_1(self, "batch_tokens", "eval_batch_tokens", "max_buckets", "max_len")


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
class RunConfig(config.RunConfig):
    """One training run: data, network (it has `select_layers`), training."""

    preset: str = "bshift"
    """Starting point that the other options change."""
    workdir: str | None = None
    """Where metrics, checkpoints and results go (default: runs/ssan/PRESET-SYSTEM). A workdir that
    holds a checkpoint of the same configuration is resumed."""
    several: ClassVar[str | None] = "ssan.tables table2"

    @property
    def system(self) -> str:
        """ "san" without a layer that selects, else "ssan"."""
        return "ssan" if self.model.gates.selective else "san"

    @property
    def run_name(self) -> str:
        """The name of the default work folder."""
        return f"{self.preset}-{self.system}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeConfig(RunConfig):
    """One training run of a probe."""

    data: ProbeData = dataclasses.field(default_factory=ProbeData)
    model: models.SSANProbeConfig = dataclasses.field(default_factory=models.SSANProbeConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReorderingConfig(RunConfig):
    """One training run of word reordering detection."""

    data: ReorderingData = dataclasses.field(default_factory=ReorderingData)
    model: models.WordReorderingConfig = dataclasses.field(
        default_factory=models.WordReorderingConfig
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NLIConfig(RunConfig):
    """One training run of inference between sentences."""

    data: NLIData = dataclasses.field(default_factory=NLIData)
    model: models.SSANNLIConfig = dataclasses.field(default_factory=models.SSANNLIConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SRLConfig(RunConfig):
    """One training run of semantic role labelling."""

    data: SRLData = dataclasses.field(default_factory=SRLData)
    model: models.SSANTaggerConfig = dataclasses.field(default_factory=models.SSANTaggerConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationConfig(RunConfig):
    """One training run of translation."""

    data: TranslationData = dataclasses.field(default_factory=TranslationData)
    model: models.SSANTranslatorConfig = dataclasses.field(
        default_factory=models.SSANTranslatorConfig
    )
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

    @property
    def allows_lanes(self) -> bool:
        """Whether seeds can be trained side by side; a mean of checkpoints is of one run."""
        return self.search.average == 1


def short_warmup(train: TrainConfig, num_steps: int) -> TrainConfig:
    """A warm-up of at most a quarter of so many steps."""
    warmup = min(train.optimizer.warmup_steps, num_steps // 4)
    return config.with_changes(train, {"optimizer.warmup_steps": warmup})


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


def _train(num_steps: int, every: int, optimizer: OptimizerConfig, **options: Any) -> TrainConfig:
    options |= {"eval_every": every, "checkpoint_every": every, "log_every": min(100, every)}
    return TrainConfig(num_steps=num_steps, optimizer=optimizer, **options)


def _adam(rate: float, warmup: int, **options: Any) -> OptimizerConfig:
    """Adam with a warm-up and the inverse square root of the step."""
    return OptimizerConfig(learning_rate=rate, schedule="rsqrt", warmup_steps=warmup, **options)


def _probe(num_steps: int, every: int, rate: float, warmup: int) -> TrainConfig:
    return _train(num_steps, every, _adam(rate, warmup, clip_norm=5.0))


def _translation(
    preset: str,
    data: TranslationData,
    model: models.SSANTranslatorConfig | None = None,
    steps: tuple[int, int] = (100_000, 2_000),
    *,
    warmup: int = 4_000,
    rate: float | None = None,
) -> TranslationConfig:
    """Adam as in Vaswani et al. 2017: the peak is d^-0.5 warmup^-0.5, if none is given."""
    model = model or models.SSANTranslatorConfig()
    peak = (model.hidden * warmup) ** -0.5 if rate is None else rate
    optimizer = _adam(peak, warmup, beta2=0.98, epsilon=1e-9)
    best: Json = {"best_metric": "loss", "best_mode": "min", "keep_checkpoints": 5}
    train, search = _train(*steps, optimizer, **best), SearchConfig(average=5)
    return TranslationConfig(preset=preset, data=data, model=model, train=train, search=search)


def _of_few(preset: RunConfig) -> RunConfig:
    """A preset of data with fewer than 2,000 validation examples."""
    return config.with_changes(preset, config.BY_LOSS)


_ADADELTA = OptimizerConfig(name="adadelta", learning_rate=0.5, weight_decay=5e-5, ema_decay=0.999)
_DEEPATT = OptimizerConfig(
    name="adadelta", learning_rate=1.0, rho=0.95, epsilon=1e-6, clip_norm=1.0,
    schedule="staircase", decay_rate=0.5, decay_begin=400_000, decay_every=100_000,
)  # fmt: skip
_SMALL = models.WordReorderingConfig(hidden=128, filter_size=512, num_heads=4)
# Probes: the published files have 100,000 training sentences: 1,563 steps an epoch, 20 epochs.
# TreeDepth and TopConst can only be rebuilt small from treebanks that may be had, 40 and 57 steps
# an epoch: their presets are for such files. Evaluation is once an epoch, or every fifth epoch.
# SNLI: 20 epochs of 549,367 pairs, evaluated once an epoch, ended after three without improvement;
# SICK: 40 epochs of 4,500. Roles: steps and rates of DeepAtt. Translation: 100,000 steps for the
# small networks, 200,000 of four times 8,192 pieces for the large one, as in the authors' code;
# Multi30k: 60 epochs, with the dropout that so small a text needs. Small ones are for a machine
# without an accelerator: reordering in an hour; roles with 4 of 10 layers, Adam and word vectors of
# the scale of random ones, which needs far fewer steps; Multi30k with half the layers and 16 epochs
# of small batches.
_CONFIGS: tuple[RunConfig, ...] = (
    ProbeConfig(preset="bshift", train=_probe(31_260, 1_563, 1e-3, 4_000)),
    _of_few(
        ProbeConfig(
            preset="tree_depth",
            data=ProbeData(name="tree_depth"),
            train=_probe(2_000, 200, 1e-3, 400),
        )
    ),
    _of_few(
        ProbeConfig(
            preset="top_const",
            data=ProbeData(name="top_constituents"),
            train=_probe(2_850, 285, 1e-3, 400),
        )
    ),
    ReorderingConfig(
        preset="wrd", data=ReorderingData(batch_size=500), train=_probe(25_000, 1_000, 1e-4, 0)
    ),
    ReorderingConfig(preset="wrd_small", model=_SMALL, train=_probe(20_000, 1_000, 1e-3, 2_000)),
    ReorderingConfig(
        preset="wrd_published",
        data=ReorderingData(text="published", copies=20),
        model=_SMALL,
        train=_probe(20_000, 1_000, 1e-3, 2_000),
    ),
    NLIConfig(
        preset="nli",
        data=NLIData(eval_batch_size=256),
        train=_train(171_700, 8_585, _ADADELTA, early_stop_patience=3),
    ),
    _of_few(
        NLIConfig(
            preset="nli_sick",
            data=NLIData(name="sick", eval_batch_size=256),
            train=_train(2_800, 70, _ADADELTA),
        )
    ),
    SRLConfig(preset="srl", train=_train(600_000, 5_000, _DEEPATT)),
    SRLConfig(
        preset="srl_small",
        data=SRLData(batch_tokens=2048, eval_batch_tokens=8192, vector_std=0.1),
        model=models.SSANTaggerConfig(num_layers=4),
        train=_train(4_000, 400, _adam(1e-3, 400, beta2=0.98, clip_norm=1.0)),
    ),
    _translation(
        "mt_multi30k",
        TranslationData(vocabulary_size=10_000),
        models.SSANTranslatorConfig(dropouts=SSANDropout(dropout=0.3)),
        (9_000, 450),
        warmup=2_000,
    ),
    _translation(
        "mt_multi30k_small",
        TranslationData(vocabulary_size=6_000, batch_tokens=2048),
        models.SSANTranslatorConfig(
            num_layers=3,
            decoder_layers=3,
            filter_size=512,
            dropouts=SSANDropout(dropout=0.2),
        ),
        (5_000, 250),
        warmup=500,
        rate=1.4e-3,
    ),
    _translation("mt_en_ro", TranslationData(name="iwslt14_en_ro")),
    _translation("mt_en_ja", TranslationData(name="kftt")),
    _translation(
        "mt_en_de",
        TranslationData(name="wmt14_en_de", batch_tokens=32_768),
        models.SSANTranslatorConfig(hidden=512, filter_size=2048, num_heads=8),
        (200_000, 2_000),
    ),
)
PRESETS: dict[str, RunConfig] = {one.preset: one for one in _CONFIGS}
PRESETS["bshift_local"] = config.with_changes(
    PRESETS["bshift"], {"preset": "bshift_local", **MENDED}
)

NUM_STEPS, WARMUP = "--train.num-steps", "--train.optimizer.warmup-steps"


def short_presets(args: list[str], presets: Mapping[str, RunConfig]) -> Mapping[str, RunConfig]:
    """Fewer steps than a preset's also shorten its warm-up, as they do in the tables."""
    given = option_value(args, NUM_STEPS) or ""
    if not given.isdecimal() or option_value(args, WARMUP) is not None:
        return presets
    short = {
        name: dataclasses.replace(config, train=short_warmup(config.train, int(given)))
        for name, config in presets.items()
    }
    name = option_value(args, "--preset") or START.default
    if name in presets:
        usual, warmup = (one[name].train.optimizer.warmup_steps for one in (presets, short))
        if warmup < usual:
            say(
                f"warm-up: {warmup:,} steps, a quarter of {NUM_STEPS} (preset: {usual:,}); "
                f"{WARMUP} sets it",
                file=sys.stderr,
            )
    return short


START = config.Start(
    name="ssan",
    about="""Train a network with selective self-attention (SSAN), or the standard one (SAN)
with --model.gates.select-layers 0, and evaluate it on the test data. Options that are not given
come from --preset, which also decides which options there are. Press Ctrl-C to stop: the run is
saved, and the same command continues it. Translate with a finished run:
python -m experiments.ssan translate --workdir W < in.txt""",
    presets=PRESETS,
    default="bshift",
    presets_for=short_presets,
)
