"""The command `python -m experiments.benchmarks.lexicon`: accuracy and cost of a lexicon.

Each set is a pair of files of labelled texts. A lexicon is fitted to the first with all words, and
then with falling shares of open words; the table has the accuracies on the second file, those of
two linear models that are trained on the same texts, and the processor time of all threads.
"""

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from experiments.benchmarks import _harness
from experiments.core.kinds import Json, Records
from gatedjax._utils.options import Unset
from gatedjax.lexicon import fit_lexicon
from gatedjax.text._copies import equal_texts
from gatedjax.text._lexicon import LexiconModel
from gatedjax.text._lexicon_report import count_equal
from gatedjax.text._lexicon_training import TextPart, measure_baselines, read_labelled
from gatedjax.text._prediction import COLUMNS
from gatedjax.text._read import open_table
from gatedjax.text._tokens import LEXICON_KIND, Splitter, Tokenizer, learn_units

DENSITIES = (1.0, 0.7, 0.5, 0.4, 0.3)
SHOWN = (1.0, 0.5, 0.3)
HEADS = (
    *("set", "texts", "classes", "words", "characters"),
    *("all words", "at 0.5", "at 0.3", "open at 0.3"),
    *("same bits", "fit, CPU s", "texts a CPU s", "million characters a CPU s", "folder, MB"),
)
COMMAND = "python -m experiments.benchmarks.lexicon --docs"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Measures the accuracy and the cost of a lexicon on pairs of files.

    For example:
    $ python -m experiments.benchmarks.lexicon mr=mr.train.csv,mr.test.csv
    """

    sets: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME=TRAIN,TEST ...")
    ]
    """The sets: a name, and two files that `gatedjax train` reads."""
    json: Unset[Path] = None
    """A file for the figures, in addition to the table."""
    docs: Unset[Path] = None
    """A Markdown file in which the section with the table is replaced."""


def read_part(path: str, classes: tuple[object, ...] | None) -> tuple[list[str], np.ndarray, Json]:
    """Reads the texts and labels of a file.

    The dict has the "classes", and as "first" for each text the position of the first text with the
    same words.
    """
    table = open_table(path, COLUMNS["text"])
    corpus, texts = read_labelled(table, classes, 0.01)  # type: ignore[arg-type]
    details = {"classes": corpus.classes, "first": equal_texts(corpus)}
    return texts, np.asarray(corpus.labels), details


def measure(name: str, train: str, test: str) -> Json:
    """Returns the row of a set.

    Args:
      name: the name of the set.
      train: the file of the training texts.
      test: the file of the test texts.
    """
    texts, labels, found = read_part(train, None)
    classes = found["classes"]
    test_texts, test_labels, _ = read_part(test, classes)
    began = time.process_time()
    splitter = Splitter(learn_units(Tokenizer(LEXICON_KIND), texts))
    fitted = TextPart([splitter.split(text) for text in texts], texts, labels)
    seconds = time.process_time() - began
    held = TextPart([splitter.split(text) for text in test_texts], test_texts, test_labels)
    accuracies: dict[float, float] = {}
    stages = fit_lexicon(fitted.words, labels, len(classes), DENSITIES)
    for _ in DENSITIES:
        began = time.process_time()
        lexicon = next(stages)
        seconds += time.process_time() - began
        right = lexicon.read(held.words).probabilities.argmax(1) == test_labels
        accuracies[lexicon.density] = float(np.mean(right))
    readings = lexicon.read(held.words)
    with tempfile.TemporaryDirectory() as folder:
        model = LexiconModel(lexicon=lexicon, splitter=splitter, classes=classes)
        saved = model.save(Path(folder, "model"), overwrite=False)
        size = sum(path.stat().st_size for path in saved.iterdir())
        # A loaded model has read no word yet, like the model of a new process.
        loaded = LexiconModel.load(saved)
    began = time.process_time()
    for _ in loaded.predict((text,) for text in test_texts):
        pass
    reading = time.process_time() - began
    rivals = measure_baselines(fitted, held, len(classes), "test")
    return {
        "set": name,
        "texts": len(texts),
        "classes": len(classes),
        "words": rivals["baseline"]["test"],
        "characters": rivals["character_baseline"].get("test"),
        "accuracy": {str(density): accuracies[density] for density in SHOWN},
        "open": float(np.mean(np.concatenate(readings.is_open))),
        "same": count_equal(lexicon, splitter, held.words) / len(held.words),
        "seconds": seconds,
        "speed": len(test_texts) / reading,
        "megacharacters": sum(map(len, test_texts)) / 1e6 / reading,
        "megabytes": size / 1e6,
    }


def cells_of(row: Json) -> list[str]:
    """Returns the cells of a row."""
    characters = "" if row["characters"] is None else f"{row['characters']:.4f}"
    return [
        *(row["set"], f"{row['texts']:,}", str(row["classes"]), f"{row['words']:.4f}", characters),
        *(f"{row['accuracy'][str(density)]:.4f}" for density in SHOWN),
        *(f"{row['open']:.2f}", f"{row['same']:.0%}", f"{row['seconds']:.1f}"),
        *(f"{row['speed']:,.0f}", f"{row['megacharacters']:.1f}", f"{row['megabytes']:.2f}"),
    ]


def docs_section(rows: Records, machine: Json) -> str:
    """Returns the table and a description of the measurement, in Markdown."""
    return "\n\n".join(
        [
            f"Written by `{COMMAND} docs/own_text_measurements.md NAME=TRAIN,TEST ...`. "
            + _harness.about(machine),
            "\n".join(_harness.markdown_table(HEADS, [cells_of(row) for row in rows])),
        ]
    )


def main(options: Options) -> Records:
    """Measures, prints and returns a row for each set."""
    sets = _harness.parse_sets(options.sets)
    rows = [measure(name, *files) for name, files in sets.items()]
    lines = [cells_of(row) for row in rows]
    _harness.render("a lexicon on labelled texts", HEADS, lines, wrap=False)
    machine = _harness.machine()
    if options.docs is not None:
        _harness.replace_section(options.docs, COMMAND, docs_section(rows, machine))
    _harness.write_figures(options.json, {"machine": machine, "rows": rows})
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
