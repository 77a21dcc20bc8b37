"""Questions with a gap: the checked batch, and the task of networks that fill the gap."""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gatedjax import functional as F
from gatedjax._utils.types import Output, Params
from gatedjax.functional._checks import is_known
from gatedjax.models._checks import Batch, Metrics, Predictions, check_batch
from gatedjax.models._classification import ClassifierTask
from gatedjax.training import Ratio

# B questions, N document tokens, Q query tokens, C candidates, P positions of a candidate,
# W distinct words of an example, L characters of a word; "cloze" is the gap in the query.
_TEXTS = {"document": "B N", "document_lengths": "B", "query": "B Q", "query_lengths": "B"}
_TEXTS |= {"cloze": "B"}
_WORDS = {"word_characters": "B W L", "word_lengths": "B W"}
_WORDS |= {"document_words": "B N", "query_words": "B Q"}


@dataclasses.dataclass(frozen=True)
class ClozeBatch:
    """A checked batch of B questions about documents, with its masks. Create it with `of`."""

    batch: Batch
    document_mask: Array
    query_mask: Array

    @classmethod
    def of(cls, batch: Batch, *, characters: bool) -> "ClozeBatch":
        """Checks names, dtypes and shapes, and outside of `jit` also the values."""
        integers = _TEXTS | (_WORDS if characters else {})
        flags = {"candidate_mask": "B C"}
        if isinstance(batch, Mapping) and "occurrence" in batch:
            flags |= {"occurrence": "B N C"}
        else:
            integers = integers | {"candidate_positions": "B C P"}
        check_batch(batch, **integers, **flags)
        for name in integers:
            if not jnp.issubdtype(batch[name].dtype, jnp.integer):
                raise TypeError(f"{name} must be integers, got dtype {batch[name].dtype}")
        _check_cloze(batch)
        return cls(
            batch=batch,
            document_mask=F.length_mask(batch["document_lengths"], batch["document"].shape[1]),
            query_mask=F.length_mask(batch["query_lengths"], batch["query"].shape[1]),
        )

    def at_cloze(self, states: Float[Array, "B Q D"]) -> Float[Array, "B D"]:
        """Returns the state at the gap of each query; 0 if the gap is outside of the query."""
        cloze = self.batch["cloze"]
        inside = (cloze >= 0) & (cloze < self.batch["query_lengths"])
        # `take_along_axis` cannot index an axis of size 0.
        if not states.shape[1]:
            return jnp.zeros((states.shape[0], states.shape[2]), states.dtype)
        # The index must be in range for all rows; rows without a gap are set to 0 below.
        place = jnp.where(inside, cloze, 0)[:, None, None]
        gap = jnp.take_along_axis(states, place, axis=1)[:, 0]
        return jnp.where(inside[:, None], gap, 0)

    def log_probabilities(
        self, logits: Float[Array, "B N"], aggregation: F.Aggregation
    ) -> Float[Array, "B C"]:
        """Computes the log-probabilities of the candidates."""
        masks = self.document_mask, self.batch["candidate_mask"]
        if "occurrence" in self.batch:
            places = self.batch["occurrence"]
            return F.pointer_sum(logits, places, *masks, aggregation=aggregation)
        places = self.batch["candidate_positions"]
        return F.pointer_sum_indexed(logits, places, *masks, aggregation=aggregation)


def _check_cloze(batch: Batch) -> None:
    """Raises ValueError for a gap outside of its query, unless the values are traced."""
    needed = [batch[name] for name in ("cloze", "query_lengths")]
    weight = batch.get("weight")
    if not is_known(needed, weight):
        return
    cloze, lengths = (np.asarray(value) for value in needed)
    # Filler rows of a batch may have any cloze.
    real = lengths > 0 if weight is None else np.asarray(weight) > 0
    bad = np.flatnonzero(real & ((cloze < 0) | (cloze >= lengths)))
    if bad.size:
        row = int(bad[0])
        raise ValueError(
            f"cloze must be in [0, {lengths[row]}), the tokens of the query, got {cloze[row]} in "
            f"row {row}"
        )


