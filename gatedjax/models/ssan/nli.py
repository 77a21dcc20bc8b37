"""SSAN (Geng et al. 2020), inference between sentences: does the first entail the second?

    u = elu(W x + b),  o = attention(u),  F = sigmoid(W1 u + W2 o + b),  v = F u + (1 - F) o
    s = sum_n softmax_n(W2 elu(W1 v_n + b1) + b2) v_n
    p(c) = softmax(W elu(W' [s_p; s_h; s_p - s_h; s_p s_h]))

The attention between tokens selects (SSAN) or does not (SAN); both sentences share all weights.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.choices import check_choices
from gatedjax._utils.groups import with_groups
from gatedjax._utils.numbers import make_plain
from gatedjax._utils.types import Options
from gatedjax.functional._checks import check_positive
from gatedjax.functional._export import exportable
from gatedjax.models._checks import check_at_least, check_batch, check_rates
from gatedjax.models._classification import word_vectors
from gatedjax.models._schedule import schedule
from gatedjax.models._types import Batch, Metrics
from gatedjax.models.ssan.selector import (
    SelectorClassifierTask,
    SelectorConfig,
    loss_parameters,
    selector_metrics,
)
from gatedjax.models.transformer.encoder import add_positions, dropout_rows
from gatedjax.nn._multi_dimensional import MultiDimensionalAttention
from gatedjax.nn._types import Table

TokenAttention = Literal["dot", "multi_dim"]


@with_groups
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANNLIConfig:
    """Everything that the paper and the work it cites fix or leave open about the network."""

    gates: SelectorConfig = dataclasses.field(default=SelectorConfig())
    """Whether the attention between tokens, the only layer, selects, and how that is trained."""
    t2t: TokenAttention = "dot"
    """Attention between tokens: scaled dot products of heads, or DiSAN's additive scores with a
    softmax for every feature."""
    num_heads: int = 1
    """Heads of "dot"."""
    score_scale: float = 5.0
    """c of "multi_dim": scores are c tanh(. / c)."""
    exclude_self: bool = False
    """Keep tokens of "multi_dim" from attending to themselves, as DiSAN does."""
    fusion: bool = True
    """Let a gate mix every token with what it attends to; False takes the latter."""
    positions: Literal["sinusoidal", "none"] = "sinusoidal"
    """What tells the network the order."""
    hidden: int = 300
    """Width of tokens and of the layer before the classes."""
    embedding_dim: int = 300
    """Width of the word vectors."""
    freeze_embeddings: bool = True
    """Keep pretrained word vectors as they are; others are always trained."""
    dropout: float = 0.25
    """On word vectors and on the inputs of every dense layer."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype; parameters, softmax, noise and the loss stay float32."""

    def __post_init__(self) -> None:
        make_plain(self)
        check_choices(self)
        check_at_least(self, 1, "num_heads", "hidden", "embedding_dim")
        if self.hidden % self.num_heads:
            raise ValueError(f"num_heads must divide hidden {self.hidden}, got {self.num_heads}")
        check_rates(self, "dropout")
        check_positive(score_scale=self.score_scale)
        if (layers := self.gates.select_layers) not in ((), (0,), (1,)):
            raise ValueError(f"select_layers must be 1, or 0 for none, got {layers}")
        if self.t2t == "dot" and self.exclude_self:
            raise ValueError("exclude_self needs t2t='multi_dim'")
        if self.t2t == "multi_dim" and self.num_heads != 1:
            raise ValueError(f"num_heads must be 1 for t2t='multi_dim', got {self.num_heads}")


@exportable
@struct.dataclass
class SSANNLIOutput:
    """What one pass computed.

    Attributes:
      logits: class scores [B, C], float32.
      premise: what the attention between the tokens of the first sentence did.
      hypothesis: the same of the second.
      baseline: expected reward of the estimator "reinforce", else None.
    """

    logits: Array
    premise: gnn.Selection
    hypothesis: gnn.Selection
    baseline: Array | None = None


