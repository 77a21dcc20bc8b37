"""`gatedjax explain MODEL TEXT`: shows the words that a prediction rests on."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from gatedjax._commands._lines import in_turns, say_json
from gatedjax._utils.cli import fail, parse, program, refusals
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.write import check_place, write_atomic


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Shows the words that a prediction rests on.

    It shows the words with open gates, their attention, and the change of the prediction if a gate
    flips or a word is removed.
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder that `gatedjax train` wrote."""
    texts: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TEXT [TEXT ...]", help_behavior_hint="(required)"),
    ]
    """The texts. For pairs of texts, give premise and hypothesis in turns."""
    html: Unset[Path] = None
    """A file for a page that any browser shows offline."""
    json: Flag = False
    """Print a line of JSON for each text."""


def _run(options: ExplainOptions) -> None:
    from gatedjax.text._explanation import explain_texts
    from gatedjax.text._model import TrainedModel
    from gatedjax.text._show import html_page
    from gatedjax.text._table import fault

    check_place(options.html)
    model = TrainedModel.load(options.model, ("text", "pair"))
    if len(options.texts) % model.inputs:
        raise ValueError(
            f"TEXT must be premise and hypothesis in turns, got {len(options.texts)} texts"
        )
    for number, text in enumerate(options.texts, 1):
        if why := fault(text, "utf-8"):
            raise ValueError(f"text {number}: {why}")
    explanations = [explain_texts(model, texts) for texts in in_turns(options.texts, model.inputs)]
    if options.html is not None:
        page = html_page(explanations, f"What {options.model.name} rests on")
        write_atomic(options.html, page.encode("utf-8", "replace"))
        say(f"wrote {options.html}")
        return
    for explanation in explanations:
        if options.json:
            say_json(explanation.to_json())
        else:
            say(explanation.render())


def main(args: list[str]) -> int:
    """Runs the command and returns 0; errors exit with status 2."""
    options = parse(ExplainOptions, args, f"{program()} explain", words="texts")
    if not options.texts:
        fail("TEXT must be given")
    if options.json and options.html is not None:
        fail("--html and --json exclude each other: give one of them")
    with refusals({}):
        _run(options)
    return 0
