"""What the tasks of all classifiers share."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from gatedjax import nn as gnn
from gatedjax._utils.types import Output, Params, Tree
from gatedjax.models._types import Batch, Metrics, Predictions
from gatedjax.training import Ratio


def cross_entropy(logits: Float[Array, "B C"], label: Int[Array, " B"]) -> Float[Array, " B"]:
    """Negative log-likelihood of every label, in nats."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, label)


def accuracy(logits: Float[Array, "B C"], label: Int[Array, " B"]) -> Float[Array, " B"]:
    """1 where the highest score is that of the label, else 0."""
    return (jnp.argmax(logits, axis=-1) == label).astype(jnp.float32)


def class_metrics(
    logits: Float[Array, "B C"], label: Int[Array, " B"], weight: Float[Array, " B"]
) -> Metrics:
    """ "loss" and "accuracy" as sums and counts."""
    return {
        "loss": Ratio.of(cross_entropy(logits, label), weight),
        "accuracy": Ratio.of(accuracy(logits, label), weight),
    }


def class_predictions(logits: Float[Array, "B C"], batch: Batch) -> Predictions:
    """What was predicted of every example of a batch, and whether it is right."""
    return {
        "example_id": batch["example_id"],
        "label": batch["label"],
        "predicted": jnp.argmax(logits, axis=-1),
        "correct": accuracy(logits, batch["label"]),
    }


def frozen_embeddings(model: Any, table: str = "embed/table") -> tuple[str, ...]:
    """The table of word vectors, where a network has one and its configuration freezes it."""
    has_words = getattr(model, "vocab_size", None) is not None
    frozen = has_words and getattr(model.config, "freeze_embeddings", False)
    return (table,) if frozen else ()


def word_vectors(model: Any, width: int | None = None, **options: Any) -> gnn.WordEmbedding:
    """The word vectors of a network with `vocab_size` and `embeddings`, as its config has them."""
    c = model.config
    return gnn.WordEmbedding(
        model.vocab_size,
        c.embedding_dim if width is None else width,
        initial=model.embeddings,
        dtype=jnp.dtype(c.dtype),
        **{"frozen": c.freeze_embeddings} | options,
    )


@dataclasses.dataclass(frozen=True)
class ClassifierTask:
    """How a network whose output has `logits` is trained and evaluated: cross-entropy of the class.

    Attributes:
      model: the network.
    """

    model: Any

    @property
    def frozen(self) -> tuple[str, ...]:
        """Parameters that the optimiser leaves alone: the word vectors, if they are to stay."""
        return frozen_embeddings(self.model)

    def init(self, key: Array, batch: Batch) -> Tree:
        """Returns parameters for batches with the widths of this one."""
        streams = dict(zip(("params", "dropout"), jax.random.split(key), strict=True))
        return self.model.init(streams, batch, train=True)["params"]

    def loss(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> tuple[Array, Metrics]:
        """Returns the loss summed over the real rows, and metrics as sums and counts."""
        output: Output = self.model.apply({"params": params}, batch, train=True, rngs=rngs)
        label, weight = batch["label"], batch["weight"]
        metrics = class_metrics(output.logits, label, weight)
        return jnp.sum(cross_entropy(output.logits, label) * weight), metrics

    def evaluate(self, params: Params, batch: Batch) -> tuple[Metrics, Predictions]:
        """Returns "loss" and "accuracy", and per example what was predicted."""
        output: Output = self.model.apply({"params": params}, batch)
        metrics = class_metrics(output.logits, batch["label"], batch["weight"])
        return metrics, class_predictions(output.logits, batch)
