"""`gatedjax train DATA --out FOLDER`: trains a classifier of your texts, or a tagger of words."""

import dataclasses
import itertools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from gatedjax._commands._thresholds import Thresholds, parse_thresholds
from gatedjax._utils.cli import RAW_FILES, check_devices, fail, parse, program, refusals
from gatedjax._utils.cpu import prepare_cpu
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.sigterm import raise_on_sigterm
from gatedjax._utils.terminal import say
from gatedjax.export import ModelCard
from gatedjax.export._card import title_of
from gatedjax.export._folder import check_target
from gatedjax.text._asides import MAX_ASIDE, check_share
from gatedjax.text._estimator import train_any
from gatedjax.text._model import check_inputs, networks
from gatedjax.text._options import TextOptions, check_options, model_names
from gatedjax.text._prediction import LEXICON, STATES, TARGETS, WITHOUT_NETWORK
from gatedjax.text._read import Columns, infer_task, open_table, parse_header
from gatedjax.text._tags import open_sentences
from gatedjax.text._training import COLUMNS, Data
from gatedjax.text._work_folder import WorkFolder
from gatedjax.training import OptimizerConfig, StoppedBySignal, TrainConfig
from gatedjax.training.distributed import is_main

T = TypeVar("T")

_ARGUMENTS = (
    {
        "give states= or encoder=": "give --states FILE",
        "give validation_states= or encoder=": "give --validation-states FILE",
        "give test_states= or encoder=": "give --test-states FILE",
        "validation_states must": "--validation-states must",
        "test_states must": "--test-states must",
    }
    | {
        f"{field.name} must": f"--{field.name.replace('_', '-')} must"
        for field in dataclasses.fields(TextOptions)
    }
    | {
        "training={'best_metric': ...}": "--train.best-metric",
        "--network must": "--model.NAME must",
        "model='": "--model '",
        "overwrite=True": "--overwrite",
        "another workdir": "another folder (--workdir DIR)",
        "max_aside must": "--max-aside must",
        "max_aside=": "--max-aside ",
        "give num_steps": "give --num-steps",
        "lowercase must": "--no-lowercase must",
        "give states=": "give --states FILE",
        "columns must be a tuple of names of texts and a different name of the label": (
            "--text and --label must be names of different columns"
        ),
        "columns.inputs must": "--text must",
        "columns.header": "--columns",
        "min_class": "--min-class",
        "as order low,mid,high": "as --order low,mid,high",
        "as threshold ": "as --threshold ",
        "network: ": "--model: ",
        "training: ": "--train: ",
    }
)
"""Words in messages of the library, and the options that replace them."""
_TASKS = ("text", "pair", "tags", "labels", "regression", "ordinal")
_NOUNS = {
    "labels": "classifier with several labels for each text",
    "regression": "model of a number",
    "ordinal": "model of grades",
}
_CARD_METRICS = (
    *("accuracy", "macro_f1", "micro_f1", "subset_accuracy"),
    *("rmse", "mae", "r2", "spearman", "kappa"),
)
_SEVERAL = ("seeds", "sweep", "sweep_over")
"""The options of `TrainConfig` that train several models."""
Inferred = Annotated[T, tyro.conf.arg(help_behavior_hint="")]
"""An option of training whose default follows from other options or from the data."""


