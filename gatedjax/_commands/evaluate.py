"""`gatedjax evaluate MODEL DATA`: measures a model on labelled texts."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro

from gatedjax._commands._columns import Thresholds, columns_of, set_thresholds
from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.json import to_json
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import render_count, say, wrap
from gatedjax._utils.types import Json
from gatedjax._utils.write import check_place, write_atomic
from gatedjax.text.answers._prediction import TARGETS
from gatedjax.text.sources._open import open_table
from gatedjax.text.sources._table import check_share


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Measures a model on labelled texts.

    It prints accuracy, macro F1, confusion, calibration, the share of words read and the gap
    between gate modes. For a tagger it prints the accuracy of words and the F1 of spans, for
    several labels the F1, for a number RMSE, MAE, R^2 and Spearman's correlation, and for grades
    MAE and quadratic kappa.
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder that `gatedjax train` wrote."""
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """Labelled texts, as `gatedjax train` reads them."""
    text: Unset[tuple[str, ...]] = None
    """The columns of the texts (default: text, or premise and hypothesis)."""
    label: str = "label"
    """The column of the label."""
    columns: Annotated[Unset[str], tyro.conf.arg(metavar="NAME,NAME,...")] = None
    """The names of all columns of a file without a header, as text,label."""
    word: Unset[int] = None
    """The column of the words, for a tagger (default: as `gatedjax train` reads the file)."""
    tag: Unset[int] = None
    """The column of the tags, for a tagger (default: as `gatedjax train` reads the file)."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    max_aside: float = 0.01
    """The share of the lines that may be set aside. With more of them the command ends."""
    threshold: Thresholds = None
    """The probability from which a label is predicted by a model with several labels, or a class
    among two, as spam=0.3 (default: the thresholds of the training)."""
    split: str = "test"
    """The split of a data set that is given by its name."""
    out: Unset[Path] = None
    """A file to which all results are also written as JSON."""


def _run(options: EvaluateOptions) -> None:
    from gatedjax.export._folder import list_written
    from gatedjax.text.models._saved import load_model

    # Both are checked before the model is loaded and run, which may take minutes.
    inputs = (options.data, *(list_written(options.model) if options.out else ()))
    check_place(options.out, inputs=inputs, begins=b"{")
    check_share(options.max_aside)
    model = load_model(options.model, ("text", "pair", "tags", *TARGETS))
    model = set_thresholds(model, options.threshold)
    metrics = _of_tags(model, options) if model.kind == "tags" else _of_texts(model, options)
    if metrics["aside"]:
        unit = "sentence" if model.kind == "tags" else "line"
        say(f"{render_count(metrics['aside'], unit)} could not be used")
    if options.out is not None:
        write_atomic(options.out, (to_json(metrics, indent=1) + "\n").encode())


def _of_texts(model: Any, options: EvaluateOptions) -> Json:
    """Evaluates a model of texts, prints its metrics and returns them."""
    # Imported here, so that `--help` is quick.
    from gatedjax.text.answers._evaluation import evaluate_model, render_evaluation

    columns = columns_of(options, model.kind)
    table = open_table(options.data, columns, encoding=options.encoding, split=options.split)
    metrics = evaluate_model(model, table, max_aside=options.max_aside)
    say(wrap(render_evaluation(model, metrics)))
    return metrics


def _of_tags(model: Any, options: EvaluateOptions) -> Json:
    """Evaluates a tagger, prints its metrics and returns them."""
    from gatedjax.text.answers._report import render_details, render_summary
    from gatedjax.text.models._tagging import evaluate_tags
    from gatedjax.text.sources._conll import open_sentences

    places: Any = {"word": options.word, "tag": options.tag, "encoding": options.encoding}
    table = open_sentences(options.data, **places)
    metrics = evaluate_tags(model, table, max_aside=options.max_aside)
    spans, unknown = metrics["spans"], metrics["unknown"]
    lines = [f"{render_summary(metrics, 'words')}\n", render_details(metrics, "words") or ""]
    lines.append(render_count(metrics["sentences"], "sentence"))
    if unknown["n"]:
        count = render_count(unknown["n"], "word")
        lines.append(f"{count} that training has not: accuracy {unknown['accuracy']:.4f}")
    if spans is not None:
        scores = ", ".join(f"{name} {spans[name]:.4f}" for name in ("f1", "precision", "recall"))
        lines.append(f"{render_count(spans['n'], 'span')}: {scores}")
    say(wrap("\n".join(lines)))
    return metrics


def main(args: list[str]) -> int:
    """Runs the command and returns 0; errors exit with status 2."""
    options = parse(EvaluateOptions, args, f"{program()} evaluate")
    with refusals({}, EvaluateOptions):
        _run(options)
    return 0
