"""The GA Reader as one writes it with Flax: `nn.RNN(GRUCell)`, and attention in plain JAX."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from experiments.core.kinds import Array, Json


@struct.dataclass
class PeerOutput:
    """Log-probabilities of the candidates [B, C]."""

    logits: Any


class FlaxGAReader(nn.Module):
    """A reader of words with multiplicative gating and no dropout, see `models.GAReader`.

    Its units have the recurrent bias of Flax's cell, which `GAReader` lacks.

    Attributes:
      hops: K.
      hidden: H.
      embedding_dim: width of the word vectors.
      vocab_size: rows of the table.
    """

    hops: int
    hidden: int
    embedding_dim: int
    vocab_size: int

    def _read(self, name: str, xs: Array, lengths: Array) -> Any:
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
            document = self._read(f"document_{hop}", xs, batch["document_lengths"])
            query = self._read(f"query_{hop}", words, batch["query_lengths"])
            if hop < self.hops - 1:
                scores = jnp.einsum("bnd,bqd->bnq", document, query)
                scores = jnp.where(asked_real[:, None, :], scores, -1e9)
                xs = document * jnp.einsum("bnq,bqd->bnd", jax.nn.softmax(scores), query)
        place = batch["cloze"][:, None, None]
        logits = jnp.einsum("bnd,bd->bn", document, jnp.take_along_axis(query, place, 1)[:, 0])
        places = batch["candidate_positions"]
        there = (places >= 0) & batch["candidate_mask"][..., None]
        flat = jnp.where(there, places, 0).reshape(places.shape[0], -1)
        found = jnp.take_along_axis(logits, flat, axis=1).reshape(places.shape)
        scores = jax.nn.logsumexp(jnp.where(there, found, -1e9), axis=-1)
        return PeerOutput(jax.nn.log_softmax(scores))
