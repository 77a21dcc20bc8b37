"""`gatedjax answer FOLDER`: answers a question about a document with a trained reader."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro

from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.limits import MOST_TEXT_BYTES, check_most, decode_text, read_limited
from gatedjax._utils.options import Unset
from gatedjax._utils.terminal import new_console
from gatedjax._utils.write import check_place
from gatedjax.data.text._tokenize import treebank_tokens
from gatedjax.text.models._reader import Reader, draw, question

_AROUND = 6  # words that are printed on each side of a place
# Words of the library's messages, and the words for them on this command line.
_OPTIONS = {"random_embeddings makes": "without --vectors there are"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Answers a question about a document, and shows the words that the reader attended to.

    It needs the folder of a trained reader, a text file with the document, the possible answers,
    and a question with @placeholder in the place of the answer.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Folder that gatedjax export wrote for a run of the GA Reader, or its work folder."""
    document: Path
    """The text file with the document in UTF-8, or - for standard input."""
    question: str
    """The sentence with @placeholder (or XXXXX) in the place of the answer."""
    candidates: tuple[str, ...]
    """Possible answers. A candidate of several words stands in quotes, and counts only where all of
    them follow each other: for each mention of a surname give the surname alone."""
    vectors: Unset[Path] = None
    """GloVe file with vectors for words that training has not seen (default: random vectors)."""
    tokenized: bool = False
    """Document, question and candidates are already tokens with spaces between them."""
    top: int = 5
    """Number of places to show."""
    figure: Unset[Path] = None
    """Also draw the heat map, into FIGURE.png and FIGURE.svg."""


def _answer(options: AnswerOptions) -> None:
    """Prints the probability of each candidate answer, and the words with the most attention."""
    if options.top < 0:
        raise ValueError(f"--top must be at least 0, got {options.top}")
    # Earlier drawings are replaced; other files with these names are kept.
    for ending, begins in ((".png", b"\x89png"), (".svg", b"<?xml")):
        if options.figure is not None:
            check_place(options.figure.with_name(f"{options.figure.name}{ending}"), begins=begins)
    source = question(*_tokens(options))
    words = source[0]["tokens"]
    # The words are added before the question is encoded, because a word that training has not seen
    # has no vector yet.
    reader = Reader.open(options.folder)
    reader = reader.with_words([*words, *source[0]["query"]], options.vectors)
    (reading,) = reader.answer_questions(source, whole_candidates=True)
    # The probability of a candidate is the attention to its places, so there is nothing to compare.
    if not reading.places:
        raise ValueError(
            "candidates must occur in the document as a whole and letter by letter, got "
            f"{', '.join(map(repr, reading.candidates))}: spell them as the document does"
        )
    console, counts = new_console(), reading.counts
    # Candidates of equal probability stay in the order of the command line.
    order = sorted(range(len(counts)), key=lambda i: (-reading.probabilities[i], i))
    for i in order:
        times = "not in the document" if not counts[i] else f"{counts[i]} x"
        line = f"{reading.probabilities[i]:.4f}  {reading.candidates[i]}  ({times})"
        console.print(line, style="bold" if i == order[0] else None, highlight=False)
    console.print("\nWhere it looked (share of the last hop's attention to candidates, place):")
    for place in sorted(reading.places, key=lambda p: -p.weight)[: options.top]:
        at = place.position
        before, after = words[max(0, at - _AROUND) : at], words[at + 1 : at + _AROUND + 1]
        around = f"{' '.join(before)} [{words[at]}] {' '.join(after)}"
        console.print(f"  {place.weight:.3f}  {at + 1:>4}  {around}", highlight=False)
        for number, hop in enumerate(place.hops, 1):
            most = sorted(range(len(reading.query)), key=lambda q: -hop[q])[:4]
            seen = ", ".join(f"{reading.query[q]} {hop[q]:.2f}" for q in most)
            console.print(f"         hop {number} attends to: {seen}", highlight=False)
    if options.figure is not None:
        best = reading.candidates[reading.best]
        draw(reading, options.figure, f"{best} ({reading.probabilities[reading.best]:.2f})")
        console.print(f"\nwrote {options.figure}.png and .svg")


def _tokens(options: AnswerOptions) -> tuple[str, str, list[str]]:
    """Returns (document, question, candidates), texts with spaces between their tokens."""
    if str(options.document) == "-":
        # A byte beyond the limit is read, so that a longer input is refused instead of cut.
        raw = sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
        check_most("the bytes of the document", len(raw), MOST_TEXT_BYTES)
    else:
        raw = read_limited(options.document, MOST_TEXT_BYTES)
    text = decode_text(raw, options.document)
    # The Children's Book Test writes XXXXX for the answer.
    query = options.question.replace("XXXXX", "@placeholder")
    parts = [" ".join(text.split()), query, *options.candidates]
    if not options.tokenized:
        parts = [" ".join(treebank_tokens(part)) for part in parts]
    return parts[0], parts[1], parts[2:]


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status, 0; errors exit with status 2."""
    options = parse(AnswerOptions, args, f"{program()} answer")
    with refusals(_OPTIONS, AnswerOptions):
        _answer(options)
    return 0
