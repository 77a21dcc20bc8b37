"""What the training loop costs: `python -m experiments.benchmarks.training`.

overhead: `fit` with asynchronous checkpoints, log and evaluation off against a bare loop over the
same compiled step, at about 20 ms a step. lanes: one program that trains S seeds against one that
trains a single seed, on GA-Net at the size of TREC. Both sides take turns in one process.
"""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from experiments.benchmarks import _harness
from experiments.core.config import at_least_1
from experiments.core.kinds import Batch, Params
from gatedjax import data as gdata
from gatedjax import training
from gatedjax._utils.cpu import usable_cores
from gatedjax.models import GANet, GANetConfig, GANetTask

Parallel = Literal["sharding", "single"]
Pair = dict[str, list[float]]
"""Seconds of "first" and "second", turn by turn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """What is timed, and how often."""

    what: Literal["all", "overhead", "lanes"] = "all"
    """Which comparison."""
    steps: int = 600
    """Steps of one turn of the overhead."""
    checkpoint_every: int = 200
    """Steps between checkpoints in it (default: that of TrainConfig)."""
    lane_steps: int = 40
    """Steps of one turn of the lanes, after as many to warm up."""
    seeds: int = 8
    """Lanes."""
    repeats: int = 5


class Products:
    """A task of matrix products; its step takes about 20 ms on one core."""

    def __init__(self, width: int = 512, rows: int = 256, depth: int = 8) -> None:
        self.width, self.rows, self.depth = width, rows, depth

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns `depth` square matrices."""
        del batch
        keys = jax.random.split(key, self.depth)
        return [jax.random.normal(k, (self.width, self.width)) / self.width**0.5 for k in keys]

    def loss(self, params: Params, batch: Batch, rngs: Any) -> Any:
        """Mean square of a deep product."""
        del rngs
        x = batch["x"]
        for matrix in params:
            x = jax.numpy.tanh(x @ matrix)
        each = (x**2).mean(-1)
        return (each * batch["weight"]).sum(), {"loss": training.Ratio.of(each, batch["weight"])}

    def evaluate(self, params: Params, batch: Batch) -> Any:
        """Nothing is evaluated."""
        raise NotImplementedError


class Rows:
    """The same rows at every step, made anew as a data set would."""

    def __init__(self, task: Products) -> None:
        self.x = np.random.default_rng(0).normal(size=(task.rows, task.width)).astype(np.float32)

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        rows = len(self.x)
        ids = np.arange(rows, dtype=np.int32) + rows * step
        return {"x": self.x.copy(), "example_id": ids, "weight": np.ones(rows, np.float32)}


def seconds_between(first: int, last: int, run: Callable[..., Any]) -> float:
    """Seconds from one step to another of run(folder, on_event)."""
    times = {}

    def note(name: str, number: int) -> None:
        if name == "step":
            times[number] = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), on_event=note)
    return times[last] - times[first]


def overhead(options: Options) -> Pair:
    """Seconds per step of the bare loop and of `fit`."""
    task = Products()
    data = Rows(task)
    parallel = training.make_parallel("single")
    config = training.TrainConfig(
        num_steps=options.steps,
        log_every=50,
        checkpoint_every=options.checkpoint_every,
        progress=False,
        optimizer=training.OptimizerConfig(learning_rate=1e-4),
    )
    tx = training.make_optimizer(config.optimizer, config.num_steps)
    step = parallel.train_step(task, tx)
    key = jax.random.key(0)
    start = jax.device_get(training.init_state(task, tx, key, data[0]))

    def bare() -> float:
        state = parallel.replicate(start)
        state, metrics = step(state, parallel.shard(data[0]), key)
        jax.block_until_ready(metrics)
        began = time.perf_counter()
        for number in range(1, options.steps):
            state, metrics = step(state, parallel.shard(data[number]), key)
        jax.block_until_ready((state, metrics))
        return (time.perf_counter() - began) / (options.steps - 1)

    def run(folder: Path, **events: Any) -> None:
        result = training.fit(task, data, None, config, folder, parallel=parallel, **events)
        assert result.steps == options.steps

    def fitted() -> float:
        # from the first step, which compiles, to the last: the checkpoints between them count
        return seconds_between(1, options.steps, run) / (options.steps - 1)

    return _harness.in_turns({"first": bare, "second": fitted}, options.repeats)


