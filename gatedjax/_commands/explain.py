"""`gatedjax explain MODEL TEXT`: shows the words that a prediction rests on."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from gatedjax._commands._lines import STANDARD_INPUT, in_turns, read_piped, say_json
from gatedjax._commands._states import check_states
from gatedjax._utils.cli import fail, parse, program, refusals
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.write import check_place, write_atomic


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Shows the words that a prediction rests on.

    For a lexicon it shows the open words with their exact parts in the score of each class; without
    a text, the open words of each class with their counts. For a network it shows the words with
    open gates, their attention, and the change of the prediction if a gate flips or a word is
    removed.
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder that `gatedjax train` wrote."""
    texts: Annotated[
        Unset[tuple[str, ...]], tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT ...]")
    ] = None
    """The texts. For pairs of texts, give premise and hypothesis in turns. A single - stands for
    the lines of standard input. A network needs at least one text."""
    states: Unset[Path] = None
    """A file with the tokens and vectors of the texts (.npz), for a model that was trained with
    --states, in place of TEXT."""
    html: Unset[Path] = None
    """A file for a page that any browser shows offline."""
    json: Flag = False
    """Print a line of JSON for each text."""


def _run(options: ExplainOptions) -> None:
    from gatedjax.text._lexicon import LexiconModel
    from gatedjax.text._lexicon_explanation import explain_with_lexicon
    from gatedjax.text._prediction import TARGETS
    from gatedjax.text._saved import load_model
    from gatedjax.text._show import html_page
    from gatedjax.text._target_show import target_page

    # A wrong path is reported before the model is loaded and run.
    check_place(options.html, begins=b"<!doctype html>")
    model = load_model(options.model, ("text", "pair", *TARGETS))
    given: Sequence[str] = options.texts or ()
    reads_states = check_states(model, options.model, options.states, has_texts=bool(given))
    if not given and not reads_states:
        _list_words(model, options)
        return
    given = _check_texts(given, model)
    explanations: list[Any]
    if options.states is not None:
        from gatedjax.text._states import read_states

        explanations = [model.explain(text) for text in read_states(options.states)]
    elif isinstance(model, LexiconModel):
        explanations = [explain_with_lexicon(model, text) for text in given]
    else:
        # Imported here, because a lexicon is explained without JAX.
        from gatedjax.text._explanation import explain_texts

        explanations = [explain_texts(model, texts) for texts in in_turns(given, model.inputs)]
    if options.html is not None:
        make_page: Any = target_page if model.kind in TARGETS else html_page
        page = make_page(explanations, f"What {options.model.name} rests on")
        write_atomic(options.html, page.encode("utf-8", "replace"))
        say(f"wrote {options.html}")
        return
    for explanation in explanations:
        if options.json:
            say_json(explanation.to_json())
        else:
            say(explanation.render())


def _check_texts(texts: Sequence[str], model: Any) -> Sequence[str]:
    """Returns the texts of the command line, or for - the lines of standard input."""
    from gatedjax.text._table import fault

    if texts == (STANDARD_INPUT,):
        lines: list[str] = []
        if model.inputs > 1:
            raise ValueError(
                "TEXT must be premise and hypothesis in turns, got standard input, whose lines "
                "have no columns: give both texts as TEXT"
            )
        for number, (line, problem) in enumerate(read_piped("utf-8"), 1):
            if line is None:
                raise ValueError(f"line {number:,} of standard input must be a text: {problem}")
            lines += line
        if not lines:
            raise ValueError(
                "TEXT - must be lines of standard input, got an empty input: give a text in each "
                "line"
            )
        return lines
    if len(texts) % model.inputs:
        raise ValueError(f"TEXT must be premise and hypothesis in turns, got {len(texts)} texts")
    for number, text in enumerate(texts, 1):
        if why := fault(text, "utf-8"):
            raise ValueError(f"text {number} must be a text in UTF-8, got {text!r:.40}: {why}")
    return texts


def _list_words(model: Any, options: ExplainOptions) -> None:
    """Prints the open words of each class of a lexicon, as a table or as JSON."""
    from gatedjax.text._lexicon import LexiconModel
    from gatedjax.text._lexicon_explanation import list_open_words, render_open_words

    if not isinstance(model, LexiconModel):
        raise ValueError(
            "TEXT must be given for a network, got none: only a lexicon has a list of open words"
        )
    if options.html is not None:
        raise ValueError(
            f"--html must be left out without a TEXT, got {options.html}: give the text of the page"
        )
    listing = list_open_words(model)
    if options.json:
        say_json(listing)
    else:
        say(render_open_words(listing))


def main(args: list[str]) -> int:
    """Runs the command and returns 0; errors exit with status 2."""
    options = parse(ExplainOptions, args, f"{program()} explain", words="texts")
    if options.json and options.html is not None:
        fail("--html or --json must be left out, got both: give one of the two")
    with refusals({}):
        _run(options)
    return 0
