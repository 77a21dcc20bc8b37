"""`python -m experiments.ga_reader make-cloze`: cloze questions of any books, in CBT's format.

As in Hill et al. 2016: 21 consecutive sentences of a book; the last one is the query, with one word
replaced by XXXXX; the answer and the other nine candidates are words of its class that occur in the
20 before it. Names that are fewer than ten are topped up with common nouns. What is a name or a
noun is told by simple rules (`experiments.ga_reader.books`), not by a tagger.
"""

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
SHORTEST, LONGEST = 4, 80
"""Words of a query."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeClozeConfig:
    """Makes cloze questions of books.

    It writes cbtest_NE_*.txt and cbtest_CN_*.txt in the form of the data sets cbt_ne and cbt_cn,
    and make_cloze.json with the counts. A reader trains on them with --data.manual-dir DIR. The
    same books, options and seed give the same files.
    """

    books: tuple[Path, ...]
    """The text files, in UTF-8, one for each book."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder for the files."""
    stride: int = 5
    """The number of sentences from one query to the next. With 21, questions share nothing."""
    held_out: float = 0.1
    """The share of the books (at least one), or of each book if there are fewer than three, for
    validation, and the same for test."""
    seed: int = 0
    """The seed of the books that are held out, of the words and of the candidates."""


OUTCOMES = (
    "tried",
    "written",
    "query_too_short_or_long",
    "nothing_to_ask",  # no word of the class in the query that occurs in the context
    "too_few_candidates",
    "over_the_limit",  # of questions in the official validation and test files
)
"""What becomes of a query, as make_cloze.json counts them."""


def main(args: list[str]) -> int:
    """Runs the command; returns its exit status."""
    options = parse_options(MakeClozeConfig, args, "python -m experiments.ga_reader make-cloze")
    check_folder(options.out, "--out")
    with refusals():
        make_cloze(options)
    return 0


def make_cloze(options: MakeClozeConfig) -> dict:
    """Writes the files; returns the counts, which are also in make_cloze.json."""
    if options.stride < 1:
        raise ValueError(f"--stride must be at least 1, got {options.stride}")
    if not 0 < options.held_out <= 0.4:
        raise ValueError(f"--held-out must be above 0 and at most 0.4, got {options.held_out}")
    texts = {path.name: books.read_book(path) for path in options.books}
    if len(texts) != len(options.books):
        raise ValueError("--books must have names of their own, without their folders")
    words = {name: (books.names_of(text), books.nouns_of(text)) for name, text in texts.items()}
    pieces = split(texts, options.held_out, options.seed)
    report: dict = {"books": {part: sorted(named) for part, named in pieces.items()}}
    files = {}
    for kind, part in itertools.product(("NE", "CN"), pieces):
        counts = dict.fromkeys(OUTCOMES, 0)
        lines: list[str] = []
        for name in sorted(pieces[part]):
            draw = np.random.default_rng([options.seed, *f"{kind} {part} {name}".encode()])
            sentences = pieces[part][name]
            for place in range(CONTEXT, len(sentences), options.stride):
                context, query = sentences[place - CONTEXT : place], sentences[place]
                outcome, more = question(context, query, kind, words[name], draw)
                if outcome == "written" and counts["written"] == MOST[part]:
                    outcome, more = "over_the_limit", []
                counts["tried"] += 1
                counts[outcome] += 1
                lines += more
        if not lines:
            raise ValueError(
                f"{kind}, {part}: no question can be made of {', '.join(sorted(pieces[part]))}: "
                f"{counts}; give longer or more books"
            )
        files[f"cbtest_{kind}_{PARTS[part]}.txt"] = "\n".join(lines)
        report.setdefault(kind, {})[part] = counts
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
    """Cuts by books; fewer than three books are each cut in three, one after the other."""
    names = sorted(texts)
    if len(names) >= 3:
        order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
        n = max(1, math.floor(held_out * len(names)))
        books_of = {"valid": order[:n], "test": order[n : 2 * n], "train": order[2 * n :]}
        return {part: {name: texts[name] for name in books_of[part]} for part in PARTS}
    pieces: dict[str, dict[str, books.Sentences]] = {part: {} for part in PARTS}
    for name, sentences in texts.items():
        n = math.floor(held_out * len(sentences))
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
    """What becomes of a query (see `OUTCOMES`), and the lines of its question if there is one.

    `context` are the sentences before it, `words` the names and the common nouns.
    """
    names, nouns = words
    of_class = names if kind == "NE" else nouns
    if not SHORTEST <= len(query) <= LONGEST:
        return "query_too_short_or_long", []
    seen = {token for sentence in context for token in sentence}
    askable = [i for i, token in enumerate(query) if token in of_class and token in seen]
    if not askable:
        return "nothing_to_ask", []
    asked = askable[int(draw.integers(len(askable)))]
    answer = query[asked]
    candidates = [answer, *_drawn(seen & of_class - {answer}, CANDIDATES - 1, draw)]
    if kind == "NE" and len(candidates) < CANDIDATES:
        candidates += _drawn(seen & nouns, CANDIDATES - len(candidates), draw)
    if len(candidates) < CANDIDATES:
        return "too_few_candidates", []
    masked = ["XXXXX" if i == asked else token for i, token in enumerate(query)]
    lines = [f"{i} {' '.join(sentence)}" for i, sentence in enumerate(context, 1)]
    options = "|".join(sorted(candidates))
    return "written", [*lines, f"{CONTEXT + 1} {' '.join(masked)}\t{answer}\t\t{options}", ""]


def _drawn(words: set[str], count: int, draw: np.random.Generator) -> list[str]:
    ordered = sorted(words)
    return [ordered[i] for i in draw.permutation(len(ordered))[:count]]
