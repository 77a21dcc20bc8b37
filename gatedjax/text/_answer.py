"""One's own question to a trained reader: the command, whatever it is called by."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from gatedjax._utils.cli import parse, refusals
from gatedjax._utils.limits import MOST_TEXT_BYTES, check_most, read_limited
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import new_console
from gatedjax.data.text._tokenize import treebank_tokens
from gatedjax.text._reader import Reader, question
from gatedjax.text._reader_figure import draw

AROUND = 6
"""Words of context on each side of a place."""
OPTIONS = {"random_embeddings makes": "without --embeddings there are"}
"""What the library says, and what it is called here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Answers a question about a document, and shows where the reader looked."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder that `gatedjax export` wrote of a GA Reader, or the work folder of its run."""
    document: Path
    """The text file with the document in UTF-8, or - for standard input."""
    question: str
    """The sentence with @placeholder (or XXXXX) in the place of the answer."""
    candidates: tuple[str, ...]
    """The possible answers. An answer of several words is one argument in quotes."""
    embeddings: Unset[Path] = None
    """A GloVe file for words that are new to the model (default: they get random vectors)."""
    tokenized: bool = False
    """Take document, question and candidates as tokens between spaces."""
    top: int = 5
    """The number of places that are shown."""
    figure: Unset[Path] = None
    """The heat map is also drawn as FIGURE.png and FIGURE.svg."""


def run(
    kind: type[AnswerOptions], args: Sequence[str], prog: str, read: Callable[[Path], Reader]
) -> int:
    """Runs the command; returns its exit status.

    Args:
      kind: the options; a subclass may call the folder otherwise.
      args: the command line.
      prog: how the command is called, for its help.
      read: opens the folder.
    """
    options = parse(kind, args, prog)
    with refusals(OPTIONS):
        answer(options, read, new_console())
    return 0


def answer(options: AnswerOptions, read: Callable[[Path], Reader], console: Console) -> None:
    """Prints the probabilities of the candidates, and the places that decided."""
    source = question(*_tokens(options))
    words = source[0]["tokens"]
    reader = read(options.folder)
    reader = reader.knowing([*words, *source[0]["query"]], options.embeddings)
    (reading,) = reader.read(source)
    if not reading.places:
        raise ValueError(
            "none of the candidates occurs in the document (they are compared letter by letter): "
            + ", ".join(reading.candidates)
        )
    counts = [sum(p.candidate == i for p in reading.places) for i in range(len(reading.candidates))]
    order = sorted(range(len(counts)), key=lambda i: (-reading.probabilities[i], i))
    for i in order:
        times = "not in the document" if not counts[i] else f"{counts[i]} x"
        line = f"{reading.probabilities[i]:.4f}  {reading.candidates[i]}  ({times})"
        console.print(line, style="bold" if i == order[0] else None, highlight=False)
    console.print("\nWhere it looked (share of the last hop's attention to candidates, place):")
    for place in sorted(reading.places, key=lambda p: -p.weight)[: options.top]:
        at = place.position
        before, after = words[max(0, at - AROUND) : at], words[at + 1 : at + AROUND + 1]
        around = f"{' '.join(before)} [{words[at]}] {' '.join(after)}"
        console.print(f"  {place.weight:.3f}  {at + 1:>4}  {around}", highlight=False)
        for number, hop in enumerate(place.hops, 1):
            most = sorted(range(len(reading.query)), key=lambda q: -hop[q])[:4]
            seen = ", ".join(f"{reading.query[q]} {hop[q]:.2f}" for q in most)
            console.print(f"         hop {number} attends to: {seen}", highlight=False)
    if options.figure is not None:
        best = reading.candidates[reading.predicted]
        draw(reading, options.figure, f"{best} ({reading.probabilities[reading.predicted]:.2f})")
        console.print(f"\nwrote {options.figure}.png and .svg")


def _tokens(options: AnswerOptions) -> tuple[str, str, list[str]]:
    """Document, question and candidates, with spaces between the tokens."""
    if str(options.document) == "-":
        raw = sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
        check_most("the bytes of the document", len(raw), MOST_TEXT_BYTES)
    else:
        raw = read_limited(options.document, MOST_TEXT_BYTES)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{options.document} is not UTF-8: {error}") from error
    asked = options.question.replace("XXXXX", "@placeholder")
    parts = [" ".join(text.split()), asked, *options.candidates]
    if not options.tokenized:
        parts = [" ".join(treebank_tokens(part)) for part in parts]
    return parts[0], parts[1], parts[2:]
