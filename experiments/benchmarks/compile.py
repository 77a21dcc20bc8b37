"""Times how long a training step takes to trace and to compile, by depth and by length.

`python -m experiments.benchmarks.compile`. Recurrent classifiers stand beside the same network of
Flax's `nn.RNN`. A step is the loss, its gradients, Adam and the look for numbers that are not
finite, as `fit` compiles it. Every turn makes and compiles all contestants of a size anew, without
JAX's cache; the figures are medians, a ratio is the median over the turns of Flax / ours.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import numpy as np
import optax
from flax import struct
from rich.table import Table

from experiments.benchmarks import _harness, ga_reader
from experiments.core.config import at_least_1
from experiments.core.kinds import Array, Batch, Json, Records
from gatedjax import models
from gatedjax._terminal import new_console
from gatedjax.models._classification import ClassifierTask
from gatedjax.training import init_state, make_train_step

Model = Literal["lstm", "gru", "rau", "ga_net", "agt", "ga_reader", "ssan"]
VOCABULARY, CLASSES, WIDTH, BATCH = 100, 3, 32, 8
FLAX = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Time how long training steps take to compile.

    Depths are compiled at the first length, lengths at the first depth. Depth is the recurrent
    layers of lstm, gru, rau and ga_net (whose layers read in both directions), the layers of agt
    and ssan, and the hops of the GA Reader.
    """

    models: tuple[Model, ...] = get_args(Model)
    """Which networks."""
    layers: tuple[int, ...] = (1, 2, 4)
    """Depths."""
    words: tuple[int, ...] = (50, 200, 800)
    """Padded lengths T."""
    repeats: int = 3
    """Turns per contestant."""
    json: Path | None = None
    """Also write the figures to this file."""


@struct.dataclass
class PeerOutput:
    """Class scores [B, C]."""

    logits: Any


class FlaxClassifier(nn.Module):
    """Word vectors, recurrent layers of Flax, and a dense layer on the last state."""

    cell: str
    layers: int

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> PeerOutput:
        """Runs the network."""
        del train
        xs: Array = nn.Embed(VOCABULARY, WIDTH)(batch["tokens"])
        for _ in range(self.layers):
            layer = nn.RNN(FLAX[self.cell](WIDTH), return_carry=True)
            carry, xs = layer(xs, seq_lengths=batch["lengths"])
        state = carry[1] if self.cell == "lstm" else carry
        return PeerOutput(nn.Dense(CLASSES)(state))


def task_of(model: Model, layers: int) -> Any:
    """A small network of so many layers; widths have next to no part in what is compiled."""
    if model == "ga_net":
        net = models.GANetConfig(
            num_layers=layers, embedding_dim=WIDTH, hidden=WIDTH, aux_hidden=WIDTH
        )
        return models.GANetTask(models.GANet(net, VOCABULARY, CLASSES))
    if model == "agt":
        agt = models.AGTConfig(num_layers=layers, embedding_dim=WIDTH, hidden=WIDTH)
        return models.AGTTask(models.AGT(agt, VOCABULARY, CLASSES))
    if model == "ga_reader":
        reader = models.GAReaderConfig(
            hops=layers, embedding_dim=WIDTH, hidden=WIDTH, char_dim=0, dropout=0.0
        )
        return models.GAReaderTask(models.GAReader(reader, ga_reader.VOCABULARY))
    if model == "ssan":
        ssan = models.SSANProbeConfig(
            num_layers=layers, hidden=WIDTH, filter_size=2 * WIDTH, num_heads=2, select_layers=(1,)
        )
        return models.SSANProbeTask(models.SSANProbe(ssan, VOCABULARY, CLASSES))
    rau = models.RAUConfig(cell=model, num_layers=layers, embedding_dim=WIDTH, hidden=WIDTH)
    return models.RAUTask(models.RAUClassifier(rau, CLASSES, VOCABULARY))


def make_batch(model: Model, words: int) -> Batch:
    """Random texts, one of them of full length."""
    if model == "ga_reader":
        small = ga_reader.Options(batch=BATCH, document=words, query=words)
        return ga_reader.make_batch(small)
    rng = np.random.default_rng(0)
    lengths = rng.integers(max(1, 3 * words // 4), words + 1, BATCH).astype(np.int32)
    lengths[0] = words
    real = np.arange(words)[None, :] < lengths[:, None]
    return {
        "tokens": (rng.integers(2, VOCABULARY, real.shape) * real).astype(np.int32),
        "lengths": lengths,
        "label": np.zeros(BATCH, np.int32),
        "weight": np.ones(BATCH, np.float32),
        "example_id": np.arange(BATCH, dtype=np.int32),
    }


def seconds_of(task: Any, batch: Batch) -> dict[str, float]:
    """Seconds in which a step is traced and lowered, and in which XLA compiles it."""
    tx, key = optax.adam(1e-3), jax.random.key(0)
    state = jax.eval_shape(lambda key: init_state(task, tx, key, batch), key)
    began = time.perf_counter()
    lowered = jax.jit(make_train_step(task, tx), donate_argnums=0).lower(state, batch, key)
    traced = time.perf_counter() - began
    _, compiled = _harness.compiled(lowered)
    return {"trace_s": traced, "compile_s": compiled}


def measure(model: Model, layers: int, words: int, repeats: int) -> Json:
    """Times one network at one size, and that of Flax, where there is one."""
    batch = make_batch(model, words)
    tasks = {"ours": task_of(model, layers)}
    if model in FLAX:
        peer: Any = FlaxClassifier(model, layers)
        tasks["flax"] = ClassifierTask(peer)

    def call(task: Any) -> Callable[[], dict[str, float]]:
        return lambda: seconds_of(task, batch)

    taken = _harness.in_turns({name: call(task) for name, task in tasks.items()}, repeats)
    row: Json = {"model": model, "layers": layers, "words": words}
    for name, turns in taken.items():
        for part in ("trace_s", "compile_s"):
            row[f"{name}_{part}"] = statistics.median(turn[part] for turn in turns)
    if "flax" in taken:
        totals = {name: [sum(turn.values()) for turn in turns] for name, turns in taken.items()}
        row["ratio"] = _harness.ratio(totals, "flax", "ours")
    return row


def render(rows: Records) -> Table:
    """Returns the table."""
    peer = ("flax: trace s", "compile s", "flax / ours")
    heads = ("model", "layers", "T", "trace s", "compile s", *peer)
    lines = []
    for row in rows:
        names = ("ours_trace_s", "ours_compile_s", "flax_trace_s", "flax_compile_s", "ratio")
        figures = [f"{row[name]:.2f}" if name in row else "" for name in names]
        lines.append([row["model"], str(row["layers"]), str(row["words"]), *figures])
    return _harness.screen_table("a training step, compiled", heads, lines)


def sizes(options: Options) -> list[tuple[int, int]]:
    """(layers, words): every depth at the first length, every length at the first depth."""
    depths = [(layers, options.words[0]) for layers in options.layers]
    return depths + [(options.layers[0], words) for words in options.words[1:]]


def main(options: Options) -> Records:
    """Measures, prints and returns one row per network and size."""
    at_least_1(options, "repeats")
    for name in ("layers", "words"):
        if min(getattr(options, name), default=0) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(options, name)}")
    with _harness.no_compilation_cache():
        rows = [
            measure(model, layers, words, options.repeats)
            for model in options.models
            for layers, words in sizes(options)
        ]
    new_console().print(render(rows))
    _harness.write_figures(options.json, {"machine": _harness.machine(), "rows": rows})
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
