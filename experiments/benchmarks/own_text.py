"""The command `python -m experiments.benchmarks.own_text`: two models against their goals.

Each set is a pair of files of labelled texts. For each model `gatedjax train --density 0.3` runs in
a process of its own with one thread, and the table has the accuracy on the second file, the goal,
and the processor time of the whole command: imports, compilation, both fits and the report.
"""

import dataclasses
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from experiments.benchmarks import _harness
from experiments.core.kinds import Json, Records
from experiments.core.records import read_json
from gatedjax._utils.options import Unset
from gatedjax._utils.write import write_atomic

Model = Literal["lexicon", "ganet"]
DENSITY = 0.3
GOALS: dict[str, dict[Model, float]] = {
    "mr": {"lexicon": 0.775},
    "sst2": {"lexicon": 0.803},
    "ag": {"lexicon": 0.875},
    "imdb5": {"lexicon": 0.875},
    "tweets": {"lexicon": 0.938, "ganet": 0.940},
    "trec": {"lexicon": 0.860, "ganet": 0.840},
    "zh": {"lexicon": 0.810},
}
"""The accuracy that each model should at least have with 30 % of the words, by set."""
HEADS = (
    *("set", "model", "goal", "at 0.3", "open", "all words", "better baseline"),
    *("closed word removed", "command, CPU s"),
)
COMMAND = "python -m experiments.benchmarks.own_text --docs"
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Trains models on pairs of files with 30 % of the words, and compares them with their goals.

    For example:
    $ python -m experiments.benchmarks.own_text mr=mr.train.csv,mr.test.csv --runs runs/own_text
    """

    sets: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME=TRAIN,TEST ...")
    ]
    """The sets: a name, and two files that `gatedjax train` reads."""
    models: tuple[Model, ...] = get_args(Model)
    """The models."""
    runs: Path = Path("runs/own_text")
    """A folder for the models; a finished model in it is not trained again."""
    minutes: float = 20.0
    """The time limit of a command, by the clock; a longer command counts as not measured."""
    json: Unset[Path] = None
    """A file for the figures, in addition to the table."""
    docs: Unset[Path] = None
    """A Markdown file in which the section with the table is replaced."""


def train_model(model: Model, train: str, test: str, folder: Path, minutes: float) -> None:
    """Runs `gatedjax train`, and writes the seconds of processor time next to the folder.

    Args:
      model: the model.
      train: the file of the training texts.
      test: the file of the test texts.
      folder: the folder of the model.
      minutes: the time limit; nothing is written if it is exceeded.

    Raises:
      ValueError: if the command fails.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["train", train, "--test", test, "--model", model, "--density", str(DENSITY)]
    arguments += ["--out", str(folder), "--no-cache"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gatedjax", *arguments],
            timeout=60 * minutes,
            env={**os.environ, **ONE_THREAD},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]
        raise ValueError(f"gatedjax {shlex.join(arguments)} failed: {reason}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    write_atomic(_seconds_of(folder), f"{seconds:.3f}\n".encode())


def _seconds_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.seconds")


def read_row(name: str, model: Model, folder: Path | None) -> Json:
    """Returns the row of a set and a model; without a finished folder it has the goal alone."""
    row: Json = {"set": name, "model": model, "goal": GOALS.get(name, {}).get(model)}
    if folder is None or not _seconds_of(folder).exists():
        return row
    report = read_json(folder / "report.json")
    test = report["test"]
    baselines = [report[key] for key in ("baseline", "character_baseline") if key in report]
    if model == "lexicon":
        same = test["same_answer"]
        change = 0.0 if same["equal"] == same["texts"] else None
    else:
        change = test["leak"]["closed"] if "leak" in test else None
    return {
        **row,
        "accuracy": test["accuracy"],
        "open": test["density"],
        "all_words": test.get("all_words"),
        "baseline": max(b["test"] for b in baselines if b.get("test") is not None),
        "closed_change": change,
        "seconds": float(_seconds_of(folder).read_text()),
    }


def cells_of(row: Json) -> list[str]:
    """Returns the cells of a row."""
    goal = "" if row["goal"] is None else f"{row['goal']:.3f}"
    cells = [row["set"], row["model"], goal]
    if "accuracy" not in row:
        return [*cells, "not measured", *[""] * (len(HEADS) - len(cells) - 1)]
    optional = [
        "" if value is None else f"{value:.4f}"
        for value in (row["all_words"], row["baseline"], row["closed_change"])
    ]
    return [
        *(*cells, f"{row['accuracy']:.4f}", f"{row['open']:.2f}"),
        *(*optional, f"{row['seconds']:.1f}"),
    ]


def docs_section(rows: Records, machine: Json) -> str:
    """Returns the table and a description of the measurement, in Markdown."""
    return "\n\n".join(
        [
            f"Written by `{COMMAND} docs/own_text_measurements.md NAME=TRAIN,TEST ...`. "
            + _harness.about(machine),
            "\n".join(_harness.markdown_table(HEADS, [cells_of(row) for row in rows], texts=2)),
        ]
    )


def main(options: Options) -> Records:
    """Measures, prints and returns a row for each model and set, and for each other goal."""
    sets = _harness.parse_sets(options.sets)
    rows = []
    for name in [*sets, *(name for name in GOALS if name not in sets)]:
        for model in options.models:
            folder = None
            if name in sets:
                folder = options.runs / f"{name}.{model}"
                if not _seconds_of(folder).exists():
                    train_model(model, *sets[name], folder, options.minutes)
            elif model not in GOALS[name]:
                continue
            rows.append(read_row(name, model, folder))
    cells = [cells_of(row) for row in rows]
    title = "models of labelled texts with 30 % of the words"
    _harness.render(title, HEADS, cells, texts=2, wrap=False)
    machine = _harness.machine()
    if options.docs is not None:
        _harness.replace_section(options.docs, COMMAND, docs_section(rows, machine))
    _harness.write_figures(options.json, {"machine": machine, "rows": rows})
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
