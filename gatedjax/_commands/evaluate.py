"""`gatedjax evaluate MODEL DATA`: measures a model on labelled texts."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from gatedjax._commands._thresholds import THRESHOLD_ARGUMENTS, Thresholds, set_thresholds
from gatedjax._utils.cli import RAW_FILES, parse, program, refusals
from gatedjax._utils.json import to_json
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import render_count, say
from gatedjax._utils.types import Json
from gatedjax._utils.write import check_place, write_atomic

_ARGUMENTS = {
    "columns must be a tuple of names of texts and a different name of the label": (
        "--text and --label must be names of different columns"
    ),
    "columns.inputs must": "--text must",
    "columns.header": "--columns",
    "max_aside must": "--max-aside must",
    "max_aside=": "--max-aside ",
    "states must": "--states must",
    **THRESHOLD_ARGUMENTS,
}
"""Words in messages of the library, and the options that replace them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Measures a model on labelled texts.

    It prints accuracy, macro F1, confusion, calibration, density and the gap between gate modes.
    For a tagger it prints the accuracy of words and the F1 of spans, for several labels the F1, for
    a number RMSE, MAE, R^2 and Spearman's correlation, and for grades MAE and quadratic kappa.
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
    states: Unset[Path] = None
    """The file with the tokens and vectors of the texts (.npz), for a model that was trained with
    --states."""
    out: Unset[Path] = None
    """A file to which all results are also written as JSON."""


def _run(options: EvaluateOptions) -> None:
    from gatedjax.export._folder import list_written
    from gatedjax.text._asides import check_share
    from gatedjax.text._prediction import TARGETS
    from gatedjax.text._saved import load_model

    # Both are checked before the model is loaded and run, which may take minutes.
    inputs = (options.data, options.states, *(list_written(options.model) if options.out else ()))
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
    """Evaluates a classifier, prints its metrics and returns them."""
    # Imported here, so that `--help` does not wait for JAX.
    from gatedjax.text._evaluation import evaluate_model
    from gatedjax.text._leak import render_leak
    from gatedjax.text._lexicon_report import render_equal, render_priors
    from gatedjax.text._metrics import render_metrics
    from gatedjax.text._prediction import COLUMNS, TARGETS
    from gatedjax.text._read import Columns, open_table, parse_header
    from gatedjax.text._states_model import render_states_leak

    if options.word is not None or options.tag is not None:
        raise ValueError(
            f"--word and --tag must be left out unless the model is a tagger, got {options.word} "
            f"and {options.tag} for a classifier"
        )
    inputs = options.text or COLUMNS[model.kind].inputs
    header, form = parse_header(options.columns), COLUMNS[model.kind].target
    columns = Columns(inputs, options.label, header, form)
    table = open_table(options.data, columns, encoding=options.encoding, split=options.split)
    metrics = evaluate_model(
        model,
        table,
        max_aside=options.max_aside,
        states=options.states,
        say=lambda line: say(line, file=sys.stderr),
    )
    if model.kind in TARGETS:
        _say_target(model, metrics)
        return metrics
    if "same_answer" in metrics:
        n, share = metrics["n"], metrics["density"]
        say(f"{n:,} texts: accuracy {metrics['accuracy']:.4f} from {share:.0%} of the words")
        say(render_priors(metrics))
        say(f"{render_equal(metrics['same_answer'])}\n")
    elif metrics.get("by_prior"):
        say(render_priors(metrics))
    say(render_metrics(metrics).rstrip())
    if "states_leak" in metrics:
        say(f"\ndensity: {metrics['density']:.4f} of the tokens are open")
        say(render_states_leak(metrics["states_leak"]))
    elif "same_answer" not in metrics and model.entry.selects_pairs:
        say(f"\ndensity: {metrics['density']:.4f} of the pairs of words are selected")
    else:
        # The gates of a network may depend on words that are closed.
        verb = "read" if "same_answer" in metrics else "open"
        say(f"\ndensity: {metrics['density']:.4f} of the words are {verb}")
    if "gate_modes" in metrics:
        modes = ", ".join(f"{mode} {value:.4f}" for mode, value in metrics["gate_modes"].items())
        say(f"accuracy by gate mode: {modes}; gap {metrics['gate_gap']:.4f}")
    if "leak" in metrics:
        say(render_leak(metrics["leak"]))
    return metrics


def _say_target(model: Any, metrics: Json) -> None:
    """Prints the metrics of labels, numbers or grades."""
    from gatedjax.text._lexicon_report import render_equal, render_metric_list, render_priors
    from gatedjax.text._target_metrics import render_grade_table, render_label_table

    n, share, names = metrics["n"], metrics["density"], model.target.metrics
    say(f"{n:,} texts: {render_metric_list(metrics, names)} from {share:.0%} of the words")
    say(render_priors(metrics))
    say(render_equal(metrics["same_answer"]))
    if "labels" in metrics:
        say(f"\n{render_label_table(metrics)}")
    if "grades" in metrics:
        say(f"\n{render_grade_table(metrics).rstrip()}")
    say(f"\ndensity: {metrics['density']:.4f} of the words are read")


def _of_tags(model: Any, options: EvaluateOptions) -> Json:
    """Evaluates a tagger, prints its metrics and returns them."""
    from gatedjax.text._metrics import render_metrics
    from gatedjax.text._tagging import evaluate_tags
    from gatedjax.text._tags import open_sentences

    table = open_sentences(
        options.data, word=options.word, tag=options.tag, encoding=options.encoding
    )
    metrics = evaluate_tags(model, table, max_aside=options.max_aside)
    say(render_metrics(metrics, "words").rstrip())
    spans, unknown = metrics["spans"], metrics["unknown"]
    say(f"\n{render_count(metrics['sentences'], 'sentence')}")
    if unknown["n"]:
        count = render_count(unknown["n"], "word")
        say(f"{count} that training has not: accuracy {unknown['accuracy']:.4f}")
    if spans is not None:
        scores = ", ".join(f"{name} {spans[name]:.4f}" for name in ("f1", "precision", "recall"))
        say(f"{render_count(spans['n'], 'span')}: {scores}")
    return metrics


def main(args: list[str]) -> int:
    """Runs the command and returns 0; errors exit with status 2."""
    options = parse(EvaluateOptions, args, f"{program()} evaluate")
    with refusals(_ARGUMENTS | RAW_FILES):
        _run(options)
    return 0
