"""Gates of query-key pairs: a relaxation, and statistics of the selected pairs."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gatedjax.functional._checks import (
    check_broadcasts,
    check_floating,
    check_mask,
    check_positive,
    check_same_shape,
    check_that,
    promote,
    wide_dtype,
)
from gatedjax.functional._export import exportable
from gatedjax.functional._pairs import check_key_mask, pair_mask_of
from gatedjax.functional._relaxations import _straight_through, binarize, relax_or_limit


def uniform_sigmoid(
    logits: Float[Array, "..."],
    uniform: Float[Array, "..."],
    *,
    temperature: float | Float[Array, ""] = 1.0,
    straight_through: bool = False,
) -> Float[Array, "..."]:
    """Computes `gumbel_sigmoid` from uniform draws, without the logarithms of the noise.

        g = sigmoid((a + log u - log(1 - u)) / tau) = 1 / (1 + r^(1/tau)),  r = (1 - u) / (u exp(a))

    Temperatures 1 and 0.5 need no logarithm.

        >>> uniform = jnp.array([0.5, 0.75, 0.25])
        >>> print(uniform_sigmoid(jnp.zeros(3), uniform))
        [0.5  0.75 0.25]
        >>> print(uniform_sigmoid(jnp.zeros(3), uniform, straight_through=True))
        [0. 1. 0.]

    Args:
      logits: a, the log-odds that a gate is open, in nats, of any shape.
      uniform: u in (0, 1), random numbers of the same shape, such as the draws of `pair_uniform`.
      temperature: tau > 0. A traced tau of 0 or less returns the hard draw, without a gradient.
      straight_through: return the hard draw [r < 1], with the gradient of the soft gate.

    Returns:
      Gates in [0, 1], in the dtype of logits; computed in float32 or wider.

    Reference: Geng et al. 2020 (SSAN), eq. 4; Jang et al. 2017; Maddison et al. 2017.
    """
    check_floating(logits=logits, uniform=uniform)
    check_positive(temperature=temperature)
    check_same_shape(logits=logits, uniform=uniform)
    dtype, kind = wide_dtype(logits, uniform), jnp.result_type(logits)
    a, u = jnp.asarray(logits, dtype), jnp.asarray(uniform, dtype)
    if isinstance(temperature, float | int):
        soft = _uniform_sigmoid(a, u, float(temperature))
    else:
        noise = jnp.log(u) - jnp.log1p(-u)
        soft = relax_or_limit(jax.nn.sigmoid, a + noise, temperature, lambda: binarize(a + noise))
    if not straight_through:
        return soft.astype(kind)
    return _straight_through(binarize(1 - _odds_against(a, u)).astype(kind), soft.astype(kind))


def _odds_against(a: Array, u: Array) -> Array:
    return (1 - u) / u * jnp.exp(-a)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _uniform_sigmoid(a: Array, u: Array, temperature: float) -> Array:
    odds = _odds_against(a, u)
    # A general power costs a logarithm and an exponential per pair, a square only a product.
    if temperature == 0.5:
        odds = odds * odds
    elif temperature != 1.0:
        odds = odds ** (1 / temperature)
    return 1 / (1 + odds)  # 0 or 1 for infinite logits, not NaN


@_uniform_sigmoid.defjvp
def _uniform_sigmoid_jvp(temperature, primals, tangents):
    a, u = primals
    soft = _uniform_sigmoid(a, u, temperature)
    # The derivative of the odds would overflow.
    slope = soft * (1 - soft) / temperature
    return soft, slope * (tangents[0] + tangents[1] / (u * (1 - u)))


@exportable
class SelectionStatistics(NamedTuple):
    """Statistics of a selection over the real pairs of each of B examples and M heads.

    Attributes:
      rate: share of the pairs of a query and a key that are selected [B, M].
      empty: share of the queries without selected keys [B, M].
      selected: mean number of selected keys per query [B, M].
    """

    rate: Array
    empty: Array
    selected: Array


def selection_counts(
    gates: Float[Array, "B M Q N"],
    mask: Bool[Array, "B N"] | None = None,
    *,
    pair_mask: Bool[Array, "B M Q N"] | None = None,
) -> Float[Array, "B M Q"]:
    """Counts the real keys that each query has selected: sum_j A_ij.

        >>> print(selection_counts(jnp.array([[[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]])))
        [[[2. 0.]]]

    Args:
      gates: A, 1 where a query has selected a key, else 0 (or soft gates between), before a rule
        for queries without selected keys is applied. The axes are B examples, M heads, Q queries
        and N keys.
      mask: True at real keys; None means all.
      pair_mask: True at pairs that count, [B, Q, N] or with an axis of heads; an axis may be 1.

    Returns:
      The counts, in float32 or wider; gradients flow through them.
    """
    check_floating(gates=gates)
    return _sum_over_keys(jnp.asarray(gates, wide_dtype(gates)), mask, pair_mask)


def selection_statistics(
    counts: Float[Array, "B M Q"],
    mask: Bool[Array, "B Q"] | None = None,
    *,
    num_keys: Float[Array, "B M Q"] | None = None,
) -> SelectionStatistics:
    """Averages `selection_counts` over real queries.

        >>> statistics = selection_statistics(jnp.array([[[2.0, 0.0, 1.0, 1.0]]]))
        >>> print(statistics.rate, statistics.empty, statistics.selected)
        [[0.25]] [[0.25]] [[1.]]

    Args:
      counts: the number of selected keys for each of B examples, M heads and Q queries.
      mask: True at real queries; None means all.
      num_keys: the number of keys that each query could select (the axis of heads may be 1). None
        requires as many queries as keys and means the real positions of the mask.

    Returns:
      (rate, empty, selected), arrays [B, M] in float32 or wider: the share of the pairs that are
      selected, the share of the queries without selected keys, and the mean number of selected keys
      per query. They are 0 for an example without real positions. Gradients flow through rate and
      selected.
    """
    check_floating(counts=counts)
    selected = _mean_over_queries(counts, mask)
    # NaN == 0 is False and would hide that a network diverged.
    none = jnp.where(jnp.isnan(counts), counts, (counts == 0).astype(counts.dtype))
    none = _mean_over_queries(none.astype(selected.dtype), mask)
    rate = jnp.divide(*promote(selected, _keys_of_a_query(counts, mask, num_keys)))
    return SelectionStatistics(rate=rate, empty=none, selected=selected)


def selection_entropy(
    logits: Float[Array, "B M Q N"],
    mask: Bool[Array, "B N"] | None = None,
    *,
    pair_mask: Bool[Array, "B M Q N"] | None = None,
) -> Float[Array, "B M Q"]:
    """Computes the entropy of each query's selection: sum_j H(sigmoid(a_ij)) over real keys.

        >>> print(jnp.exp(selection_entropy(jnp.zeros((1, 1, 1, 2)))).round(2))
        [[[4.]]]

    Args:
      logits: a, log-odds that a query selects a key, for B examples, M heads, Q queries and N keys;
        infinite for a certain selection. Values at pairs that do not count, NaN included, have no
        effect.
      mask: True at real keys; None means all.
      pair_mask: True at pairs that count, [B, Q, N] or with an axis of heads; an axis may be 1.

    Returns:
      The entropy of each query's selection in nats, in float32 or wider.
    """
    check_floating(logits=logits)
    a = _zero_elsewhere(jnp.asarray(logits, wide_dtype(logits)), mask, pair_mask)
    # The formula below is inf - inf at infinite logits, where the entropy is 0.
    certain = jnp.isinf(a)
    a = jnp.where(certain, 0, a)
    entropy = jnp.where(certain, 0, jax.nn.softplus(a) - a * jax.nn.sigmoid(a))
    return _sum_over_keys(entropy, mask, pair_mask)


def selection_log_prob(
    logits: Float[Array, "B M Q N"],
    gates: Float[Array, "B M Q N"],
    mask: Bool[Array, "B N"] | None = None,
    *,
    pair_mask: Bool[Array, "B M Q N"] | None = None,
) -> Float[Array, "B M Q"]:
    """Computes the log-probability of each query's selection: sum_j log p(A_ij) over real keys.

        >>> gates = jnp.array([[[[1.0, 0.0]]]])
        >>> print(jnp.exp(selection_log_prob(jnp.zeros((1, 1, 1, 2)), gates)).round(2))
        [[[0.25]]]

    Args:
      logits: a, log-odds that a query selects a key, for B examples, M heads, Q queries and N keys;
        infinite for a certain selection. Values at pairs that do not count, NaN included, have no
        effect.
      gates: A in {0, 1}, 1 where the query has selected the key; they get no gradient.
      mask: True at real keys; None means all.
      pair_mask: True at pairs that count, [B, Q, N] or with an axis of heads; an axis may be 1.

    Returns:
      The log-probability of each query's selection in nats, in float32 or wider.
    """
    check_floating(logits=logits, gates=gates)
    check_same_shape(logits=logits, gates=gates)
    a = _zero_elsewhere(jnp.asarray(logits, wide_dtype(logits)), mask, pair_mask)
    gates = jax.lax.stop_gradient(gates)
    # log p(A) is log_sigmoid(a) for a selected key and log_sigmoid(-a) for a key that is left out.
    signed = jnp.where(jnp.isnan(gates), jnp.nan, jnp.where(gates > 0, a, -a))
    return _sum_over_keys(jax.nn.log_sigmoid(signed), mask, pair_mask)


def mean_over_pairs(
    sums: Float[Array, "B M Q"],
    mask: Bool[Array, "B Q"] | None = None,
    *,
    num_keys: Float[Array, "B M Q"] | None = None,
) -> Float[Array, " B"]:
    """Averages sums over keys to a mean per pair, over heads, real queries and their keys.

        >>> print(mean_over_pairs(jnp.array([[[3.0, 1.0]]])))
        [1.]

    Args:
      sums: sums over keys, such as `selection_counts`, for B examples, M heads and Q queries.
      mask: True at real queries; None means all.
      num_keys: the number of keys that each query could select (the axis of heads may be 1). None
        requires as many queries as keys and means the real positions of the mask.

    Returns:
      The mean of each example, in float32 or wider; 0 for an example without pairs.
    """
    means, counts = _mean_over_queries(sums, mask), _keys_of_a_query(sums, mask, num_keys)
    per_head = jnp.divide(*promote(means, counts))
    return jnp.mean(per_head, axis=1)


def _keys_of_a_query(like: Array, mask: Array | None, keys: Array | None) -> Array:
    if keys is None:
        return jnp.maximum(_lengths(like, mask), 1)
    check_broadcasts(like.shape, num_keys=keys)
    means = _mean_over_queries(jnp.broadcast_to(keys, like.shape), mask)
    return jnp.where(means <= 0, 1, means)


def _sum_over_keys(values: Array, mask: Array | None, pair_mask: Array | None) -> Array:
    return jnp.sum(_zero_elsewhere(values, mask, pair_mask), axis=-1)


def _zero_elsewhere(values: Array, mask: Array | None, pair_mask: Array | None) -> Array:
    check_that(values.ndim == 4, "values must be [B, M, Q, N], a value per pair", values)
    check_key_mask(mask, (values.shape[0], values.shape[-1]))
    if mask is not None:
        values = jnp.where(mask[:, None, None, :], values, 0)
    if (pairs := pair_mask_of(pair_mask, False, values.shape)) is not None:
        values = jnp.where(pairs, values, 0)
    return values


def _mean_over_queries(values: Array, mask: Array | None) -> Array:
    """Returns the mean over real queries of values [B, M, Q]: [B, M], 0 without real queries."""
    check_that(values.ndim == 3, "values must be [B, M, N], a value per query", values)
    check_mask(mask, (values.shape[0], values.shape[-1]))
    values = jnp.asarray(values, wide_dtype(values))
    if mask is not None:
        values = jnp.where(mask[:, None, :], values, 0)
    # An example without real queries has a sum of 0, which this divisor turns into a mean of 0.
    lengths = jnp.maximum(_lengths(values, mask), 1)
    return jnp.divide(*promote(jnp.sum(values, axis=-1), lengths))


def _lengths(values: Array, mask: Array | None) -> Array:
    rows, _, size = values.shape
    if mask is None:
        return jnp.full((rows, 1), size, jnp.float32)
    return jnp.sum(jnp.broadcast_to(mask, (rows, size)), axis=-1, dtype=jnp.float32)[:, None]
