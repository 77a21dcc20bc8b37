"""The configurations of runs, a class for each kind of task, and their presets."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from experiments.core import config
from experiments.core.cli import option_value
from experiments.core.kinds import Json
from gatedjax import models
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import say
from gatedjax.models.ssan import SSANDropout
from gatedjax.text.models._translator import SearchConfig
from gatedjax.training import OptimizerConfig, TrainConfig

Corpus = Literal["multi30k", "iwslt14_en_ro", "kftt", "wmt14_en_de"]
BASE, FULL = "san", "ssan_layer1"
"""The networks that all tables compare: without a selector, and with a selector in layer 1."""


MENDED: Json = {
    "model.order.relative": "local",
    "model.head_hidden": (),
    "train.optimizer.warmup_steps": 300,
}
"""The recipe that learns BShift: attention heads that start at the neighbouring words, and a linear
class layer."""


BOUNDED: Json = {"model.gates.cap": 0.0}
"""The option that bounds the gradient of the gates: keys that are not selected weigh no more in it
than selected keys."""


FIXED: Json = {"model.gates.freeze_selector": True}
"""The option that keeps a selector at its random start. It selects in training as in evaluation."""


# The names of networks that are trained with these options.
local_name, bounded_name, fixed_name = "{}_local".format, "{}_bounded".format, "{}_fixed".format


def check_vector_std(vector_std: float | None) -> None:
    """Raises ValueError for an impossible standard deviation of word vectors."""
    if vector_std is not None and not 0 < vector_std < float("inf"):
        raise ValueError(f"vector_std must be positive and finite, got {vector_std}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesConfig(config.Files):
    """The folders of the texts, and a note about them."""

    note: str = ""
    """A description of the files if they are not the published files. Records and tables show
    it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig(FilesConfig):
    """The files of the texts, and the sizes of their batches."""

    batch_size: int = 64
    """The number of examples per training step."""
    eval_batch_size: int = 512
    """The number of examples per evaluation step."""
    max_buckets: int = 4
    """The largest number of length buckets. Each is compiled once; more buckets mean less
    padding."""
    min_count: int = 2
    """The lowest number of times that a word must occur in the training text. Rarer words are
    unknown, and they train the vector of unknown words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeData(TextConfig):
    """A probing task of SentEval."""

    name: Literal["bigram_shift", "tree_depth", "top_constituents"] = "bigram_shift"
    """The task: whether two words were swapped, how deep the tree is, or which constituents it has
    at the top."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReorderingData(TextConfig):
    """Sentences in which a token was moved."""

    text: Literal["multi30k", "published", "files"] = "multi30k"
    """The sentences: "multi30k" reorders the English captions of Multi30k here. "published" takes
    the published validation and test files: the validation sentences are restored and reordered
    again for training, except for the last tenth; the published training file is not needed.
    "files" takes files of all three parts, such as those of `make-probes`."""
    copies: int = 10
    """The number of moves of each training sentence; files have one."""
    eval_copies: int = 4
    """The number of moves of each validation and test sentence of multi30k."""
    embeddings: str = "none"
    """The GloVe text file (plain or .gz), looked up here and in manual-dir, with vectors of the
    width model.embedding-dim. With "none" the vectors start random. Words of the texts that are not
    in the file have random vectors, which fixed word vectors (model.freeze-embeddings) keep."""
    vector_std: float | None = None
    """The standard deviation to which the word vectors of the file are scaled; None leaves them as
    they are. GloVe has 0.4, and word vectors that start random have 1."""

    def __post_init__(self) -> None:
        """Raises ValueError for numbers of copies below 1, and an impossible standard deviation."""
        config.at_least_1(self, "copies", "eval_copies")
        check_vector_std(self.vector_std)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NLIData(TextConfig):
    """Pairs of sentences."""

    name: Literal["snli", "sick"] = "snli"
    """The data set; the paper has SNLI."""
    embeddings: str = "none"
    """The GloVe text file (plain or .gz), looked up here and in manual-dir. With "none" the vectors
    start random."""
    length_quantile: float = 0.97
    """The quantile of the lengths of training sentences up to which pairs are used; pairs with a
    longer sentence are left out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetConfig(FilesConfig):
    """The files of the texts, and the sizes of their batches in tokens."""

    batch_tokens: int = 4096
    """The largest number of tokens of a training step (of each language), padding included."""
    eval_batch_tokens: int = 16_384
    """The largest number of tokens of an evaluation step, padding included."""
    max_buckets: int = 6
    """The largest number of length buckets. Each is compiled once; more buckets mean less
    padding."""
    max_len: int = 100
    """The longest training text in tokens; longer training texts are left out."""

    def __post_init__(self) -> None:
        """Raises ValueError for sizes below 1."""
        config.at_least_1(self, "batch_tokens", "eval_batch_tokens", "max_buckets", "max_len")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SRLData(BudgetConfig):
    """Predicates and their roles."""

    min_count: int = 1
    """The lowest number of times that a word must occur in the training text. Rarer words are
    unknown."""
    embeddings: str = "none"
    """The GloVe text file (plain or .gz), looked up here and in manual-dir. With "none" the vectors
    start random."""
    vector_std: float | None = None
    """The standard deviation to which the word vectors of the file are scaled; None leaves them as
    they are. GloVe has 0.4, which the factor sqrt(hidden) makes eight times as large as the
    sinusoids of the positions."""
    constrained: bool = True
    """Also score the best label sequences in which I- follows only B- or I- of the same role."""

    def __post_init__(self) -> None:
        """Raises ValueError for sizes below 1 and for an impossible standard deviation."""
        super().__post_init__()
        check_vector_std(self.vector_std)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationData(BudgetConfig):
    """Parallel text, and its division into byte pairs."""

    name: Corpus = "multi30k"
    """The parallel corpus."""
    source: str = ""
    """The language that is translated; "" stands for the first language of the corpus."""
    vocabulary_size: int = 32_000
    """The number of byte pairs of both languages together."""
    bpe: str | None = None
    """A file of byte pairs to use instead of learning them."""
    max_buckets: int = 8
    """The largest number of length buckets. Each is compiled once; more buckets mean less
    padding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(config.RunConfig):
    """A training run: its data, its network (with `select_layers`) and its training."""

    preset: str = "bshift"
    """The preset that the other options change."""
    workdir: Unset[str] = None
    """The folder for metrics, checkpoints and results (default: runs/ssan/PRESET-SYSTEM). A folder
    that holds a checkpoint of the same configuration is resumed."""
    several: ClassVar[str | None] = "ssan.tables table2"

    @property
    def system(self) -> str:
        """Returns the name of the system: "san" if no layer selects, otherwise "ssan"."""
        return "ssan" if self.model.gates.selective else "san"

    @property
    def run_name(self) -> str:
        """Returns the name of the default work folder."""
        return f"{self.preset}-{self.system}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeConfig(RunConfig):
    """A training run of a probe."""

    data: ProbeData = dataclasses.field(default_factory=ProbeData)
    model: models.SSANProbeConfig = dataclasses.field(default_factory=models.SSANProbeConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReorderingConfig(RunConfig):
    """A training run of word reordering detection."""

    data: ReorderingData = dataclasses.field(default_factory=ReorderingData)
    model: models.WordReorderingConfig = dataclasses.field(
        default_factory=models.WordReorderingConfig
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NLIConfig(RunConfig):
    """A training run of inference between sentences."""

    data: NLIData = dataclasses.field(default_factory=NLIData)
    model: models.SSANNLIConfig = dataclasses.field(default_factory=models.SSANNLIConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SRLConfig(RunConfig):
    """A training run of semantic role labelling."""

    data: SRLData = dataclasses.field(default_factory=SRLData)
    model: models.SSANTaggerConfig = dataclasses.field(default_factory=models.SSANTaggerConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationConfig(RunConfig):
    """A training run of translation."""

    data: TranslationData = dataclasses.field(default_factory=TranslationData)
    model: models.SSANTranslatorConfig = dataclasses.field(
        default_factory=models.SSANTranslatorConfig
    )
    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    init_from: str | None = None
    """The work folder of another run. This run starts with its parameters as far as their names and
    shapes agree: a selective network can start with a standard Transformer."""

    def __post_init__(self) -> None:
        """Raises ValueError if the search averages more checkpoints than the training keeps."""
        super().__post_init__()
        num_kept = self.train.keep_checkpoints
        if self.search.average > num_kept:
            raise ValueError(
                f"search.average must be at most train.keep_checkpoints={num_kept}, got "
                f"{self.search.average}"
            )

    @property
    def allows_lanes(self) -> bool:
        """Returns whether seeds can be trained side by side. A mean of checkpoints rules that
        out."""
        return self.search.average == 1


def short_warmup(train: TrainConfig, num_steps: int) -> TrainConfig:
    """Returns a training configuration with a warm-up of at most a quarter of `num_steps`."""
    warmup = min(train.optimizer.warmup_steps, num_steps // 4)
    return config.with_changes(train, {"optimizer.warmup_steps": warmup})


def with_budget(train: TrainConfig, num_steps: int) -> TrainConfig:
    """Returns a training configuration with another number of steps. It has at least ten
    evaluations and a warm-up of at most a quarter of the steps."""
    # Ten evaluations show the learning curve even of a short run.
    every = min(train.eval_every, max(num_steps // 10, 1))
    return dataclasses.replace(
        short_warmup(train, num_steps),
        num_steps=num_steps,
        eval_every=every,
        checkpoint_every=every,
        log_every=min(train.log_every, every),
    )


def _train(num_steps: int, every: int, optimizer: OptimizerConfig, **options: Any) -> TrainConfig:
    options = {"best_metric": "accuracy", "best_mode": "max"} | options
    options |= {"eval_every": every, "checkpoint_every": every, "log_every": min(100, every)}
    return TrainConfig(num_steps=num_steps, optimizer=optimizer, **options)


def _adam(rate: float, warmup: int, **options: Any) -> OptimizerConfig:
    """Returns Adam with a warm-up, after which the learning rate falls as step^-0.5."""
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
    """Returns a preset with Adam as in Vaswani et al. 2017; the default peak is (d warmup)^-0.5."""
    model = model or models.SSANTranslatorConfig()
    peak = (model.hidden * warmup) ** -0.5 if rate is None else rate
    optimizer = _adam(peak, warmup, beta2=0.98, epsilon=1e-9)
    best: Json = {"best_metric": "loss", "best_mode": "min", "keep_checkpoints": 5}
    train, search = _train(*steps, optimizer, **best), SearchConfig(average=5)
    return TranslationConfig(preset=preset, data=data, model=model, train=train, search=search)


def _select_by_loss(preset: RunConfig) -> RunConfig:
    """Returns a preset for fewer than 2,000 validation examples, which selects by the loss."""
    return config.with_changes(preset, config.BY_LOSS)


_ADADELTA = OptimizerConfig(name="adadelta", learning_rate=0.5, weight_decay=5e-5, ema_decay=0.999)
_DEEPATT = OptimizerConfig(
    name="adadelta", learning_rate=1.0, rho=0.95, epsilon=1e-6, clip_norm=1.0,
    schedule="staircase", decay_rate=0.5, decay_begin=400_000, decay_every=100_000,
)  # fmt: skip
_SMALL = models.WordReorderingConfig(hidden=128, filter_size=512, num_heads=4)
_SMALL_TRAINING = _probe(20_000, 1_000, 1e-3, 2_000)
_FILES = ReorderingData(text="files", copies=1, eval_copies=1)
_REORDERING = _train(25_000, 1_000, OptimizerConfig(learning_rate=1e-4, clip_norm=5.0))
_NO_DROPOUT = SSANDropout(dropout=0.0, attention_dropout=0.0, relu_dropout=0.0)
# Probes: the published files have 100,000 training sentences: 1,563 steps an epoch, 20 epochs.
# TreeDepth and TopConst can only be rebuilt from the treebanks that are available, with 40 and 57
# steps an epoch, and their presets are for these small files. BShift is evaluated once an epoch,
# the rebuilt data sets once in five epochs.
# Reordering: `wrd_cited` is trained as by the program that the paper cites, without dropout, with
# fixed word vectors and a constant learning rate. Its network is small, but 25,000 steps of 500
# sentences take a day and more on a single core.
# SNLI: 20 epochs of 549,367 pairs; training is evaluated once an epoch and ends after three
# evaluations without improvement. SICK: 40 epochs of 4,500 pairs.
# Roles: steps and learning rates of DeepAtt.
# Translation: as in the authors' code, 100,000 steps for the small networks, and 200,000 steps of
# four times 8,192 pieces for the large network. Multi30k: 60 epochs, with a higher dropout because
# the text is small.
# Small presets are for a machine without an accelerator: reordering trains in an hour; roles have
# 4 of 10 layers, Adam, and word vectors of the scale of random vectors, which needs far fewer
# steps; Multi30k has half the layers and 16 epochs of small batches.
_CONFIGS: tuple[RunConfig, ...] = (
    ProbeConfig(preset="bshift", train=_probe(31_260, 1_563, 1e-3, 4_000)),
    _select_by_loss(
        ProbeConfig(
            preset="tree_depth",
            data=ProbeData(name="tree_depth"),
            train=_probe(2_000, 200, 1e-3, 400),
        )
    ),
    _select_by_loss(
        ProbeConfig(
            preset="top_const",
            data=ProbeData(name="top_constituents"),
            train=_probe(2_850, 285, 1e-3, 400),
        )
    ),
    ReorderingConfig(preset="wrd", data=ReorderingData(batch_size=500), train=_REORDERING),
    ReorderingConfig(preset="wrd_small", model=_SMALL, train=_SMALL_TRAINING),
    ReorderingConfig(
        preset="wrd_published",
        data=ReorderingData(text="published", copies=20),
        model=_SMALL,
        train=_SMALL_TRAINING,
    ),
    ReorderingConfig(preset="wrd_files", data=_FILES, model=_SMALL, train=_SMALL_TRAINING),
    ReorderingConfig(
        preset="wrd_cited",
        data=dataclasses.replace(
            _FILES, batch_size=500, embeddings="glove.6B.100d.txt", vector_std=1.0
        ),
        model=dataclasses.replace(
            _SMALL, embedding_dim=100, freeze_embeddings=True, dropouts=_NO_DROPOUT
        ),
        train=_REORDERING,
    ),
    NLIConfig(
        preset="nli",
        data=NLIData(eval_batch_size=256),
        train=_train(171_700, 8_585, _ADADELTA, early_stop_patience=3),
    ),
    _select_by_loss(
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
PRESETS: dict[str, RunConfig] = {config.preset: config for config in _CONFIGS}
PRESETS["bshift_local"] = config.with_changes(
    PRESETS["bshift"], {"preset": "bshift_local", **MENDED}
)

NUM_STEPS, WARMUP = "--train.num-steps", "--train.optimizer.warmup-steps"


def short_presets(args: list[str], presets: Mapping[str, RunConfig]) -> Mapping[str, RunConfig]:
    """Shortens the warm-up of all presets if the command line has fewer steps, as in the tables.
    Prints a note if the warm-up of the chosen preset changed. They change only if --train.num-steps
    is given without a warm-up."""
    num_steps = option_value(args, NUM_STEPS) or ""
    if not num_steps.isdecimal() or option_value(args, WARMUP) is not None:
        return presets
    short = {
        name: dataclasses.replace(config, train=short_warmup(config.train, int(num_steps)))
        for name, config in presets.items()
    }
    name = option_value(args, "--preset") or START.default
    if name in presets:
        preset_warmup, warmup = (
            configs[name].train.optimizer.warmup_steps for configs in (presets, short)
        )
        if warmup < preset_warmup:
            say(
                f"warm-up: {warmup:,} steps, a quarter of {NUM_STEPS} (preset: {preset_warmup:,}); "
                f"{WARMUP} sets it",
                file=sys.stderr,
            )
    return short


START = config.Start(
    name="ssan",
    about="""Train a network with selective self-attention (SSAN), or the standard one (SAN)
with --model.gates.select-layers 0, and evaluate it on the test data. Options that are not given
come from --preset, which also decides which options there are. Press Ctrl-C to stop: the run is
saved, and the same command continues it. Translate with a finished run, and make the probes
BShift and word reordering of sentences of yours:
gatedjax translate W < in.txt
python -m experiments.ssan make-probes --texts sentences.txt --out DIR""",
    presets=PRESETS,
    default="bshift",
    presets_for=short_presets,
)
