"""The command `python -m experiments.benchmarks.own_text`: what `gatedjax train` does on text sets.

Each set is a pair of files of labelled texts. `gatedjax train` runs in a process of its own with
one thread: with its default share of words, and with 30 % of the words. The table has the
accuracies on the second file, those of the report's rivals, and the processor time of the whole
command: imports, folds, fits and the report.
"""

import dataclasses
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import tyro

from experiments.benchmarks import _harness
from experiments.core.kinds import Json, Records
from experiments.core.records import read_json
from gatedjax._utils.options import Unset
from gatedjax._utils.write import write_atomic

VARIANTS = {"default": (), "at 0.3": ("--share", "0.3")}
"""The runs of a set, and the options of each."""
RIVALS = ("constant_baseline", "baseline", "character_baseline", "chi2_baseline")
HEADS = (
    *("set", "texts", "classes", "most frequent", "words", "characters", "chi-squared at 0.3"),
    *("all words", "default", "read", "at 0.3", "same bits"),
    *("at most one word read", "train, CPU s"),
)
COMMAND = "python -m experiments.benchmarks.own_text --docs"
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Trains models on pairs of files, and compares them with the rivals of their reports.

    For example:
    $ python -m experiments.benchmarks.own_text mr=mr.train.csv,mr.test.csv --runs runs/own_text
    """

    sets: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME=TRAIN,TEST ...")
    ]
    """The sets: a name, and two files that `gatedjax train` reads."""
    runs: Path = Path("runs/own_text")
    """A folder for the models; a finished model in it is not trained again."""
    json: Unset[Path] = None
    """A file for the figures, in addition to the table."""
    docs: Unset[Path] = None
    """A Markdown file in which the section with the table is replaced."""


def train_model(train: str, test: str, folder: Path, arguments: tuple[str, ...]) -> Json:
    """Runs `gatedjax train` unless it has finished, and returns its report with its "seconds".
    Raises ValueError if the command fails."""
    clock = folder.with_name(f"{folder.name}.seconds")
    if not clock.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = ["train", train, "--test", test, *arguments, "--out", str(folder)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "gatedjax", *command],
            env={**os.environ, **ONE_THREAD},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2]
            raise ValueError(f"gatedjax {shlex.join(command)} failed: {reason}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        write_atomic(clock, f"{seconds:.3f}\n".encode())
    return read_json(folder / "report.json") | {"seconds": float(clock.read_text())}


def find_row(name: str, default: Json, sparse: Json) -> Json:
    """Returns the row of a set."""
    test = default["test"]
    same = [report["test"]["same_answer"] for report in (default, sparse)]
    return {
        "set": name,
        "texts": default["data"]["train"]["n"],
        "classes": len(test["per_class"]),
        **{rival: sparse.get(rival, {}).get("test") for rival in RIVALS},
        "all_words": test["all_words"],
        "accuracy": test["accuracy"],
        "read": test["share"],
        "at_0.3": sparse["test"]["accuracy"],
        "same": sum(s["equal"] for s in same) / sum(s["texts"] for s in same),
        "few_words": test["few_words"],
        "seconds": default["seconds"],
    }


def cells_of(row: Json) -> list[str]:
    """Returns the cells of a row."""
    few = row["few_words"]
    accuracies = [*(row[rival] for rival in RIVALS), row["all_words"], row["accuracy"]]
    return [
        *(row["set"], f"{row['texts']:,}", str(row["classes"])),
        *map(_render_accuracy, accuracies),
        f"{row['read']:.0%}",
        *(_render_accuracy(row["at_0.3"]), f"{row['same']:.0%}"),
        f"{few['accuracy']:.2f}, {few['confidence']:.2f} ({few['n']:,})" if few["n"] else "",
        f"{row['seconds']:.1f}",
    ]


def _render_accuracy(accuracy: float | None) -> str:
    return "" if accuracy is None else f"{accuracy:.3f}"


def main(options: Options) -> Records:
    """Measures, prints and returns a row for each set."""
    rows = []
    for name, files in _harness.parse_sets(options.sets).items():
        reports = [
            train_model(*files, options.runs / f"{name}.{variant}", arguments)
            for variant, arguments in VARIANTS.items()
        ]
        rows.append(find_row(name, *reports))
    lines, title = list(map(cells_of, rows)), "models of labelled texts"
    page = "experiments/results/benchmarks/own_text.md NAME=TRAIN,TEST ..."
    intro = f"Written by `{COMMAND} {page}`."
    _harness.publish(options, rows, title, HEADS, lines, command=COMMAND, intro=intro, wrap=False)
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
