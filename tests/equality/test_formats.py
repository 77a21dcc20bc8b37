"""What the shortest run of every paper leaves: checkpoint, record, logs.

A checkpoint has exactly the arrays that it had; records and logs may gain keys. Prepared data sets
are found by the names and versions of their builders.
"""

import contextlib
import importlib
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core.papers import PAPERS
from gatedjax import data
from gatedjax.training import CheckpointStore
from tests.equality._golden import golden, not_smaller, same

SHORT = (
    "--train.num-steps 2 --train.eval-every 2 --train.checkpoint-every 2 --train.log-every 1 "
    "--train.parallel single --cpu-devices 1"
)
RUNS = {
    "agt": "--preset polarity --model.num-layers 2 --model.hidden 4 --model.attention-hidden 3 "
    "--model.embedding-dim 4 --model.head-hidden 4 --data.max-buckets 1",
    "ga_net": "--preset polarity --model.embedding-dim 4 --model.hidden 3 --model.aux-hidden 3 "
    "--data.max-buckets 1",
    "ga_reader": "--preset toy --model.hidden 4 --model.embedding-dim 4 --data.batch-size 8 "
    "--data.max-shapes 1 --data.eval-batch-size 100",
    "rau": "--preset digits --model.hidden 4",
    "ssan": "--preset bshift --model.num-layers 1 --model.hidden 8 --model.filter-size 8 "
    "--model.num-heads 2 --data.max-buckets 1 --data.batch-size 8 --data.eval-batch-size 8 "
    "--train.optimizer.warmup-steps 1",
}
# lists that a newer run may have more of
GROWING = ("record", "config", "environment", "train", "eval", "files")


def write_sentences(folder: Path) -> None:
    """A probe as its files are, for the paper whose data are not embedded."""
    rng = np.random.default_rng(0)
    lines = []
    for split, size in (("tr", 16), ("va", 8), ("te", 8)):
        plain = [[f"w{i}" for i in rng.integers(9, size=7)] for _ in range(size)]
        for example in data.bigram_shift(plain, seed=size):
            lines.append(f"{split}\t{'IO'[example['label']]}\t{' '.join(example['tokens'])}")
    (folder / "bigram_shift.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def described(paper: str, folder: Path) -> dict[str, Any]:
    """Runs a paper's command, and lists what is in its work folder."""
    work = folder / "work"
    args = [*RUNS[paper].split(), *SHORT.split(), "--workdir", str(work)]
    if paper == "ssan":
        write_sentences(folder)
        args += ["--data.manual-dir", str(folder)]
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with quiet[0], quiet[1]:
        assert importlib.import_module(f"experiments.{paper}.__main__").main(args) == 0
    store = CheckpointStore(work / "checkpoints")
    lines = [json.loads(line) for line in (work / "metrics.jsonl").read_text().splitlines()]
    record = read(work / "results.json")
    return {
        "files": sorted(path.name for path in work.iterdir()),
        "leaves": {
            part: {name: f"{x.dtype}{list(x.shape)}" for name, x in store.arrays(2, part).items()}
            for part in store.checksums(2)
        },
        "record": keys(record),
        "config": keys(read(work / "config.json")),
        "environment": sorted(read(work / "environment.json")),
        **{
            split: sorted({name for line in lines if line["split"] == split for name in line})
            for split in ("train", "eval")
        },
    }


def keys(value: dict[str, Any]) -> list[str]:
    """Names of the first two levels, and of all of the configuration."""
    found = []
    for name, inner in value.items():
        found.append(name)
        if isinstance(inner, dict):
            deeper = keys(inner) if name in ("config", "data", "model", "train") else inner
            found += [f"{name}.{one}" for one in deeper]
    return sorted(found)


def builders() -> dict[str, Any]:
    """Name and version of every builder: the folder of its prepared set."""
    import tensorflow_datasets as tfds

    module = importlib.import_module("gatedjax.data.builders")
    kinds = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, tfds.core.DatasetBuilder)
        and name != "LinesBuilder"
    ]
    return {
        kind.__name__: [
            kind.name,
            str(kind.VERSION),
            *(str(config.name) for config in kind.BUILDER_CONFIGS),
        ]
        for kind in sorted(kinds, key=lambda kind: kind.__name__)
    }


def found() -> dict[str, Any]:
    """The formats of every paper, and the builders."""
    result: dict[str, Any] = {"builders": builders()}
    for paper in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            result[paper] = described(paper, Path(folder))
    return result


def test_prepared_sets_are_where_they_were():
    wanted = golden("formats")["builders"]
    assert len(wanted) == 18
    here = builders()
    same({name: here.get(name) for name in wanted}, wanted, "builders")


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_a_short_run_leaves_what_it_left(paper, tmp_path):
    wanted, here = golden("formats")[paper], described(paper, tmp_path)
    same(here["leaves"], wanted["leaves"], f"{paper}, checkpoint")
    not_smaller({name: here[name] for name in GROWING}, {name: wanted[name] for name in GROWING})
