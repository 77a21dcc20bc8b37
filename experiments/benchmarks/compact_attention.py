"""The command `python -m experiments.benchmarks.compact_attention`, for attention over open tokens.

It compares attention that scores only open tokens (compact) with attention that scores all tokens
(dense). Both have the same states, gates and lengths. The ratio is the median over the turns of
compact / dense within a turn; below 1 the compact form pays.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import _harness
from experiments.core.config import at_least_1
from experiments.core.kinds import Json, Records
from gatedjax import functional as F


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A score function, a size of batch (B, T, D), and the share of open gates. The lengths of rows
    are between 3T/4 and T."""

    score: str
    steps: int
    density: float
    batch: int = 32
    width: int = 200


GRID = itertools.product(("mlp1", "zhou"), (231, 1000), (0.05, 0.2, 0.5, 0.8))
CASES = tuple(Case(score=score, steps=steps, density=share) for score, steps, share in GRID)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Inputs:
    """States [B, T, D], hard gates and mask [B, T], and the number of slots planned for them."""

    states: jax.Array
    gates: jax.Array
    mask: jax.Array
    params: dict[str, jax.Array]
    capacity: int = dataclasses.field(metadata={"static": True})


def make_inputs(case: Case) -> Inputs:
    """Draws states, lengths and independent hard gates."""
    rng = np.random.default_rng(0)
    lengths = _harness.draw_lengths(rng, case.batch, case.steps)
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
    """Computes the scores w . tanh(W h + b)."""
    bias = jnp.expand_dims(params["bias"], range(states.ndim - 1))
    return jnp.tanh(states @ params["kernel"] + bias) @ params["vector"]


def score_zhou(params: dict[str, jax.Array], states: jax.Array) -> jax.Array:
    """Computes the scores w . tanh(h)."""
    return jnp.tanh(states) @ params["vector"]


SCORES: dict[str, Callable[..., jax.Array]] = {"mlp1": score_mlp1, "zhou": score_zhou}


def dense(case: Case, inputs: Inputs) -> tuple[jax.Array, jax.Array]:
    """Scores all tokens and masks closed tokens."""
    scores = SCORES[case.score](inputs.params, inputs.states)
    weights = F.gated_softmax(scores, inputs.gates, inputs.mask)
    return F.attention_pool(inputs.states, weights), weights


def compact(case: Case, inputs: Inputs) -> tuple[jax.Array, jax.Array]:
    """Scores only open tokens, or all tokens of the batch if a row does not fit the capacity."""
    pool = F.compact_attention_pool(
        functools.partial(SCORES[case.score], inputs.params),
        inputs.states,
        inputs.gates,
        capacity=inputs.capacity,
        mask=inputs.mask,
    )
    return pool.pooled, pool.weights


def measure(case: Case, repeats: int) -> Json:
    """Measures a case. The entry "difference" is the largest difference between the results of both
    forms."""
    inputs = make_inputs(case)
    forms = {
        form.__name__: functools.partial(jax.jit(functools.partial(form, case)), inputs)
        for form in (dense, compact)
    }
    results = [form() for form in forms.values()]
    difference = max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(*results, strict=True))
    return {
        **dataclasses.asdict(case),
        "real_density": float(inputs.gates[inputs.mask].mean()),
        "capacity": inputs.capacity,
        "difference": difference,
        "rows": _harness.measure(forms, repeats, "dense"),
    }


def verdict(ratio: float) -> str:
    """Returns whether compacting pays: "yes", "no", or "even" within 5 %."""
    if ratio < 0.95:
        return "yes"
    return "no" if ratio > 1.05 else "even"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Times attention that scores only open tokens against attention that scores all, forward."""

    repeats: int = 15


def main(options: Options) -> Records:
    """Measures, prints and returns a row for each case."""
    at_least_1(options, "repeats")
    results = [measure(case, options.repeats) for case in CASES]
    heads = (
        *("score", "B", "T", "D", "density", "capacity"),
        *("dense ms", "compact ms", "compact / dense", "pays"),
    )
    lines = [
        [
            *(str(result[name]) for name in ("score", "batch", "steps", "width")),
            f"{result['real_density']:.2f}",
            str(result["capacity"]),
            *(f"{row['ms']:.2f}" for row in result["rows"].values()),
            f"{result['rows']['compact']['ratio']:.2f}",
            verdict(result["rows"]["compact"]["ratio"]),
        ]
        for result in results
    ]
    title = "attention over open tokens, forward pass"
    _harness.publish(options, results, title, heads, lines)
    return results


if __name__ == "__main__":
    _harness.command(main, Options)
