"""The command `python -m experiments.benchmarks.training`, for the costs of the training loop.

The comparison "overhead" measures `fit`, with asynchronous checkpoints and log and without
evaluation, against a bare loop over the same compiled step, at about 20 ms a step. The comparison
"lanes" measures a program that trains S seeds against a program that trains a single seed, on
GA-Net at the size of TREC. Both sides take turns in a single process.
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
"""The seconds of "first" and "second", turn by turn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Times the training loop against a bare loop, and several seeds against a single seed."""

    what: Literal["all", "overhead", "lanes"] = "all"
    """The comparison."""
    steps: int = 600
    """The number of steps in a turn of the overhead."""
    checkpoint_every: int = 200
    """The number of steps between checkpoints in the overhead (default: as in TrainConfig)."""
    lane_steps: int = 40
    """The number of steps in a turn of the lanes, after the same number to warm up."""
    seeds: int = 8
    """The number of lanes."""
    repeats: int = 5


class Products:
    """A task of matrix products; its step takes about 20 ms on a single core."""

    def __init__(self, width: int = 512, rows: int = 256, depth: int = 8) -> None:
        self.width, self.rows, self.depth = width, rows, depth

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """Returns `depth` square matrices."""
        del batch
        keys = jax.random.split(key, self.depth)
        return [jax.random.normal(k, (self.width, self.width)) / self.width**0.5 for k in keys]

    def loss(self, params: Params, batch: Batch, rngs: Any) -> Any:
        """Computes the mean square of a deep product."""
        del rngs
        x = batch["x"]
        for matrix in params:
            x = jax.numpy.tanh(x @ matrix)
        costs = (x**2).mean(-1)
        return {"loss": training.Ratio.of(costs, batch["weight"])}


class Rows:
    """Batches that have the same rows at each step and are copied each time, as in a data set."""

    def __init__(self, task: Products) -> None:
        self.x = np.random.default_rng(0).normal(size=(task.rows, task.width)).astype(np.float32)

    def __getitem__(self, step: int) -> dict[str, np.ndarray]:
        rows = len(self.x)
        ids = np.arange(rows, dtype=np.int32) + rows * step
        # A data set also builds new arrays for each batch, so the copy is part of the cost.
        return {"x": self.x.copy(), "example_id": ids, "weight": np.ones(rows, np.float32)}


def seconds_between(first: int, last: int, run: Callable[..., Any]) -> float:
    """Measures the seconds between the ends of two steps. `run` is a function of (folder, hook)
    that trains."""
    times = {}

    def note(event: str, number: int, *rest: Any) -> None:
        if event == "step":
            times[number] = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), hook=note)
    return times[last] - times[first]


def overhead(options: Options) -> Pair:
    """Measures the seconds per step of the bare loop and of `fit`."""
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
    step = jax.jit(training.make_train_step(task, tx), donate_argnums=0)
    key = jax.random.key(0)
    start = jax.device_get(training.init_state(task, tx, key, data[0]))

    def time_loop() -> float:
        state = jax.device_put(start)
        state, metrics = step(state, data[0], key)
        jax.block_until_ready(metrics)
        began = time.perf_counter()
        for number in range(1, options.steps):
            state, metrics = step(state, data[number], key)
        # JAX returns before a step is computed, so that the clock has to wait for the last result.
        jax.block_until_ready((state, metrics))
        return (time.perf_counter() - began) / (options.steps - 1)

    def run(folder: Path, **events: Any) -> None:
        result = training.fit(task, data, None, config, folder, parallel=parallel, **events)
        assert result.steps == options.steps

    def time_fit() -> float:
        # The first step is left out because it compiles; all checkpoints after it count.
        return seconds_between(1, options.steps, run) / (options.steps - 1)

    return _harness.in_turns({"first": time_loop, "second": time_fit}, options.repeats)


def questions() -> tuple[gdata.Encoded, int]:
    """Draws texts of the size of TREC (3 to 37 words, 10 on average). Returns the encoded texts and
    the size of their vocabulary."""
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
    """Measures the seconds of a stretch of training for a single seed and for all lanes. The single
    seed uses all devices with "sharding", and the first with "single"."""
    encoded, words = questions()
    task = GANetTask(GANet(GANetConfig(), vocab_size=words, num_classes=6))

    def batches(seed: int) -> gdata.Batches:
        return gdata.Batches(encoded, batch_size=64, seed=seed)

    def stretch(seeds: int, parallel: Parallel) -> float:
        config = training.TrainConfig(
            num_steps=2 * options.lane_steps,
            # Logs and checkpoints are left out, because `overhead` measures their cost.
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

        # Only the second half is measured, because all shapes are compiled by then.
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
    """Measures the comparisons and prints the table."""
    at_least_1(options, "steps", "checkpoint_every", "lane_steps", "seeds", "repeats")
    _harness.use_devices(usable_cores())
    times, lines = {}, []
    for name, (title, measure) in COMPARISONS.items():
        if options.what not in ("all", name.split(",")[0]):
            continue
        seconds_of = measure(options)
        times[name] = {f"{side}_s": seconds for side, seconds in seconds_of.items()}
        ratios = [b / a for a, b in zip(*seconds_of.values(), strict=True)]
        medians = [f"{1e3 * statistics.median(seconds):.1f}" for seconds in seconds_of.values()]
        ratio_text = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        lines.append([title.format(seeds=options.seeds), *medians, ratio_text])
    heads = ("comparison", "first, ms", "second, ms", "second / first, median (range)")
    where = f"{jax.devices()[0].device_kind}, {jax.local_device_count()} devices"
    _harness.render(where, heads, lines)
    _harness.write_figures(options.json, times)


if __name__ == "__main__":
    _harness.command(main, Options)
