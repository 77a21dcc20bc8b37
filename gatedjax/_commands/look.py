"""`gatedjax look DATA`: shows how labelled texts would be read, without training."""

import dataclasses
import shlex
from typing import Annotated, Literal

import tyro

from gatedjax._commands._lines import say_json
from gatedjax._utils.cli import RAW_FILES, parse, program, refusals
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.types import Json

_ARGUMENTS = {
    "columns must be a tuple of names of texts and a different name of the label": (
        "--text and --label must be names of different columns"
    ),
    "columns.inputs must": "--text must",
    "columns.header": "--columns",
    "max_aside must": "--max-aside must",
    "max_aside=": "--max-aside ",
    "min_class": "--min-class",
}
"""Words in messages of the library, and the options that replace them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LookOptions:
    """Shows how `gatedjax train` would read labelled texts, without training.

    It prints the model that would be trained, the columns, the classes with their numbers of texts,
    the lengths, the scripts, the texts that occur more than once or with several labels, the lines
    that cannot be used with the reasons, the tokens of the first text, and the sizes of training
    and validation. The exit status is 1 if training would stop with an error.

    For example:
    $ gatedjax look reviews.csv
    $ gatedjax look demo
    $ gatedjax look posts.tsv --text body --label topic --tokens social
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """The labelled texts, as `gatedjax train` reads them."""
    task: Literal["auto", "text", "pair", "tags", "labels", "regression", "ordinal"] = "auto"
    """The task: a class for each text, pairs of texts, words with tags, several labels for each
    text, a number, or a grade among grades with an order. auto chooses among the first three by the
    ending and the columns of the file."""
    order: Annotated[Unset[str], tyro.conf.arg(metavar="GRADE,GRADE")] = None
    """The grades of the task ordinal, the lowest first (default: the order of their numbers)."""
    text: Annotated[Unset[tuple[str, ...]], tyro.conf.arg(metavar="COLUMN ...")] = None
    """The columns of the texts (default: text, or premise and hypothesis)."""
    label: str = "label"
    """The column of the label."""
    columns: Annotated[Unset[str], tyro.conf.arg(metavar="NAME,NAME,...")] = None
    """The names of all columns of a file without a header, as text,label; an empty name stands for
    a column that is not read."""
    word: Unset[int] = None
    """The column of the words of a tagger, from 0."""
    tag: Unset[int] = None
    """The column of the tags, where -1 is the last."""
    split: str = "train"
    """The split of a data set that is given by its name."""
    tokens: Unset[Literal["words", "social", "characters", "bpe"]] = None
    """The rule that splits texts into tokens (default: social for a lexicon, else words)."""
    min_class: int = 1
    """The number of texts below which a class is left out."""
    max_len: Unset[int] = None
    """The number of words of a text that a network reads (default: 400; a lexicon reads all words).
    With this option, the survey of texts is for the network ganet."""
    held_out: float = 0.1
    """The share of the texts that is split off for validation."""
    encoding: str = "utf-8"
    """The encoding of the file."""
    max_aside: float = 0.01
    """The share of the lines that may be set aside before training stops."""
    json: Flag = False
    """Print a JSON object instead of lines."""


def _survey(options: LookOptions) -> Json:
    """Returns the survey of the data as a dict for JSON."""
    from gatedjax.text._asides import check_share
    from gatedjax.text._prediction import COLUMNS, LEXICON
    from gatedjax.text._read import Columns, infer_task, open_table, parse_header
    from gatedjax.text._survey import MAX_LEN, survey_tags, survey_texts
    from gatedjax.text._tags import open_sentences
    from gatedjax.text._tokens import LEXICON_KIND

    check_share(options.max_aside)
    for name, value, least in (
        ("--min-class", options.min_class, 1),
        ("--max-len", options.max_len, 1),
    ):
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if not 0 < options.held_out < 1:
        raise ValueError(f"--held-out must be in (0, 1), got {options.held_out}")
    header = parse_header(options.columns)
    task: str = options.task
    if task == "auto":
        task = infer_task(
            options.data, encoding=options.encoding, split=options.split, header=header
        )
        if options.text and task != "tags":
            # The number of columns after --text decides, because the file may have any names.
            task = "pair" if len(options.text) == 2 else "text"
    name = _choose_model(task, options)
    common = {
        "held_out": options.held_out,
        "max_aside": options.max_aside,
        "max_len": None if name == LEXICON else options.max_len or MAX_LEN,
    }
    if task == "tags":
        sentences = open_sentences(
            options.data, word=options.word, tag=options.tag, encoding=options.encoding
        )
        report = survey_tags(sentences, lowercase=False, **common)  # type: ignore[arg-type]
        return {"task": task, "model": name, **report}
    if options.word is not None or options.tag is not None:
        raise ValueError(
            f"--word and --tag must be left out except for files of tags, got {options.word} and "
            f"{options.tag}"
        )
    inputs = ("premise", "hypothesis") if task == "pair" else ("text",)
    columns = Columns(options.text or inputs, options.label, header, COLUMNS[task].target)
    if len(columns.inputs) != len(inputs):
        raise ValueError(
            f"--text must name {len(inputs)} column{'s' * (len(inputs) > 1)}, got "
            f"{', '.join(map(repr, columns.inputs))}"
        )
    table = open_table(options.data, columns, encoding=options.encoding, split=options.split)
    kind = options.tokens or (LEXICON_KIND if name == LEXICON else None)
    arguments: Json = {**common, "tokens": kind, "min_class": options.min_class, "task": task}
    if options.order is not None:
        arguments["order"] = [grade.strip() for grade in options.order.split(",")]
    report = survey_texts(table, lowercase=True, **arguments)
    return {"task": task, "model": name, **report}


def _choose_model(task: str, options: LookOptions) -> str:
    from gatedjax.text._prediction import LEXICON, TARGETS

    if task in TARGETS:
        return LEXICON
    if task != "text":
        return "ssan"
    return LEXICON if options.max_len is None else "ganet"


def _train_command(options: LookOptions, report: Json) -> str:
    """Returns the command `gatedjax train` for the same data."""
    words = [*program().split(), "train", options.data, "--out", "model"]
    if report["model"] == "ganet":
        words += ["--model", "ganet"]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        # `gatedjax train` has no --split and no --json, and DATA is already there.
        if field.name in ("data", "split", "json") or value == field.default:
            continue
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
    return shlex.join(words)


def main(args: list[str]) -> int:
    """Runs the command; returns 0, or 1 if training would stop; errors exit with status 2."""
    from gatedjax.text._survey import render_survey

    options = parse(LookOptions, args, f"{program()} look")
    with refusals(_ARGUMENTS | RAW_FILES):
        report = _survey(options)
        # Problems are the messages of errors that a training would raise, so they are renamed too.
        for argument, option in _ARGUMENTS.items():
            report["problems"] = [text.replace(argument, option) for text in report["problems"]]
        if options.json:
            say_json(report)
        else:
            for line in render_survey(report, _train_command(options, report)):
                say(line)
    return 1 if report["problems"] else 0
