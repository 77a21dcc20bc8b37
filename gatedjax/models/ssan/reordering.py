"""Word reordering detection (Yang et al. 2019) with the encoder of SSAN (Geng et al. 2020).

    x = SSANEncoder(tokens),  [q, k, v] = x W
    P_I = softmax_i(w . tanh(q_i) + b),  c = sum_i P_I(i) v_i,  P_O = softmax_i(k_i . c / sqrt(d))

P_I points to the new position of the word that was moved, P_O to the word that followed it before.
"""

import dataclasses
from typing import Annotated

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float

from gatedjax import functional as F
from gatedjax._utils.field_docs import document_fields
from gatedjax._utils.fields import at_least, check_fields
from gatedjax._utils.types import Keywords
from gatedjax.functional._export import exportable
from gatedjax.models._checks import Batch, Metrics, Predictions, check_batch
from gatedjax.models.ssan.encoder import SSANConfig, SSANEncoder
from gatedjax.models.ssan.probe import SSANOutput
from gatedjax.models.ssan.selector import SelectorTask, loss_parameters
from gatedjax.nn._types import Table
from gatedjax.training import Ratio


@document_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class WordReorderingConfig(SSANConfig):
    """The configuration of the encoder, with the sizes of the paper's experiment, as keywords.

    >>> WordReorderingConfig().num_heads
    8
    """

    hidden: Annotated[int, at_least(1)] = 512
    """Width d of words, layers and head."""
    filter_size: Annotated[int, at_least(1)] = 2048
    """Hidden width of the feed-forward networks."""
    num_heads: Annotated[int, at_least(1)] = 8
    """Number of heads of each attention."""
    embedding_dim: Annotated[int | None, at_least(1)] = None
    """Width of the word vectors, which a linear layer maps to the width hidden. None means hidden,
    without that layer."""
    freeze_encoder: bool = False
    """True trains only the head and keeps the encoder fixed."""


@exportable
@struct.dataclass
class WordReorderingOutput(SSANOutput):
    """The output of a `WordReorderingDetector` for B sentences of N words.

    Attributes:
      logits: scores of both positions [B, 2, N], that of the insertion first and the original
        second; -inf at padding, float32.
      states: states of the encoder [B, N, d], of the width d = `hidden`, 0 at padding.
      selections: an `nn.Selection` for each layer, with its attention weights and selections.
      baseline: the expected reward of the estimator "reinforce", a scalar; None for other
        estimators.
    """


class WordReorderingDetector(nn.Module):
    """A network that points to a word that was moved and to its original position.

        >>> config = WordReorderingConfig(num_layers=1, hidden=8, filter_size=16)
        >>> model = WordReorderingDetector(config, vocab_size=50)
        >>> batch = {"tokens": jnp.array([[7, 9, 3]]), "lengths": jnp.array([3])}
        >>> output, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), batch)
        >>> print(output.logits.shape)
        (1, 2, 3)

    Call the network with a batch of B texts of at most N words, {"tokens": int [B, N], "lengths":
    int [B]}. `SSANEncoder` describes the PRNG streams and the optional arrays of training.

    Attributes:
      config: a `WordReorderingConfig`, the options of the encoder.
      vocab_size: rows of the embedding table, padding included.
      embeddings: a pretrained table [vocab_size, embedding_dim] as the initial word vectors, or
        None. With `freeze_embeddings` none of its rows changes, also those of words without a
        pretrained vector.

    Reference: Yang et al. 2019, "Assessing the Ability of Self-Attention Networks to Learn Word
      Order"; Geng et al. 2020, section 4.2.
    """

    config: WordReorderingConfig
    vocab_size: int
    embeddings: Table | None = None

    @nn.compact
    def __call__(self, batch: Batch, *, train: bool = False) -> WordReorderingOutput:
        """Runs the network.

        Args:
          batch: "tokens" int [B, N] and "lengths" int [B] of B texts of at most N words; optionally
            "example_id" int [B], the examples to which random bits belong (default: row numbers).
          train: True runs the network with dropout and drawn selections, from the PRNG streams
            "dropout" and "gate".

        Returns:
          A `WordReorderingOutput` with the scores of both positions, the states and the selections.
        """
        check_fields(self)
        c = self.config
        types: Keywords = {"dtype": jnp.dtype(c.dtype)}
        encoded = SSANEncoder(c, self.vocab_size, self.embeddings, c.embedding_dim, name="encoder")(
            batch, train=train
        )
        states = encoded.states
        # The encoder has no gradient and its parameters are in `WordReorderingTask.frozen`.
        if c.freeze_encoder:
            states = jax.lax.stop_gradient(states)
        mask = F.length_mask(batch["lengths"], states.shape[1])
        parts = nn.Dense(3 * c.hidden, name="parts", **types)(states)
        query, key, value = jnp.split(parts, 3, axis=-1)
        insert = nn.Dense(1, name="insert", **types)(jnp.tanh(query))[..., 0].astype(jnp.float32)
        # The second pointer depends on the first: its scores compare each word with the mean value
        # under the distribution of the first.
        weights = F.masked_softmax(insert, mask)
        context = F.attention_pool(jnp.where(mask[..., None], value, 0), weights)
        # The axis of size 1 is the single query of each sentence.
        original = F.scaled_dot_product(context[:, None], key)[:, 0]
        logits = jnp.stack([insert, original], axis=1)
        return WordReorderingOutput(
            logits=jnp.where(mask[:, None, :], logits, -jnp.inf),
            states=encoded.states,
            selections=encoded.selections,
            baseline=loss_parameters(self, c.gates),
        )