def questions() -> tuple[gdata.Encoded, int]:
    """Texts of the size of TREC (3 to 37 words, 10 on average), and how many words they know."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(5000)]
    lengths = np.clip(3 + rng.gamma(3.0, 2.4, size=4907), 3, 37).astype(int)
    texts = [tuple(words[i] for i in rng.integers(0, len(words), size=n)) for n in lengths]
    examples = [
        {"tokens": text, "label": int(rng.integers(6)), "example_id": i}
        for i, text in enumerate(texts)
    ]
    source = gdata.Source(examples, gdata.SourceInfo("timing", "train", tuple("abcdef")))
    vocabulary = gdata.Vocabulary.build([source])
    return gdata.encode(source, vocabulary), len(vocabulary)


def lanes(options: Options, parallel: Parallel) -> Pair:
    """Seconds of a stretch of training: one seed (on all devices, or on one), and all lanes."""
    encoded, words = questions()
    task = GANetTask(GANet(GANetConfig(), vocab_size=words, num_classes=6))

    def batches(seed: int) -> gdata.Batches:
        return gdata.Batches(encoded, batch_size=64, seed=seed)

    def stretch(seeds: int, parallel: Parallel) -> float:
        config = training.TrainConfig(
            num_steps=2 * options.lane_steps,
            log_every=10**6,
            checkpoint_every=10**6,
            seeds=seeds,
            parallel=parallel,
            progress=False,
        )

        def run(folder: Path, **events: Any) -> None:
            if seeds > 1:
                training.fit_lanes(task, batches, None, config, folder, **events)
            else:
                training.fit(task, batches(0), None, config, folder, **events)

        # the second half: every shape is compiled by then
        return seconds_between(options.lane_steps, 2 * options.lane_steps, run)

    calls = {
        "first": lambda: stretch(1, parallel),
        "second": lambda: stretch(options.seeds, "sharding"),
    }
    return _harness.in_turns(calls, options.repeats)


COMPARISONS: dict[str, tuple[str, Callable[[Options], Pair]]] = {
    "overhead": ("a bare jit loop, fit (per step)", overhead),
    "lanes": (
        "one seed on all devices, {seeds} seeds (per stretch)",
        lambda options: lanes(options, "sharding"),
    ),
    "lanes, one device": (
        "one seed on one device, {seeds} seeds on all (per stretch)",
        lambda options: lanes(options, "single"),
    ),
}


def main(options: Options) -> None:
    """Times and prints."""
    at_least_1(options, "steps", "checkpoint_every", "lane_steps", "seeds", "repeats")
    _harness.use_devices(usable_cores())
    times, lines = {}, []
    for name, (title, measure) in COMPARISONS.items():
        if options.what not in ("all", name.split(",")[0]):
            continue
        taken = measure(options)
        times[name] = {f"{side}_s": seconds for side, seconds in taken.items()}
        ratios = [b / a for a, b in zip(*taken.values(), strict=True)]
        medians = [f"{1e3 * statistics.median(seconds):.1f}" for seconds in taken.values()]
        shown = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        lines.append([title.format(seeds=options.seeds), *medians, shown])
    heads = ("comparison", "first, ms", "second, ms", "second / first, median (range)")
    where = f"{jax.devices()[0].device_kind}, {jax.local_device_count()} devices"
    _harness.render(where, heads, lines)
    _harness.write_figures(options.json, times)


if __name__ == "__main__":
    _harness.command(main, Options)
