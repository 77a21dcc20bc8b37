"""Selections of keys in an attention layer: how they are drawn, and their statistics."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from gatedjax import functional as F
from gatedjax.functional._export import exportable
from gatedjax.gates import Estimator, MeanField, Pathwise, STGumbel
from gatedjax.gates._registry import KINDS, NOT_OF_PAIRS, EstimatorName, create_estimator
from gatedjax.gates._score import MultiPass
from gatedjax.gates._train import Gates, draw

Selector = EstimatorName | Literal["none", "threshold"] | Pathwise
"""The name of an estimator of `gates`, a `gates.Pathwise` object, "threshold" for a selector that
is not trained, or "none"."""


@exportable
@struct.dataclass
class Selection:
    """The attention weights and selections of a layer; selector fields are None without a selector.

    There are B examples, M heads, Q queries and N keys; a selection is a pair of a query and a key.

        >>> from gatedjax.nn import SelectiveSelfAttention
        >>> attention, xs = SelectiveSelfAttention(num_heads=2), jnp.zeros((1, 4, 8))
        >>> (_, selection), _ = attention.init_with_output(jax.random.key(0), xs)
        >>> print(selection.weights.shape, selection.rate)
        (1, 2, 4, 4) [[0. 0.]]

    Attributes:
      weights: W [B, M, Q, N], 0 at padded keys; None for an attention in blocks.
      gates: A of this pass [B, M, Q, N] (M = 1 for a shared selector), before the rule `empty` for
        queries that select no key; None for an attention in blocks.
      logits: s, the log-odds that a query selects a key, with the shape of gates; None if gates is
        None.
      rate: share of the selected pairs among the pairs that may see each other [B, M].
      empty: share of the real queries that select no key [B, M].
      selected: mean number of keys that a real query selects [B, M].
      entropy: mean entropy of the selection over pairs and heads [B], in nats.
      log_prob: mean log-probability of the selection over pairs and heads [B], in nats.
      probability: mean probability of a selection over pairs and heads [B].
      score: the term that trains the selector [B]: the loss of training adds it times a constant
        (stop_gradient), the difference of the losses of two draws of the gates. Its derivative with
        respect to a logit is the weight of the estimator for that logit; its value has no meaning.
        None unless the estimator, such as "arm", trains the selector with values of the loss.
    """

    weights: Array | None = None
    gates: Array | None = None
    logits: Array | None = None
    rate: Array | None = None
    empty: Array | None = None
    selected: Array | None = None
    entropy: Array | None = None
    log_prob: Array | None = None
    probability: Array | None = None
    score: Array | None = None


def check_selector(selector: Selector) -> None:
    """Raises ValueError unless `selector` is a name of a `Selector` or a `gates.Pathwise` object.

    The estimators in `NOT_OF_PAIRS` cannot train selections of pairs of a query and a key.
    """
    able = ("none", "threshold", *(kind for kind in KINDS if kind not in NOT_OF_PAIRS))
    if selector not in able and not isinstance(selector, Pathwise):
        names = ", ".join(map(repr, able))
        raise ValueError(f"selector must be one of {names}, or a gates.Pathwise, got {selector!r}")


def selector_estimator(selector: Selector, temperature: float | Array) -> Estimator | None:
    """Returns the estimator that trains a selector; None for "none" and "threshold"."""
    check_selector(selector)
    if isinstance(selector, Pathwise):
        return selector
    if selector == "none" or selector == "threshold":
        return None
    return create_estimator(selector, temperature=temperature)


def check_trains_pairs(name: EstimatorName, layers: tuple[int, ...]) -> None:
    """Raises ValueError unless an estimator can train selections of pairs in these layers."""
    if name in NOT_OF_PAIRS:
        raise ValueError(
            f"estimator must be able to train selections, got {name!r}: {NOT_OF_PAIRS[name]}; "
            "'leave_one_out' is unbiased too"
        )
    if getattr(KINDS[name], "mirrored", False) and len(layers) > 1:
        raise ValueError(
            f"select_layers must be a single layer for estimator={name!r}, got {layers}: a later "
            "layer depends on the selections before it, so two passes under opposite noise are no "
            "antithetic pair; 'leave_one_out' is unbiased for any number of layers"
        )


def draw_selection(
    estimator: Estimator,
    logits: Float[Array, "B M Q N"],
    positions: Int[Array, " Q"],
    keys: dict[str, Array],
) -> Gates:
    """Draws the gates of a training pass; the keys "antithetic" stand for opposite noise."""
    # Hard draws and the relaxation of STGumbel come from uniform numbers, because the logarithms of
    # the noise would cost as much as the attention.
    # The mean field has no noise: probabilities take the place of the gates.
    if isinstance(estimator, MeanField):
        return Gates(jax.nn.sigmoid(logits), jax.nn.log_sigmoid(logits))
    mirrored = "antithetic" in keys
    key = keys["antithetic" if mirrored else "gate"]
    uniform = F.pair_uniform(key, logits.shape[1], positions, logits.shape[-1])
    # The logistic noise of 1 - u is the negative noise of u.
    uniform = 1 - uniform if mirrored else uniform
    if isinstance(estimator, STGumbel):
        tau = estimator.tau
        values = F.uniform_sigmoid(logits, uniform, temperature=tau, straight_through=True)
        return Gates(values, hard=True)
    noise = jnp.log(uniform) - jnp.log1p(-uniform)
    if isinstance(estimator, Pathwise):
        return draw(estimator, logits, noise)
    # The other estimators are trained by values of the loss and need no derivative of the draws.
    constant = jax.lax.stop_gradient(logits)
    gates = _threshold(constant, uniform)
    if not isinstance(estimator, MultiPass):
        return Gates(gates, hard=True)
    both = [gates, _threshold(constant, 1 - uniform)] if estimator.mirrored else [gates]
    return Gates(gates, hard=True, weights=estimator.weights(constant, noise, jnp.stack(both)))


def _threshold(logits: Array, uniform: Array) -> Array:
    return F.uniform_sigmoid(logits, uniform, straight_through=True)


def selection_record(
    logits: Float[Array, "B M Q N"],
    gates: Gates,
    mask: Bool[Array, "B N"] | None,
    pairs: Bool[Array, "B M Q N"] | None,
) -> dict[str, Array]:
    """Returns the arrays from which `selection_of` computes the statistics of a selection."""
    # Sums over keys are enough for all means, so that blocks of queries need not return arrays over
    # pairs.
    count = functools.partial(F.selection_counts, mask=mask, pair_mask=pairs)
    record = {
        "gates": gates.values,
        "logits": logits,
        "counts": count(gates.values),
        "entropies": F.selection_entropy(logits, mask, pair_mask=pairs),
        "log_probs": F.selection_log_prob(logits, gates.values, mask, pair_mask=pairs),
        "probabilities": count(jax.nn.sigmoid(logits)),
    }
    # Queries that see different numbers of keys need counts of keys for their means.
    if pairs is not None:
        record["keys"] = count(jnp.ones((logits.shape[0], *pairs.shape[1:]), logits.dtype))
    if gates.weights is not None:
        record["score"] = count(jax.lax.stop_gradient(gates.weights) * logits)
    return record


def selection_of(record: dict[str, Array], mask: Bool[Array, "B Q"] | None) -> Selection:
    """Computes the `Selection` of a record: means over pairs and queries."""
    # The record of an attention without a selector has only the weights.
    if "counts" not in record:
        return Selection(weights=record.get("weights"))
    keys = record.get("keys")
    statistics = F.selection_statistics(record["counts"], mask, num_keys=keys)
    return Selection(
        weights=record.get("weights"),
        gates=record.get("gates"),
        logits=record.get("logits"),
        **statistics._asdict(),
        entropy=F.mean_over_pairs(record["entropies"], mask, num_keys=keys),
        log_prob=F.mean_over_pairs(record["log_probs"], mask, num_keys=keys),
        probability=F.mean_over_pairs(record["probabilities"], mask, num_keys=keys),
        score=_sum_over_queries(record.get("score"), mask),
    )


def _sum_over_queries(values: Array | None, mask: Array | None) -> Array | None:
    if values is None:
        return None
    if mask is not None:
        values = jnp.where(mask[:, None, :], values, 0)
    return jnp.sum(values, axis=(1, 2))
