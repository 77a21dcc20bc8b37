"""The options, the data and the saved model, which all forms of `gatedjax train` share."""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from gatedjax._commands._columns import Thresholds, columns_of
from gatedjax._utils.cli import program
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say, wrap
from gatedjax.text.answers._prediction import LEXICON, LINEAR, OF_WORDS, TARGETS
from gatedjax.text.sources._table import MAX_ASIDE

Task = Literal["auto", "text", "pair", "tags", "labels", "regression", "ordinal"]
_NOUNS = {
    "tags": "tagger",
    "labels": "classifier with several labels for each text",
    "regression": "model of a number",
    "ordinal": "model of grades",
}
_CARD_METRICS = (
    *("accuracy", "macro_f1", "micro_f1", "subset_accuracy"),
    *("rmse", "mae", "r2", "spearman", "kappa", "share"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options that every model has."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """The labelled texts."""
    out: Path
    """The folder of the model, written at the end."""
    model: str = LEXICON
    """lexicon, linear (TF-IDF and logistic regression), or a network: ganet, soft, local, bilstm,
    agt, rau, gru, lstm or ssan; for pairs and tags ssan or san."""
    task: Annotated[Task, tyro.conf.arg(metavar="TASK")] = "auto"
    """text (a class for each text), pair (of texts), tags (of words), labels (several), regression
    (a number) or ordinal (a grade); auto: one of the first three."""
    text: Annotated[Unset[tuple[str, ...]], tyro.conf.arg(metavar="COLUMN ...")] = None
    """The columns of the texts (default: text, or premise and hypothesis)."""
    label: str = "label"
    """The column of the label."""
    columns: Annotated[Unset[str], tyro.conf.arg(metavar="NAME,NAME,...")] = None
    """The names of all columns of files without a header; an empty name for one that is not
    read."""
    validation: Unset[str] = None
    """Labelled texts that choose the share, or the best parameters of a network."""
    test: Unset[str] = None
    """Labelled texts that measure the model as well."""
    held_out: float = 0.1
    """The share of DATA for validation without --validation, at most 20,000 texts."""
    share: Unset[float] = None
    """The share of the words that are read; 1 reads all (default: the smallest that loses no
    accuracy; ganet 0.5)."""
    vectors: Unset[str] = None
    """Pretrained word vectors, which help with few texts: a file of GloVe, fastText or word2vec
    (.vec, .txt, .bin), or an installed package: wordllama, for English (default: none; a network
    starts from random vectors, which mostly contain the frequency of each word in each class)."""
    tokens: Annotated[
        Unset[Literal["words", "social", "characters", "bpe"]], tyro.conf.arg(metavar="RULE")
    ] = None
    """words, social (links, @user, #tag and emoji stay whole), characters or bpe (default: social,
    for networks words)."""
    lowercase: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = True
    """Ignore case, which a tagger does not by default."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    max_aside: float = MAX_ASIDE
    """The share of the lines that may be set aside."""
    overwrite: Flag = False
    """Replace a model that an earlier command wrote."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LexiconOptions(TrainOptions):
    """Trains a classifier of your texts, or a tagger, and writes it to a folder.

    DATA is a .csv, .tsv, .jsonl, .xlsx or .parquet file with columns text and label (or premise,
    hypothesis and label), a folder with a folder for each class, or a data set ("demo", "hf:NAME").
    A tagger learns from a file with a word and its tag on each line (.conll, .conllu). `gatedjax
    look DATA` shows how a file is read. If the training of a network was stopped, the same command
    continues. Its options: gatedjax train --model ganet --help

    $ gatedjax train reviews.csv --out model --test test.csv
    $ gatedjax train news.jsonl --out model --task labels
    $ gatedjax train prices.csv --out model --task regression --label price
    """

    class_weight: Unset[Literal["balanced"]] = None
    """balanced gives the classes the same total weight."""
    best_metric: Annotated[
        Literal["accuracy", "macro_f1"], tyro.conf.arg(metavar="{accuracy,macro_f1}")
    ] = "accuracy"
    """What chooses the share."""
    threshold: Thresholds = None
    """The probability from which a label, or a class among two, is predicted, as 0.3 or
    spam=0.3."""
    order: Annotated[Unset[str], tyro.conf.arg(metavar="GRADE,GRADE")] = None
    """The grades of --task ordinal, the lowest first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearOptions(LexiconOptions):
    """Trains a linear model of all words and letters, and writes it to a folder.

    It is logistic regression on the TF-IDF of words, pairs of neighbours and n-grams of letters,
    for numbers ridge regression. DATA is read as for the default model, a lexicon:
    gatedjax train --help

    $ gatedjax train reviews.csv --out model --model linear
    """

    model: str = LINEAR
    # Not shown, because other values are refused.
    vectors: Annotated[Unset[str], tyro.conf.Suppress] = None
    share: Annotated[Unset[float], tyro.conf.Suppress] = None
    best_metric: Annotated[str, tyro.conf.Suppress] = "accuracy"  # type: ignore[assignment]


def text_options(command: TrainOptions, **changes: Any) -> Any:
    """Returns the `TextOptions` of a command; `changes` are options in another form."""
    from gatedjax.text._options import TextOptions

    values = {field.name: getattr(command, field.name) for field in dataclasses.fields(command)}
    names = {field.name for field in dataclasses.fields(TextOptions)}
    return TextOptions(**{k: v for k, v in (values | changes).items() if k in names})


def split_order(order: str | None) -> list[str] | None:
    """Returns the grades of the option --order."""
    return None if order is None else [grade.strip() for grade in order.split(",")]


def report(line: str) -> None:
    """Prints a line about the training."""
    say(wrap(line), file=sys.stderr)


def open_data(command: Any, kind: str, options: Any) -> list[Any]:
    """Opens the texts for training, validation and test, or None; checks all options before."""
    from gatedjax.export._folder import check_target
    from gatedjax.text._options import check_options
    from gatedjax.text.sources._conll import open_sentences
    from gatedjax.text.sources._open import open_table

    check_options(options, kind)
    check_target(command.out.expanduser(), command.overwrite, "--overwrite")
    parts = {"train": command.data, "validation": command.validation, "test": command.test}
    if kind == "tags":
        if command.text or command.label != "label" or command.columns is not None:
            raise ValueError(
                "--text, --label and --columns must be left out for files of tags, got one of "
                "them: give --word N --tag N"
            )
        places = {"word": command.word, "tag": command.tag, "encoding": command.encoding}
        return [data and open_sentences(data, **places) for data in parts.values()]
    columns = columns_of(command, kind)
    return [
        None if data is None else open_table(data, columns, encoding=command.encoding, split=split)
        for split, data in parts.items()
    ]


def fit(
    command: TrainOptions, kind: str, options: Any, tables: Sequence[Any], run: Path | None = None
) -> Any:
    """Trains a model of the texts that `open_data` opened, a network in the work folder `run`."""
    # Imported here, so that `--help` is quick.
    from gatedjax.text.fit._fit import train_any

    train, validation, test = tables
    parts: Any = {"validation": validation, "test": test, "max_aside": command.max_aside}
    return train_any(kind, train, options, run, **parts, say=report, progress=run is not None)


def save(command: TrainOptions, kind: str, options: Any, trained: Any) -> None:
    """Writes a trained model with its card, and says how it is used."""
    out = command.out.expanduser()
    card = _card(command, kind, options, trained)
    trained.save(out, card=card, overwrite=command.overwrite)
    report(f'wrote {out}; try: {program()} predict {shlex.quote(str(out))} "..."')


def _card(command: TrainOptions, kind: str, options: Any, trained: Any) -> Any:
    """Returns the model card, the description that is written to the README of the model."""
    from gatedjax.export import ModelCard
    from gatedjax.export._card import title_of
    from gatedjax.text.answers._report import name_rivals, render_better

    results = trained.report
    metrics = {
        f"{part} {name}": float(results[part][name])
        for part in ("validation", "test")
        for name in _CARD_METRICS
        if results.get(part, {}).get(name) is not None
    }
    rivals = results["baseline"]
    if kind not in TARGETS:
        titles = {"baseline": rivals.get("kind", "logistic regression on words")}
        titles = name_rivals(trained.target) if kind == "text" else titles
        rivals = {
            title: {
                part: {"accuracy": score}
                for part, score in results.get(name, {}).items()
                if part in ("validation", "test")
            }
            for name, title in titles.items()
        }
    for rival, scores in rivals.items():
        for part, values in scores.items():
            named = {f"{part} {name} of {rival}": value for name, value in values.items()}
            metrics |= {name: float(v) for name, v in named.items() if v is not None}
    better = []
    if results.get("better"):
        checked = "test" if "test" in results else "validation"
        better = render_better(results, checked, trained.target, options.model)
    counts = ", ".join(f"{part['n']:,} for {name}" for name, part in results["data"].items())
    is_network = options.model not in OF_WORDS
    chosen = "The best parameters were" if is_network else "The share was"
    note = f" {chosen} chosen by validation, so its numbers are slightly optimistic."
    # A fixed share of a lexicon leaves nothing for validation to choose.
    is_chosen = is_network or (options.model == LEXICON and options.share is None)
    unit = "sentences" if kind == "tags" else "texts"
    made = f"A {_NOUNS.get(kind, 'classifier')} ({options.model}) that `gatedjax train` made."
    return ModelCard(
        name=title_of(command.out.absolute().name),
        description=" ".join([made, *(f"{line[0].upper()}{line[1:]}." for line in better)]),
        data=f"{Path(command.data).name}: {unit} {counts}.{note if is_chosen else ''}",
        metrics=metrics,
        seeds=(options.seed,) if is_network else (),  # The others have no random numbers.
    )
