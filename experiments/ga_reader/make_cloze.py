"""The command `python -m experiments.ga_reader make-cloze`, which builds cloze questions from
books.

The questions have the format of CBT and follow Hill et al. 2016. A question has 21 consecutive
sentences of a book. The last sentence is the query, in which XXXXX replaces a word. The answer and
the nine other candidates are words of its class that occur in the 20 sentences before. If there are
fewer than ten names, common nouns fill up the candidates. Simple rules find names and nouns (see
`experiments.ga_reader.books`), without a tagger.
"""

import collections
import dataclasses
import itertools
import math
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from experiments.core.cli import check_folder, parse_options, refusals
from experiments.core.records import write_json, write_text
from experiments.ga_reader import books
from gatedjax._utils.terminal import say

CONTEXT, CANDIDATES = 20, 10
PARTS = {"train": "train", "valid": "valid_2000ex", "test": "test_2500ex"}
MOST = {"train": None, "valid": 2_000, "test": 2_500}
STRIDE = 5
"""The number of sentences from a query to the next."""
SHORTEST, LONGEST = 4, 80
"""The numbers of words of a query."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeClozeConfig:
    """Makes cloze questions of books.

    It writes cbtest_NE_*.txt and cbtest_CN_*.txt in the form of the data sets cbt_ne and cbt_cn,
    and make_cloze.json with the counts. A reader trains on them with --data.manual-dir DIR. The
    same books, options and seed give the same files.
    """

    books: tuple[Path, ...]
    """The text files, in UTF-8, one for each book, plain or compressed (.gz, .bz2, .xz, .zst or
    .zip)."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder for the files."""
    held_out: float = 0.1
    """The share of the books (at least one), or of each book if there are fewer than three, for
    validation, and the same for test."""
    seed: int = 0
    """The seed of the choice of books for validation and test, of words and of candidates."""


OUTCOMES = (
    "tried",
    "written",
    "query_too_short_or_long",
    "nothing_to_ask",  # No word of the class is in both query and context.
    "too_few_candidates",
    "over_the_limit",  # The part has as many questions as the official file.
)
"""The outcomes of trying a sentence as a query, as make_cloze.json counts them."""


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse_options(MakeClozeConfig, args, "python -m experiments.ga_reader make-cloze")
    check_folder(options.out, "--out")
    with refusals():
        make_cloze(options)
    return 0


def make_cloze(options: MakeClozeConfig) -> dict:
    """Writes the files of questions. Returns the books of each part and the counts of outcomes, as
    in make_cloze.json. Raises ValueError for impossible options, and if no question can be made for
    a part."""
    if not 0 < options.held_out <= 0.4:
        raise ValueError(f"--held-out must be in (0, 0.4], got {options.held_out}")
    texts = {path.name: books.read_book(path) for path in options.books}
    # Books are stored by file name, so that equal names in different folders would replace each
    # other.
    if len(texts) != len(options.books):
        names = collections.Counter(path.name for path in options.books)
        ((name, count),) = names.most_common(1)
        raise ValueError(f"--books must have different file names, got {name!r} {count} times")
    words = {name: (books.names_of(text), books.nouns_of(text)) for name, text in texts.items()}
    pieces = split(texts, options.held_out, options.seed)
    report: dict = {"books": {part: sorted(named) for part, named in pieces.items()}}
    files = {}
    for kind, part in itertools.product(("NE", "CN"), pieces):
        counts = dict.fromkeys(OUTCOMES, 0)
        lines: list[str] = []
        for name in sorted(pieces[part]):
            # A generator for each book keeps its draws independent of the other books.
            draw = np.random.default_rng([options.seed, *f"{kind} {part} {name}".encode()])
            sentences = pieces[part][name]
            # A stride of 1 would give questions whose contexts differ in a single sentence.
            for place in range(CONTEXT, len(sentences), STRIDE):
                context, query = sentences[place - CONTEXT : place], sentences[place]
                outcome, new_lines = question(context, query, kind, words[name], draw)
                # The question is still drawn, so that the counts show how many questions the books
                # would give.
                if outcome == "written" and counts["written"] == MOST[part]:
                    outcome, new_lines = "over_the_limit", []
                counts["tried"] += 1
                counts[outcome] += 1
                lines += new_lines
        if not lines:
            raise ValueError(
                f"--books must have at least 1 question of {kind} for {part}, got none from "
                f"{', '.join(sorted(pieces[part]))} ({counts}): give longer or more books"
            )
        files[f"cbtest_{kind}_{PARTS[part]}.txt"] = "\n".join(lines)
        report.setdefault(kind, {})[part] = counts
    # All files are written at the end, so that a fault in a later part leaves no incomplete set
    # behind.
    for name, text in files.items():
        write_text(options.out / name, text)
    write_json(options.out / "make_cloze.json", report)
    for kind in ("NE", "CN"):
        parts = ", ".join(f"{part} {counts['written']:,}" for part, counts in report[kind].items())
        say(f"{kind}: {parts} questions")
    say(f"wrote {options.out}; train on it with --preset cbt_ne --data.manual-dir {options.out}")
    return report


