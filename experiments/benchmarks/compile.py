"""The command `python -m experiments.benchmarks.compile`, for the compilation of training steps.

It measures the time to trace and to compile a step, and its memory. Recurrent classifiers are
compared with the same network on Flax's `nn.RNN`. A step is the loss, its gradients, Adam and the
check for numbers that are not finite, as `fit` compiles it. In each turn all contestants of a size
are built and compiled again, without JAX's cache. Figures are medians; a ratio is the median over
the turns of Flax / ours. Memory is the bytes that the compiled program allocates in addition to
arguments and results. Networks that can compute activations again for the gradient are also
compiled with these options.
"""

import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import numpy as np
import optax

from experiments.benchmarks import _harness, ga_reader
from experiments.core.config import at_least_1
from experiments.core.kinds import Array, Batch, Json, Records
from gatedjax import models
from gatedjax._utils.options import Unset
from gatedjax.models._classification import ClassifierTask
from gatedjax.training import init_state, make_train_step

Model = Literal["lstm", "gru", "rau", "ga_net", "agt", "ga_reader", "ssan"]
VOCABULARY, CLASSES, WIDTH, BATCH = 100, 3, 32, 8
AGAIN: dict[str, dict[str, Json]] = {
    "ssan": {"remat": {"memory": {"remat": True}}, "block": {"memory": {"block": 32}}},
}
"""The options that compute activations again for the gradient, by network and name of the
options."""
PARTS = ("trace_s", "compile_s", "temp_mib")
COMMAND = "python -m experiments.benchmarks.compile --docs"
FLAX = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Times the compilation of training steps.

    Depths are compiled at the first length, lengths at the first depth. Depth is the number of
    recurrent layers of lstm, gru, rau and ga_net (which reads in both directions), of layers of agt
    and ssan, and of hops of the GA Reader.
    """

    models: tuple[Model, ...] = get_args(Model)
    """The networks to compile."""
    layers: tuple[int, ...] = (1, 2, 4)
    """The depths."""
    words: tuple[int, ...] = (50, 200, 800)
    """The padded lengths T."""
    repeats: int = 3
    clock: Literal["wall", "process"] = "wall"
    """The clock: wall time, or processor time of all threads, which depends less on the load of the
    machine."""
    docs: Unset[Path] = None
    """A Markdown file in which the section with the table is replaced."""


class FlaxClassifier(nn.Module):
    """A classifier with word vectors, recurrent layers of Flax, and a dense layer on the last
    state."""

    cell: str
    layers: int

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> ga_reader.PeerOutput:
        """Runs the network."""
        del train
        xs: Array = nn.Embed(VOCABULARY, WIDTH)(batch["tokens"])
        for _ in range(self.layers):
            layer = nn.RNN(FLAX[self.cell](WIDTH), return_carry=True)
            carry, xs = layer(xs, seq_lengths=batch["lengths"])
        state = carry[1] if self.cell == "lstm" else carry
        return ga_reader.PeerOutput(nn.Dense(CLASSES)(state))


def task_of(model: Model, layers: int, **options: Any) -> Any:
    """Returns a small network with a given depth; its widths hardly matter for compilation."""
    sizes: Json = {"num_layers": layers, "hidden": WIDTH, **options}
    with_words = {**sizes, "embedding_dim": WIDTH}
    if model == "ga_net":
        net = models.GANetConfig(aux_hidden=WIDTH, **with_words)
        return models.GANetTask(models.GANet(net, VOCABULARY, CLASSES))
    if model == "agt":
        return models.AGTTask(models.AGT(models.AGTConfig(**with_words), VOCABULARY, CLASSES))
    if model == "ga_reader":
        return ga_reader.make_task(ga_reader.Sizes(hops=layers, hidden=WIDTH, embedding_dim=WIDTH))
    if model == "ssan":
        ssan = models.SSANProbeConfig(filter_size=2 * WIDTH, num_heads=2, **sizes)
        return models.SSANProbeTask(models.SSANProbe(ssan, VOCABULARY, CLASSES))
    rau = models.RAUConfig(cell=model, **with_words)
    return models.RAUTask(models.RAUClassifier(rau, CLASSES, VOCABULARY))


def make_batch(model: Model, words: int) -> Batch:
    """Draws texts; the first has the full length."""
    if model == "ga_reader":
        return ga_reader.make_batch(ga_reader.Sizes(batch=BATCH, document=words, query=words))
    rng = np.random.default_rng(0)
    lengths = _harness.draw_lengths(rng, BATCH, words)
    real = np.arange(words)[None, :] < lengths[:, None]
    return {
        "tokens": (rng.integers(2, VOCABULARY, real.shape) * real).astype(np.int32),
        "lengths": lengths,
        "label": np.zeros(BATCH, np.int32),
        "weight": np.ones(BATCH, np.float32),
        "example_id": np.arange(BATCH, dtype=np.int32),
    }


def figures_of(task: Any, batch: Batch, clock: Callable[[], float]) -> dict[str, float]:
    """Measures the compilation of a step. Returns the seconds to trace and lower ("trace_s") and to
    compile ("compile_s"), and the memory in MiB."""
    tx, key = optax.adam(1e-3), jax.random.key(0)
    # Shapes suffice to compile, so no parameters are initialised.
    state = jax.eval_shape(lambda key: init_state(task, tx, key, batch), key)
    began = clock()
    lowered = jax.jit(make_train_step(task, tx), donate_argnums=0).lower(state, batch, key)
    traced = clock()
    program = lowered.compile()
    return {
        "trace_s": traced - began,
        "compile_s": clock() - traced,
        "temp_mib": _harness.memory_of(program, "temp") / 2**20,
    }


def measure(model: Model, layers: int, words: int, options: Options) -> Json:
    """Measures a network at a size, with its options and with Flax as far as they exist. Returns
    the median figures of each contestant; the ratio if there is a network of Flax."""
    clock = _harness.CLOCKS[options.clock]
    batch = make_batch(model, words)
    tasks = {"ours": task_of(model, layers)}
    for name, again in AGAIN.get(model, {}).items():
        tasks[name] = task_of(model, layers, **again)
    if model in FLAX:
        peer: Any = FlaxClassifier(model, layers)
        tasks["flax"] = ClassifierTask(peer)

    def call(task: Any) -> Callable[[], dict[str, float]]:
        return lambda: figures_of(task, batch, clock)

    # There is no turn to warm up because compilation itself is measured.
    turns = [{name: call(task)() for name, task in tasks.items()} for _ in range(options.repeats)]
    row: Json = {"model": model, "layers": layers, "words": words}
    for name in tasks:
        for part in PARTS:
            row[f"{name}_{part}"] = statistics.median(turn[name][part] for turn in turns)
    if "flax" in tasks:
        totals = {
            name: [turn[name]["trace_s"] + turn[name]["compile_s"] for turn in turns]
            for name in tasks
        }
        row["ratio"] = _harness.ratio(totals, "flax", "ours")
    return row


HEADS = (
    *("model", "layers", "T", "trace s", "compile s", "flax: trace s", "compile s", "flax / ours"),
    *("MiB", "remat", "block", "flax MiB"),
)


def cells_of(row: Json) -> list[str]:
    """Returns the cells of a row."""
    names = ("ours_trace_s", "ours_compile_s", "flax_trace_s", "flax_compile_s", "ratio")
    sizes = ("ours_temp_mib", "remat_temp_mib", "block_temp_mib", "flax_temp_mib")
    return [
        *(row["model"], str(row["layers"]), str(row["words"])),
        *(f"{row[name]:.2f}" if name in row else "" for name in names),
        *(f"{row[name]:.1f}" if name in row else "" for name in sizes),
    ]


def intro(options: Options) -> str:
    """Returns the description of the measurement, in Markdown."""
    arguments = [
        *("--models", *options.models, "--layers", *map(str, options.layers)),
        *("--words", *map(str, options.words), "--repeats", str(options.repeats)),
        *("--clock", options.clock),
    ]
    clock = "on the wall" if options.clock == "wall" else "of the processor"
    return (
        f"Written by `{COMMAND[:-7]} {' '.join(arguments)} "
        "--docs experiments/results/benchmarks/compile.md`.\n\n"
        f"Loss, gradients and Adam, batch {BATCH}, width {WIDTH}, seconds {clock}, medians of "
        f"{options.repeats}; MiB is what the program allots beside arguments and results."
    )


def sizes(options: Options) -> list[tuple[int, int]]:
    """Returns (layers, words): all depths at the first length, all lengths at the first depth."""
    depths = [(layers, options.words[0]) for layers in options.layers]
    return depths + [(options.layers[0], words) for words in options.words[1:]]


def main(options: Options) -> Records:
    """Measures, prints and returns a row for each network and size."""
    at_least_1(options, "repeats")
    for name in ("layers", "words"):
        if min(getattr(options, name), default=0) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(options, name)}")
    with _harness.no_compilation_cache():
        # The first compilation of a process includes costs that later compilations do not have.
        measure(options.models[0], 1, 4, dataclasses.replace(options, repeats=1))
        rows = [
            measure(model, layers, words, options)
            for model in options.models
            for layers, words in sizes(options)
        ]
    lines = list(map(cells_of, rows))
    title = "a training step, compiled"
    _harness.publish(options, rows, title, HEADS, lines, command=COMMAND, intro=intro(options))
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
