"""The command `python -m experiments.benchmarks.ga_reader`, which times a step of the GA Reader.

The step is compared with the same network on Flax's `nn.RNN(GRUCell)`. The ratio is the median over
the turns of Flax / ours within a turn. A step is the loss, its gradients, clipping and Adam,
compiled as a single program.
"""

import dataclasses
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from experiments.benchmarks import _harness
from experiments.core.config import at_least_1
from experiments.core.kinds import Array, Json, Records
from gatedjax._utils.options import Unset
from gatedjax.models import GAReader, GAReaderConfig, GAReaderTask, ga_reader_optimizer
from gatedjax.models.ga_reader import GAReaderCharacters
from gatedjax.training import init_state, make_optimizer, make_train_step

COMMAND = "python -m experiments.benchmarks.ga_reader --docs"
OURS, CLIPPED, FLAX = "gatedjax", "gatedjax, clipped in every step", "flax nn.RNN(GRUCell)"
VOCABULARY = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """The rows B, the padded lengths N and Q, the width H of a GRU per direction, the hops K, and
    the width of the word vectors."""

    batch: int = 32
    document: int = 512
    query: int = 32
    hidden: int = 128
    hops: int = 3
    embedding_dim: int = 100


SIZES = Sizes()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(_harness.Options):
    """Times a training step of the GA Reader against the same network on Flax's recurrence.

    The networks have words without characters, multiplicative gating, no dropout and float32.
    Lengths are between 3/4 of the padded length and all of it. Memory is the arguments, results and
    scratch of the compiled step. The ratio is the median over the turns of the other / ours: above
    1 ours is faster.
    """

    docs: Unset[Path] = None
    """A Markdown file in which the section with the table is replaced."""


