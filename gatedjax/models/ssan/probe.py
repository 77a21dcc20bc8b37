"""Probes of SSAN (Geng et al. 2020): classification of sentences by an encoder with a selector.

    states = SSANEncoder(tokens),  y = MLP(pool(states))

The probing data train encoder and head end to end.
"""

import dataclasses
from typing import Annotated, Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import check_fields
from gatedjax._utils.types import Keywords
from gatedjax.functional._export import exportable
from gatedjax.models._checks import WIDTHS, Batch
from gatedjax.models.ssan.encoder import SSANConfig, SSANEncoder
from gatedjax.models.ssan.selector import SelectorClassifierTask, loss_parameters
from gatedjax.models.transformer.encoder import dropout_rows
from gatedjax.nn._types import Table

Pool = Literal["mean", "max", "first", "s2t"]


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANProbeConfig(SSANConfig):
    """The configuration of encoder and head, as keywords with defaults.

    >>> SSANProbeConfig(pool="max", num_layers=3).head_hidden
    (128, 128)
    """

    pool: Pool = "mean"
    """Pooling of the states: mean or maximum over the words, the state of the first word, or
    source2token attention."""
    head_hidden: Annotated[tuple[int, ...], WIDTHS] = (128, 128)
    """Widths of the rectified layers before the class layer. Without rectified layers the head is
    linear; it cannot die, as rectified layers can when they are 0 for all inputs."""


@exportable
@struct.dataclass
class SSANOutput:
    """The output of an `SSANProbe` for B sentences of N words and C classes.

    Attributes:
      logits: class scores [B, C], float32.
      states: states of the encoder [B, N, d], of the width d = `hidden`, 0 at padding.
      selections: an `nn.Selection` for each layer, with its attention weights and selections.
      baseline: the expected reward of the estimator "reinforce", a scalar; None for other
        estimators.
    """

    logits: Array
    states: Array
    selections: tuple[gnn.Selection, ...]
    baseline: Array | None = None


class SSANProbe(nn.Module):
    """A classifier of sentences: an encoder, pooling and a multi-layer perceptron.

        >>> import jax
        >>> config = SSANProbeConfig(num_layers=1, hidden=8, filter_size=16, head_hidden=(8,))
        >>> model = SSANProbe(config, vocab_size=50, num_classes=2)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> output, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), batch)
        >>> print(output.logits.shape)
        (1, 2)

    Call the network with a batch of B texts of at most N words, {"tokens": int [B, N], "lengths":
    int [B]}. `SSANEncoder` describes the PRNG streams and the optional arrays of training.

    Attributes:
      config: an `SSANProbeConfig`, the options of encoder and head.
      vocab_size: rows of the embedding table, padding included.
      num_classes: C, the number of classes.
      embeddings: a pretrained table [vocab_size, hidden] as the initial word vectors, or None.

    Reference: Geng et al. 2020, sections 4.1 and 5.1. The paper leaves heads, pooling, positions
      and optimiser open.
    """

    config: SSANProbeConfig
    vocab_size: int
    num_classes: int
    embeddings: Table | None = None

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> SSANOutput:
        """Runs the network.

        Args:
          batch: "tokens" int [B, N] and "lengths" int [B] of B texts of at most N words; optionally
            "example_id" int [B], the examples to which random bits belong (default: row numbers).
          train: True runs the network with dropout and drawn selections, from the PRNG streams
            "dropout" and "gate".

        Returns:
          An `SSANOutput` with the class scores, the states and the selections of each layer.
        """
        check_fields(self)
        c = self.config
        types: Keywords = {"dtype": jnp.dtype(c.dtype)}
        encoded = SSANEncoder(c, self.vocab_size, self.embeddings, name="encoder")(
            batch, train=train
        )
        mask = F.length_mask(batch["lengths"], batch["tokens"].shape[1])
        features = self._pool(encoded.states, mask, types)
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

    def _pool(
        self, states: Float[Array, "B N D"], mask: Array, types: Keywords
    ) -> Float[Array, "B D"]:
        """Pools the N states of each sentence to a vector of D numbers, by `config.pool`."""
        pool = self.config.pool
        if pool == "s2t":
            return gnn.SourceToToken(name="pool", **types)(states, mask)
        if pool == "first":
            return states[:, 0]
        column = mask[..., None]
        if pool == "max":
            # The maximum must ignore padding, so padding has the lowest number.
            lowest = jnp.finfo(states.dtype).min
            top = jnp.max(jnp.where(column, states, lowest), axis=1)
            return jnp.where(jnp.any(column, axis=1), top, jnp.zeros_like(top))
        # A sentence without words has the mean 0 instead of 0 / 0.
        count = jnp.maximum(jnp.sum(mask, axis=1), 1).astype(jnp.float32)[:, None]
        return F.attention_pool(states, mask.astype(jnp.float32) / count)


@dataclasses.dataclass(frozen=True)
class SSANProbeTask(SelectorClassifierTask):
    """The task for training an `SSANProbe` with cross-entropy, and for evaluating it.

    A batch has the arrays of `training.Task` and `SSANProbe`, and "label" int [B], the index of the
    class. The metrics are "loss" (in training with the penalties), "accuracy", and for a layer with
    a selector, such as layer 1, "selected_1" and "empty_1": the share of word pairs that are
    selected, and of words that select no word.

        >>> config = SSANProbeConfig(freeze_embeddings=True)
        >>> SSANProbeTask(SSANProbe(config, vocab_size=50, num_classes=2)).frozen
        ('encoder/embed/embedding',)

    Attributes:
      model: the network.
    """

    model: SSANProbe
