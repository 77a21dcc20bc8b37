"""RAU (Zhong et al. 2018): classification of sequences with recurrent attention units.

    h_t = (1 - z_t) h_{t-1} + z_t c_t / 2 + z_t s_t / 2,    y = W h_T + b

The mathematics of the cell is in `functional.rau_step`. The baselines of the paper, GRU and LSTM,
are the same network with another `cell`.
"""

import dataclasses
from typing import Annotated, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import (
    FINITE,
    POSITIVE,
    RATE,
    at_least,
    check_fields,
    check_options,
)
from gatedjax._utils.limits import MOST_LAYERS
from gatedjax._utils.types import Keywords, Tree
from gatedjax.functional._export import exportable
from gatedjax.models._checks import Batch, check_batch, check_defaults
from gatedjax.models._classification import ClassifierTask, word_vectors
from gatedjax.nn._initializers import symmetric_uniform
from gatedjax.nn._keys import example_keys, fold_keys
from gatedjax.nn._types import Table


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class RAUDropout:
    """Dropout rates of an `RAUClassifier` or `RAULanguageModel`, in [0, 1), as keywords."""

    embedding_dropout: Annotated[float, RATE] = 0.0
    """Dropout rate on word vectors, for texts."""
    layer_dropout: Annotated[float, RATE] = 0.0
    """Dropout rate between recurrent layers."""
    recurrent_dropout: Annotated[float, RATE] = 0.0
    """Dropout rate on the recurrent connections, with a single mask per example."""
    state_dropout: Annotated[float, RATE] = 0.0
    """Dropout rate on the states that the output layer reads."""

    def __post_init__(self) -> None:
        check_options(self)


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class RAUConfig:
    """The configuration of networks with recurrent attention units, and of their baselines.

    >>> RAUConfig(hidden=64, num_layers=2).cell
    'rau'
    """

    cell: Literal["rau", "gru", "lstm"] = "rau"
    """Recurrent cell: RAU, or a baseline."""
    hidden: Annotated[int, at_least(1)] = 128
    """Width of the state. The default is that of the paper's text; its Table 2 has 28 for
    images."""
    attention: F.RAUAttention = "feature_proj"
    """Form of the attention of a RAU, see `functional.rau_step`."""
    attn_hidden: Annotated[int, at_least(0)] = 0
    """Width of a tanh layer before the attention logits of a RAU. With 0 there is no such layer."""
    rescale: bool = False
    """True scales the attention weights of a RAU to mean 1, which the paper does not do."""
    reset_after: bool = False
    """True applies the reset gate of a RAU or GRU after the recurrent product, unlike the paper."""
    forget_bias: float = 0.0
    """Initial bias of the forget gate of an LSTM. All other biases start at 0."""
    gate_bias: Annotated[float, FINITE] = 0.0
    """Initial bias of the reset gate of a RAU or GRU and, negated, of the update gate."""
    num_layers: Annotated[int, at_least(1, MOST_LAYERS)] = 1
    """Number of recurrent layers. The paper's language models have 2."""
    init_scale: Annotated[float | None, POSITIVE] = None
    """Bound of the initial kernels, which are drawn from uniform(-init-scale, init-scale) for the
    language models. None means Glorot for inputs and orthogonal for recurrences."""
    embedding_dim: Annotated[int, at_least(1)] = 100
    """Width of the word vectors, for texts."""
    freeze_embeddings: bool = False
    """True keeps the word vectors of texts fixed in training."""
    dropouts: RAUDropout = RAUDropout()
    """Dropout rates."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the computation. Parameters, softmax, carries and the loss stay float32."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.attn_hidden and self.attention in ("concat", "matrix"):
            raise ValueError(
                f"attn_hidden must be 0 for attention={self.attention!r}, got {self.attn_hidden}"
            )
        if self.rescale and self.attention == "sigmoid":
            raise ValueError(
                "rescale must be False for attention='sigmoid', got True: there is no softmax axis"
            )
        where = f"cell={self.cell!r}"
        if self.cell != "rau":
            of_attention = ("attention", "attn_hidden", "rescale")
            check_defaults(self, of_attention, where, "it has no attention")
        if self.cell == "lstm":
            reason = "it has no reset gate; use forget_bias"
            check_defaults(self, ("gate_bias", "reset_after"), where, reason)
        else:
            check_defaults(self, ("forget_bias",), where, "it has no forget gate")


@exportable
@struct.dataclass
class RAUOutput:
    """The output of an `RAUClassifier` for B sequences of T steps, with states of width H.

    C is the number of classes.

    Attributes:
      logits: class scores [B, C], float32.
      state: the hidden state h after the last real step [B, H], float32.
      states: the hidden states of all steps [B, T, H], 0 at padding.
      attention: the attention weights of all steps, such as [B, T, H] for "feature_proj" (see
        `functional.rau_attention`); None unless the call has attention=True.
    """

    logits: Array
    state: Array
    states: Array
    attention: Array | None = None


def recurrent_layers(config: RAUConfig) -> Tree:
    """Creates the recurrent layers of a configuration, which run forward only."""
    options: Keywords = {
        "num_layers": config.num_layers,
        "dropout": config.dropouts.layer_dropout,
        "recurrent_dropout": config.dropouts.recurrent_dropout,
        "dtype": jnp.dtype(config.dtype),
    }
    if config.init_scale is not None:
        draw = symmetric_uniform(config.init_scale)
        options |= {"kernel_init": draw, "recurrent_kernel_init": draw}
    # An LSTM has no reset gate, so `reset_after` and `gate_bias` do not apply to it.
    if config.cell == "lstm":
        return gnn.LSTM(config.hidden, forget_bias=config.forget_bias, **options)
    options |= {"reset_after": config.reset_after, "gate_bias": config.gate_bias}
    if config.cell == "gru":
        # The GRU has no attention, so the options of the attention do not apply to it.
        return gnn.GRU(config.hidden, **options)
    return gnn.RAU(
        config.hidden,
        attention=config.attention,
        attn_hidden=config.attn_hidden,
        rescale=config.rescale,
        **options,
    )


class RAUClassifier(nn.Module):
    """A classifier of images by rows, or of texts: recurrent layers and a dense layer at the end.

        >>> model = RAUClassifier(RAUConfig(hidden=4), num_classes=10)
        >>> batch = {"rows": jnp.ones((2, 28, 28)), "lengths": jnp.array([28, 28])}
        >>> init = model.init_with_output
        >>> output, variables = jax.eval_shape(init, jax.random.key(0), batch)
        >>> print(output.logits.shape, output.states.shape)
        (2, 10) (2, 28, 4)

    Call the network with a batch of T vectors of D numbers for each of B examples, {"rows": float
    [B, T, D], "lengths": int [B]} or, with a vocab_size, {"tokens": int [B, T], "lengths": int
    [B]}. Training with dropout needs the stream "dropout"; its bits belong to "example_id": int [B]
    (row numbers by default).

    Attributes:
      config: an `RAUConfig`, the options of the network.
      num_classes: C, the number of classes.
      vocab_size: rows of the embedding table, padding included; None for vectors as inputs.
      embeddings: a pretrained table [vocab_size, embedding_dim] as the initial word vectors, or
        None.

    Reference: Zhong, Yue and Ling 2018, "Recurrent Attention Unit".
    """

    config: RAUConfig
    num_classes: int
    vocab_size: int | None = None
    embeddings: Table | None = None

    def setup(self) -> None:
        """Creates the word embedding, if it is used, the recurrent layers and the classifier."""
        check_fields(self)
        c = self.config
        types: Keywords = {"dtype": jnp.dtype(c.dtype)}
        if self.vocab_size is not None:
            self.embed = word_vectors(self)
        self.recurrent = recurrent_layers(c)
        self.classifier = nn.Dense(self.num_classes, name="classifier", **types)

    def __call__(self, batch: Batch, *, train: bool = False, attention: bool = False) -> RAUOutput:
        """Runs the network.

        Args:
          batch: "rows" float [B, T, D], T vectors of D numbers per example, or "tokens" int [B, T],
            and "lengths" int [B], the numbers of real steps.
          train: True runs the network with dropout, which draws from the PRNG stream "dropout".
          attention: True also returns the attention weights, from a second pass without dropout.

        Returns:
          An `RAUOutput` with the class scores, the states and the attention or None.

        Raises:
          ValueError: also if attention is True for a GRU or LSTM.
        """
        config = self.config
        xs = self._inputs(batch)
        mask = F.length_mask(batch["lengths"], xs.shape[1])
        weights = None
        keys = None
        if train and (config.dropouts.embedding_dropout > 0 or config.dropouts.state_dropout > 0):
            keys = example_keys(self, "dropout", batch.get("example_id"), xs.shape[0])
        if keys is not None and self.vocab_size is not None:
            xs = F.example_dropout(xs, config.dropouts.embedding_dropout, keys)
        carries, states = self.recurrent(
            xs, mask, deterministic=not train, example_id=batch.get("example_id")
        )
        if attention:
            if config.cell != "rau":
                raise ValueError(f"cell must be 'rau' for attention=True, got {config.cell!r}")
            # The weights are those of evaluation, because dropout would hide some of the inputs.
            weights = self.recurrent.attention_weights(self._inputs(batch), mask)
        last = carries[-1]
        # The carries of an LSTM and of time_causal have further fields besides the state h.
        state = last if isinstance(last, jax.Array) else last.hidden
        # The carry is float32 or wider, but the classifier computes in the dtype of the network.
        pooled = state.astype(states.dtype)
        if keys is not None:
            pooled = F.example_dropout(pooled, config.dropouts.state_dropout, fold_keys(keys, 1))
        logits = self.classifier(pooled).astype(jnp.float32)
        return RAUOutput(logits=logits, state=state, states=states, attention=weights)

    def _inputs(self, batch: Batch) -> Float[Array, "B T D"]:
        if self.vocab_size is None:
            check_batch(batch, rows="B T D", lengths="B")
            return batch["rows"]
        check_batch(batch, tokens="B T", lengths="B")
        return self.embed(batch["tokens"])


@dataclasses.dataclass(frozen=True)
class RAUTask(ClassifierTask):
    """The task for training an `RAUClassifier` with cross-entropy, and for evaluating it.

    A batch has the arrays of `training.Task` and `RAUClassifier` ("lengths", and "rows" or
    "tokens"), and "label" int [B], the index of the class.

        >>> RAUTask(RAUClassifier(RAUConfig(), num_classes=10)).frozen
        ()

    Attributes:
      model: the network.
    """

    model: RAUClassifier