def make_batch(sizes: Sizes) -> dict[str, np.ndarray]:
    """Draws texts in which each of ten candidates occurs six times."""
    rng = np.random.default_rng(0)
    rows, candidates, times = sizes.batch, 10, 6
    batch: dict[str, np.ndarray] = {}
    for name, size in (("document", sizes.document), ("query", sizes.query)):
        lengths = _harness.draw_lengths(rng, rows, size)
        real = np.arange(size)[None, :] < lengths[:, None]
        batch[name] = (rng.integers(1, VOCABULARY, real.shape) * real).astype(np.int32)
        batch[f"{name}_lengths"] = lengths
    shortest = int(batch["document_lengths"].min())
    times = min(times, max(1, shortest // candidates))
    # The places lie within the shortest document, so that they are real words in all rows.
    places = [rng.permutation(shortest)[: candidates * times] for _ in range(rows)]
    batch["candidate_positions"] = np.full((rows, candidates, times), -1, np.int32)
    for row, positions in enumerate(places):
        batch["candidate_positions"][row].flat[: len(positions)] = positions
    batch["candidate_mask"] = np.ones((rows, candidates), bool)
    batch["cloze"] = (batch["query_lengths"] // 2).astype(np.int32)
    batch["label"] = np.zeros(rows, np.int32)
    batch["weight"] = np.ones(rows, np.float32)
    batch["example_id"] = np.arange(rows, dtype=np.int32)
    return batch


@struct.dataclass
class PeerOutput:
    """The log-probabilities of the candidates [B, C]."""

    logits: Any


class FlaxGAReader(nn.Module):
    """A reader of words with multiplicative gating and without dropout, see `models.GAReader`. Its
    units have the recurrent bias of Flax's cell, which `GAReader` lacks."""

    hops: int
    hidden: int
    embedding_dim: int
    vocab_size: int

    def _encode(self, name: str, xs: Array, lengths: Array) -> Any:
        ahead, back = (
            nn.RNN(nn.GRUCell(self.hidden, name=f"{name}_{way}")) for way in ("ahead", "back")
        )
        return nn.Bidirectional(ahead, back)(xs, seq_lengths=lengths)

    @nn.compact
    def __call__(self, batch: Json, *, train: bool = False) -> PeerOutput:
        """Runs the network; the batch is that of `GAReader` with candidate_positions."""
        del train
        embed = nn.Embed(self.vocab_size, self.embedding_dim, name="embed")
        xs, words = embed(batch["document"]), embed(batch["query"])
        asked_real = jnp.arange(words.shape[1])[None, :] < batch["query_lengths"][:, None]
        for hop in range(self.hops):
            document = self._encode(f"document_{hop}", xs, batch["document_lengths"])
            query = self._encode(f"query_{hop}", words, batch["query_lengths"])
            # The last hop has no gating, because the answer is read from its states.
            if hop < self.hops - 1:
                scores = jnp.einsum("bnd,bqd->bnq", document, query)
                scores = jnp.where(asked_real[:, None, :], scores, -1e9)
                xs = document * jnp.einsum("bnq,bqd->bnd", jax.nn.softmax(scores), query)
        place = batch["cloze"][:, None, None]
        logits = jnp.einsum("bnd,bd->bn", document, jnp.take_along_axis(query, place, 1)[:, 0])
        places = batch["candidate_positions"]
        is_real = (places >= 0) & batch["candidate_mask"][..., None]
        flat = jnp.where(is_real, places, 0).reshape(places.shape[0], -1)
        candidate_scores = jnp.take_along_axis(logits, flat, axis=1).reshape(places.shape)
        scores = jax.nn.logsumexp(jnp.where(is_real, candidate_scores, -1e9), axis=-1)
        return PeerOutput(jax.nn.log_softmax(scores))


def make_task(sizes: Sizes, **options: Any) -> GAReaderTask:
    """Returns our reader of words without characters and dropout."""
    config = GAReaderConfig(
        hops=sizes.hops,
        hidden=sizes.hidden,
        embedding_dim=sizes.embedding_dim,
        characters=GAReaderCharacters(char_dim=0),
        dropout=0.0,
        **options,
    )
    return GAReaderTask(GAReader(config, VOCABULARY))


def make_tasks(sizes: Sizes) -> dict[str, GAReaderTask]:
    """Returns the contestants by name; their losses and optimisers are the same."""
    peer: Any = FlaxGAReader(sizes.hops, sizes.hidden, sizes.embedding_dim, VOCABULARY)
    return {
        OURS: make_task(sizes),
        CLIPPED: make_task(sizes, step_clip=10.0),
        FLAX: GAReaderTask(peer),
    }


def compile_step(task: GAReaderTask, batch: dict[str, np.ndarray]) -> _harness.Steps:
    """Initialises a contestant and compiles its step."""
    tx = make_optimizer(ga_reader_optimizer(1000), 10_000)
    state = jax.jit(lambda key: init_state(task, tx, key, batch))(jax.random.key(0))
    step = make_train_step(task, tx)
    return _harness.Steps(step, state, jax.device_put(batch), jax.random.key(0))


def measure(sizes: Sizes, repeats: int) -> Records:
    """Measures the contestants in turns. Returns the figures of each contestant."""
    batch = make_batch(sizes)
    ready = {name: compile_step(task, batch) for name, task in make_tasks(sizes).items()}
    rows = _harness.measure(ready, repeats, OURS)
    facts = ("compile_s", "memory_bytes")
    return [
        {"step of": name, **rows[name], **{fact: getattr(contestant, fact) for fact in facts}}
        for name, contestant in ready.items()
    ]


HEADS = ("step of", "ms (median)", "ms (fastest)", "time / ours", "MB", "compile, s")


def cells_of(row: Json) -> list[str]:
    """Returns the cells of a row."""
    return [
        row["step of"],
        f"{row['ms']:.0f}",
        f"{row['min_ms']:.0f}",
        f"{row['ratio']:.2f}",
        f"{1e-6 * row['memory_bytes']:.0f}",
        f"{row['compile_s']:.1f}",
    ]


def main(options: Options) -> Records:
    """Measures, prints and returns the figures of each contestant."""
    at_least_1(options, "repeats")
    rows = measure(SIZES, options.repeats)
    title = (
        f"Training step of the GA Reader, B {SIZES.batch}, N {SIZES.document}, Q {SIZES.query}, "
        f"H {SIZES.hidden}, K {SIZES.hops}, {options.repeats} turns"
    )
    lines = list(map(cells_of, rows))
    _harness.publish(options, rows, title, HEADS, lines, command=COMMAND, intro=f"{title}.")
    return rows


if __name__ == "__main__":
    _harness.command(main, Options)