@dataclasses.dataclass(kw_only=True)
class DataOptions:
    """Options of the data and of the folder of the model."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """The labelled texts."""
    out: Path
    """The folder of the model. It appears when the model is complete."""
    task: Literal["auto", "text", "pair", "tags", "labels", "regression", "ordinal"] = "auto"
    """The task: a class for each text, pairs of texts, words with tags, several labels for each
    text, a number, or a grade among grades with an order. auto chooses among the first three by the
    ending and the columns of the file."""
    text: Annotated[Unset[tuple[str, ...]], tyro.conf.arg(metavar="COLUMN ...")] = None
    """The columns of the texts (default: text, or premise and hypothesis)."""
    label: str = "label"
    """The column of the label."""
    columns: Annotated[Unset[str], tyro.conf.arg(metavar="NAME,NAME,...")] = None
    """The names of all columns of files without a header, as text,label; an empty name stands for a
    column that is not read."""
    word: Unset[int] = None
    """The column of the words of a tagger, from 0 (default: the first, in .conllu the second)."""
    tag: Unset[int] = None
    """The column of the tags, where -1 is the last (default: the last, in .conllu the fourth)."""
    validation: Unset[str] = None
    """The labelled texts that choose the best parameters (default: a fixed tenth of the data)."""
    test: Unset[str] = None
    """The labelled texts on which the report measures the model as well."""
    validation_states: Unset[Path] = None
    """The file with the vectors of the texts of --validation, with --states."""
    test_states: Unset[Path] = None
    """The file with the vectors of the texts of --test, with --states."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    max_aside: float = MAX_ASIDE
    """The share of the lines that may be set aside. With more of them the command ends."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerOptions(OptimizerConfig):
    """The update rule, the learning rate and its schedule."""

    learning_rate: Inferred[float] = 1e-3
    """The peak learning rate (default: 0.001, or 0.002 with --embeddings)."""
    clip_norm: float | None = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(TrainConfig):
    """The options of training with the defaults of `gatedjax.text._options.train_config`."""

    num_steps: Inferred[int] = 1000
    """The number of updates (default: --num-steps, or 20 epochs and at least 400 updates)."""
    log_every: Inferred[int] = 50
    """The number of steps between lines of metrics.jsonl (default: a quarter of an epoch, but at
    least 10 and at most 1,000 steps)."""
    eval_every: Inferred[int] = 200
    """The number of steps between evaluations; the last step is always evaluated (default: half an
    epoch, but at least 20 and at most 2,000 steps)."""
    checkpoint_every: Inferred[int] = 200
    """The number of steps between checkpoints; the last step is always saved (default: an epoch,
    but at least 40 and at most 4,000 steps)."""
    seed: Inferred[int] = 0
    """The seed of parameters, dropout and gates (default: --seed)."""
    # Not shown, because the command trains a single model; see `_SEVERAL`.
    seeds: Annotated[int, tyro.conf.Suppress] = 1
    sweep: Annotated[tuple[float, ...], tyro.conf.Suppress] = ()
    sweep_over: Annotated[str, tyro.conf.Suppress] = "learning_rate"
    early_stop_patience: int | None = 6
    optimizer: OptimizerOptions = dataclasses.field(default_factory=OptimizerOptions)
    """The update rule, the learning rate and its schedule."""


@dataclasses.dataclass(kw_only=True)
class TrainOptions(TextOptions, DataOptions):
    """Trains a classifier of your texts, or a tagger, and writes it to a folder.

    Labelled texts are a .csv, .tsv, .json, .jsonl, .xlsx or .parquet file with columns text and
    label (or premise, hypothesis and label), a .txt file of fastText, a folder with a folder for
    each class, or the name of a data set ("demo": generated sentences that are part of the program;
    "trec", "tfds:NAME", "hf:NAME"). `gatedjax look DATA` shows how a file is read. A tagger learns
    from a file with a word and its tag on each line and an empty line after each sentence: .conll,
    .conllu, .iob or .bio. If the command was stopped, the same command continues.

    For example:
    $ gatedjax train demo --out model
    $ gatedjax train reviews.csv --out model
    $ gatedjax train reviews.csv --out model --test test.csv --density 0.2
    $ gatedjax train words.conll --out tagger
    $ gatedjax train news.jsonl --out model --task labels
    $ gatedjax train prices.csv --out model --task regression --label price
    $ gatedjax train --model ganet --help    (the options of a network)
    """

    embeddings: Unset[Path] = None
    states: Unset[Path] = None
    minutes: Unset[float] = None
    num_steps: Unset[int] = None
    density: Unset[float] = None
    min_count: Unset[int] = None
    tokens: Unset[Literal["words", "social", "characters", "bpe"]] = None
    class_weight: Unset[Literal["balanced"]] = None
    best_metric: Literal["accuracy", "macro_f1"] = "accuracy"
    threshold: Thresholds = None  # type: ignore[assignment]
    order: Annotated[Unset[str], tyro.conf.arg(metavar="GRADE,GRADE")] = None
    # A function cannot be given on a command line.
    tokenizer: Any = dataclasses.field(default=None, init=False)
    encoder: Any = dataclasses.field(default=None, init=False)
    batch_size: Unset[int] = None
    training: Any = dataclasses.field(default=None, init=False)
    cpu_devices: Unset[int] = None
    """The number of CPU devices over which a network splits batches (default: the number of cores).
    A lexicon is fitted on one core."""
    workdir: Unset[Path] = None
    """The folder for checkpoints and metrics of the run, which stays (default: OUT.run, which is
    removed at the end). A lexicon has no checkpoints and only locks this folder."""
    overwrite: Flag = False
    """Replace a model that an earlier command wrote to the folder."""
    network: Any = None
    """The options of the network."""
    train: TrainingOptions = dataclasses.field(default_factory=TrainingOptions)
    """The options of training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LexiconOptions:
    """The group of the network options of a lexicon, which is empty: it has no network."""


_WITH_VALUE = {
    f"--{field.name.replace('_', '-')}"
    for field in dataclasses.fields(TrainOptions)
    if field.name != "data" and field.type not in (bool, Flag)
}
"""The options with a value, which may be the path of an existing file that is not DATA."""