def _answers(
    log_probs: Float[Array, "B C"], label: Int[Array, " B"]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Returns the loss -log Pr(answer) [B], 0 without an answer, and True where there is one."""
    # The label -1 is clipped only for the look-up; `answerable` excludes it from the loss.
    place = jnp.clip(label, 0, log_probs.shape[1] - 1)[:, None]
    answer = jnp.take_along_axis(log_probs, place, axis=1)[:, 0]
    # An answer with probability 0 does not occur in the document.
    answerable = (label >= 0) & (label < log_probs.shape[1]) & ~jnp.isneginf(answer)
    # The inner `where` keeps infinite values out of the derivative.
    return jnp.where(answerable, -jnp.where(answerable, answer, 0), 0), answerable


@dataclasses.dataclass(frozen=True)
class ClozeTask(ClassifierTask):
    """The task of choosing an answer among candidates, with -log Pr(answer) as the loss. An answer
    that is no candidate or not in the document is ignored by the loss and wrong for the accuracy.
    """

    def loss(self, params: Params, batch: Batch, rngs: dict[str, Array]) -> Metrics:
        """Computes the training loss of a batch.

        Args:
          params: the parameters, as from `init`.
          batch: the arrays of the network with "label" int [B] and "weight" [B].
          rngs: a PRNG key for each stream of the network, such as "dropout".

        Returns:
          The metrics, each a `Ratio` of a sum and a count: "loss" over the examples with an answer,
          whose mean training minimises, "accuracy", and "unanswerable", the share of examples with
          an answer that is no candidate or does not occur.
        """
        output: Output = self.model.apply({"params": params}, batch, train=True, rngs=rngs)
        check_batch(batch, label="B", weight="B")
        return _score(output.logits, batch)[0]

    def evaluate(self, params: Params, batch: Batch) -> tuple[Metrics, Predictions]:
        """Evaluates a batch.

        Args:
          params: the parameters, as from `init`.
          batch: the arrays of the network with "label", "weight" and "example_id" [B].

        Returns:
          (metrics, predictions): a dict of `Ratio`s (sums and counts), and a dict of arrays [B]:
          "example_id", "label", "predicted" (the index of the most probable candidate), "correct"
          (1.0 or 0.0) and "weight". The metrics are "loss", the mean over the examples with an
          answer, "accuracy", the mean over all examples, and "unanswerable", the share of the
          examples whose answer is no candidate or does not occur.
        """
        output: Output = self.model.apply({"params": params}, batch)
        check_batch(batch, label="B", weight="B", example_id="B")
        metrics, predictions = _score(output.logits, batch)
        return metrics, {"example_id": batch["example_id"]} | predictions


def _score(log_probs: Float[Array, "B C"], batch: Batch) -> tuple[Metrics, Predictions]:
    """Returns (metrics, predictions) of a batch, two dicts, without the numbers of examples."""
    label, weight = batch["label"], batch["weight"]
    losses, answerable = _answers(log_probs, label)
    # `argmax` of a row of -inf would be candidate 0, which may be padding.
    first = jnp.argmax(batch["candidate_mask"], axis=-1)
    some = jnp.any(~jnp.isneginf(log_probs), axis=-1)
    predicted = jnp.where(some, jnp.argmax(log_probs, axis=-1), first)
    # An answer that does not occur counts as wrong, also where the first candidate is predicted for
    # lack of a better and happens to be the answer.
    correct = ((predicted == label) & answerable).astype(jnp.float32)
    metrics = {
        "loss": Ratio.of(losses, weight * answerable),
        "accuracy": Ratio.of(correct, weight),
        "unanswerable": Ratio.of(1.0 - answerable, weight),
    }
    columns = {"label": label, "predicted": predicted, "correct": correct, "weight": weight}
    return metrics, columns
