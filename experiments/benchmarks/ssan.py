"""The command `python -m experiments.benchmarks.ssan`, for a layer of selective self-attention.

It compares the time and the memory of the layer with standard attention. All layers have the same
inputs; a ratio is the median over the turns. Memory is the bytes that the compiled program
allocates in addition to arguments and results, at a length that is compiled and not run.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.benchmarks import _harness
from experiments.core.config import at_least_1
from experiments.core.kinds import Json, Records
from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.terminal import new_console

COMMAND = "python -m experiments.benchmarks.ssan --docs"
LIMIT = 1.5
"""The largest time of "st", as a multiple of Flax's attention."""
BASE = "standard"
LAYERS: dict[str, tuple[str, Json]] = {
    BASE: ("standard attention (selector none)", {"selector": "none"}),
    "st": ("selective, st", {"selector": "st_gumbel"}),
    "shared": ("selective, st, one selection for all heads", {"share_heads": True}),
    "st_block": ("selective, st, 256 queries at a time", {"selector": "st_gumbel", "block": 256}),
    "block": ("standard attention, 256 queries at a time", {"selector": "none", "block": 256}),
}
MEMORY = (BASE, "st", "st_block", "block")
KINDS = ("training", "inference")
FLAX = "flax MultiHeadDotProductAttention"
ROWS, HEADS, TOKENS = 16, 8, 256
"""The rows B and heads M of a layer, and the tokens N of each row, all of them real."""
WIDTHS = (128, 256, 512)
"""The widths d. The memory is that of the last."""
LONG = 2048
"""The number of tokens N of the row whose memory is computed."""
Call = Callable[..., Any]
Name = Literal["st", "shared"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Times selective self-attention against standard attention, in training and inference."""

    layers: tuple[Name, ...] = ("st", "shared")
    """The layers to time, in addition to standard attention and the attention of flax."""
    repeats: int = 11
    clock: Literal["wall", "process"] = "wall"
    """The clock: wall time, or processor time of all threads, which depends less on the load of the
    machine."""
    docs: Path | None = None
    """A Markdown file in which the section with the tables is replaced."""


def our_layer(name: str, *, train: bool) -> tuple[nn.Module, Call]:
    """Returns our layer, and a function of (parameters, inputs, mask, key) that runs it."""
    layer = gnn.SelectiveSelfAttention(HEADS, **LAYERS[name][1])

    def call(v: Any, x: jax.Array, mask: jax.Array | None, key: jax.Array) -> jax.Array:
        rngs = {"gate": key} if train else {}
        output: Any = layer.apply(v, x, mask, deterministic=not train, rngs=rngs)
        return output[0]

    return layer, call


def flax_layer() -> tuple[nn.Module, Call]:
    """Returns Flax's multi-head attention, which has no selector, and its function."""
    # Flax's layer has no gates, so that its function ignores the key of the draws.
    layer = nn.MultiHeadDotProductAttention(HEADS)
    return layer, lambda v, x, mask, key: layer.apply(v, x, mask=nn.make_attention_mask(mask, mask))


def loss_of(call: Call) -> Call:
    """Returns a function that computes the sum of the squares of an output."""
    return lambda *arguments: jnp.sum(call(*arguments) ** 2)


def programs(
    layers: Sequence[str], width: int, *, train: bool, rows: int = ROWS
) -> dict[str, Callable[[], object]]:
    """Compiles the layers, standard attention and that of Flax, in training with the gradients of
    parameters and inputs. Returns for each a function without arguments that runs it."""
    inputs = jax.random.normal(jax.random.key(0), (rows, TOKENS, width))
    mask = F.length_mask(jnp.full(rows, TOKENS), TOKENS)
    key = jax.random.key(0)

    def program(layer: nn.Module, call: Call) -> Callable[[], object]:
        variables = jax.jit(lambda: layer.init(jax.random.key(1), inputs))()
        compiled = jax.jit(jax.grad(loss_of(call), argnums=(0, 1)) if train else call)
        return lambda: compiled(variables, inputs, mask, key)

    ours = {name: our_layer(name, train=train) for name in (BASE, *layers)}
    return {name: program(*layer) for name, layer in {"flax": flax_layer(), **ours}.items()}


def measure(options: Options, *, train: bool) -> Records:
    """Measures all layers of a width in turns. Returns a row for each width and layer: the figures
    of `_harness.measure`, with ratios to standard attention, and the ratio to flax."""
    rows: Records = []
    for width in WIDTHS:
        calls = programs(options.layers, width, train=train)
        measured = _harness.measure(calls, options.repeats, BASE, _harness.CLOCKS[options.clock])
        times_of = {name: row["all_ms"] for name, row in measured.items()}
        rows += [
            {
                "width": width,
                "layer": name,
                **row,
                "to_flax": _harness.ratio(times_of, name, "flax"),
            }
            for name, row in measured.items()
        ]
    return rows


def memory() -> Records:
    """Computes the MiB that the programs allocate for a long row, in training and inference.
    Returns a row for each layer, with the same memory as a number of float32 arrays [B, M, N, N].
    """
    inputs = jax.ShapeDtypeStruct((1, LONG, WIDTHS[-1]), jnp.float32)
    # Bytes of a float32 array [B, M, N, N], the unit in which the memory is compared.
    pairs = HEADS * LONG**2 * 4
    rows = []
    for name in MEMORY:
        row: Json = {"layer": name}
        for kind, train in zip(KINDS, (True, False), strict=True):
            layer, call = our_layer(name, train=train)
            # Shapes suffice to compile, so the long row needs no memory here.
            variables = jax.eval_shape(layer.init, jax.random.key(0), inputs)
            loss = loss_of(call)
            program = jax.jit(jax.grad(loss, argnums=(0, 1)) if train else loss)
            lowered = program.lower(variables, inputs, None, jax.random.key(0))
            size = _harness.memory_of(lowered.compile(), "temp")
            row |= {f"{kind}_mib": size / 2**20, f"{kind}_arrays": size / pairs}
        rows.append(row)
    return rows


def title_of(name: str) -> str:
    """Returns the name of a layer in tables."""
    return FLAX if name == "flax" else LAYERS[name][0]


def time_table(rows: Records) -> str:
    """Returns the table of times and ratios; the limit is for "st" against Flax's attention."""
    cells = [
        [
            title_of(row["layer"]),
            f"{row['width']}",
            f"{row['ms']:.1f}",
            f"{row['ratio']:.2f}",
            f"{row['to_flax']:.2f}",
            f"{LIMIT}" if row["layer"] == "st" else "-",
        ]
        for row in rows
    ]
    heads = ("layer", "d", "ms", "/ standard", "/ flax", "limit")
    return "\n".join(_harness.markdown_table(heads, cells))


def memory_table(rows: Records) -> str:
    """Returns the table of memory, in MiB and as a number of float32 arrays [B, M, N, N]."""
    cells = [
        [title_of(row["layer"])]
        + [f"{row[f'{kind}_mib']:.0f} ({row[f'{kind}_arrays']:.1f})" for kind in KINDS]
        for row in rows
    ]
    heads = ("layer", "training, MiB", "inference, MiB")
    return "\n".join(_harness.markdown_table(heads, cells))


def docs_section(options: Options, figures: Json) -> str:
    """Returns the tables and a description of the measurement, in Markdown."""
    machine = figures["machine"]
    clock = "time on the wall" if options.clock == "wall" else "time of the processor"
    parts = [
        "Written by `python -m experiments.benchmarks.ssan --clock "
        f"{options.clock} --repeats {options.repeats} --layers {' '.join(options.layers)} "
        "--docs experiments/results/benchmarks/selective_attention.md`.",
        f"One layer, B {ROWS}, M {HEADS}, N {TOKENS}, float32, {clock}, "
        f"medians of {options.repeats} turns in one process; " + _harness.about(machine),
        "A selector adds two projections to four and one product over pairs to two: 1.5 times the "
        "multiplications of standard attention.",
        "## Training: the layer and the gradients of parameters and inputs",
        time_table(figures["training"]),
        "## Inference",
        time_table(figures["inference"]),
        f"## Memory of one row of {LONG:,} tokens, d {WIDTHS[-1]}",
        "What the compiled program allots beside arguments and results; in brackets, as how many "
        "float32 arrays [B, M, N, N].",
        memory_table(figures["memory"]),
        "`block` computes weights for so many queries at a time, and again for the gradient: "
        "nothing over pairs is stored. `remat` leaves the same to the compiler all at once; that "
        "of a CPU merges the two computations, and nothing is saved.",
    ]
    return "\n\n".join(parts)


def main(options: Options) -> Json:
    """Measures, prints and returns the figures."""
    at_least_1(options, "repeats")
    figures: Json = {
        "training": measure(options, train=True),
        "inference": measure(options, train=False),
        "memory": memory(),
        "machine": _harness.machine(),
    }
    text = docs_section(options, figures)
    new_console().print(text)
    if options.docs is not None:
        _harness.replace_section(options.docs, COMMAND, text)
    settings = dataclasses.asdict(options) | {"json": None, "docs": None}
    _harness.write_figures(options.json, {"options": settings, **figures})
    return figures


if __name__ == "__main__":
    _harness.command(main, Options)
