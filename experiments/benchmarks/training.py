"""What the training loop costs: `python -m experiments.benchmarks.training`.

overhead: `fit` with asynchronous checkpoints, log and evaluation off against a bare loop over the
same compiled step, at about 20 ms a step. lanes: one program that trains S seeds against one that
trains a single seed, on GA-Net at the size of TREC. Both sides take turns in one process.
"""

import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro
from rich.table import Table

from gatedjax import data as gdata
from gatedjax._terminal import new_console
from gatedjax.models import GANet, GANetConfig, GANetTask
from gatedjax.training import (
    OptimizerConfig,
    Ratio,
    TrainConfig,
    fit,
    fit_lanes,
    init_state,
    make_optimizer,
    make_parallel,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
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
    """Turns of each side."""
    json: Path | None = None
    """Also write the times to this file."""


class Products:
    """A task of matrix products; its step takes about 20 ms on one core."""

    def __init__(self, width: int = 512, rows: int = 256, depth: int = 8) -> None:
        self.width, self.rows, self.depth = width, rows, depth

    def init(self, key: jax.Array, batch: Any) -> Any:
        """Returns `depth` square matrices."""
        del batch
        keys = jax.random.split(key, self.depth)
        return [jax.random.normal(k, (self.width, self.width)) / self.width**0.5 for k in keys]

    def loss(self, params: Any, batch: Any, rngs: Any) -> Any:
        """Mean square of a deep product."""
        del rngs
        x = batch["x"]
        for matrix in params:
            x = jax.numpy.tanh(x @ matrix)
        each = (x**2).mean(-1)
        return (each * batch["weight"]).sum(), {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params: Any, batch: Any) -> Any:
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


def overhead(options: Options) -> tuple[list[float], list[float]]:
    """Seconds per step of the bare loop and of `fit`, turn by turn."""
    task = Products()
    data = Rows(task)
    parallel = make_parallel("single")
    config = TrainConfig(
        num_steps=options.steps,
        log_every=50,
        checkpoint_every=options.checkpoint_every,
        progress=False,
        optimizer=OptimizerConfig(learning_rate=1e-4),
    )
    tx = make_optimizer(config.optimizer, config.num_steps)
    step = parallel.train_step(task, tx)
    key = jax.random.key(0)
    start = jax.device_get(init_state(task, tx, key, data[0]))

    def bare() -> float:
        state = parallel.replicate(start)
        state, metrics = step(state, parallel.shard(data[0]), key)
        jax.block_until_ready(metrics)
        began = time.perf_counter()
        for number in range(1, options.steps):
            state, metrics = step(state, parallel.shard(data[number]), key)
        jax.block_until_ready((state, metrics))
        return (time.perf_counter() - began) / (options.steps - 1)

    def fitted() -> float:
        times = {}

        def note(name: str, number: int) -> None:
            if name == "step":
                times[number] = time.perf_counter()

        with tempfile.TemporaryDirectory() as folder:
            result = fit(task, data, None, config, Path(folder), on_event=note, parallel=parallel)
            assert result.steps == options.steps
        # from the first step, which compiles, to the last: the checkpoints between them count
        return (times[options.steps] - times[1]) / (options.steps - 1)

    return _turns(options.repeats, bare, fitted)


def lanes(
    options: Options, parallel: Literal["sharding", "single"]
) -> tuple[list[float], list[float]]:
    """Seconds of a stretch of training: one seed (on all devices, or on one), and all lanes."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(5000)]
    # TREC: 3 to 37 words, 10 on average
    lengths = np.clip(3 + rng.gamma(3.0, 2.4, size=4907), 3, 37).astype(int)
    texts = [tuple(words[i] for i in rng.integers(0, len(words), size=n)) for n in lengths]
    examples = [
        {"tokens": text, "label": int(rng.integers(6)), "example_id": i}
        for i, text in enumerate(texts)
    ]
    source = gdata.Source(examples, gdata.SourceInfo("timing", "train", tuple("abcdef")))
    vocabulary = gdata.Vocabulary.build([source])
    encoded = gdata.encode(source, vocabulary)
    model = GANet(GANetConfig(), vocab_size=len(vocabulary), num_classes=6)
    task = GANetTask(model)

    def run(seeds: int, parallel: Literal["sharding", "single"]) -> Callable[[], float]:
        def once() -> float:
            times = {}

            def note(name: str, number: int) -> None:
                if name == "step":
                    times[number] = time.perf_counter()

            config = TrainConfig(
                num_steps=2 * options.lane_steps,
                log_every=10**6,
                checkpoint_every=10**6,
                seeds=seeds,
                parallel=parallel,
                progress=False,
            )

            def make(seed: int) -> gdata.Batches:
                return gdata.Batches(encoded, batch_size=64, seed=seed)

            with tempfile.TemporaryDirectory() as folder:
                if seeds > 1:
                    fit_lanes(task, make, None, config, folder, on_event=note)
                else:
                    fit(task, make(0), None, config, folder, on_event=note)
            # the second half: every shape is compiled by then
            return times[2 * options.lane_steps] - times[options.lane_steps]

        return once

    return _turns(options.repeats, run(1, parallel), run(options.seeds, "sharding"))


def _turns(
    count: int, one: Callable[[], float], other: Callable[[], float]
) -> tuple[list[float], list[float]]:
    one(), other()
    pairs = [(one(), other()) for _ in range(count)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def main(args: list[str] | None = None) -> None:
    """Times and prints."""
    options = tyro.cli(Options, args=args, prog="python -m experiments.benchmarks.training")
    for name in ("steps", "checkpoint_every", "lane_steps", "seeds", "repeats"):
        if getattr(options, name) < 1:
            sys.exit(f"error: {name} must be at least 1, got {getattr(options, name)}")
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    table = Table(title=f"{jax.devices()[0].device_kind}, {jax.local_device_count()} devices")
    for column in ("comparison", "first, ms", "second, ms", "second / first, median (range)"):
        table.add_column(column, justify="left" if column == "comparison" else "right")
    times: dict[str, Any] = {}
    wanted: dict[str, Any] = {
        "overhead": ("a bare jit loop, fit (per step)", overhead),
        "lanes": (
            f"one seed on all devices, {options.seeds} seeds (per stretch)",
            lambda options: lanes(options, "sharding"),
        ),
        "lanes, one device": (
            f"one seed on one device, {options.seeds} seeds on all (per stretch)",
            lambda options: lanes(options, "single"),
        ),
    }
    for name, (title, measure) in wanted.items():
        if options.what not in ("all", name.split(",")[0]):
            continue
        one, other = measure(options)
        times[name] = {"first_s": one, "second_s": other}
        ratios = [b / a for a, b in zip(one, other, strict=True)]
        table.add_row(
            title,
            f"{1e3 * statistics.median(one):.1f}",
            f"{1e3 * statistics.median(other):.1f}",
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
        )
    new_console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