def _value_of(args: Sequence[str], option: str) -> str | None:
    # The options depend on this value, so they cannot be parsed before it is known.
    for place, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name == option:
            return value if equals else next(iter(args[place + 1 :]), None)
    return None


def _option_names(args: Sequence[str], prefix: str) -> list[str]:
    start = f"--{prefix}."
    names = [arg.partition("=")[0].replace("_", "-") for arg in args]
    dotted = [name.removeprefix(start) for name in names if name.startswith(start)]
    parts = [[part.removeprefix("no-") for part in name.split(".")] for name in dotted]
    return [".".join(part).replace("-", "_") for part in parts]


def _at(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = getattr(config, part)
    return config


def _task(args: Sequence[str]) -> str:
    """Returns the task, one of `_TASKS`: --task, or a guess from options and data."""
    named = _value_of(args, "--task")
    if named in _TASKS:
        return named
    task = _infer_task(args)
    if "--text" in args and task != "tags":
        # The number of columns after --text decides, because the file may have any names.
        values = itertools.takewhile(
            lambda a: not a.startswith("-"), args[args.index("--text") :][1:]
        )
        return "pair" if len(list(values)) == 2 else "text"
    return task


def _infer_task(args: Sequence[str]) -> str:
    """Infers the task ("text", "pair" or "tags") from the data on a command line."""
    words = [
        arg
        for before, arg in zip(("", *args), args, strict=False)
        if not arg.startswith("-") and before.replace("_", "-") not in _WITH_VALUE
    ]
    data = next((arg for arg in words if Path(arg).exists()), next(iter(words), None))
    if data is None:
        return "text"
    try:
        return infer_task(
            data,
            encoding=_value_of(args, "--encoding") or "utf-8",
            header=parse_header(_value_of(args, "--columns")),
        )
    except (ValueError, OSError, LookupError):
        return "text"  # because the reader of the data reports the error


def _parse(args: Sequence[str]) -> tuple[TrainOptions, str, TextOptions]:
    """Returns the options of the command, the task, and the options of model and training."""
    for name in _option_names(args, "train"):
        if name in _SEVERAL:
            option = f"--train.{name.replace('_', '-')}"
            fail(
                f"{option} must be left out, because a model has a single seed: train it again "
                "with another --seed"
            )
    kind = _task(args)
    names = model_names(kind)
    name = _value_of(args, "--model") or names[0]
    has_states = kind == "text" and _value_of(args, "--states") is not None
    if has_states and _value_of(args, "--model") is None:
        name = STATES
    if has_states and name == LEXICON:
        fail(f"--model must be {STATES} with --states, got {name}: leave it out")
    if name not in names:
        with refusals(_ARGUMENTS):
            check_options(TextOptions(name), kind)
    if name in WITHOUT_NETWORK and (given := _option_names(args, "model")):
        option = f"--model.{given[0].replace('_', '-')}"
        noun = "a model of states" if name == STATES else "a lexicon"
        fail(f"{option} must be left out for {noun}, which has no network: add --model ganet")
    # The class of the options is made for this network, so that the help shows its options and
    # defaults.
    default = LexiconOptions() if name in WITHOUT_NETWORK else networks(kind)[name].config
    network: Any = Annotated[type(default), tyro.conf.arg(name="model")]
    fields: list[Any] = [("network", network, dataclasses.field(default=default))]
    fields += [("model", str, dataclasses.field(default=name))]
    fields += [("lowercase", bool, dataclasses.field(default=kind != "tags"))]
    options_class: Any = dataclasses.make_dataclass(
        "TrainOptions", fields, bases=(TrainOptions,), kw_only=True
    )
    options_class.__doc__ = TrainOptions.__doc__
    command: TrainOptions = parse(options_class, args, f"{program()} train")
    options = {
        field.name: getattr(command, field.name) for field in dataclasses.fields(TextOptions)
    }
    # Only the options on the command line are passed on, because other defaults follow from the
    # data.
    with refusals(_ARGUMENTS):
        options["threshold"] = parse_thresholds(command.threshold)
    if command.order is not None:
        options["order"] = [name.strip() for name in str(command.order).split(",")]
    options |= {
        "network": {
            option: _at(command.network, option) for option in _option_names(args, "model")
        },
        "training": {option: _at(command.train, option) for option in _option_names(args, "train")},
    }
    return command, kind, TextOptions(**options)


def _print_line(line: str) -> None:
    # The processes of a run on several machines report the same, so that only the first prints.
    if is_main():
        say(line, file=sys.stderr)


def _open_data(command: TrainOptions, kind: str, data: str, split: str) -> Data:
    """Opens labelled texts or tagged sentences."""
    if kind == "tags":
        if command.text or command.label != "label" or command.columns is not None:
            raise ValueError(
                "--text, --label and --columns must be left out for files of tags, got one of "
                "them: give --word N --tag N"
            )
        return open_sentences(data, word=command.word, tag=command.tag, encoding=command.encoding)
    if command.word is not None or command.tag is not None:
        raise ValueError(
            "--word and --tag must be left out except for files of tags (--task tags), got "
            f"{command.word} and {command.tag}"
        )
    columns = Columns(
        command.text or COLUMNS[kind].inputs,
        command.label,
        parse_header(command.columns),
        COLUMNS[kind].target,
    )
    check_inputs(columns, kind)
    return open_table(data, columns, encoding=command.encoding, split=split)


def _train(command: TrainOptions, kind: str, options: TextOptions) -> int:
    """Trains a model, writes it to a folder and returns the exit status."""
    # Everything that can be refused is checked before the texts are read.
    check_options(options, kind)
    check_share(command.max_aside)
    out = command.out.expanduser()
    check_target(out, command.overwrite, "--overwrite")
    tables = [
        None if data is None else _open_data(command, kind, data, split)
        for data, split in (
            (command.data, "train"),
            (command.validation, "validation"),
            (command.test, "test"),
        )
    ]
    beside = out if out.name else out.absolute()  # "." has no name
    run = (
        beside.with_name(f"{beside.name}.run")
        if command.workdir is None
        else command.workdir.expanduser()
    )
    if out.resolve() in (run.resolve(), *run.resolve().parents):
        raise ValueError(
            f"--workdir must not be in the folder of the model, got {run} in {out}: give another "
            "folder, because OUT appears only when the model is complete"
        )
    states = {}
    if command.validation_states is not None or command.test_states is not None:
        states = {
            "validation_states": command.validation_states,
            "test_states": command.test_states,
        }
    # The model is written only at the end, so that an interrupted training leaves no half model.
    with raise_on_sigterm(), WorkFolder(run) as work:
        try:
            trained = train_any(
                kind,
                tables[0],
                options,
                run,
                validation=tables[1],
                test=tables[2],
                say=_print_line,
                progress=True,
                max_aside=command.max_aside,
                **states,
            )
        except StoppedBySignal as stopped:
            _print_line(
                f"stopped after step {stopped.results[0].steps}; the same command continues"
            )
            return stopped.results[0].exit_code
        trained.save(
            out, card=_card(command, kind, trained.report, options), overwrite=command.overwrite
        )
        if command.workdir is None and (why := work.remove()):
            _print_line(f"{run} is not removed: {why}")
    _print_line(f'wrote {out}; try: {program()} predict {shlex.quote(str(out))} "..."')
    return 0


def _card(command: TrainOptions, kind: str, report: Any, options: TextOptions) -> ModelCard:
    """Returns the model card, the description that is written to the README of the model."""
    metrics = {
        f"{part} {name}": float(report[part][name])
        for part in ("validation", "test")
        if part in report
        for name in (*_CARD_METRICS, "density")
        if report[part].get(name) is not None
    }
    rule = report["baseline"]["kind"] if kind == "tags" else "a linear baseline"
    baseline = {
        f"{part} accuracy of {rule}": float(value)
        for part, value in report["baseline"].items()
        if kind not in TARGETS and part != "kind"
    }
    baseline |= {
        f"{part} {name} of {rival}": float(value)
        for rival, parts in report["baseline"].items()
        if kind in TARGETS
        for part, scores in parts.items()
        for name, value in scores.items()
        if value is not None
    }
    counts = ", ".join(f"{part['n']:,} for {name}" for name, part in report["data"].items())
    noun, unit = ("tagger", "sentences") if kind == "tags" else ("classifier", "texts")
    noun = _NOUNS.get(kind, noun)
    is_network = options.model not in WITHOUT_NETWORK
    chosen = "The best parameters were" if is_network else "The density was"
    # A fixed density of a lexicon leaves nothing for validation to choose.
    is_chosen = is_network or options.density is None
    note = f" {chosen} chosen by validation, so its numbers flatter the model a little."
    return ModelCard(
        name=title_of(command.out.absolute().name),
        description=f"A {noun} ({options.model}) that `gatedjax train` made.",
        data=f"{Path(command.data).name}: {unit} {counts}.{note if is_chosen else ''}",
        metrics={**metrics, **baseline},
        # A lexicon and a model of states have no random numbers.
        seeds=() if options.model in (LEXICON, STATES) else (options.seed,),
    )


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status: 0, or 130 after Ctrl-C. SIGTERM gives 0 for a
    network, which can continue its run, and raises `Terminated` if there is nothing to continue.
    """
    command, kind, options = _parse(args)
    check_devices(command.cpu_devices)
    prepare_cpu(command.cpu_devices)
    given = next(iter(options.training or ()), "NAME").replace("_", "-")
    with refusals(_ARGUMENTS | RAW_FILES | {"--training must": f"--train.{given} must"}):
        return _train(command, kind, options)
