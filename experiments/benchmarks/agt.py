"""The command `python -m experiments.benchmarks.agt`, which times a training step of AGT.

The step is compared with its matrix products. These are the products of the step and of its
gradients, with the same shapes and without any other operation, so that no step can be faster.
Figures are medians; a ratio is the median over the turns of a time over the time of the products in
the same turn.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.benchmarks import _harness
from experiments.core.config import at_least_1
from experiments.core.kinds import Json, Params, Records
from gatedjax.models import AGT, AGTConfig, AGTTask
from gatedjax.models._checks import Batch, Metrics
from gatedjax.training import TrainState, make_train_step

CONTESTANTS = ("products", "gradients", "step", "fit_step")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Times a training step of AGT against its matrix products.

    "gradients" is the loss and its gradients; "step" has dropout and Adam as well. Adam updates all
    rows of the word vectors, so its share grows with the vocabulary. "fit step" is the step of
    `fit`, which also undoes an update with numbers that are not finite.
    """

    repeats: int = 15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """The sizes of a step: rows of the word vectors, texts, words of each text, and layers."""

    vocabulary: int
    batch: int = 50
    words: int = 20
    layers: int = 15


CASES = (Case(vocabulary=300), Case(vocabulary=18_000))


def shapes(config: AGTConfig, batch: int, words: int, classes: int) -> list[tuple[int, ...]]:
    """Returns [count, rows, inner, columns] of the products in a forward pass."""
    depth, d, a, tokens = config.num_layers, config.hidden, config.attention_hidden, batch * words
    widths = (d, *config.head_hidden, classes)
    return [
        (1, tokens, config.embedding_dim, d),
        (1, tokens, d, depth * a),  # All attentions read the same words.
        (depth, tokens, a, 1),
        (batch, depth, words, d),
        (depth - 1, batch, d, d),
        (depth - 1, batch, 2 * d, d),
        *((1, batch, width, following) for width, following in itertools.pairwise(widths)),
    ]


def products(sizes: list[tuple[int, ...]]) -> tuple[Callable[..., Any], list[Any]]:
    """Returns a compiled function that computes products and their gradients, and its arguments.
    Its arguments are a list of (left, right, cotangent), a triple for each size."""
    rng = np.random.default_rng(0)
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
            (
                first @ second,
                jnp.swapaxes(first, 1, 2) @ gradient,
                gradient @ jnp.swapaxes(second, 1, 2),
            )
            for first, second, gradient in arrays
        ]

    return run, arrays


def plain_step(task: AGTTask, tx: optax.GradientTransformation) -> Any:
    """Returns a step like that of `make_train_step`, without the check for finite numbers."""

    def step(state: TrainState, batch: Batch, key: jax.Array) -> tuple[TrainState, Metrics]:
        def loss(params: Params) -> tuple[jax.Array, Metrics]:
            metrics = task.loss(params, batch, {"dropout": key})
            return metrics["loss"].total, metrics

        gradients, metrics = jax.grad(loss, has_aux=True)(state.params)
        updates, moments = tx.update(gradients, state.opt_state)
        params = optax.apply_updates(state.params, updates)
        return TrainState(step=state.step + 1, params=params, opt_state=moments), metrics

    return step


def measure(case: Case, repeats: int, classes: int = 5) -> Json:
    """Measures all contestants. Returns the 10^9 operations of the products, the seconds of
    compilation, and "rows", the figures of each contestant."""
    config, vocabulary = AGTConfig(num_layers=case.layers), case.vocabulary
    task = AGTTask(AGT(config, vocabulary, classes))
    rng = np.random.default_rng(0)
    batch = {
        "tokens": rng.integers(2, vocabulary, (case.batch, case.words)).astype(np.int32),
        "lengths": np.full(case.batch, case.words, np.int32),
        "label": rng.integers(0, classes, case.batch).astype(np.int32),
        "weight": np.ones(case.batch, np.float32),
        "example_id": np.arange(case.batch, dtype=np.int32),
    }
    batch = jax.device_put(batch)
    params = jax.jit(task.init)(jax.random.key(0), batch)
    # Gradients are measured without dropout, which belongs to the step.
    still = AGTTask(AGT(dataclasses.replace(config, dropout=0.0), vocabulary, classes))
    rngs = {"dropout": jax.random.key(1)}
    gradients = jax.jit(jax.grad(lambda params: still.loss(params, batch, rngs)["loss"].total))
    tx, key = optax.adam(5e-4), jax.random.key(1)

    def steps(step: Callable[..., Any]) -> _harness.Steps:
        # Each kind of step needs a copy, because a step donates its state.
        copy = jax.tree.map(jnp.copy, params)
        state = TrainState(jnp.zeros((), jnp.int32), copy, tx.init(copy))
        return _harness.Steps(step, state, batch, key)

    plain = steps(plain_step(task, tx))
    sizes = shapes(config, case.batch, case.words, classes)
    run, arrays = products(sizes)
    calls: dict[str, Callable[[], object]] = {
        "products": lambda: run(arrays),
        "gradients": lambda: gradients(params),
        "step": plain,
        "fit_step": steps(make_train_step(task, tx)),
    }
    return {
        "vocabulary": vocabulary,
        "products_gflop": 3 * sum(2e-9 * math.prod(size) for size in sizes),
        "compile_s": plain.compile_s,
        "rows": _harness.measure(calls, repeats, "products"),
    }


def main(options: Options) -> Records:
    """Measures, prints and returns a row for each vocabulary."""
    at_least_1(options, "repeats")
    results = [measure(case, options.repeats) for case in CASES]
    first = CASES[0]
    title = f"AGT, B {first.batch}, N {first.words}, {first.layers} layers, float32"
    heads = ("of", "vocabulary", "ms", "over products", "GFLOP/s", "compile s")
    lines = []
    for result in results:
        rows = result["rows"]
        speed = f"{1e3 * result['products_gflop'] / rows['products']['ms']:.0f}"
        for name in CONTESTANTS:
            further_cells = {"products": (speed, ""), "step": ("", f"{result['compile_s']:.1f}")}
            figures = (f"{rows[name]['ms']:.1f}", f"{rows[name]['ratio']:.2f}")
            about = (name.replace("_", " "), f"{result['vocabulary']:,}")
            lines.append([*about, *figures, *further_cells.get(name, ("", ""))])
    _harness.publish(options, results, title, heads, lines)
    return results


if __name__ == "__main__":
    _harness.command(main, Options)
