"""Times attention over the open tokens alone against attention that scores all of them.

`python -m experiments.benchmarks.compact_attention`. Both run in this process on the same states,
gates and lengths and take turns, so that a busy machine slows them alike. The ratio is the median
over the turns of compact / dense within a turn; below 1 the compact form pays.
"""

import dataclasses
import functools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.table import Table

from gatedjax import functional as F
from gatedjax._terminal import new_console

Score = Literal["mlp1", "zhou"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One score function on one size of batch."""

    score: Score
    batch: int
    steps: int
    width: int
    density: float


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What both forms read, and the capacity planned for it."""

    states: jax.Array
    gates: jax.Array
    mask: jax.Array
    params: dict[str, jax.Array]
    capacity: int


def make_inputs(case: Case, seed: int = 0) -> Inputs:
    """Draws states, lengths (uniform in [3T/4, T], one of them T) and independent hard gates."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(max(1, 3 * case.steps // 4), case.steps + 1, size=case.batch)
    lengths[0] = case.steps
    mask = np.arange(case.steps)[None, :] < lengths[:, None]
    gates = rng.random(mask.shape) < case.density
    states = rng.normal(size=(*mask.shape, case.width))
    scale = case.width**-0.5
    params = {
        "kernel": rng.normal(size=(case.width, case.width)) * scale,
        "bias": rng.normal(size=case.width) * scale,
        "vector": rng.normal(size=case.width) * scale,
    }
    return Inputs(
        states=jnp.asarray(states, jnp.float32),
        gates=jnp.asarray(gates, jnp.float32),
        mask=jnp.asarray(mask),
        params={name: jnp.asarray(value, jnp.float32) for name, value in params.items()},
        capacity=F.plan_capacity((gates & mask).sum(axis=-1)),
    )


def score_mlp1(params: dict[str, jax.Array], states: jax.Array) -> jax.Array:
    """w . tanh(W h + b)."""
    bias = jnp.expand_dims(params["bias"], range(states.ndim - 1))
    return jnp.tanh(states @ params["kernel"] + bias) @ params["vector"]


def score_zhou(params: dict[str, jax.Array], states: jax.Array) -> jax.Array:
    """w . tanh(h)."""
    return jnp.tanh(states) @ params["vector"]


SCORES: dict[str, Callable[..., jax.Array]] = {"mlp1": score_mlp1, "zhou": score_zhou}


def dense(
    params: Any, states: jax.Array, gates: jax.Array, mask: jax.Array, *, score: Score
) -> tuple[jax.Array, jax.Array]:
    """Scores every token and masks the closed ones."""
    weights = F.gated_softmax(SCORES[score](params, states), gates, mask)
    return F.attention_pool(states, weights), weights


def compact(
    params: Any,
    states: jax.Array,
    gates: jax.Array,
    mask: jax.Array,
    *,
    score: Score,
    capacity: int,
) -> tuple[jax.Array, jax.Array]:
    """Scores the open tokens; the whole batch densely if a row does not fit."""
    score_fn = functools.partial(SCORES[score], params)
    pool = F.compact_attention_pool(score_fn, states, gates, capacity=capacity, mask=mask)
    return pool.pooled, pool.weights


def measure(case: Case, repeats: int, seed: int = 0) -> dict[str, Any]:
    """Times one case.

    Returns:
      The case with capacity, density (of real tokens), dense_ms and compact_ms (medians), ratio
      (median over turns of compact / dense), and difference (largest, of weights and sums).
    """
    inputs = make_inputs(case, seed)
    arguments = inputs.params, inputs.states, inputs.gates, inputs.mask
    forms = {
        "dense": jax.jit(functools.partial(dense, score=case.score)),
        "compact": jax.jit(functools.partial(compact, score=case.score, capacity=inputs.capacity)),
    }
    # the first call compiles; its results are compared
    results = [form(*arguments) for form in forms.values()]
    difference = max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(*results, strict=True))
    taken: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats):
        for name, form in forms.items():
            start = time.perf_counter()
            jax.block_until_ready(form(*arguments))
            taken[name].append(1e3 * (time.perf_counter() - start))
    ratios = [c / d for c, d in zip(taken["compact"], taken["dense"], strict=True)]
    return {
        **dataclasses.asdict(case),
        "real_density": float(inputs.gates[inputs.mask].mean()),
        "capacity": inputs.capacity,
        "dense_ms": statistics.median(taken["dense"]),
        "compact_ms": statistics.median(taken["compact"]),
        "ratio": statistics.median(ratios),
        "difference": difference,
    }


def render(rows: list[dict[str, Any]]) -> Table:
    """Returns the table; a ratio below 1 means that scoring only open tokens is faster."""
    table = Table(title="attention over open tokens, forward pass", title_justify="left")
    for name in ("score", "B", "T", "D", "density", "capacity"):
        table.add_column(name, justify="left" if name == "score" else "right")
    for name in ("dense ms", "compact ms", "compact / dense", "pays"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["score"],
            *(str(row[name]) for name in ("batch", "steps", "width")),
            f"{row['real_density']:.2f}",
            str(row["capacity"]),
            f"{row['dense_ms']:.2f}",
            f"{row['compact_ms']:.2f}",
            f"{row['ratio']:.2f}",
            verdict(row["ratio"]),
        )
    return table


def verdict(ratio: float) -> str:
    """Says whether compacting pays, leaving room for noise."""
    if ratio < 0.95:
        return "yes"
    return "no" if ratio > 1.05 else "even"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Time attention that scores only open tokens against attention that scores all, forward."""

    scores: tuple[Score, ...] = ("mlp1", "zhou")
    """Score functions: mlp1 is w . tanh(W h + b), zhou is w . tanh(h)."""
    steps: tuple[int, ...] = (231, 1000)
    """Padded lengths T; the lengths of rows are between 3T/4 and T."""
    densities: tuple[float, ...] = (0.05, 0.2, 0.5, 0.8)
    """Shares of open gates."""
    batch: int = 32
    """Rows B."""
    width: int = 200
    """Width D of the states."""
    repeats: int = 15
    """Turns per form."""
    seed: int = 0
    """Seed of states, lengths and gates."""
    json: Path | None = None
    """Also write the figures to this file."""


def main(options: Options) -> list[dict[str, Any]]:
    """Measures, prints and returns one row per case."""
    for name in ("repeats", "batch", "width"):
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(options, name)}")
    if not all(steps >= 1 for steps in options.steps):
        raise ValueError(f"steps must be at least 1, got {options.steps}")
    if not all(0 <= density <= 1 for density in options.densities):
        raise ValueError(f"densities must be in [0, 1], got {options.densities}")
    rows = [
        measure(
            Case(
                score=score,
                batch=options.batch,
                steps=steps,
                width=options.width,
                density=density,
            ),
            options.repeats,
            options.seed,
        )
        for score in options.scores
        for steps in options.steps
        for density in options.densities
    ]
    new_console().print(render(rows))
    if options.json is not None:
        machine = {
            "jax": jax.__version__,
            "backend": jax.default_backend(),
            "device": jax.devices()[0].device_kind,
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
        }
        text = json.dumps({"machine": machine, "rows": rows}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    return rows


if __name__ == "__main__":
    try:
        main(tyro.cli(Options))
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
