"""Times a layer of selective self-attention against standard attention, and counts its memory.

`python -m experiments.benchmarks.ssan`. All layers have the same inputs; a ratio is the median over
the turns. Memory is what the compiled program allots beside arguments and results, at a length that
is never run.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from experiments.benchmarks import _harness
from experiments.core.config import at_least_1
from experiments.core.kinds import Json, Records
from gatedjax import analysis
from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._terminal import new_console

COMMAND = "python -m experiments.benchmarks.ssan --docs"
TRAINING_LIMIT, INFERENCE_LIMIT = 1.8, 1.5
BASE = "standard"
LAYERS: dict[str, tuple[str, Json]] = {
    BASE: ("standard attention (selector none)", {"selector": "none"}),
    "st": ("selective, st", {"selector": "st"}),
    "st_remat": ("selective, st, recomputed", {"selector": "st", "remat": True}),
    "soft": ("selective, soft", {"selector": "soft"}),
    "expect": ("selective, expect", {"selector": "expect"}),
    "shared": ("selective, st, one selection for all heads", {"share_heads": True}),
    "skip": ("selective, st, skip", {"selector": "st", "skip": True}),
    "st_block": ("selective, st, 256 queries at a time", {"selector": "st", "block": 256}),
    "block": ("standard attention, 256 queries at a time", {"selector": "none", "block": 256}),
}
MEMORY = (BASE, "st", "st_block", "skip", "block")
SKIPPING = (BASE, "st", "skip")
STRUCTURES = {
    "keys alone": 0.0,
    "keys, 0.1 % of the variance by pair": 0.001,
    "keys, 1 % of the variance by pair": 0.01,
    "every pair on its own": 1.0,
}
"""Of the logits of a selector, the share of the variance that is not the key's."""
SELECTED = 0.2
KINDS = ("training", "inference")
FLAX = "flax MultiHeadDotProductAttention"
Call = Callable[..., Any]
Name = Literal["st", "st_remat", "soft", "expect", "shared", "skip"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Time selective self-attention against standard attention, in training and inference."""

    batch: int = 16
    """Rows B."""
    heads: int = 8
    """Heads M."""
    size: int = 256
    """Tokens N of every row, all of them real."""
    width: int = 512
    """Width d."""
    layers: tuple[Name, ...] = ("st", "soft", "expect", "shared", "skip")
    """Which layers, beside standard attention and that of flax."""
    repeats: int = 11
    """Turns per layer."""
    clock: Literal["wall", "process"] = "wall"
    """Time on the wall, or of the processor in all threads, which a busy machine changes less."""
    memory_size: int = 2048
    """Tokens N for the memory of one row; 0 leaves it out."""
    skip_sizes: tuple[int, ...] = (256, 1024, 2048)
    """Tokens N of the rows whose attention skips keys, as many rows as make up the tokens of batch
    and size; empty leaves it out."""
    json: Path | None = None
    """Also write the figures to this file."""
    docs: Path | None = None
    """Also write a page with the tables to this file."""


def our_layer(name: str, heads: int, *, train: bool) -> tuple[nn.Module, Call]:
    """Our layer, and its output (parameters, inputs, mask, key)."""
    layer = gnn.SelectiveSelfAttention(heads, **LAYERS[name][1])

    def call(v: Any, x: jax.Array, mask: jax.Array | None, key: jax.Array) -> jax.Array:
        rngs = {"gate": key} if train else {}
        output: Any = layer.apply(v, x, mask, deterministic=not train, rngs=rngs)
        return output[0]

    return layer, call


def flax_layer(heads: int) -> tuple[nn.Module, Call]:
    """Flax's multi-head attention, which has no selector."""
    layer = nn.MultiHeadDotProductAttention(heads)
    return layer, lambda v, x, mask, key: layer.apply(v, x, mask=nn.make_attention_mask(mask, mask))


def loss_of(call: Call) -> Call:
    """The sum of the squares of an output."""
    return lambda *arguments: jnp.sum(call(*arguments) ** 2)


def programs(options: Options, *, train: bool) -> dict[str, Callable[[], object]]:
    """The compiled layers, with the gradient of all parameters in training."""
    shape = (options.batch, options.size, options.width)
    inputs = jax.random.normal(jax.random.key(0), shape)
    mask = F.length_mask(jnp.full(options.batch, options.size), options.size)
    key = jax.random.key(0)

    def program(layer: nn.Module, call: Call) -> Callable[[], object]:
        variables = jax.jit(lambda: layer.init(jax.random.key(1), inputs))()
        compiled = jax.jit(jax.grad(loss_of(call), argnums=(0, 1)) if train else call)
        return lambda: compiled(variables, inputs, mask, key)

    # skip changes nothing in training
    names = [BASE, *(name for name in options.layers if not (train and name == "skip"))]
    ours = {name: our_layer(name, options.heads, train=train) for name in names}
    layers = {"flax": flax_layer(options.heads), **ours}
    return {name: program(*layer) for name, layer in layers.items()}


def measure(options: Options, *, train: bool) -> Records:
    """Times all layers in turns: medians, and their ratios to standard attention and to flax's."""
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    taken = _harness.times_ms(programs(options, train=train), options.repeats, clock)
    return [
        {
            "layer": name,
            "ms": statistics.median(times),
            "to_standard": _harness.ratio(taken, name, BASE),
            "to_flax": _harness.ratio(taken, name, "flax"),
        }
        for name, times in taken.items()
    ]


def selecting(variables: Any, heads: int, by_pair: float) -> Any:
    """Parameters whose selector selects a share of the keys, by key or by pair.

    The first place of a head holds a margin, the second what depends on the key, the others what
    depends on the pair; inputs are standard normal.

    Args:
      variables: of a layer with a selector for every head.
      heads: M.
      by_pair: share of the variance of a logit that depends on the query.
    """
    shape = variables["params"]["selector_query"]["kernel"].shape
    width, depth = shape[0], shape[2]
    at = jnp.arange(depth)
    normal = jax.random.normal(jax.random.key(2), (2, *shape)) / width**0.5
    of_pairs = jnp.where(at > 1, normal[0], 0) * (by_pair / (depth - 2)) ** 0.5
    of_keys = jnp.where(at == 0, 0, normal[1])
    margin = statistics.NormalDist().inv_cdf(SELECTED)
    query_bias = jnp.where(at == 0, 1.0, jnp.where(at == 1, (1 - by_pair) ** 0.5, 0.0))
    biases = {"query": query_bias, "key": jnp.where(at == 0, margin, 0.0)}
    kernels = {"query": of_pairs, "key": of_keys}
    made = {
        f"selector_{side}": {
            "kernel": kernels[side],
            "bias": jnp.broadcast_to(biases[side], (heads, depth)),
        }
        for side in kernels
    }
    return {"params": {**variables["params"], **made}}


def skip_turns(
    options: Options, size: int, structures: Iterable[str]
) -> Iterator[tuple[str, dict[str, list[float]], Any]]:
    """Yields, by structure of the selection, the times of all turns and the `Selection` of a row.

    One program of a layer serves all structures.
    """
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    rows = max(options.batch * options.size // size, 1)
    inputs = jax.random.normal(jax.random.key(0), (rows, size, options.width))
    layer, _ = our_layer("st", options.heads, train=False)
    variables = jax.jit(layer.init)(jax.random.key(1), inputs)
    compiled = {name: jax.jit(our_layer(name, options.heads, train=False)[1]) for name in SKIPPING}
    mask, key = jnp.ones((rows, size), bool), jax.random.key(0)
    for structure in structures:
        weights = selecting(variables, options.heads, STRUCTURES[structure])
        calls: dict[str, Callable[[], object]] = {
            name: functools.partial(call, weights, inputs, mask, key)
            for name, call in compiled.items()
        }
        calls["no mask"] = functools.partial(compiled[BASE], weights, inputs, None, key)
        taken = _harness.times_ms(calls, options.repeats, clock)
        yield structure, taken, jax.jit(layer.apply)(weights, inputs[:1])[1]


def skipping(options: Options) -> Records:
    """Times inference by the structure of the selection, with one program for each length."""
    return [
        {
            "size": size,
            "structure": structure,
            "selected": float(jnp.mean(selection.rate)),
            "union": union_of(selection.gates),
            "ms": statistics.median(taken[BASE]),
            **{name: _harness.ratio(taken, name, BASE) for name in SKIPPING[1:]},
            "skip_to_no_mask": _harness.ratio(taken, "skip", "no mask"),
        }
        for size in options.skip_sizes
        for structure, taken, selection in skip_turns(options, size, STRUCTURES)
    ]


def union_of(gates: jax.Array) -> float:
    """Share of the keys that one of 128 queries selects, the mean over blocks and heads."""
    blocks = gates.reshape(*gates.shape[:2], -1, min(128, gates.shape[2]), gates.shape[3])
    return float(jnp.mean(jnp.any(blocks > 0, axis=3)))


def memory(options: Options) -> Records:
    """MiB that the programs allot for one long row, in training and inference."""
    shape = (1, options.memory_size, options.width)
    inputs = jax.ShapeDtypeStruct(shape, jnp.float32)
    pairs = options.heads * options.memory_size**2 * 4
    rows = []
    for name in MEMORY:
        row: Json = {"layer": name}
        for kind, train in zip(KINDS, (True, False), strict=True):
            layer, call = our_layer(name, options.heads, train=train)
            variables = jax.eval_shape(layer.init, jax.random.key(0), inputs)
            loss = loss_of(call)
            program = jax.jit(jax.grad(loss, argnums=(0, 1)) if train else loss)
            lowered = program.lower(variables, inputs, None, jax.random.key(0))
            size = _harness.memory_of(lowered.compile(), "temp") or 0
            row |= {f"{kind}_mib": size / 2**20, f"{kind}_arrays": size / pairs}
        rows.append(row)
    return rows


def title_of(name: str) -> str:
    """What tables call a layer."""
    return FLAX if name == "flax" else LAYERS[name][0]


def time_table(rows: Records, limit: float) -> str:
    """Times and ratios; the limit is for "st" against standard attention."""
    cells = [
        [
            title_of(row["layer"]),
            f"{row['ms']:.1f}",
            f"{row['to_standard']:.2f}",
            f"{row['to_flax']:.2f}",
            f"{limit}" if row["layer"] == "st" else "-",
        ]
        for row in rows
    ]
    return analysis.render_table(["layer", "ms", "/ standard", "/ flax", "limit"], cells)


def memory_table(rows: Records) -> str:
    """MiB, and as how many float32 arrays [B, M, N, N] that is."""
    cells = [
        [title_of(row["layer"])]
        + [f"{row[f'{one}_mib']:.0f} ({row[f'{one}_arrays']:.1f})" for one in KINDS]
        for row in rows
    ]
    return analysis.render_table(["layer", "training, MiB", "inference, MiB"], cells)


def skip_table(rows: Records) -> str:
    """Ratios to standard attention, by length and by structure of the selection."""
    cells = [
        [
            f"{row['size']:,}",
            row["structure"],
            f"{100 * row['selected']:.0f} %",
            f"{100 * row['union']:.0f} %",
            f"{row['ms']:.0f}",
            *(f"{row[name]:.2f}" for name in (*SKIPPING[1:], "skip_to_no_mask")),
        ]
        for row in rows
    ]
    titles = ["tokens", "selection", "selected", "by one of 128", "standard, ms"]
    return analysis.render_table([*titles, "selective", "skip", "skip / no mask"], cells)


def docs_section(options: Options, figures: Json) -> str:
    """The tables and how they were measured."""
    machine = figures["machine"]
    clock = "time on the wall" if options.clock == "wall" else "time of the processor"
    parts = [
        "Written by `python -m experiments.benchmarks.ssan --clock "
        f"{options.clock} --repeats {options.repeats} --layers {' '.join(options.layers)} "
        "--docs docs/selective_attention.md`.",
        f"One layer, B {options.batch}, M {options.heads}, N {options.size}, d {options.width}, "
        f"float32, {clock}, medians of {options.repeats} turns in one process; "
        f"{machine['device']} x{machine['devices']}, {machine['cores']} cores, load "
        f"{machine['load']:.1f}, jax {machine['jax']}.",
        "A selector adds two of the four projections and one of the two products over pairs: "
        f"{flops_ratio(options):.2f} times the multiplications of standard attention.",
        "## Training: the layer and the gradients of parameters and inputs",
        time_table(figures["training"], TRAINING_LIMIT).rstrip(),
        "## Inference",
        time_table(figures["inference"], INFERENCE_LIMIT).rstrip(),
    ]
    if figures["memory"]:
        parts += [
            f"## Memory of one row of {options.memory_size:,} tokens",
            "What the compiled program allots beside arguments and results; in brackets, as how "
            "many float32 arrays [B, M, N, N].",
            memory_table(figures["memory"]).rstrip(),
            "`block` computes weights for so many queries at a time, and again for the gradient: "
            "nothing over pairs is stored. `remat` leaves the same to the compiler all at once; "
            "that of a CPU merges the two computations, and nothing is saved.",
        ]
    if figures["skipping"]:
        parts += [
            "## Keys that are skipped",
            f"Inference of the whole layer, {options.batch * options.size:,} tokens in all, over "
            'that of standard attention. "By one of 128": keys that at least one of 128 queries '
            'selects, on average; "/ no mask": over standard attention that is given no mask.',
            skip_table(figures["skipping"]).rstrip(),
        ]
    return "\n\n".join(parts)


def flops_ratio(options: Options) -> float:
    """Multiplications of a selective layer over those of a standard one."""
    projection = options.width**2
    product = options.size * options.width
    return (6 * projection + 3 * product) / (4 * projection + 2 * product)


def main(options: Options) -> Json:
    """Measures, prints and returns the figures."""
    at_least_1(options, "repeats", "batch", "heads", "size", "width")
    if min(options.skip_sizes, default=1) < 1:
        raise ValueError(f"skip_sizes must be at least 1, got {options.skip_sizes}")
    if options.memory_size < 0:
        raise ValueError(f"memory_size must be at least 0, got {options.memory_size}")
    figures: Json = {
        "training": measure(options, train=True),
        "inference": measure(options, train=False),
        "memory": memory(options) if options.memory_size else [],
        "skipping": skipping(options),
        "machine": _harness.machine(),
    }
    text = docs_section(options, figures)
    new_console().print(text)
    if options.docs is not None:
        _harness.replace_section(options.docs, COMMAND, text)
    shown = dataclasses.asdict(options) | {"json": None, "docs": None}
    _harness.write_figures(options.json, {"options": shown, **figures})
    return figures


if __name__ == "__main__":
    _harness.command(main, Options)
