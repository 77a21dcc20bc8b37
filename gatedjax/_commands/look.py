"""`gatedjax look DATA`: shows how labelled texts would be read, without training."""

import dataclasses
import shlex
from typing import Annotated, Literal

import tyro

from gatedjax._commands._columns import columns_of, task_of
from gatedjax._commands._lines import say_json
from gatedjax._commands._training import Task, split_order
from gatedjax._utils.cli import name_options, parse, program, refusals
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say_wrapped
from gatedjax._utils.types import Json
from gatedjax.text.answers._prediction import LEXICON
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import MAX_ASIDE, check_share


@dataclasses.dataclass(frozen=True, kw_only=True)
class LookOptions:
    """Shows how `gatedjax train` would read labelled texts, without training.

    It prints the model, the columns, the classes, the lengths, the scripts, the texts that occur
    more than once or with several labels, the lines that cannot be used, the tokens of the first
    text, and the split. The exit status is 1 if training would stop with an error.

    For example:
    $ gatedjax look reviews.csv
    $ gatedjax look demo
    $ gatedjax look posts.tsv --text body --label topic --tokens social
    """

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """The labelled texts, as `gatedjax train` reads them."""
    task: Annotated[Task, tyro.conf.arg(metavar="TASK")] = "auto"
    """text (a class for each text), pair (of texts), tags (of words), labels (several), regression
    (a number) or ordinal (a grade); auto: one of the first three."""
    order: Annotated[Unset[str], tyro.conf.arg(metavar="GRADE,GRADE")] = None
    """The grades of --task ordinal, the lowest first."""
    text: Annotated[Unset[tuple[str, ...]], tyro.conf.arg(metavar="COLUMN ...")] = None
    """The columns of the texts (default: text, or premise and hypothesis)."""
    label: str = "label"
    """The column of the label."""
    columns: Annotated[Unset[str], tyro.conf.arg(metavar="NAME,NAME,...")] = None
    """The names of all columns of files without a header; an empty name for one that is not
    read."""
    word: Unset[int] = None
    """The column of the words of a tagger, from 0."""
    tag: Unset[int] = None
    """The column of the tags, where -1 is the last."""
    tokens: Unset[Literal["words", "social", "characters", "bpe"]] = None
    """The rule that splits texts into tokens (default: social, or words for pairs)."""
    encoding: str = "utf-8"
    """The encoding of the file."""
    max_aside: float = MAX_ASIDE
    """The share of the lines that may be set aside before training stops."""
    json: Flag = False
    """Print a JSON object instead of lines."""


def _survey(options: LookOptions) -> Json:
    """Returns the survey of the data as a dict for JSON."""
    from gatedjax.text.corpus import _survey
    from gatedjax.text.corpus._tokens import LEXICON_KIND
    from gatedjax.text.sources._conll import open_sentences

    check_share(options.max_aside)
    task: str = options.task
    if task == "auto":
        task = task_of(options.data, options.text, options.encoding, options.columns)
    report: Json = {"task": task, "model": "ssan" if task in ("pair", "tags") else LEXICON}
    if task == "tags":
        sentences = open_sentences(
            options.data, word=options.word, tag=options.tag, encoding=options.encoding
        )
        return report | _survey.survey_tags(sentences, max_aside=options.max_aside)
    return report | _survey.survey_texts(
        open_table(options.data, columns_of(options, task), encoding=options.encoding),
        task,
        tokens=options.tokens or (None if task == "pair" else LEXICON_KIND),
        order=split_order(options.order),
        max_aside=options.max_aside,
    )


def _train_command(options: LookOptions) -> str:
    """Returns the command `gatedjax train` for the same data."""
    words = [*program().split(), "train", options.data, "--out", "model"]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        # `gatedjax train` has no --json, and DATA is already there.
        if field.name not in ("data", "json") and value != field.default:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
    return shlex.join(words)


def main(args: list[str]) -> int:
    """Runs the command; returns 0, or 1 if training would stop; errors exit with status 2."""
    from gatedjax.text.corpus._survey import render_survey

    options = parse(LookOptions, args, f"{program()} look")
    with refusals({}, LookOptions):
        report = _survey(options)
        # Problems are the messages of errors that a training would raise, so they are renamed too.
        report["problems"] = [name_options(text, {}, LookOptions) for text in report["problems"]]
        if options.json:
            say_json(report)
        else:
            say_wrapped("\n".join(render_survey(report, _train_command(options))))
    return int(bool(report["problems"]))
