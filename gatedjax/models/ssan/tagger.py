"""SSAN (Geng et al. 2020), semantic role labelling: the role of each word for a given predicate.

    x = sqrt(d) [word; mark of the predicate] + b + positions
    per layer: x = norm(x + ffn(x)),  x = norm(x + attention(x));  p = softmax(W x)

This is DeepAtt-FFN (Tan et al. 2018) with a selector in the attention of a layer.
"""

import dataclasses
from typing import Annotated, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.choices import check_choice
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import RATE, at_least, check_fields
from gatedjax._utils.limits import MOST_LAYERS
from gatedjax.functional._devices import take_rows
from gatedjax.functional._export import exportable
from gatedjax.models._checks import Batch, Metrics, Predictions, check_batch
from gatedjax.models._classification import word_vectors
from gatedjax.models.ssan.encoder import SSANConfig, SSANDropout, run_layers
from gatedjax.models.ssan.selector import SelectorTask, loss_parameters
from gatedjax.models.transformer.decoder import smoothed_cross_entropy
from gatedjax.models.transformer.encoder import add_positions, scaled_embedding
from gatedjax.nn._types import Table
from gatedjax.training import Ratio


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class SSANTaggerConfig(SSANConfig):
    """The configuration of the network for semantic role labelling, as keywords with defaults.

    >>> SSANTaggerConfig(embedding_dim=60, hidden=120).norm
    'post'
    """

    num_layers: Annotated[int, at_least(1, MOST_LAYERS)] = 10
    """Number of layers, each a feed-forward network followed by an attention."""
    embedding_dim: Annotated[int, at_least(1)] = 100
    """Width of word vectors and of the vectors that mark the predicate. Layers are twice as
    wide."""
    hidden: Annotated[int, at_least(1)] = 200
    """Width of the layers, which must be twice embedding-dim."""
    filter_size: Annotated[int, at_least(1)] = 800
    """Hidden width of the feed-forward networks."""
    num_heads: Annotated[int, at_least(1)] = 8
    """Number of heads of each attention."""
    norm: Literal["pre", "post"] = "post"
    """Place of the layer normalisation: before each sublayer, or after its residual connection."""
    dropouts: SSANDropout = dataclasses.field(default=SSANDropout(dropout=0.2))
    """Dropout rates of the layers."""
    label_smoothing: Annotated[float, RATE] = 0.1
    """Share of the probability that the training target spreads evenly over all labels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden != 2 * self.embedding_dim:
            raise ValueError(
                f"hidden must be twice embedding_dim={self.embedding_dim}, got {self.hidden}"
            )
        check_choice(("sinusoidal", "none"), positions=self.order.positions)


@exportable
@struct.dataclass
class SSANTaggerOutput:
    """The output of an `SSANTagger` for B sentences of N words and L labels.

    Attributes:
      logits: label scores of each word [B, N, L], float32, 0 at padding.
      selections: an `nn.Selection` for each layer, with its attention weights and selections.
      baseline: the expected reward of the estimator "reinforce", a scalar; None for other
        estimators.
    """

    logits: Array
    selections: tuple[gnn.Selection, ...]
    baseline: Array | None = None


class SSANTagger(nn.Module):
    """A network that labels each word of a sentence, given a predicate of the sentence.

        >>> config = SSANTaggerConfig(num_layers=1, embedding_dim=4, hidden=8, filter_size=16)
        >>> model = SSANTagger(config, vocab_size=50, num_labels=5)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> batch["is_predicate"] = jnp.array([[0, 1, 0]])
        >>> output, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), batch)
        >>> print(output.logits.shape)
        (1, 3, 5)

    Call the network with a batch {"tokens": int [B, N], "lengths": int [B], "is_predicate": int
    [B, N]}, 1 at the words of the predicate among the N words. `SSANEncoder` describes the PRNG
    streams and the optional arrays of training.

    Attributes:
      config: an `SSANTaggerConfig`, the options of the network.
      vocab_size: rows of the embedding table, padding included.
      num_labels: L, the number of labels.
      embeddings: a pretrained table [vocab_size, embedding_dim] as the initial word vectors, or
        None.

    Reference: Geng et al. 2020 (SSAN), section 3.3; Tan et al. 2018 (DeepAtt) and its code.
    """

    config: SSANTaggerConfig
    vocab_size: int
    num_labels: int
    embeddings: Table | None = None

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> SSANTaggerOutput:
        """Runs the network.

        Training draws from the PRNG streams "dropout" and "gate"; evaluation draws from no stream.

        Args:
          batch: "tokens" and "is_predicate" int [B, N] (1 at the words of the predicate) of B
            sentences of at most N words, and "lengths" int [B]; optionally "example_id" int [B],
            the examples to which random bits belong (default: row numbers).
          train: True runs the network with dropout and drawn selections.

        Returns:
          An `SSANTaggerOutput` with the label scores and the selections of each layer.
        """
        check_fields(self)
        c = self.config
        check_batch(batch, tokens="B N", is_predicate="B N", lengths="B")
        tokens, marks = batch["tokens"], batch["is_predicate"]
        mask = F.length_mask(batch["lengths"], tokens.shape[1])
        dtype = jnp.dtype(c.dtype)
        init = scaled_embedding(c.embedding_dim)
        words = word_vectors(self, embedding_init=init, name="embed")(tokens)
        table = self.param("predicate_embedding", init, (2, c.embedding_dim))
        # A mark outside of 0 and 1 would have no row in the table.
        marked = take_rows(table, jnp.clip(marks, 0, 1)).astype(dtype)
        # DeepAtt multiplies the joined vectors by the square root of their width and adds a bias.
        states = jnp.concatenate([words, marked], axis=-1) * jnp.asarray(c.hidden**0.5, dtype)
        bias = self.param("bias", nn.initializers.zeros_init(), (c.hidden,))
        states = states + bias.astype(dtype)[None, None]
        if c.order.positions == "sinusoidal":
            states = add_positions(states)
        # DeepAtt initialises its matrices as orthogonal.
        orthogonal = nn.initializers.orthogonal()
        states, selections = run_layers(
            self, states, mask, batch, train, feed_forward_first=True, kernel_init=orthogonal
        )
        logits = nn.Dense(self.num_labels, kernel_init=orthogonal, dtype=dtype, name="classifier")(
            states
        ).astype(jnp.float32)
        logits = jnp.where(mask[..., None], logits, jnp.zeros_like(logits))
        return SSANTaggerOutput(
            logits=logits, selections=selections, baseline=loss_parameters(self, c.gates)
        )


@dataclasses.dataclass(frozen=True)
class SSANTaggingTask(SelectorTask):
    """The task for training an `SSANTagger` with smoothed cross-entropy per label.

    A batch has the arrays of `training.Task` and `SSANTagger`, and "labels" int [B, N], the label
    of each of the N words. A label outside [0,
    num_labels), such as -1 for a label that the training text lacks, is not an error: the accuracy
    counts it as wrong, and the loss ignores it. The metrics are "loss" (not smoothed) and
    "accuracy" per word, and for a layer with a selector, such as layer 1, "selected_1" and
    "empty_1": the share of pairs of words that are selected, and of words that select no word. The
    predictions are the best labels of the words as "predicted" [B, width], -1 beyond the end.

    In the example no parameter is frozen, because `freeze_embeddings` is False by default.

        >>> task = SSANTaggingTask(SSANTagger(SSANTaggerConfig(), 50, num_labels=5), width=40)
        >>> task.frozen
        ()

    Attributes:
      model: the network.
      width: number of words of the longest sentence, the width of the predictions.
    """

    model: SSANTagger
    width: int

    table: ClassVar[str] = "embed/embedding"
    attention: ClassVar[str] = "layer_{layer}/attention"
    by_word: ClassVar[bool] = True

    def _cost(
        self, output: SSANTaggerOutput, batch: Batch
    ) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        labels, labelled, _ = self._labels(batch)
        smoothed = smoothed_cross_entropy(output.logits, labels, self.model.config.label_smoothing)
        words = jnp.sum(labelled, axis=1).astype(jnp.float32)
        return jnp.sum(jnp.where(labelled, smoothed, 0), axis=1), words

    def _predictions(self, output: SSANTaggerOutput, batch: Batch) -> Predictions:
        """Returns "example_id" [B] and "predicted" [B, width], -1 behind a sentence."""
        real = F.length_mask(batch["lengths"], batch["tokens"].shape[1])
        predicted = jnp.where(real, jnp.argmax(output.logits, axis=-1), -1)
        spare = self.width - predicted.shape[1]
        if spare < 0:
            raise ValueError(f"width must be at least {predicted.shape[1]}, got {self.width}")
        return {
            "example_id": batch["example_id"],
            # Batches have different widths, and the predictions of a data set form a single array.
            "predicted": jnp.pad(predicted, ((0, 0), (0, spare)), constant_values=-1),
        }

    def _labels(self, batch: Batch) -> tuple[Array, Array, Array]:
        check_batch(batch, labels="B N")
        labels = batch["labels"]
        real = F.length_mask(batch["lengths"], labels.shape[1])
        # Labels that the network cannot predict have no loss.
        labelled = real & (labels >= 0) & (labels < self.model.num_labels)
        return jnp.where(labelled, labels, 0), labelled, real

    def _metrics(self, output: SSANTaggerOutput, batch: Batch) -> Metrics:
        """Returns "loss" and "accuracy" per word, a dict of `Ratio`s (sums and counts)."""
        logits = output.logits
        labels, labelled, real = self._labels(batch)
        nll = smoothed_cross_entropy(logits, labels, 0.0)
        right = labelled & (jnp.argmax(logits, axis=-1) == labels)
        flat = jax.tree.map(
            lambda x: x.reshape(-1).astype(jnp.float32), (nll, labelled, right, real)
        )
        return {"loss": Ratio.of(flat[0], flat[1]), "accuracy": Ratio.of(flat[2], flat[3])}
