"""The command `python -m experiments.benchmarks.vectors`: what word vectors add to few texts.

From the first file of a set 100, 300 and 1,000 texts are drawn, and all are taken. A lexicon is
fitted to them with and without pretrained vectors, and measured on the second file.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from experiments.benchmarks import _harness
from experiments.core.kinds import Json, Records
from gatedjax._utils.options import Unset
from gatedjax.lexicon import fit_lexicon
from gatedjax.lexicon._vectors import read_vectors
from gatedjax.text.answers._prediction import COLUMNS
from gatedjax.text.corpus._corpus import Corpus, read_examples
from gatedjax.text.corpus._tokens import LEXICON_KIND, Splitter, Tokenizer, learn_units
from gatedjax.text.sources._labels import Classes
from gatedjax.text.sources._open import open_table

COMMAND = "python -m experiments.benchmarks.vectors --docs"
SIZES = (100, 300, 1000)
"""The numbers of texts that are drawn."""
SHARES = (1.0, 0.3)
"""The shares of the words that are read."""
DRAWS = 3
"""The number of draws, of which the table has the mean."""
HEADS = ("set", "share", "texts", *(f"{size:,} texts" for size in SIZES), "all texts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Measures the accuracy of a lexicon of few texts with and without pretrained vectors.

    For example:
    $ python -m experiments.benchmarks.vectors trec=trec.train.csv,trec.test.csv
    """

    sets: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME=TRAIN,TEST ...")
    ]
    """The sets: a name, and two files that `gatedjax train` reads."""
    vectors: str = "wordllama"
    """A file of vectors, or the name of a package."""
    json: Unset[Path] = None
    """A file for the figures, in addition to the table."""
    docs: Unset[Path] = None
    """A Markdown file in which the section with the table is replaced."""


def _read(path: str, classes: tuple[object, ...] | None) -> tuple[list[str], Corpus]:
    splitter = Splitter(Tokenizer(LEXICON_KIND))
    corpus, records, _ = read_examples(
        open_table(path, COLUMNS["text"]),
        lambda record: [splitter.split(record.inputs[0])],
        places=Classes("label", classes),  # type: ignore[arg-type]
        max_aside=0.01,
    )
    return [record.inputs[0] for record in records], corpus


def measure(name: str, train: str, test: str, vectors_file: str) -> Records:
    """Returns the rows of a set, with all words and with a share of them."""
    texts, corpus = _read(train, None)
    labels = np.asarray(corpus.labels)
    test_texts, test_corpus = _read(test, corpus.classes)
    rows: Records = [
        {"set": name, "share": share, "texts": len(texts), "accuracy": {}} for share in SHARES
    ]
    for size in (*(size for size in SIZES if size < len(texts)), len(texts)):
        scores = []  # [draws, 2, shares]
        for seed in range(DRAWS if size < len(texts) else 1):
            drawn = np.random.default_rng(seed).permutation(len(texts))[:size]
            splitter = Splitter(learn_units(Tokenizer(LEXICON_KIND), [texts[i] for i in drawn]))
            words = [splitter.split(texts[i]) for i in drawn]
            held = list(map(splitter.split, test_texts))
            vectors = read_vectors(vectors_file, {word for text in words for word in text})
            scores.append(
                [
                    [
                        np.mean(lexicon.read(held).probabilities.argmax(1) == test_corpus.labels)
                        for lexicon in fit_lexicon(
                            words, labels[drawn], len(corpus.classes), SHARES, vectors=given
                        )
                    ]
                    for given in (None, vectors)
                ]
            )
        means = np.mean(scores, 0)
        for row, (without, given) in zip(rows, means.T.tolist(), strict=True):
            column = "all" if size == len(texts) else str(size)
            row["accuracy"][column] = {"without": without, "with": given}
    return rows


def cells_of(row: Json) -> list[str]:
    """Returns the cells of a row."""
    cells = [row["set"], f"{row['share']:g}", f"{row['texts']:,}"]
    for size in (*map(str, SIZES), "all"):
        scores = row["accuracy"].get(size)
        cells.append(f"{scores['without']:.3f} → {scores['with']:.3f}" if scores else "")
    return cells


def main(options: Options) -> Records:
    """Measures, prints and returns two rows for each set."""
    sets = _harness.parse_sets(options.sets)
    rows = [row for name, files in sets.items() for row in measure(name, *files, options.vectors)]
    lines, title = list(map(cells_of, rows)), "a lexicon with and without vectors"
    intro = (
        f"Written by `{COMMAND} experiments/results/benchmarks/own_text.md --vectors "
        f"{Path(options.vectors).name} NAME=TRAIN,TEST ...`: test accuracy without vectors → "
        f"with vectors, the mean of {DRAWS} draws."
    )
    _harness.publish(options, rows, title, HEADS, lines, command=COMMAND, intro=intro)
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