def split(
    texts: dict[str, books.Sentences], held_out: float, seed: int
) -> dict[str, dict[str, books.Sentences]]:
    """Splits the texts into training, validation and test. Three or more books are split by book.
    Fewer books are each split into three consecutive pieces. `held_out` is the share for
    validation, and for test."""
    names = sorted(texts)
    if len(names) >= 3:
        order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
        n = max(1, math.floor(held_out * len(names)))
        books_of = {"valid": order[:n], "test": order[n : 2 * n], "train": order[2 * n :]}
        return {part: {name: texts[name] for name in books_of[part]} for part in PARTS}
    pieces: dict[str, dict[str, books.Sentences]] = {part: {} for part in PARTS}
    for name, sentences in texts.items():
        n = math.floor(held_out * len(sentences))
        # The pieces are consecutive, because a random choice of sentences would put neighbours of
        # test sentences into the training part.
        ends = len(sentences) - 2 * n, len(sentences) - n
        pieces["train"][name] = sentences[: ends[0]]
        pieces["valid"][name] = sentences[ends[0] : ends[1]]
        pieces["test"][name] = sentences[ends[1] :]
    return pieces


def question(
    context: books.Sentences,
    query: list[str],
    kind: str,
    words: tuple[set[str], set[str]],
    draw: np.random.Generator,
) -> tuple[str, list[str]]:
    """Tries to make a question of a query. `kind` is "NE" for a name, or "CN" for a common noun.
    Returns the outcome (see `OUTCOMES`), and the lines of the question, empty unless it was
    written."""
    names, nouns = words
    of_class = names if kind == "NE" else nouns
    if not SHORTEST <= len(query) <= LONGEST:
        return "query_too_short_or_long", []
    seen = {token for sentence in context for token in sentence}
    askable = [i for i, token in enumerate(query) if token in of_class and token in seen]
    if not askable:
        return "nothing_to_ask", []
    masked_place = askable[int(draw.integers(len(askable)))]
    answer = query[masked_place]
    candidates = [answer, *_draw_words(seen & of_class - {answer}, CANDIDATES - 1, draw)]
    # Few names are filled up with common nouns, as in CBT.
    if kind == "NE" and len(candidates) < CANDIDATES:
        candidates += _draw_words(seen & nouns, CANDIDATES - len(candidates), draw)
    if len(candidates) < CANDIDATES:
        return "too_few_candidates", []
    masked = ["XXXXX" if i == masked_place else token for i, token in enumerate(query)]
    lines = [f"{i} {' '.join(sentence)}" for i, sentence in enumerate(context, 1)]
    options = "|".join(sorted(candidates))
    return "written", [*lines, f"{CONTEXT + 1} {' '.join(masked)}\t{answer}\t\t{options}", ""]


def _draw_words(words: set[str], count: int, draw: np.random.Generator) -> list[str]:
    # Sets have no fixed order, so the words are sorted before they are drawn.
    ordered = sorted(words)
    return [ordered[i] for i in draw.permutation(len(ordered))[:count]]
