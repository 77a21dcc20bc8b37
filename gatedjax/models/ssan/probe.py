"""SSAN's probes (Geng et al. 2020): what does an encoder with a selector know of a sentence?

    states = SSANEncoder(tokens),  y = MLP(pool(states))

Trained end to end on the probing data.
"""

import dataclasses
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.groups import with_groups
from gatedjax._utils.types import Options
from gatedjax.functional._export import exportable
from gatedjax.models._checks import check_widths
from gatedjax.models._types import Batch
from gatedjax.models.ssan.encoder import SSANConfig, SSANEncoder
from gatedjax.models.ssan.selector import SelectorClassifierTask, loss_parameters
from gatedjax.models.transformer.encoder import dropout_rows
from gatedjax.nn._types import Table

Pool = Literal["mean", "max", "first", "s2t"]


@with_groups
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANProbeConfig(SSANConfig):
    """The encoder, and what is read off its states."""

    pool: Pool = "mean"
    """How states become one vector: mean or maximum over the words, the state of the first word,
    or source2token attention."""
    head_hidden: tuple[int, ...] = (128, 128)
    """Widths of the rectified layers before the class layer; none of them makes the head linear.
    Rectified layers may fall silent for all inputs, a linear head cannot."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_widths("head_hidden", self.head_hidden)


@exportable
@struct.dataclass
class SSANOutput:
    """What one pass computed.

    Attributes:
      logits: class scores [B, C], float32.
      states: of the encoder [B, N, d].
      selections: what the attention of every layer did (see `nn.Selection`).
      baseline: expected reward of the estimator "reinforce", else None.
    """

    logits: Array
    states: Array
    selections: tuple[gnn.Selection, ...]
    baseline: Array | None = None


class SSANProbe(nn.Module):
    """An encoder, pooling and a multi-layer perceptron, for classifying sentences.

    Attributes:
      config: encoder and head.
      vocab_size: rows of the embedding table, padding included.
      num_classes: C.
      embeddings: a pretrained table to start from, or None.

    Call with the batch of `SSANEncoder`.

    Reference: Geng et al. 2020, sections 4.1 and 5.1. The paper leaves heads, pooling, positions
      and optimiser open.
    """

    config: SSANProbeConfig
    vocab_size: int
    num_classes: int
    embeddings: Table | None = None

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> SSANOutput:
        """Runs the network; to train, with dropout and drawn selections."""
        c = self.config
        types: Options = {"dtype": jnp.dtype(c.dtype)}
        encoded = SSANEncoder(c, self.vocab_size, self.embeddings, name="encoder")(
            batch, train=train
        )
        mask = F.length_mask(batch["lengths"], batch["tokens"].shape[1])
        features = self._pooled(encoded.states, mask, types)
        for number, width in enumerate(c.head_hidden):
            features = nn.relu(nn.Dense(width, name=f"head_{number}", **types)(features))
            features = dropout_rows(
                self, features, c.dropouts.dropout, batch.get("example_id"), not train
            )
        logits = nn.Dense(self.num_classes, name="classifier", **types)(features)
        return SSANOutput(
            logits=logits.astype(jnp.float32),
            states=encoded.states,
            selections=encoded.selections,
            baseline=loss_parameters(self, c.gates),
        )

    def _pooled(
        self, states: Float[Array, "B N D"], mask: Array, types: Options
    ) -> Float[Array, "B D"]:
        """One vector per sentence; 0 for a sentence without words."""
        pool = self.config.pool
        if pool == "s2t":
            return gnn.SourceToToken(name="pool", **types)(states, mask)
        if pool == "first":
            return states[:, 0]
        column = mask[..., None]
        if pool == "max":
            lowest = jnp.finfo(states.dtype).min
            top = jnp.max(jnp.where(column, states, lowest), axis=1)
            return jnp.where(jnp.any(column, axis=1), top, jnp.zeros_like(top))
        count = jnp.maximum(jnp.sum(mask, axis=1), 1).astype(jnp.float32)[:, None]
        return F.attention_pool(states, mask.astype(jnp.float32) / count)


@dataclasses.dataclass(frozen=True)
class SSANProbeTask(SelectorClassifierTask):
    """How a probe is trained and evaluated: cross-entropy, and what the selector adds.

    Metrics: "loss" (in training with the penalties), "accuracy", and per layer with a selector
    "selected_L" and "empty_L".

    Attributes:
      model: the network.
    """

    model: SSANProbe
