"""SSAN (Geng et al. 2020), natural language inference: does a premise entail a hypothesis?

    u = elu(W x + b),  o = attention(u),  F = sigmoid(W1 u + W2 o + b),  v = F u + (1 - F) o
    s = sum_n softmax_n(W2 elu(W1 v_n + b1) + b2) v_n
    p(c) = softmax(W elu(W' [s_p; s_h; s_p - s_h; s_p s_h]))

The attention between tokens has a selector (SSAN) or not (SAN). Both sentences share all weights.
"""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

import flax.linen as nn
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import POSITIVE, RATE, at_least, check_fields, check_options
from gatedjax._utils.types import Keywords
from gatedjax.functional._export import exportable
from gatedjax.models._checks import Batch, Metrics, check_batch, schedule
from gatedjax.models._classification import word_vectors
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


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANNLIConfig:
    """The configuration of an `SSANNLI`, as keywords with defaults.

    >>> SSANNLIConfig(t2t="multi_dim", exclude_self=True).num_heads
    1
    """

    gates: SelectorConfig = dataclasses.field(default=SelectorConfig())
    """Options of the selector of the attention between tokens, which is the only layer."""
    t2t: TokenAttention = "dot"
    """Attention between tokens: scaled dot products of heads, or DiSAN's additive scores with a
    softmax for each feature."""
    num_heads: Annotated[int, at_least(1)] = 1
    """Number of heads of "dot"."""
    score_scale: Annotated[float, POSITIVE] = 5.0
    """Scale c of the scores of "multi_dim", which are c tanh(. / c)."""
    exclude_self: bool = False
    """True keeps tokens of "multi_dim" from attending to themselves, as in DiSAN."""
    fusion: bool = True
    """True mixes each token with its attended vector by a gate. False passes on the attended
    vector."""
    positions: Literal["sinusoidal", "none"] = "sinusoidal"
    """Vectors of positions that are added to the words."""
    hidden: Annotated[int, at_least(1)] = 300
    """Width of tokens and of the layer before the classes."""
    embedding_dim: Annotated[int, at_least(1)] = 300
    """Width of the word vectors."""
    freeze_embeddings: bool = True
    """True keeps pretrained word vectors fixed in training. Drawn word vectors are always
    trained."""
    dropout: Annotated[float, RATE] = 0.25
    """Dropout rate on word vectors and on the inputs of the dense layers."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the computation. Parameters, softmax, noise and the loss stay float32."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.hidden % self.num_heads:
            raise ValueError(f"num_heads must divide hidden={self.hidden}, got {self.num_heads}")
        if (layers := self.gates.select_layers) not in ((), (0,), (1,)):
            raise ValueError(f"select_layers must be 1 or, for no selection, 0, got {layers}")
        if self.t2t == "dot" and self.exclude_self:
            raise ValueError("exclude_self must be False for t2t='dot', got True")
        if self.t2t == "multi_dim" and self.num_heads != 1:
            raise ValueError(f"num_heads must be 1 for t2t='multi_dim', got {self.num_heads}")


@exportable
@struct.dataclass
class SSANNLIOutput:
    """The output of an `SSANNLI` for B pairs of sentences and C classes.

    Attributes:
      logits: class scores [B, C], float32.
      premise: an `nn.Selection`, the attention weights and selections between the tokens of the
        first sentence.
      hypothesis: an `nn.Selection` for the tokens of the second sentence.
      baseline: the expected reward of the estimator "reinforce", a scalar; None for other
        estimators.
    """

    logits: Array
    premise: gnn.Selection
    hypothesis: gnn.Selection
    baseline: Array | None = None


class SSANNLI(nn.Module):
    """A classifier of pairs of sentences: attention between tokens, pooling, and a comparison.

        >>> import jax
        >>> model = SSANNLI(SSANNLIConfig(hidden=8, embedding_dim=8), vocab_size=50)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> batch |= {"hypothesis": jnp.array([[7, 3]]), "hypothesis_lengths": jnp.array([2])}
        >>> output, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), batch)
        >>> print(output.logits.shape, output.premise.gates.shape)
        (1, 3) (1, 1, 3, 3)

    Call the network with a batch {"tokens": int [B, N], "lengths": int [B], "hypothesis": int
    [B, N'], "hypothesis_lengths": int [B]}: N words of a first and N' of a second sentence.
    `SSANEncoder` describes the PRNG streams and the optional arrays of training.

    Attributes:
      config: an `SSANNLIConfig`, the options of the network.
      vocab_size: rows of the embedding table, padding included.
      num_classes: C, the number of classes.
      embeddings: a pretrained table [vocab_size, embedding_dim] as the initial word vectors, or
        None.

    Reference: Geng et al. 2020 (SSAN), section 3.3; Shen et al. 2018 (DiSAN, ReSAN) for the rest.
    """

    config: SSANNLIConfig
    vocab_size: int
    num_classes: int = 3
    embeddings: Table | None = None

    def setup(self) -> None:
        """Creates the embedding, the attention and the later layers; both sentences share them."""
        check_fields(self)
        c = self.config
        types: Keywords = {
            "dtype": jnp.dtype(c.dtype),
            "kernel_init": nn.initializers.glorot_uniform(),
        }
        # Vectors that are drawn must be trained, even if pretrained vectors would be frozen.
        frozen = c.freeze_embeddings and self.embeddings is not None
        self.embed = word_vectors(self, frozen=frozen)
        self.projection = nn.Dense(c.hidden, **types)
        options: Keywords = {
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
            # One bias is enough for the sum of the two projections.
            self.fusion_token = nn.Dense(c.hidden, use_bias=False, **types)
            self.fusion_attended = nn.Dense(c.hidden, **types)
        self.pool = gnn.SourceToToken(**types)
        self.compare = nn.Dense(c.hidden, **types)
        self.classifier = nn.Dense(self.num_classes, **types)
        self.baseline = loss_parameters(self, c.gates)

    def __call__(self, batch: Batch, *, train: bool = False) -> SSANNLIOutput:
        """Runs the network.

        Args:
          batch: "tokens" int [B, N], the N words of the first sentence, and "lengths" [B];
            "hypothesis" int [B, N'], the N' words of the second, and "hypothesis_lengths" [B];
            optionally "example_id" int [B], the examples to which random bits belong (default: row
            numbers).
          train: True runs the network with dropout and drawn selections, from the PRNG streams
            "dropout" and "gate".

        Returns:
          An `SSANNLIOutput` with the class scores and the selections in both sentences.
        """
        check_batch(batch, tokens="B N", lengths="B", hypothesis="B N'", hypothesis_lengths="B")
        ids, c = batch.get("example_id"), self.config
        tau = schedule(c.gates, batch.get("step")) if train and c.gates.selective else None
        premise, premise_selection = self._encode(
            batch["tokens"], batch["lengths"], ids, tau, train
        )
        hypothesis, hypothesis_selection = self._encode(
            batch["hypothesis"], batch["hypothesis_lengths"], ids, tau, train
        )
        # The features by which DiSAN and ReSAN compare two sentences: both vectors, their
        # difference and their product.
        both = [premise, hypothesis, premise - hypothesis, premise * hypothesis]
        features = self._dropout(jnp.concatenate(both, axis=-1), ids, train)
        hidden = nn.elu(self.compare(features))
        logits = self.classifier(self._dropout(hidden, ids, train))
        return SSANNLIOutput(
            logits=logits.astype(jnp.float32),
            premise=premise_selection,
            hypothesis=hypothesis_selection,
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
        """Returns the vector of D numbers of each sentence, and its selections."""
        mask = F.length_mask(lengths, tokens.shape[1])
        vectors = self._dropout(self.embed(tokens), ids, train)
        states = nn.elu(self.projection(vectors))
        # The direction masks of DiSAN are left out, so the model would not see the order of the
        # words without positions.
        if self.config.positions == "sinusoidal":
            states = add_positions(states)
        # Projection and positions give padding states other than 0.
        states = jnp.where(mask[..., None], states, jnp.zeros_like(states))
        attended, selection = self.attention(
            states, mask, deterministic=not train, example_id=ids, temperature=temperature
        )
        if self.config.fusion:
            drive = self.fusion_token(states) + self.fusion_attended(attended)
            attended = F.highway_mix(states, attended, nn.sigmoid(drive))
        attended = self._dropout(attended, ids, train)
        return self.pool(attended, mask), selection

    def _dropout(self, inputs: Array, ids: Array | None, train: bool) -> Array:
        return dropout_rows(self, inputs, self.config.dropout, ids, not train)


@dataclasses.dataclass(frozen=True)
class SSANNLITask(SelectorClassifierTask):
    """The task for training an `SSANNLI` with cross-entropy, and for evaluating it.

    A batch has the arrays of `training.Task` and `SSANNLI`, and "label" int [B], the index of the
    class. The metrics are "loss" (in training with the penalties), "accuracy", and with a selector
    "selected_1", the share of token pairs that are selected, and "empty_1", the share of tokens
    that select no token, in both sentences. The predictions have these shares for each head of the
    first sentence as "selected_heads" and "empty_heads".

        >>> SSANNLITask(SSANNLI(SSANNLIConfig(), vocab_size=50)).frozen
        ()

    Attributes:
      model: the network.
    """

    model: SSANNLI
    table: ClassVar[str] = "embed/embedding"
    attention: ClassVar[str] = "attention"

    @property
    def frozen(self) -> tuple[str, ...]:
        """Paths of the parameters that training does not change.

        They are "embed/embedding" if the network freezes pretrained word vectors, and the
        projections of the selector, such as "attention/selector_query", if it freezes these.
        """
        # Vectors that are drawn are trained, even if pretrained vectors would be frozen.
        return self._frozen_selectors() if self.model.embeddings is None else super().frozen

    def _selections(self, output: SSANNLIOutput) -> tuple[gnn.Selection, ...]:
        return output.premise, output.hypothesis

    def _predicted_selections(self, output: SSANNLIOutput) -> tuple[gnn.Selection, ...]:
        return (output.premise,)

    def _selector_metrics(self, output: SSANNLIOutput, weight: Float[Array, " B"]) -> Metrics:
        first, second = (
            selector_metrics((selection,), weight) for selection in self._selections(output)
        )
        return {name: ratio + second[name] for name, ratio in first.items()}
