"""`gatedjax explain MODEL TEXT`: shows the words that a prediction rests on."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from gatedjax._commands._lines import STANDARD_INPUT, in_turns, read_piped, say_json
from gatedjax._utils.cli import fail, parse, program, refusals
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import new_console, say
from gatedjax._utils.write import check_place, write_atomic


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Shows the words that a prediction rests on.

    For a lexicon or a linear model it shows the words that are read, with their exact parts in the
    score of each class; without a text, the words read of each class with their counts. For a
    network it shows the words that attention reads, and the change of the prediction if a gate
    flips or a word is removed.
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder that `gatedjax train` wrote."""
    texts: Annotated[
        Unset[tuple[str, ...]], tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT ...]")
    ] = None
    """The texts. For pairs of texts, give premise and hypothesis in turns. A single - stands for
    the lines of standard input. A network needs at least one text."""
    html: Unset[Path] = None
    """A file for a page that any browser shows offline."""
    json: Flag = False
    """Print a line of JSON for each text."""


def _run(options: ExplainOptions) -> None:
    # Imported here, so that `--help` is quick.
    from gatedjax.text.answers._explain import explain
    from gatedjax.text.answers._explanation import html_page
    from gatedjax.text.answers._prediction import TARGETS
    from gatedjax.text.models._saved import load_model

    # A wrong path is reported before the model is loaded and run.
    check_place(options.html, begins=b"<!doctype html>")
    model = load_model(options.model, ("text", "pair", *TARGETS))
    if not options.texts:
        _list_words(model, options)
        return
    texts = in_turns(_check_texts(options.texts, model.inputs), model.inputs)
    explanations = [explain(model, text) for text in texts]
    if options.html is not None:
        page = html_page(explanations, f"What {options.model.name} rests on")
        write_atomic(options.html, page.encode("utf-8", "replace"))
        say(f"wrote {options.html}")
        return
    for explanation in explanations:
        if options.json:
            say_json(explanation.to_json())
        else:
            _show(explanation)


def _show(explanation: Any) -> None:
    """Prints an explanation; a terminal with colours shows its small parts dim."""
    console = new_console()
    if console.color_system is None or console.no_color:
        say(explanation.render())
    else:
        console.print(explanation, soft_wrap=True)


def _check_texts(texts: Sequence[str], count: int) -> Sequence[str]:
    """Returns the texts of the command line, or for - the lines of standard input."""
    from gatedjax.text.sources._lines import fault

    if texts == (STANDARD_INPUT,):
        if count > 1:
            raise ValueError(
                "TEXT must be premise and hypothesis in turns, got standard input, whose lines "
                "have no columns: give both texts as TEXT"
            )
        lines: list[str] = []
        for number, (line, problem) in enumerate(read_piped("utf-8"), 1):
            if line is None:
                raise ValueError(f"line {number:,} of standard input must be a text: {problem}")
            lines += line
        if not lines:
            raise ValueError("TEXT - must be lines of standard input, got an empty input")
        return lines
    for number, text in enumerate(texts, 1):
        if why := fault(text, "utf-8"):
            raise ValueError(f"text {number} must be a text in UTF-8, got {text!r:.40}: {why}")
    return texts


def _list_words(model: Any, options: ExplainOptions) -> None:
    """Prints the words of each class, as a table or as JSON."""
    from gatedjax.text.answers._prediction import LINEAR, OF_WORDS
    from gatedjax.text.answers._words import list_words_read, render_words_read

    if model.network not in OF_WORDS:
        raise ValueError(
            "TEXT must be given, got none: only a lexicon or a linear model has a list of words"
        )
    if options.html is not None:
        raise ValueError(
            f"--html must be left out without a TEXT, got {options.html}: give the text of the page"
        )
    listing = list_words_read(model)
    if options.json:
        say_json(listing)
    else:
        say(render_words_read(listing, reads_all=model.network == LINEAR))


def main(args: list[str]) -> int:
    """Runs the command and returns 0; errors exit with status 2."""
    options = parse(ExplainOptions, args, f"{program()} explain", words="texts")
    if options.json and options.html is not None:
        fail("--html or --json must be left out, got both: give one of the two")
    with refusals({}, ExplainOptions):
        _run(options)
    return 0
