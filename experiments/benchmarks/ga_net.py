"""The command `python -m experiments.benchmarks.ga_net`, which times GA-Net's inference.

It varies the share of words that the gates open. If the gates act on the input, a call runs as many
steps as a text has words, and `GANet.compact` as many as there are slots for open words. "governed"
is the part that gates of the attention could save: scores, pooling and output of given states. Two
parts always read all words: the auxiliary network, and the backbone if the gates act on attention;
their times are in the table for comparison. All programs take turns in a single process. Figures
are medians; the ratio is the median over the turns of compact / call within a turn.
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
from gatedjax._utils.types import Output
from gatedjax.models import GANet, GANetConfig, GateConfig
from gatedjax.models._checks import Batch

GatesOn = Literal["attention", "input"]
VOCABULARY, CLASSES = 1000, 2
PARTS, KINDS = ("backbone", "auxiliary"), ("governed", "input")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Times GA-Net's inference against the share of words that its gates open.

    The option for a backbone that reads only open words is `--model.gates.gates-on input`.
    """

    repeats: int = 11


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """The texts B, their padded length T, the width of word vectors and of each direction of
    backbone and auxiliary network, the layers of the backbone, and the shares of open gates."""

    batch: int = 32
    words: int = 231
    width: int = 100
    layers: int = 2
    densities: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 0.8, 1.0)


CASE = Case()


def make_batch(case: Case) -> Batch:
    """Draws texts; the first has the full length."""
    rng = np.random.default_rng(0)
    lengths = _harness.draw_lengths(rng, case.batch, case.words)
    tokens = rng.integers(2, VOCABULARY, (case.batch, case.words))
    tokens *= np.arange(case.words) < lengths[:, None]
    return {"tokens": jnp.asarray(tokens, jnp.int32), "lengths": jnp.asarray(lengths, jnp.int32)}


def make_model(case: Case, gates_on: GatesOn) -> GANet:
    """Returns the network; its gates are open at an open probability above 1/2."""
    config = GANetConfig(
        embedding_dim=case.width,
        hidden=case.width,
        aux_hidden=case.width,
        num_layers=case.layers,
        score="zhou",
        gates=GateConfig(gates_on=gates_on, test_gate="threshold"),
    )
    return GANet(config, VOCABULARY, CLASSES)


def with_density(
    params: Params, logits: np.ndarray, density: float
) -> tuple[Params, Bool[np.ndarray, "B T"]]:
    """Sets the bias of the gates so that a given share of the words is open. `params` have gate
    bias 0, and `logits` [B, T] are -inf at padding. Returns the parameters with the new bias, and
    True at the open words, [B, T]."""
    real = np.sort(logits[np.isfinite(logits)])[::-1]
    count = max(1, round(density * real.size))
    below = real[count] if count < real.size else real[-1] - 1
    # The threshold lies halfway between the last open and the first closed word.
    bias = np.float32(-(real[count - 1] + below) / 2)
    auxiliary = params["auxiliary"]
    gate = {**auxiliary["gate"], "bias": np.full(1, bias)}
    return {**params, "auxiliary": {**auxiliary, "gate": gate}}, logits + bias > 0


@functools.partial(jax.jit, static_argnums=(0, 1))
def classify(model: GANet, capacity: int, params: Params, batch: Batch) -> jax.Array:
    """Computes the class scores of the network, by a call (capacity 0) or from `capacity` slots."""
    short = functools.partial(GANet.compact, capacity=capacity)
    method = short if capacity else GANet.__call__
    output: Output = model.apply({"params": params}, batch, method=method)
    return output.logits


@functools.partial(jax.jit, static_argnums=(0, 1))
def run_governed(
    model: GANet,
    capacity: int,
    params: Params,
    states: jax.Array,
    gates: jax.Array,
    mask: jax.Array,
) -> Output:
    """Computes the part that gates of the attention control: scores, pooling and output. `capacity`
    is the number of slots for open words; 0 scores all words."""

    def dense(self: GANet) -> jax.Array:
        weights = F.gated_softmax(self.score(states), gates, mask)
        return self.from_pooled(F.attention_pool(states, weights))

    def compact(self: GANet) -> jax.Array:
        score, score_variables = self.score.unbind()
        score_fn: Any = functools.partial(score.apply, score_variables)
        pool = F.compact_attention_pool(score_fn, states, gates, capacity=capacity, mask=mask)
        return self.from_pooled(pool.pooled)

    return model.apply({"params": params}, method=compact if capacity else dense)


@functools.partial(jax.jit, static_argnums=(0, 1))
def run_part(model: GANet, name: str, params: Params, batch: Batch) -> Output:
    """Runs a part that reads all words: the "backbone" or the "auxiliary" network."""

    def run(self: GANet) -> Any:
        mask = F.length_mask(batch["lengths"], batch["tokens"].shape[1])
        return getattr(self, name)(self.embed(batch["tokens"]), mask)

    return model.apply({"params": params}, method=run)


def measure(case: Case, repeats: int) -> Records:
    """Measures all densities. Returns for each density the number of slots, the medians in ms per
    batch, and the ratios compact / call."""
    batch = make_batch(case)
    first, gated = make_model(case, "attention"), make_model(case, "input")
    params = jax.jit(first.init)(jax.random.key(0), batch)["params"]
    encoded: Any = first.apply({"params": params}, batch, method=GANet.encode)
    logits = np.asarray(encoded.gate_logits)
    rows = []
    for density in case.densities:
        tuned, is_open = with_density(params, logits, density)
        capacity = min(F.plan_capacity(is_open.sum(axis=-1)), case.words)
        seen = (encoded.states, jnp.asarray(is_open, jnp.float32), encoded.mask)
        calls = {name: partial(run_part, first, name, tuned, batch) for name in PARTS}
        for form, slots in (("call", 0), ("compact", capacity)):
            calls[f"governed {form}"] = partial(run_governed, first, slots, tuned, *seen)
            calls[f"input {form}"] = partial(classify, gated, slots, tuned, batch)
        for kind in KINDS:
            short, full = (np.asarray(calls[f"{kind} {form}"]()) for form in ("compact", "call"))
            # The ratio is only meaningful if both forms compute the same scores.
            np.testing.assert_allclose(short, full, rtol=1e-3, atol=1e-4)
        times_of = _harness.times_ms(calls, repeats)
        rows.append(
            {
                "density": density,
                "capacity": capacity,
                "ms": {name: statistics.median(times) for name, times in times_of.items()},
                "ratios": {k: _harness.ratio(times_of, f"{k} compact", f"{k} call") for k in KINDS},
            }
        )
    return rows


def main(options: Options) -> Records:
    """Measures, prints and returns a row for each density: ms per text of call > compact (ratio),
    and of the parts."""
    at_least_1(options, "repeats")
    rows = measure(CASE, options.repeats)
    heads = ("density", "slots", *KINDS, *PARTS)
    lines = []
    for row in rows:
        per_text = {name: f"{ms / CASE.batch:.2f}" for name, ms in row["ms"].items()}
        both = [
            f"{per_text[f'{k} call']} > {per_text[f'{k} compact']} ({row['ratios'][k]:.2f})"
            for k in KINDS
        ]
        parts = [per_text[name] for name in PARTS]
        lines.append([f"{row['density']:.2f}", str(row["capacity"]), *both, *parts])
    title = (
        f"GA-Net, ms per text, call > compact (ratio): B {CASE.batch}, T {CASE.words}, "
        f"width {CASE.width}, {CASE.layers} layers, score zhou, float32"
    )
    _harness.publish(options, rows, title, heads, lines, texts=0)
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
