"""`gatedjax evaluate MODEL DATA`: how good a model is on labelled texts."""

import argparse
from pathlib import Path
from typing import Any

from gatedjax._utils.cli import RAW_FILES, program, refusals
from gatedjax._utils.json import to_json
from gatedjax._utils.terminal import say
from gatedjax._utils.types import Json
from gatedjax._utils.write import check_place, write_atomic

_ARGUMENTS = {
    "columns.inputs must": "--text must",
    "max_aside must": "--max-aside must",
    "max_aside=": "--max-aside ",
}
"""What the library says, and what it is called here."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{program()} evaluate",
        description="Accuracy, macro F1, confusion, calibration, density, and the gap between gate "
        "modes, on labelled texts. Of a tagger: accuracy of words and F1 of spans.",
    )
    parser.add_argument("model", type=Path, help="the folder that `gatedjax train` wrote")
    parser.add_argument("data", help="labelled texts, as `gatedjax train` reads them")
    parser.add_argument("--text", nargs="+", metavar="COLUMN", help="columns of the texts")
    parser.add_argument("--label", default="label", help="column of the label (default: label)")
    parser.add_argument("--word", type=int, metavar="N", help="of a tagger: column of the words")
    parser.add_argument("--tag", type=int, metavar="N", help="of a tagger: column of the tags")
    parser.add_argument("--encoding", default="utf-8", help="of files (default: utf-8)")
    parser.add_argument(
        "--max-aside",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="of the lines that may be set aside; with more the command ends (default: 0.01)",
    )
    parser.add_argument("--split", default="test", help="of a data set by name (default: test)")
    parser.add_argument("--out", type=Path, help="also write everything as JSON to this file")
    return parser


def _run(options: argparse.Namespace) -> None:
    from gatedjax.text._asides import check_share
    from gatedjax.text._model import TrainedModel

    check_place(options.out)
    check_share(options.max_aside)
    model = TrainedModel.load(options.model, ("text", "pair", "tags"))
    metrics = _of_tags(model, options) if model.kind == "tags" else _of_texts(model, options)
    if metrics["aside"]:
        what = "sentences" if model.kind == "tags" else "lines"
        say(f"{metrics['aside']:,} {what} could not be used")
    if options.out is not None:
        write_atomic(options.out, (to_json(metrics, indent=1) + "\n").encode())


def _of_texts(model: Any, options: argparse.Namespace) -> Json:
    from gatedjax.text._evaluation import evaluate_model
    from gatedjax.text._leak import render_leak
    from gatedjax.text._metrics import render_metrics
    from gatedjax.text._read import Columns, open_table
    from gatedjax.text._training import COLUMNS

    if options.word is not None or options.tag is not None:
        raise ValueError("--word and --tag are for taggers")
    inputs = tuple(options.text or COLUMNS[model.kind].inputs)
    columns = Columns(inputs, options.label)
    table = open_table(options.data, columns, encoding=options.encoding, split=options.split)
    metrics = evaluate_model(model, table, max_aside=options.max_aside)
    say(render_metrics(metrics).rstrip())
    say(f"\ndensity: {metrics['density']:.4f} of the words are kept")
    if "gate_modes" in metrics:
        modes = ", ".join(f"{mode} {value:.4f}" for mode, value in metrics["gate_modes"].items())
        say(f"accuracy by gate mode: {modes}; gap {metrics['gate_gap']:.4f}")
    if "leak" in metrics:
        say(render_leak(metrics["leak"]))
    return metrics


def _of_tags(model: Any, options: argparse.Namespace) -> Json:
    from gatedjax.text._metrics import render_metrics
    from gatedjax.text._tagging import evaluate_tags
    from gatedjax.text._tags import open_sentences

    table = open_sentences(
        options.data, word=options.word, tag=options.tag, encoding=options.encoding
    )
    metrics = evaluate_tags(model, table, max_aside=options.max_aside)
    say(render_metrics(metrics, "words").rstrip())
    spans, unknown = metrics["spans"], metrics["unknown"]
    say(f"\n{metrics['sentences']:,} sentences")
    if unknown["n"]:
        say(f"{unknown['n']:,} words that training has not: accuracy {unknown['accuracy']:.4f}")
    if spans is not None:
        scores = ", ".join(f"{name} {spans[name]:.4f}" for name in ("f1", "precision", "recall"))
        say(f"{spans['n']:,} spans: {scores}")
    return metrics


def main(args: list[str]) -> int:
    """Runs the command; 0, or 2 for what cannot be done."""
    options = _parser().parse_args(args)
    with refusals(_ARGUMENTS | RAW_FILES):
        _run(options)
    return 0
