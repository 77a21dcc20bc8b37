"""The part of `gatedjax train` for networks, the only part that needs JAX."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from gatedjax._commands._training import (
    LexiconOptions,
    TrainOptions,
    fit,
    open_data,
    report,
    save,
    text_options,
)
from gatedjax._utils.choices import suggestion
from gatedjax._utils.cli import fail
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.fields import with_changes
from gatedjax._utils.options import CpuDevices, Unset, option_names
from gatedjax._utils.signals import raise_on_sigterm
from gatedjax.text.answers._prediction import OF_WORDS
from gatedjax.text.fit._network import remove_work, work_folder
from gatedjax.text.models._entries import networks
from gatedjax.training import OptimizerConfig, StoppedBySignal, TrainConfig
from gatedjax.training.identity import flatten

T = TypeVar("T")
Inferred = Annotated[Unset[T], tyro.conf.arg(help_behavior_hint="")]
"""An option whose default follows from other options or from the data."""
WORDS = {
    "--network must": "--model.NAME must",
    "network must": "--model.NAME must",
    "network: ": "--model: ",
    "training must": "--train.NAME must",
    "training: ": "--train: ",
    "training={'best_metric': ...}": "--train.best-metric",
    "or model='states' ": "",  # only Python has an encoder
    "another workdir": "another folder (--workdir DIR)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions(OptimizerConfig):
    """The update rule, the learning rate and its schedule."""

    learning_rate: Inferred[float] = None  # type: ignore[assignment]
    """The peak learning rate (default: 0.001, or 0.002 with --vectors)."""
    clip_norm: float | None = 5.0

    def __post_init__(self) -> None:
        """Checks nothing, because `train_config` checks the values with those of the data."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(TrainConfig):
    """The options of training with the defaults of `train_config`."""

    num_steps: Inferred[int] = None  # type: ignore[assignment]
    """The number of updates (default: --num-steps, or 20 epochs and at least 400 updates)."""
    log_every: Inferred[int] = None  # type: ignore[assignment]
    """The number of steps between lines of metrics.jsonl (default: a quarter of an epoch, but at
    least 10 and at most 1,000 steps)."""
    eval_every: Inferred[int] = None  # type: ignore[assignment]
    """The number of steps between evaluations; the last step is always evaluated (default: half an
    epoch, but at least 20 and at most 2,000 steps)."""
    checkpoint_every: Inferred[int] = None  # type: ignore[assignment]
    """The number of steps between checkpoints; the last step is always saved (default: an epoch,
    but at least 40 and at most 4,000 steps)."""
    seed: Inferred[int] = None  # type: ignore[assignment]
    """The seed of parameters, dropout and gates (default: --seed)."""
    # Not shown, because the command trains a single model, and other values are refused.
    seeds: Annotated[int, tyro.conf.Suppress] = 1
    sweep: Annotated[tuple[float, ...], tyro.conf.Suppress] = ()
    sweep_over: Annotated[str, tyro.conf.Suppress] = "learning_rate"
    early_stop_patience: int | None = 6
    optimizer: OptimizerOptions = OptimizerOptions()
    """The update rule, the learning rate and its schedule."""

    def __post_init__(self) -> None:
        """Checks nothing, because `train_config` checks the values with those of the data."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkOptions(TrainOptions):
    """The options of a network; the class of `options_of` adds those of its configuration."""

    minutes: Unset[float] = None
    """The largest training time in minutes, without compilation (default: no limit)."""
    num_steps: Unset[int] = None
    """The largest number of training steps (default: about twenty epochs). Training stops earlier
    if the validation loss does not improve."""
    max_len: int = 400
    """The number of words that a network reads at once. A longer text or sentence is read in
    windows; texts of pairs are cut."""
    min_count: Unset[int] = None
    """Words that occur less often are unknown (default: 1 with --vectors; else 2 for a tagger,
    and for a classifier 1 up to 1,000 texts, 2 up to 5,000, 5 up to 20,000 and 10 above)."""
    max_words: int = 100_000
    """The largest number of words from the texts in the vocabulary."""
    batch_size: Unset[int] = None
    """The number of texts in a training step (default: 32, or 64 above 10,000 texts)."""
    seed: int = 0
    """The seed of the parameters, the dropout, the gates and the order of the texts."""
    cpu_devices: CpuDevices = None
    """The number of CPU devices over which batches are split (default: the number of cores)."""
    workdir: Unset[Path] = None
    """The folder for checkpoints and metrics of the run, which stays (default: OUT.run, which is
    removed at the end)."""
    train: TrainingOptions = TrainingOptions()
    """The options of training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerOptions(NetworkOptions):
    """The options of a network that tags words."""

    word: Unset[int] = None
    """The column of the words, from 0 (default: the first, in .conllu the second)."""
    tag: Unset[int] = None
    """The column of the tags, where -1 is the last (default: the last, in .conllu the fourth)."""
    lowercase: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False


def options_of(kind: str, name: str, *, has_vectors: bool) -> type:
    """Returns the class of the options of a network, with the defaults of its configuration."""
    available = networks(kind)
    if name not in available:
        names = (*(() if kind in ("pair", "tags") else OF_WORDS), *available)
        fail(
            f"--model must be {'one of ' * (len(names) > 1)}{', '.join(names)} for the task {kind},"
            f" got {name!r}.{suggestion(name, names)}"
        )
    entry = available[name]
    changes = entry.with_vectors if has_vectors else {}
    config = with_changes(entry.config, changes, lambda *place: KeyError(*place))
    base: Any = TaggerOptions if kind == "tags" else NetworkOptions

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options(base):
        model: str = name
        network: Annotated[type(config), tyro.conf.arg(name="model")] = config
        """The options of the network."""

    Options.__doc__ = LexiconOptions.__doc__
    return Options


def words_of(options: type) -> dict[str, str]:
    """Returns the words in messages of the library with the option of a class for each."""
    nested = [option for option in option_names(options) if "." in option]
    arguments = [option[2:].replace("-", "_") for option in nested]
    groups = {"train.": "training.", "model.": "network."}
    return WORDS | {
        f"{groups[name[:6]]}{name[6:]} must": f"{option} must"
        for name, option in zip(arguments, nested, strict=True)
    }


def train_network(command: Any, kind: str) -> int:
    """Trains a network in a work folder, in which a stopped training continues; writes it."""
    options = text_options(
        command,
        network=_changes(command.network, type(command).network),
        training=_changes(command.train, TrainingOptions()),
    )
    prepare_cpu(command.cpu_devices)
    tables = open_data(command, kind, options)
    out = command.out.expanduser()
    beside = out if out.name else out.absolute()  # "." has no name
    run = (command.workdir or beside.with_name(f"{beside.name}.run")).expanduser()
    if out.resolve() in (run.resolve(), *run.resolve().parents):
        raise ValueError(
            f"--workdir must not be in the folder of the model, got {run} in {out}: give another "
            "folder, because OUT appears only when the model is complete"
        )
    with raise_on_sigterm(), work_folder(run):
        try:
            trained = fit(command, kind, options, tables, run)
        except StoppedBySignal as stopped:
            report(f"stopped after step {stopped.results[0].steps}; the same command continues")
            return stopped.results[0].exit_code
        save(command, kind, options, trained)
        if command.workdir is None and (why := remove_work(run)):
            report(f"{run} is not removed: {why}")
    return 0


def _changes(options: Any, default: Any) -> dict[str, Any]:
    """Returns the values that differ from the defaults, by name such as "gates.density"."""
    values, before = (flatten(dataclasses.asdict(x)) for x in (options, default))
    return {name: value for name, value in values.items() if value != before[name]}
