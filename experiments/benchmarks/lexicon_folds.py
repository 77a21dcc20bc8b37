"""The command `python -m experiments.benchmarks.lexicon_folds`: the price of closed words in folds.

A test set of a few hundred texts cannot show a difference of half a point. Here each text of a file
is predicted once, by a lexicon that is fitted to the remaining folds, so that the difference
between all words and a share of the words has the smallest error that the file permits.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from experiments.benchmarks import _harness
from experiments.benchmarks.lexicon import DENSITIES, SHOWN, read_part
from experiments.core.kinds import Json, Records
from gatedjax._utils.options import Unset
from gatedjax.lexicon import fit_lexicon
from gatedjax.text._tokens import LEXICON_KIND, Splitter, Tokenizer, learn_units

COMMAND = "python -m experiments.benchmarks.lexicon_folds --docs"
HEADS = (
    *("set", "texts", "all words", "at 0.5", "at 0.3"),
    *("loss to 0.5, points", "loss to 0.3, points"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Measures in folds by how many points the accuracy of a lexicon falls when words are closed.

    For example:
    $ python -m experiments.benchmarks.lexicon_folds mr=mr.train.csv
    """

    sets: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME=FILE ...")]
    """The sets: a name, and a file that `gatedjax train` reads."""
    folds: int = 5
    """The number of folds."""
    json: Unset[Path] = None
    """A file for the figures, in addition to the table."""
    docs: Unset[Path] = None
    """A Markdown file in which the section with the table is replaced."""


def draw_folds(first: np.ndarray, folds: int) -> np.ndarray:
    """Returns the fold of each text, int [n], from 0; equal texts are in the same fold.

    >>> draw_folds(np.array([0, 1, 0]), 2).tolist()
    [1, 0, 1]

    Args:
      first: int [n], for each of n texts the position of the first text with the same words.
      folds: the number of folds.
    """
    number_of = np.unique(first, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(number_of.max() + 1)
    return np.asarray(order[number_of] % folds)


def measure(name: str, path: str, folds: int) -> Json:
    """Returns the row of a set.

    Args:
      name: the name of the set.
      path: the file of the texts.
      folds: the number of folds.
    """
    texts, labels, part = read_part(path, None)
    fold_of = draw_folds(part["first"], folds)
    is_right = {density: np.zeros(len(texts)) for density in DENSITIES}
    for fold in range(folds):
        test_rows, train_rows = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
        # Units of scripts without spaces are learned, so they must not see the held texts.
        splitter = Splitter(learn_units(Tokenizer(LEXICON_KIND), [texts[i] for i in train_rows]))
        words = [splitter.split(text) for text in texts]
        stages = fit_lexicon(
            [words[i] for i in train_rows], labels[train_rows], len(part["classes"]), DENSITIES
        )
        for lexicon in stages:
            predicted = lexicon.read([words[i] for i in test_rows]).probabilities.argmax(1)
            is_right[lexicon.density][test_rows] = predicted == labels[test_rows]
    losses = {}
    for density in SHOWN[1:]:
        lost = 100 * (is_right[SHOWN[0]] - is_right[density])
        losses[str(density)] = {
            "mean": float(lost.mean()),
            "error": float(lost.std(ddof=1) / math.sqrt(len(lost))),
        }
    return {
        "set": name,
        "texts": len(texts),
        "accuracy": {str(density): float(is_right[density].mean()) for density in SHOWN},
        "loss": losses,
    }


def summarise(rows: Sequence[Json]) -> Json:
    """Returns the mean of the losses over the sets with its standard error, by density.

    The sets are given and not drawn, so that the error is that of the texts only.
    """
    return {
        density: {
            "mean": float(np.mean([row["loss"][density]["mean"] for row in rows])),
            "error": math.hypot(*(row["loss"][density]["error"] for row in rows)) / len(rows),
        }
        for density in map(str, SHOWN[1:])
    }


def cells_of(row: Json) -> list[str]:
    """Returns the cells of a row."""
    return [
        *(row["set"], f"{row['texts']:,}"),
        *(f"{row['accuracy'][str(density)]:.4f}" for density in SHOWN),
        *map(_show_loss, row["loss"].values()),
    ]


def _show_loss(loss: Json) -> str:
    return f"{loss['mean']:.2f} \u00b1 {loss['error']:.2f}"


def tabulate(rows: Records) -> list[list[str]]:
    """Returns the cells of all rows and, for several sets, of their mean."""
    lines = [cells_of(row) for row in rows]
    if len(rows) > 1:
        lines.append(["mean", *[""] * 4, *map(_show_loss, summarise(rows).values())])
    return lines


def docs_section(rows: Records, folds: int, machine: Json) -> str:
    """Returns the table and a description of the measurement, in Markdown."""
    return "\n\n".join(
        [
            f"Written by `{COMMAND} docs/own_text_measurements.md NAME=FILE ...`: {folds} folds, "
            "losses with their standard errors. " + _harness.about(machine),
            "\n".join(_harness.markdown_table(HEADS, tabulate(rows))),
        ]
    )


def main(options: Options) -> Records:
    """Measures, prints and returns a row for each set."""
    if options.folds < 2:
        raise ValueError(f"folds must be at least 2, got {options.folds}")
    sets = {}
    for entry in options.sets:
        name, equals, path = entry.partition("=")
        if not (equals and name and path):
            raise ValueError(f"sets must be NAME=FILE, got {entry!r}")
        sets[name] = path
    rows = [measure(name, path, options.folds) for name, path in sets.items()]
    _harness.render(f"a lexicon in {options.folds} folds", HEADS, tabulate(rows))
    machine = _harness.machine()
    if options.docs is not None:
        section = docs_section(rows, options.folds, machine)
        _harness.replace_section(options.docs, COMMAND, section)
    _harness.write_figures(options.json, {"machine": machine, "folds": options.folds, "rows": rows})
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
