"""Times a layer of selective self-attention against standard attention, and counts its memory.

`python -m experiments.benchmarks.ssan`. All layers run in this process on the same inputs and take
turns, so that a busy machine slows them alike; a ratio is the median over the turns. Memory is what
the compiled program allots beside arguments and results, at a length that is never run.
"""

import dataclasses
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import tyro

from experiments.core.records import write_text
from gatedjax import analysis
from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._terminal import new_console

TRAINING_LIMIT, INFERENCE_LIMIT = 1.8, 1.3
BASE = "standard"
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    BASE: ("standard attention (selector none)", {"selector": "none"}),
    "st": ("selective, st", {"selector": "st"}),
    "st_remat": ("selective, st, recomputed", {"selector": "st", "remat": True}),
    "soft": ("selective, soft", {"selector": "soft"}),
    "expect": ("selective, expect", {"selector": "expect"}),
    "shared": ("selective, st, one selection for all heads", {"share_heads": True}),
}
MEMORY: dict[str, tuple[str, dict[str, Any]]] = {
    BASE: LAYERS[BASE],
    "st": LAYERS["st"],
    "st_block": ("selective, st, 256 queries at a time", {"selector": "st", "block": 256}),
    "block": ("standard attention, 256 queries at a time", {"selector": "none", "block": 256}),
}
Name = Literal["st", "st_remat", "soft", "expect", "shared"]


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
    layers: tuple[Name, ...] = ("st", "soft", "expect", "shared")
    """Which layers, beside standard attention and that of flax."""
    repeats: int = 11
    """Turns per layer."""
    clock: Literal["wall", "process"] = "wall"
    """Time on the wall, or of the processor in all threads, which a busy machine changes less."""
    memory_size: int = 2048
    """Tokens N for the memory of one row; 0 leaves it out."""
    json: Path | None = None
    """Also write the figures to this file."""
    docs: Path | None = None
    """Also write a page with the tables to this file."""


def flax_layer(options: Options, inputs: jax.Array, mask: jax.Array) -> tuple[Any, Callable]:
    """Parameters and call of flax's multi-head attention, which has no selector."""
    layer = nn.MultiHeadDotProductAttention(options.heads)
    pairs = nn.make_attention_mask(mask, mask)
    variables = jax.jit(lambda: layer.init(jax.random.key(1), inputs))()
    return variables, lambda v, x, key: layer.apply(v, x, mask=pairs)