class SSANNLI(nn.Module):
    """Attention between tokens, pooling, and a comparison of two sentences.

    Attributes:
      config: the network.
      vocab_size: rows of the embedding table, padding included.
      num_classes: C.
      embeddings: a pretrained table to start from, or None.

    Call with a batch {"tokens": int [B, N], "lengths": int [B], "hypothesis": int [B, N'],
    "hypothesis_lengths": int [B]}; training draws from the streams "dropout" and "gate", keyed to
    "example_id": int [B] (row numbers if absent), and a temperature that changes needs "step":
    int [B], the number of the step in every row.

    Reference: Geng et al. 2020 (SSAN), section 3.3; Shen et al. 2018 (DiSAN, ReSAN) for the rest.
    """

    config: SSANNLIConfig
    vocab_size: int
    num_classes: int = 3
    embeddings: Table | None = None

    def setup(self) -> None:
        """Creates the layers, which both sentences share."""
        c = self.config
        types: Options = {
            "dtype": jnp.dtype(c.dtype),
            "kernel_init": nn.initializers.glorot_uniform(),
        }
        frozen = c.freeze_embeddings and self.embeddings is not None
        self.embed = word_vectors(self, frozen=frozen)
        self.projection = nn.Dense(c.hidden, **types)
        options: Options = {
            "num_heads": c.num_heads,
            "features": c.hidden,
            "selector": c.gates.selector_of(1),
            "empty": c.gates.empty,
            "cap": c.gates.cap,
            "temperature": c.gates.temperature,
            **types,
        }
        if c.t2t == "multi_dim":
            self.attention: Any = MultiDimensionalAttention(
                score_scale=c.score_scale, exclude_self=c.exclude_self, **options
            )
        else:
            self.attention = gnn.SelectiveSelfAttention(**options)
        if c.fusion:
            self.fusion_token = nn.Dense(c.hidden, use_bias=False, **types)
            self.fusion_attended = nn.Dense(c.hidden, **types)
        self.pool = gnn.SourceToToken(**types)
        self.compare = nn.Dense(c.hidden, **types)
        self.classifier = nn.Dense(self.num_classes, **types)
        self.baseline = loss_parameters(self, c.gates)

    def __call__(self, batch: Batch, *, train: bool = False) -> SSANNLIOutput:
        """Runs the network; to train, with dropout and drawn selections."""
        check_batch(batch, tokens="B N", lengths="B", hypothesis="B N'", hypothesis_lengths="B")
        ids, c = batch.get("example_id"), self.config
        tau = schedule(c.gates, batch.get("step")) if train and c.gates.selective else None
        premise, left = self._encode(batch["tokens"], batch["lengths"], ids, tau, train)
        hypothesis, right = self._encode(
            batch["hypothesis"], batch["hypothesis_lengths"], ids, tau, train
        )
        both = [premise, hypothesis, premise - hypothesis, premise * hypothesis]
        features = self._dropped(jnp.concatenate(both, axis=-1), ids, train)
        hidden = nn.elu(self.compare(features))
        logits = self.classifier(self._dropped(hidden, ids, train))
        return SSANNLIOutput(
            logits=logits.astype(jnp.float32),
            premise=left,
            hypothesis=right,
            baseline=self.baseline,
        )

    def _encode(
        self,
        tokens: Array,
        lengths: Array,
        ids: Array | None,
        temperature: float | Array | None,
        train: bool,
    ) -> tuple[Float[Array, "B D"], gnn.Selection]:
        mask = F.length_mask(lengths, tokens.shape[1])
        vectors = self._dropped(self.embed(tokens), ids, train)
        states = nn.elu(self.projection(vectors))
        if self.config.positions == "sinusoidal":
            states = add_positions(states)
        states = jnp.where(mask[..., None], states, jnp.zeros_like(states))
        attended, selection = self.attention(
            states, mask, deterministic=not train, example_id=ids, temperature=temperature
        )
        if self.config.fusion:
            drive = self.fusion_token(states) + self.fusion_attended(attended)
            attended = F.highway_mix(states, attended, nn.sigmoid(drive))
        attended = self._dropped(attended, ids, train)
        return self.pool(attended, mask), selection

    def _dropped(self, inputs: Array, ids: Array | None, train: bool) -> Array:
        return dropout_rows(self, inputs, self.config.dropout, ids, not train)


@dataclasses.dataclass(frozen=True)
class SSANNLITask(SelectorClassifierTask):
    """How an `SSANNLI` is trained and evaluated: cross-entropy of the class.

    Metrics: "loss" (in training with the penalties), "accuracy", and with a selector "selected_1"
    and "empty_1", of both sentences. Predictions tell of the first sentence alone.

    Attributes:
      model: the network.
    """

    model: SSANNLI
    table: ClassVar[str] = "embed/table"

    @property
    def frozen(self) -> tuple[str, ...]:
        """Pretrained word vectors, if they are to stay; others are always trained."""
        return super().frozen if self.model.embeddings is not None else ()

    def _selections(self, output: SSANNLIOutput) -> tuple[gnn.Selection, ...]:
        return output.premise, output.hypothesis

    def _shown(self, output: SSANNLIOutput) -> tuple[gnn.Selection, ...]:
        return (output.premise,)

    def _selector_metrics(self, output: SSANNLIOutput, weight: Float[Array, " B"]) -> Metrics:
        """What the selector did in the two sentences, which are one layer."""
        first, second = (
            selector_metrics((selection,), weight) for selection in self._selections(output)
        )
        return {name: ratio + second[name] for name, ratio in first.items()}
