"""The base classes of tasks and of classifiers, their loss and metrics, the loss of a density."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from gatedjax import nn as gnn
from gatedjax._utils.tracing import check_key
from gatedjax._utils.types import Output, Params, Tree
from gatedjax.functional._checks import check_integers, check_shape
from gatedjax.models._checks import Batch, Metrics, Predictions, check_batch
from gatedjax.training import Ratio


def cross_entropy(logits: Float[Array, "B C"], label: Int[Array, " B"]) -> Float[Array, " B"]:
    """Computes the negative log-likelihood of each label, in nats."""
    if logits.shape[-1] < 2:  # the loss would be 0 for all parameters
        raise ValueError(f"num_classes must be at least 2, got {logits.shape[-1]}")
    check_integers(label=label)
    check_shape(logits.shape[:-1], label=label)
    return optax.softmax_cross_entropy_with_integer_labels(logits, label)


def accuracy(logits: Float[Array, "B C"], label: Int[Array, " B"]) -> Float[Array, " B"]:
    """Returns 1.0 where the class `label` has the highest of the class scores, else 0.0."""
    return (jnp.argmax(logits, axis=-1) == label).astype(jnp.float32)


def class_metrics(
    logits: Float[Array, "B C"], label: Int[Array, " B"], weight: Float[Array, " B"]
) -> Metrics:
    """Computes "loss" (cross-entropy) and "accuracy" as `Ratio`, with a sum and a count."""
    return {
        "loss": Ratio.of(cross_entropy(logits, label), weight),
        "accuracy": Ratio.of(accuracy(logits, label), weight),
    }


def class_predictions(logits: Float[Array, "B C"], batch: Batch) -> Predictions:
    """Returns the predictions for the examples of a batch."""
    return {
        "example_id": batch["example_id"],
        "label": batch["label"],
        "predicted": jnp.argmax(logits, axis=-1),
        "correct": accuracy(logits, batch["label"]),
    }


def constraint(
    multiplier: Float[Array, ""], share: Float[Array, " B"], density: float | Float[Array, ""]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Returns (term, lambda) [B] of an augmented Lagrangian, for descent that ascends in lambda.

        e = p - density,  term = lambda e + e^2;   gradient of p: lambda + 2 e,  of lambda: -e

    After Bastings et al. 2019, section 3.4, with the optimiser in the place of the moving average.
    """
    # The multiplier rises while too many gates are open. The square damps its oscillation, and it
    # constrains each text, where lambda constrains only their mean.
    constant = jax.lax.stop_gradient(multiplier)
    excess = share - density
    # This term has the value 0 and the gradient -e for lambda, which makes descent an ascent.
    ascent = (constant - multiplier) * jax.lax.stop_gradient(excess)
    return constant * excess + excess**2 + ascent, jnp.broadcast_to(constant, share.shape)


def word_vectors(model: Any, width: int | None = None, **options: Any) -> gnn.WordEmbedding:
    """Creates the word vectors of a network from its configuration; `options` take precedence."""
    c = model.config
    return gnn.WordEmbedding(
        model.vocab_size,
        c.embedding_dim if width is None else width,
        initial=model.embeddings,
        dtype=jnp.dtype(c.dtype),
        **{"frozen": c.freeze_embeddings} | options,
    )


@dataclasses.dataclass(frozen=True)
class NetworkTask:
    """The base class of tasks: initial parameters, and those that training does not change."""

    model: Any

    table: ClassVar[str] = "embed/embedding"
    """Path of the word vectors among the parameters."""
    streams: ClassVar[tuple[str, ...]] = ("params", "dropout")
    """PRNG streams of `init`, which runs the network in training if there are several."""

    @property
    def frozen(self) -> tuple[str, ...]:
        """Paths of the parameters that training does not change.

        They are ("embed/embedding",) if the network freezes its word vectors, else ().
        """
        # A network that reads vectors, such as the rows of an image, has no table of words.
        has_words = getattr(self.model, "vocab_size", None) is not None
        is_frozen = has_words and getattr(self.model.config, "freeze_embeddings", False)
        return (self.table,) if is_frozen else ()

    def init(self, key: Array, batch: Batch) -> Tree:
        """Draws initial parameters.

        Args:
          key: a PRNG key.
          batch: a batch with the arrays of the network, such as the first batch of training.

        Returns:
          The parameters, a nested dict of arrays.
        """
        check_key(key=key)
        # A network that is initialised in training mode creates all parameters, and needs a key for
        # each of its streams.
        count = len(self.streams)
        keys = jax.random.split(key, count) if count > 1 else [key]
        rngs = dict(zip(self.streams, keys, strict=True))
        return self.model.init(rngs, batch, train=count > 1)["params"]


@dataclasses.dataclass(frozen=True)
class ClassifierTask(NetworkTask):
    """The task of a classifier: cross-entropy as the loss, and accuracy."""

    def loss(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> Metrics:
        """Computes the training loss of a batch.

        Args:
          params: the parameters, as from `init`.
          batch: the arrays of the network with "label" int [B] and "weight" [B].
          rngs: a PRNG key for each stream of the network, such as "dropout".

        Returns:
          The metrics "loss" (cross-entropy) and "accuracy", each a `Ratio` of the sum over the rows
          of weight 1 and their count. Training minimises the mean "loss".
        """
        output: Output = self.model.apply({"params": params}, batch, train=True, rngs=rngs)
        check_batch(batch, label="B", weight="B")
        return class_metrics(output.logits, batch["label"], batch["weight"])

    def evaluate(self, params: Params, batch: Batch) -> tuple[Metrics, Predictions]:
        """Evaluates a batch.

        Args:
          params: the parameters, as from `init`.
          batch: the arrays of the network with "label", "weight" and "example_id" [B].

        Returns:
          (metrics, predictions): a dict with "loss" and "accuracy", each a `Ratio` of a sum and a
          count, and the dict of `class_predictions` with an entry per row: "example_id", "label",
          "predicted" and "correct".
        """
        output: Output = self.model.apply({"params": params}, batch)
        check_batch(batch, label="B", weight="B", example_id="B")
        metrics = class_metrics(output.logits, batch["label"], batch["weight"])
        return metrics, class_predictions(output.logits, batch)
