"""Times GA-Net's inference against the share of words that its gates open.

`python -m experiments.benchmarks.ga_net`. Where the gates act on the input, a call runs as many
steps as a text has words, and `GANet.compact` as many as there are slots for open words. "governed"
is the part that gates of the attention could spare: scores, pooling and output of given states.
Beside both stand the parts that read every word: the auxiliary network, and the backbone where the
gates act on attention. All take turns in one process; the figures are medians, the ratio is the
median over the turns of compact / call within a turn.
"""

import dataclasses
import functools
import statistics
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from experiments.benchmarks import _harness
from experiments.core.config import at_least_1
from experiments.core.kinds import Params, Records
from gatedjax import functional as F
from gatedjax._utils.cpu import keep_freed_memory
from gatedjax._utils.types import Output
from gatedjax.models import GANet, GANetConfig, GateConfig
from gatedjax.models._types import Batch

Score = Literal["zhou", "mlp1"]
GatesOn = Literal["attention", "input"]
VOCABULARY, CLASSES = 1000, 2
PARTS, KINDS = ("backbone", "auxiliary"), ("governed", "input")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Time GA-Net's inference against the share of words that its gates open.

    A backbone that reads the open words alone is `--model.gates.gates-on input`.
    """

    densities: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 0.8, 1.0)
    """Shares of open gates."""
    score: Score = "zhou"
    """Attention score."""
    batch: int = 32
    """Texts B."""
    words: int = 231
    """Padded length T; lengths of texts are between 3T/4 and T."""
    width: int = 100
    """Width of word vectors, and per direction of backbone and auxiliary network."""
    layers: int = 2
    """Layers of the backbone."""
    repeats: int = 11
    seed: int = 0
    """Seed of parameters, words and lengths."""


def make_batch(options: Options) -> Batch:
    """Draws texts, one of them of full length."""
    rng = np.random.default_rng(options.seed)
    lengths = rng.integers(max(1, 3 * options.words // 4), options.words + 1, options.batch)
    lengths[0] = options.words
    tokens = rng.integers(2, VOCABULARY, (options.batch, options.words))
    tokens *= np.arange(options.words) < lengths[:, None]
    return {"tokens": jnp.asarray(tokens, jnp.int32), "lengths": jnp.asarray(lengths, jnp.int32)}


def make_model(options: Options, gates_on: GatesOn) -> GANet:
    """The network, whose gates are open where they are likelier open than closed."""
    config = GANetConfig(
        embedding_dim=options.width,
        hidden=options.width,
        aux_hidden=options.width,
        num_layers=options.layers,
        score=options.score,
        gates=GateConfig(gates_on=gates_on, test_gate="threshold"),
    )
    return GANet(config, VOCABULARY, CLASSES)


def with_density(
    params: Params, logits: np.ndarray, density: float
) -> tuple[Params, Bool[np.ndarray, "B T"]]:
    """The parameters with that gate bias under which this share of the words is open, and the
    open words.

    Args:
      params: of a network whose gates have the bias 0.
      logits: its gate logits [B, T], -inf at padding.
      density: share of the real words.
    """
    real = np.sort(logits[np.isfinite(logits)])[::-1]
    count = max(1, round(density * real.size))
    below = real[count] if count < real.size else real[-1] - 1
    bias = np.float32(-(real[count - 1] + below) / 2)
    auxiliary = params["auxiliary"]
    gate = {**auxiliary["gate"], "bias": np.full(1, bias)}
    return {**params, "auxiliary": {**auxiliary, "gate": gate}}, logits + bias > 0


@functools.partial(jax.jit, static_argnums=(0, 1))
def answer(model: GANet, capacity: int, params: Params, batch: Batch) -> jax.Array:
    """The class scores of the whole network, by a call (0) or from so many slots."""
    short = functools.partial(GANet.compact, capacity=capacity)
    method = short if capacity else GANet.__call__
    output: Output = model.apply({"params": params}, batch, method=method)
    return output.logits


@functools.partial(jax.jit, static_argnums=(0, 1))
def govern(
    model: GANet,
    capacity: int,
    params: Params,
    states: jax.Array,
    gates: jax.Array,
    mask: jax.Array,
) -> Output:
    """What the gate governs where it acts on attention: scores, pooling and output of states."""

    def dense(self: GANet) -> jax.Array:
        weights = F.gated_softmax(self.score(states), gates, mask)
        return self.from_pooled(F.attention_pool(states, weights))

    def compact(self: GANet) -> jax.Array:
        score, own = self.score.unbind()
        score_fn: Any = functools.partial(score.apply, own)
        pool = F.compact_attention_pool(score_fn, states, gates, capacity=capacity, mask=mask)
        return self.from_pooled(pool.pooled)

    return model.apply({"params": params}, method=compact if capacity else dense)


@functools.partial(jax.jit, static_argnums=(0, 1))
def part(model: GANet, name: str, params: Params, batch: Batch) -> Output:
    """What reads every word: the backbone alone, or the auxiliary network alone."""

    def read(self: GANet) -> Any:
        mask = F.length_mask(batch["lengths"], batch["tokens"].shape[1])
        return getattr(self, name)(self.embed(batch["tokens"]), mask)

    return model.apply({"params": params}, method=read)


def measure(options: Options) -> Records:
    """Times every density: medians in ms per batch, and ratios compact / call; a row for each."""
    batch = make_batch(options)
    first, gated = make_model(options, "attention"), make_model(options, "input")
    params = jax.jit(first.init)(jax.random.key(options.seed), batch)["params"]
    encoded: Any = first.apply({"params": params}, batch, method=GANet.encode)
    logits = np.asarray(encoded.gate_logits)
    rows = []
    for density in options.densities:
        tuned, is_open = with_density(params, logits, density)
        capacity = min(F.plan_capacity(is_open.sum(axis=-1)), options.words)
        seen = (encoded.states, jnp.asarray(is_open, jnp.float32), encoded.mask)
        calls = {name: partial(part, first, name, tuned, batch) for name in PARTS}
        for form, slots in (("call", 0), ("compact", capacity)):
            calls[f"governed {form}"] = partial(govern, first, slots, tuned, *seen)
            calls[f"input {form}"] = partial(answer, gated, slots, tuned, batch)
        for kind in KINDS:
            short, whole = (np.asarray(calls[f"{kind} {form}"]()) for form in ("compact", "call"))
            np.testing.assert_allclose(short, whole, rtol=1e-3, atol=1e-4)
        taken = _harness.times_ms(calls, options.repeats)
        rows.append(
            {
                "density": density,
                "capacity": capacity,
                "ms": {name: statistics.median(times) for name, times in taken.items()},
                "ratios": {k: _harness.ratio(taken, f"{k} compact", f"{k} call") for k in KINDS},
            }
        )
    return rows


def show(options: Options, rows: Records) -> None:
    """Prints the table: ms per text of call > compact (ratio), and of the parts."""
    heads = ("density", "slots", *KINDS, *PARTS)
    lines = []
    for row in rows:
        each = {name: f"{ms / options.batch:.2f}" for name, ms in row["ms"].items()}
        both = [
            f"{each[f'{k} call']} > {each[f'{k} compact']} ({row['ratios'][k]:.2f})" for k in KINDS
        ]
        parts = [each[name] for name in PARTS]
        lines.append([f"{row['density']:.2f}", str(row["capacity"]), *both, *parts])
    title = (
        f"GA-Net, ms per text, call > compact (ratio): B {options.batch}, T {options.words}, "
        f"width {options.width}, {options.layers} layers, score {options.score}, float32"
    )
    _harness.render(title, heads, lines, texts=0)


def main(options: Options) -> Records:
    """Measures, prints and returns one row per density."""
    at_least_1(options, "repeats", "batch", "words", "width", "layers")
    if not options.densities or not all(0 < density <= 1 for density in options.densities):
        raise ValueError(f"densities must be in (0, 1], got {options.densities}")
    keep_freed_memory()  # as a run does
    rows = measure(options)
    show(options, rows)
    _harness.write_figures(options.json, {"machine": _harness.machine(), "rows": rows})
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