def our_layer(
    options: Options, inputs: jax.Array, mask: jax.Array, *, train: bool, **settings: Any
) -> tuple[Any, Callable]:
    """Parameters and call of our layer."""
    layer = gnn.SelectiveSelfAttention(options.heads, **settings)
    variables = jax.jit(lambda: layer.init(jax.random.key(1), inputs))()

    def call(v: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        rngs = {"gate": key} if train else {}
        output: Any = layer.apply(v, x, mask, deterministic=not train, rngs=rngs)
        return output[0]

    return variables, call


def programs(options: Options, *, train: bool) -> dict[str, Callable[[jax.Array], Any]]:
    """The compiled layers: key -> result, with the gradient of all parameters in training."""
    shape = (options.batch, options.size, options.width)
    inputs = jax.random.normal(jax.random.key(0), shape)
    mask = F.length_mask(jnp.full(options.batch, options.size), options.size)
    made = {"flax": flax_layer(options, inputs, mask)}
    for name in (BASE, *options.layers):
        made[name] = our_layer(options, inputs, mask, train=train, **LAYERS[name][1])

    def program(variables: Any, call: Callable) -> Callable[[jax.Array], Any]:
        def loss(v: Any, x: jax.Array, key: jax.Array) -> jax.Array:
            return jnp.sum(call(v, x, key) ** 2)

        compiled = jax.jit(jax.grad(loss, argnums=(0, 1)) if train else call)
        return lambda key: compiled(variables, inputs, key)

    return {name: program(*layer) for name, layer in made.items()}


def measure(options: Options, *, train: bool) -> list[dict[str, Any]]:
    """Times all layers in turns.

    Returns:
      A row per layer: name, ms (median), and its ratios to standard attention and to flax's.
    """
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    taken: dict[str, list[float]] = {}
    running = programs(options, train=train)
    for program in running.values():
        jax.block_until_ready(program(jax.random.key(0)))
    for turn in range(options.repeats):
        for name, program in running.items():
            key = jax.random.key(turn)
            start = clock()
            jax.block_until_ready(program(key))
            taken.setdefault(name, []).append(1e3 * (clock() - start))

    def ratio(name: str, base: str) -> float:
        return statistics.median(a / b for a, b in zip(taken[name], taken[base], strict=True))

    return [
        {
            "layer": name,
            "ms": statistics.median(times),
            "to_standard": ratio(name, BASE),
            "to_flax": ratio(name, "flax"),
        }
        for name, times in taken.items()
    ]


def memory(options: Options) -> list[dict[str, Any]]:
    """MiB that the programs allot for one long row, in training and inference."""
    shape = (1, options.memory_size, options.width)
    inputs = jax.ShapeDtypeStruct(shape, jnp.float32)
    pairs = options.heads * options.memory_size**2 * 4
    rows = []
    for name, (_, settings) in MEMORY.items():
        row: dict[str, Any] = {"layer": name}
        for train in (True, False):
            layer = gnn.SelectiveSelfAttention(options.heads, **settings)

            def loss(v: Any, x: jax.Array, layer: Any = layer, train: bool = train) -> jax.Array:
                rngs = {"gate": jax.random.key(0)} if train else {}
                return jnp.sum(layer.apply(v, x, deterministic=not train, rngs=rngs)[0] ** 2)

            variables = jax.eval_shape(layer.init, jax.random.key(0), inputs)
            program = jax.jit(jax.grad(loss, argnums=(0, 1)) if train else loss)
            compiled = program.lower(variables, inputs).compile()
            found: Any = compiled.memory_analysis()
            size = found.temp_size_in_bytes
            kind = "training" if train else "inference"
            row |= {f"{kind}_mib": size / 2**20, f"{kind}_arrays": size / pairs}
        rows.append(row)
    return rows


def title_of(name: str) -> str:
    """What tables call a layer."""
    known = {"flax": "flax MultiHeadDotProductAttention"}
    return known.get(name) or {**MEMORY, **LAYERS}[name][0]


def time_table(rows: list[dict[str, Any]], limit: float) -> str:
    """Times and ratios; the limit is for "st" against standard attention."""
    cells = [
        [
            title_of(row["layer"]),
            f"{row['ms']:.1f}",
            f"{row['to_standard']:.2f}",
            f"{row['to_flax']:.2f}",
            (f"{limit}" if row["layer"] == "st" else "-"),
        ]
        for row in rows
    ]
    return analysis.render_table(["layer", "ms", "/ standard", "/ flax", "limit"], cells)


def memory_table(rows: list[dict[str, Any]]) -> str:
    """MiB, and as how many float32 arrays [B, M, N, N] that is."""
    cells = [
        [title_of(row["layer"])]
        + [
            f"{row[f'{kind}_mib']:.0f} ({row[f'{kind}_arrays']:.1f})"
            for kind in ("training", "inference")
        ]
        for row in rows
    ]
    return analysis.render_table(["layer", "training, MiB", "inference, MiB"], cells)


def page(options: Options, found: dict[str, Any]) -> str:
    """The tables as a page."""
    machine = found["machine"]
    clock = "time on the wall" if options.clock == "wall" else "time of the processor"
    parts = [
        "# Selective self-attention: time and memory",
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
        time_table(found["training"], TRAINING_LIMIT).rstrip(),
        "## Inference",
        time_table(found["inference"], INFERENCE_LIMIT).rstrip(),
    ]
    if found["memory"]:
        parts += [
            f"## Memory of one row of {options.memory_size:,} tokens",
            "What the compiled program allots beside arguments and results; in brackets, as how "
            "many float32 arrays [B, M, N, N].",
            memory_table(found["memory"]).rstrip(),
            "`block` computes weights for so many queries at a time, and again for the gradient: "
            "nothing over pairs is stored. `remat` computes them again all at once, which saves "
            "what the layers above would otherwise find allotted, not the peak of one layer.",
        ]
    return "\n\n".join(parts) + "\n"


def flops_ratio(options: Options) -> float:
    """Multiplications of a selective layer over those of a standard one."""
    projection = options.width**2
    product = options.size * options.width
    return (6 * projection + 3 * product) / (4 * projection + 2 * product)


def main(options: Options) -> dict[str, Any]:
    """Measures, prints and returns the figures."""
    for name in ("repeats", "batch", "heads", "size", "width"):
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(options, name)}")
    if options.memory_size < 0:
        raise ValueError(f"memory_size must be at least 0, got {options.memory_size}")
    found: dict[str, Any] = {
        "training": measure(options, train=True),
        "inference": measure(options, train=False),
        "memory": memory(options) if options.memory_size else [],
        "machine": {
            "jax": jax.__version__,
            "backend": jax.default_backend(),
            "device": jax.devices()[0].device_kind,
            "devices": jax.device_count(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
        },
    }
    text = page(options, found)
    new_console().print(text)
    if options.docs is not None:
        write_text(options.docs, text)
    if options.json is not None:
        shown = dataclasses.asdict(options) | {"json": None, "docs": None}
        saved = json.dumps({"options": shown, **found}, indent=2)
        options.json.write_text(saved + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    try:
        main(tyro.cli(Options))
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
