"""Times a training step of AGT against its matrix products alone.

`python -m experiments.benchmarks.agt`. The products are those of the step and of its gradients, of
the same shapes and without anything between them: no step could be faster. The figures are medians,
a ratio is that of the medians.
"""

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.table import Table

from experiments.benchmarks import _harness
from experiments.core.config import at_least_1
from experiments.core.kinds import Json, Params, Records
from gatedjax._terminal import new_console
from gatedjax.models import AGT, AGTConfig, AGTTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Time a training step of AGT against its matrix products alone.

    "gradients" is the loss and its gradients, "step" has dropout and Adam as well. Adam updates
    every row of the word vectors, so its share grows with the vocabulary.
    """

    vocabulary: tuple[int, ...] = (300, 18_000)
    """Rows of the word vectors."""
    batch: int = 50
    """Texts B."""
    words: int = 20
    """Words N of every text."""
    layers: int = 15
    """Layers L."""
    repeats: int = 15
    """Turns per contestant; the table has their medians."""
    json: Path | None = None
    """Also write the figures to this file."""


def shapes(config: AGTConfig, batch: int, words: int, classes: int) -> list[tuple[int, ...]]:
    """[how many, rows, inner, columns] of the products of a forward pass."""
    depth, d, a, tokens = config.num_layers, config.hidden, config.attention_hidden, batch * words
    widths = (d, *config.head_hidden, classes)
    return [
        (1, tokens, config.embedding_dim, d),
        (1, tokens, d, depth * a),  # all attentions read the same words
        (depth, tokens, a, 1),
        (batch, depth, words, d),
        (depth - 1, batch, d, d),
        (depth - 1, batch, 2 * d, d),
        *((1, batch, width, following) for width, following in itertools.pairwise(widths)),
    ]


def products(sizes: list[tuple[int, ...]], seed: int = 0) -> tuple[Callable[..., Any], list[Any]]:
    """A function of (left, right, above) per product: itself and both of its gradients."""
    rng = np.random.default_rng(seed)
    arrays = [
        tuple(
            jnp.asarray(rng.normal(size=(count, *shape)), jnp.float32)
            for shape in ((rows, inner), (inner, columns), (rows, columns))
        )
        for count, rows, inner, columns in sizes
    ]

    @jax.jit
    def run(arrays: list[Any]) -> list[Any]:
        return [
            (left @ right, jnp.swapaxes(left, 1, 2) @ above, above @ jnp.swapaxes(right, 1, 2))
            for left, right, above in arrays
        ]

    return run, arrays


def measure(options: Options, vocabulary: int, classes: int = 5) -> Json:
    """Times one size of the vocabulary: medians, their ratios to the products, and compile_s."""
    config = AGTConfig(num_layers=options.layers)
    task = AGTTask(AGT(config, vocabulary, classes))
    rng = np.random.default_rng(0)
    batch = {
        "tokens": rng.integers(2, vocabulary, (options.batch, options.words)).astype(np.int32),
        "lengths": np.full(options.batch, options.words, np.int32),
        "label": rng.integers(0, classes, options.batch).astype(np.int32),
        "weight": np.ones(options.batch, np.float32),
        "example_id": np.arange(options.batch, dtype=np.int32),
    }
    batch = jax.device_put(batch)
    params = task.init(jax.random.key(0), batch)
    tx = optax.adam(5e-4)
    still = AGTTask(AGT(dataclasses.replace(config, dropout=0.0), vocabulary, classes))
    rngs = {"dropout": jax.random.key(1)}
    gradients = jax.jit(lambda params: jax.grad(still.loss, has_aux=True)(params, batch, rngs)[0])

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Params, moments: Any) -> Any:
        found, _ = jax.grad(task.loss, has_aux=True)(params, batch, rngs)
        updates, moments = tx.update(found, moments)
        return optax.apply_updates(params, updates), moments

    state = [jax.tree.map(jnp.copy, params), tx.init(params)]
    with _harness.no_compilation_cache():
        program, compile_s = _harness.compiled(step.lower(*state))

    def train() -> list[Any]:
        state[:] = program(*state)
        return state

    sizes = shapes(config, options.batch, options.words, classes)
    run, arrays = products(sizes)
    calls: dict[str, Callable[[], object]] = {
        "products": lambda: run(arrays),
        "gradients": lambda: gradients(params),
        "step": train,
    }
    taken = _harness.times_ms(calls, options.repeats)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return {
        "vocabulary": vocabulary,
        "products_gflop": 3 * sum(2e-9 * math.prod(size) for size in sizes),
        **{f"{name}_ms": median for name, median in medians.items()},
        **{f"{name}_ratio": medians[name] / medians["products"] for name in ("gradients", "step")},
        "all_ms": taken,
        "compile_s": compile_s,
    }


def render(options: Options, rows: Records) -> Table:
    """Returns the table."""
    title = f"AGT, B {options.batch}, N {options.words}, {options.layers} layers, float32"
    heads = ("vocabulary", "products ms", "GFLOP/s", "gradients", "step", "compile s")
    lines = [
        [
            f"{row['vocabulary']:,}",
            f"{row['products_ms']:.1f}",
            f"{1e3 * row['products_gflop'] / row['products_ms']:.0f}",
            f"{row['gradients_ms']:.1f} ({row['gradients_ratio']:.2f})",
            f"{row['step_ms']:.1f} ({row['step_ratio']:.2f})",
            f"{row['compile_s']:.1f}",
        ]
        for row in rows
    ]
    return _harness.screen_table(title, heads, lines, texts=0)


def main(options: Options) -> Records:
    """Measures, prints and returns one row per vocabulary."""
    at_least_1(options, "repeats", "batch", "words", "layers")
    if not options.vocabulary or min(options.vocabulary) < 3:
        raise ValueError(f"vocabulary must be at least 3, got {options.vocabulary}")
    rows = [measure(options, vocabulary) for vocabulary in options.vocabulary]
    new_console().print(render(options, rows))
    _harness.write_figures(options.json, {"machine": _harness.machine(), "rows": rows})
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