@dataclasses.dataclass(frozen=True)
class WordReorderingTask(SelectorTask):
    """The task for training and evaluating a `WordReorderingDetector`.

    The loss of an example is the sum of the cross-entropies of both positions. A batch has the
    arrays of `training.Task`, "tokens", "lengths", and the positions, from 0, as "insert" and
    "original", int [B]. The metrics are "loss"; "insert" and "original", the accuracies of the
    positions; "accuracy", the share of examples with both positions correct; and for layer 1
    "selected_1" and "empty_1", the share of pairs of words that are selected, and of words that
    select no word. The predictions are both positions, and "correct" for both.

        >>> config = WordReorderingConfig(freeze_encoder=True)
        >>> WordReorderingTask(WordReorderingDetector(config, vocab_size=50)).frozen
        ('encoder',)

    Attributes:
      model: the network.
    """

    model: WordReorderingDetector

    @property
    def frozen(self) -> tuple[str, ...]:
        """Paths of the parameters that training does not change.

        They are ("encoder",) with `freeze_encoder`. Otherwise they are "encoder/embed/embedding" if
        the network freezes its word vectors, and the projections of its selectors if it freezes
        these.
        """
        return ("encoder",) if self.model.config.freeze_encoder else super().frozen

    def _cost(
        self, output: WordReorderingOutput, batch: Batch
    ) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        logits = output.logits
        # The scores at padding are finite here, because 0 * inf would be NaN in a row of padding.
        real = F.length_mask(batch["lengths"], logits.shape[-1])[:, None, :]
        filled = jnp.where(real, logits, jnp.finfo(logits.dtype).min / 2)
        both = optax.softmax_cross_entropy_with_integer_labels(filled, _positions(batch))
        cost = jnp.where(batch["lengths"] > 0, jnp.sum(both, axis=1), 0)
        return cost, jnp.ones_like(cost)

    def _metrics(self, output: WordReorderingOutput, batch: Batch) -> Metrics:
        cost, _ = self._cost(output, batch)
        right = (jnp.argmax(output.logits, axis=-1) == _positions(batch)).astype(jnp.float32)
        return {
            "loss": Ratio.of(cost, batch["weight"]),
            "insert": Ratio.of(right[:, 0], batch["weight"]),
            "original": Ratio.of(right[:, 1], batch["weight"]),
            "accuracy": Ratio.of(right[:, 0] * right[:, 1], batch["weight"]),
        }

    def _predictions(self, output: WordReorderingOutput, batch: Batch) -> Predictions:
        """Returns a dict of arrays [B]: the predicted positions "insert" and "original", from 0."""
        predicted = jnp.argmax(output.logits, axis=-1)
        right = predicted == _positions(batch)
        return {
            "example_id": batch["example_id"],
            "insert": predicted[:, 0],
            "original": predicted[:, 1],
            "insert_correct": right[:, 0].astype(jnp.float32),
            "original_correct": right[:, 1].astype(jnp.float32),
            "correct": jnp.all(right, axis=1).astype(jnp.float32),
        }


def _positions(batch: Batch) -> Array:
    check_batch(batch, insert="B", original="B")
    return jnp.stack([batch["insert"], batch["original"]], axis=1)
