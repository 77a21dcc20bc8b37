"""`gatedjax explain MODEL TEXT`: what a prediction rests on."""

import argparse
from pathlib import Path

from gatedjax._commands._lines import in_turns, say_json
from gatedjax._utils.cli import program, refusals
from gatedjax._utils.terminal import say
from gatedjax._utils.write import check_place, write_atomic


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{program()} explain",
        description="Show the words that a prediction rests on: which were kept, what attention "
        "they got, and what changes if each gate flips or each word is removed.",
    )
    parser.add_argument("model", type=Path, help="the folder that `gatedjax train` wrote")
    parser.add_argument("texts", nargs="+", help="texts (pairs: premise and hypothesis in turns)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", type=Path, help="write a page that any browser shows offline")
    form.add_argument("--json", action="store_true", help="print a line of JSON for each text")
    return parser


def _run(options: argparse.Namespace) -> None:
    from gatedjax.text._explanation import explain_texts
    from gatedjax.text._model import TrainedModel
    from gatedjax.text._show import html_page
    from gatedjax.text._table import fault

    check_place(options.html)
    model = TrainedModel.load(options.model, ("text", "pair"))
    if len(options.texts) % model.inputs:
        raise ValueError(f"wanted premise and hypothesis in turns, got {len(options.texts)} texts")
    for number, text in enumerate(options.texts, 1):
        if why := fault(text, "utf-8"):
            raise ValueError(f"text {number}: {why}")
    found = [explain_texts(model, texts) for texts in in_turns(options.texts, model.inputs)]
    if options.html is not None:
        page = html_page(found, f"What {options.model.name} rests on")
        write_atomic(options.html, page.encode("utf-8", "replace"))
        say(f"wrote {options.html}")
        return
    for one in found:
        if options.json:
            say_json(one.to_json())
        else:
            say(one.render())


def main(args: list[str]) -> int:
    """Runs the command; 0, or 2 for what cannot be done."""
    options = _parser().parse_args(args)
    with refusals({}):
        _run(options)
    return 0
