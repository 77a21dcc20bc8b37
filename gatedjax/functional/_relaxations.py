"""Relaxed and hard binary gates: Gumbel-sigmoid, Gumbel-softmax, Bernoulli, score function."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Key

from gatedjax._utils.choices import check_choice
from gatedjax._utils.tracing import check_key, is_traced
from gatedjax.functional._checks import (
    check_axis,
    check_floating,
    check_mask,
    check_same_shape,
    check_temperature,
    promote,
    wide_dtype,
)

# Uniform draws are kept inside [_TINY, 1 - _TINY]: float32 draws are multiples of 2**-23, so only
# the draw 0 is moved, and both logarithms below stay finite.
_TINY = 1e-7
# A traced temperature below this counts as 0: its inverse squared, in a derivative, is not finite.
_COLD = 1e-15


def logistic_noise(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Draws standard logistic noise, the difference of two Gumbel variables.

    L = log u - log(1 - u),  u ~ Uniform(0, 1).

        >>> logistic_noise(jax.random.key(0), (2, 3)).shape
        (2, 3)

    Args:
      key: a PRNG key.
      shape: shape of the result. With the partitionable threefry (JAX's default) a longer last
        axis of a one-dimensional draw continues a shorter one, so padding changes no real draw.

    Returns:
      float32 noise, finite for every draw (|L| < 16.2).

    Reference: Xue et al. 2020 (GA-Net), eq. 8, rewritten for two classes.
    """
    check_key(key=key)
    return logistic_of(key, shape)


def logistic_of(key: Array, shape: tuple[int, ...]) -> Array:
    """Computes `logistic_noise` without checks."""
    u = jnp.clip(jax.random.uniform(key, shape, jnp.float32), _TINY, 1.0 - _TINY)
    # log1p keeps the digits of u for small u, which 1 - u would round away.
    return jnp.log(u) - jnp.log1p(-u)


def gumbel_noise(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Draws standard Gumbel noise, -log(-log u) with u ~ Uniform(0, 1).

        >>> gumbel_noise(jax.random.key(0), (2, 3)).shape
        (2, 3)

    Args:
      key: a PRNG key.
      shape: shape of the result.

    Returns:
      float32 noise, finite for every draw.
    """
    check_key(key=key)
    u = jnp.clip(jax.random.uniform(key, shape, jnp.float32), _TINY, 1.0 - _TINY)
    return -jnp.log(-jnp.log(u))


@jax.custom_jvp
def _straight_through(hard: Array, soft: Array) -> Array:
    del soft
    # The value is exact, whereas hard + soft - soft would round.
    return hard


@_straight_through.defjvp
def _straight_through_jvp(primals, tangents):
    return _straight_through(*primals), tangents[1]


def binarize(perturbed: Array) -> Array:
    """Returns the hard gates [x > 0] as 0.0 and 1.0 without a gradient; NaN stays NaN."""
    perturbed = lax.stop_gradient(perturbed)
    # All hard gates come from here, so that a network that diverged is noticed.
    return jnp.where(jnp.isnan(perturbed), perturbed, (perturbed > 0).astype(perturbed.dtype))


@jax.custom_jvp
def divide_by_temperature(perturbed: Array, temperature: Array) -> Array:
    """Returns x / tau, of equal dtypes, with a derivative of 0 by tau where x is infinite."""
    # The derivative is custom, because a compiled `where` changed the last bit.
    return perturbed / temperature


@divide_by_temperature.defjvp
def _divide_jvp(primals, tangents):
    perturbed, temperature = primals
    # -x / tau^2 would be infinite at padding, and NaN after the product with a cotangent of 0.
    finite = jnp.where(jnp.isinf(perturbed), 0, perturbed)
    change = jax.jvp(jnp.divide, (finite, temperature), tangents)[1]
    return divide_by_temperature(perturbed, temperature), change


def relax_or_limit(
    relax: Callable[[Array], Array], perturbed: Array, temperature: Any, limit: Callable[[], Array]
) -> Array:
    """Returns relax(perturbed / tau), or `limit()` for a traced tau of 0 or less."""
    if not is_traced(temperature):
        return relax(divide_by_temperature(*promote(perturbed, temperature)))
    cold = temperature < _COLD
    # The divisor is replaced before the division, because the outer `where` alone would leave NaN
    # in the derivative.
    warm = jnp.where(cold, 1, temperature)
    soft = relax(divide_by_temperature(*promote(perturbed, warm)))
    return jnp.where(cold, limit().astype(soft.dtype), soft)


def _check_noisy(logits: Array, noise: Array, temperature: Any) -> None:
    check_floating(logits=logits, noise=noise)
    check_same_shape(logits=logits, noise=noise)
    check_temperature(temperature, jnp.shape(logits))


def perturb(logits: Array, noise: Array) -> Array:
    """Returns a + L, in float32 or wider."""
    dtype = wide_dtype(logits, noise)
    return jnp.asarray(logits, dtype) + jnp.asarray(noise, dtype)


def gumbel_sigmoid(
    logits: Float[Array, "..."],
    noise: Float[Array, "..."],
    *,
    temperature: float | Float[Array, ""] = 1.0,
    straight_through: bool = False,
) -> Float[Array, "..."]:
    """Relaxes a Bernoulli gate: g = sigmoid((a + L) / tau).

    Equal to the open component of a two-class Gumbel-softmax over (log p, log(1 - p)) with
    p = sigmoid(a), in the form that neither overflows nor takes the log of zero.

        >>> logits = jnp.array([jnp.log(3), -jnp.log(3), -jnp.inf])
        >>> print(gumbel_sigmoid(logits, jnp.zeros(3), temperature=1.0).round(2))
        [0.75 0.25 0.  ]
        >>> print(gumbel_sigmoid(logits, jnp.zeros(3), straight_through=True))
        [1. 0. 0.]

    Args:
      logits: a, the log-odds that a gate is open, in nats; -inf closes it.
      noise: L, logistic noise of the same shape (see `logistic_noise`).
      temperature: tau > 0. As tau -> 0 the gate approaches the Bernoulli draw [a + L > 0]. A
        traced tau of 0 or less (or below 1e-15) returns that draw, without a gradient.
      straight_through: return that hard draw, with the gradient of the soft gate.

    Returns:
      Gates in [0, 1], in the dtype of logits; computed in float32 or wider.

    Reference: Xue et al. 2020 (GA-Net), eq. 8; Jang et al. 2017; Maddison et al. 2017.
    """
    _check_noisy(logits, noise, temperature)
    perturbed = perturb(logits, noise)
    soft = relax_or_limit(jax.nn.sigmoid, perturbed, temperature, lambda: binarize(perturbed))
    soft = soft.astype(jnp.result_type(logits))
    if not straight_through:
        return soft
    return _straight_through(binarize(perturbed).astype(soft.dtype), soft)


def log_gumbel_sigmoid(
    logits: Float[Array, "..."],
    noise: Float[Array, "..."],
    *,
    temperature: float | Float[Array, ""] = 1.0,
) -> Float[Array, "..."]:
    """Returns the logarithm of `gumbel_sigmoid`: log g = log_sigmoid((a + L) / tau).

    It is linear in the tail, so a gate too small for float32 still has a value and a gradient.
    `relaxed_gated_softmax` takes these logarithms.

        >>> float(log_gumbel_sigmoid(jnp.array(-200.0), jnp.array(0.0)))
        -200.0

    Args:
      logits: a, log-odds of an open gate, in nats.
      noise: L, logistic noise of the same shape (see `logistic_noise`).
      temperature: tau > 0. A traced tau of 0 or less returns the logarithm of the hard draw, 0 or
        -inf, without a gradient.

    Returns:
      log g <= 0, in float32 or wider.

    Reference: Xue et al. 2020 (GA-Net), eq. 8, as a logarithm.
    """
    _check_noisy(logits, noise, temperature)
    return log_gates_of(logits, noise, temperature)


def log_gates_of(logits: Array, noise: Array, temperature: Any) -> Array:
    """Computes `log_gumbel_sigmoid` without checks."""
    x = perturb(logits, noise)
    return relax_or_limit(jax.nn.log_sigmoid, x, temperature, lambda: jnp.log(binarize(x)))


def gumbel_softmax(
    logits: Float[Array, "..."],
    noise: Float[Array, "..."],
    *,
    temperature: float | Float[Array, ""] = 1.0,
    axis: int = -1,
    straight_through: bool = False,
) -> Float[Array, "..."]:
    """Relaxes a categorical draw: softmax((logits + noise) / tau).

        >>> logits = jnp.log(jnp.array([0.25, 0.25, 0.5]))
        >>> print(gumbel_softmax(logits, jnp.zeros(3)).round(2))
        [0.25 0.25 0.5 ]
        >>> print(gumbel_softmax(logits, jnp.zeros(3), straight_through=True))
        [0. 0. 1.]

    Args:
      logits: unnormalised log-probabilities, in nats.
      noise: Gumbel noise of the same shape (see `gumbel_noise`).
      temperature: tau > 0; a traced one of 0 or less (or below 1e-15) gives the one-hot draw,
        without a gradient.
      axis: the axis of the categories.
      straight_through: return the one-hot draw (the first of equal maxima), with the gradient
        of the relaxation.

    Returns:
      Weights that sum to 1 along axis, in the dtype of logits.

    Reference: Jang et al. 2017; Xue et al. 2020 (GA-Net), eq. 8.
    """
    _check_noisy(logits, noise, temperature)
    axis = check_axis(axis, jnp.ndim(logits))
    perturbed = perturb(logits, noise)
    if perturbed.shape[axis] == 0:  # argmax of an empty axis is an error
        return perturbed.astype(jnp.result_type(logits))
    winner = jnp.argmax(perturbed, axis=axis, keepdims=True)
    # The comparison with the index of the winner opens a single category also among equal maxima.
    hard = lax.broadcasted_iota(winner.dtype, perturbed.shape, axis) == winner
    # argmax treats NaN as the largest number.
    lost = jnp.any(jnp.isnan(perturbed), axis=axis, keepdims=True)
    hard = jnp.where(lost, jnp.nan, hard.astype(perturbed.dtype))
    relax = functools.partial(jax.nn.softmax, axis=axis)
    soft = relax_or_limit(relax, perturbed, temperature, lambda: hard)
    soft = soft.astype(jnp.result_type(logits))
    return _straight_through(hard.astype(soft.dtype), soft) if straight_through else soft


def sample_gates(logits: Float[Array, "..."], *, key: Key[Array, ""]) -> Float[Array, "..."]:
    """Draws hard gates g ~ Bernoulli(sigmoid(a)) as [a + L > 0].

    `gumbel_sigmoid` relaxes this draw: with the same key the draw is its limit at tau -> 0.

        >>> print(sample_gates(jnp.array([9.0, -9.0, -jnp.inf]), key=jax.random.key(0)))
        [1. 0. 0.]

    Args:
      logits: a, log-odds of an open gate, in nats; -inf is closed. L is logistic noise.
      key: a PRNG key.

    Returns:
      Gates in {0, 1}, in the dtype of logits; no gradient. The gate of a NaN is NaN.

    Reference: Xue et al. 2020 (GA-Net), eq. 5.
    """
    check_floating(logits=logits)
    noise = logistic_noise(key, jnp.shape(logits)).astype(wide_dtype(logits))
    perturbed = jnp.asarray(logits, noise.dtype) + noise
    return binarize(perturbed).astype(jnp.result_type(logits))


def threshold_gates(logits: Float[Array, "..."]) -> Float[Array, "..."]:
    """Opens the gates that are more likely open than closed: g = [a > 0]; ties close.

    It may leave a row without an open gate; `hard_gates` has a rule for such rows.

        >>> print(threshold_gates(jnp.array([0.3, 0.0, -0.3])))
        [1. 0. 0.]

    Args:
      logits: a, log-odds of an open gate, in nats.

    Returns:
      Gates in {0, 1}, in the dtype of logits; no gradient. The gate of a NaN is NaN.

    Reference: Xue et al. 2020 (GA-Net), eq. 6 without noise.
    """
    check_floating(logits=logits)
    return binarize(jnp.asarray(logits))


def ensure_open(
    gates: Float[Array, "*B T"], logits: Float[Array, "*B T"], mask: Bool[Array, "*B T"]
) -> tuple[Float[Array, "*B T"], Bool[Array, "*B"]]:
    """Opens the likeliest valid gate of each row in which all valid gates are closed.

        >>> gates = jnp.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        >>> logits = jnp.array([[-3.0, -1.0, 5.0], [-3.0, 1.0, -2.0]])
        >>> mask = jnp.array([[True, True, False], [True, True, True]])
        >>> opened_gates, closed = ensure_open(gates, logits, mask)
        >>> print(opened_gates)
        [[0. 1. 0.]
         [0. 1. 0.]]
        >>> print(closed)
        [ True False]

    Args:
      gates: hard gates, 0 or 1 for each of T positions of a row.
      logits: log-odds by which the gate is chosen (the first of equal maxima).
      mask: True at real positions.

    Returns:
      (gates, closed): the gates, 0 at padding, and a bool per row that is True where all its gates
      were closed. A row without real positions stays closed and has closed=False. In a closed row
      a NaN among the logits gives a gate of NaN.

    Reference: decision of this library (the paper's eq. 2 is 0/0 there).
    """
    check_floating(logits=logits)
    check_same_shape(gates=gates, logits=logits, mask=mask)
    check_mask(mask, jnp.shape(gates))
    gates = jnp.where(mask, gates, 0)
    # A row with a gate of NaN is not closed, so that the NaN reaches the output.
    closed = jnp.logical_and(jnp.all(gates <= 0, axis=-1), jnp.any(mask, axis=-1))
    if gates.shape[-1] == 0:  # argmax of an empty axis is an error
        return gates, closed
    # A valid logit may itself be -inf (probability 0): two keys, validity before size.
    lowest = jnp.finfo(jnp.result_type(logits)).min
    candidates = jnp.where(mask, jnp.maximum(logits, lowest), -jnp.inf)
    best = jnp.argmax(candidates, axis=-1, keepdims=True)
    positions = lax.broadcasted_iota(best.dtype, gates.shape, gates.ndim - 1)
    forced = jnp.logical_and(positions == best, closed[..., None])
    likeliest = jnp.ones_like(gates)
    if jnp.issubdtype(gates.dtype, jnp.floating):
        # argmax treats NaN as the largest number, which must not open a gate.
        likeliest = jnp.where(jnp.isnan(logits), jnp.nan, likeliest)
    return jnp.where(forced, likeliest, gates), closed


def hard_gates(
    logits: Float[Array, "*B T"],
    mask: Bool[Array, "*B T"] | None,
    *,
    key: Key[Array, ""] | None = None,
    empty: Literal["max_gate", "zero", "soft"] = "max_gate",
) -> Float[Array, "*B T"]:
    """Makes test-time gates from log-odds, not from probabilities, which would open every gate.

        g_t = [a_t > 0],  or with a key  g_t ~ Bernoulli(sigmoid(a_t)),  at real positions

    Values in [0, 1] may be either, so that no check can tell: pass probabilities p as
    `jax.scipy.special.logit(p)`. The function is for networks that were trained with relaxed gates.
    These never close completely, so a network in training always attends to something. With hard
    gates all gates of a row may be closed; `empty` is the rule for such rows. Pass the gates to
    `gated_softmax`.

        >>> hard_gates(jnp.array([[2.0, -1.0], [-3.0, -1.0]]), None)
        Array([[1., 0.],
               [0., 1.]], dtype=float32)
        >>> hard_gates(jax.scipy.special.logit(jnp.array([0.9, 0.3])), None)
        Array([1., 0.], dtype=float32)

    Args:
      logits: a, log-odds of an open gate at each of T positions, in nats, such as the output of a
        `GatePredictor`. Values at masked positions, NaN included, have no effect.
      mask: True at real positions; None means all.
      key: draws the gates, as `sample_gates` does. None opens the gates that are more likely open
        than closed; ties close. For draws that depend neither on the batch nor on its padding, map
        over keys of the examples: `jax.vmap(hard_gates)(logits, mask, key=keys)`.
      empty: the rule for a row without an open gate. Its likeliest gate opens ("max_gate", the
        first of equal maxima; see `ensure_open`), all stay closed ("zero"), or its gates are the
        open probabilities sigmoid(a) ("soft").

    Returns:
      Gates in the dtype of logits, 0 at padding, without a gradient: 0 or 1, and in the rows of
      "soft" between. A row without a real position is 0. The gate of a NaN is NaN.

    Reference: Xue et al. 2020 (GA-Net), eqs. 5 and 6; the rules for rows without an open gate are
      decisions of this library (the paper's eq. 2 is 0/0 there).
    """
    check_choice(Literal["max_gate", "zero", "soft"], empty=empty)
    check_floating(logits=logits)
    logits = lax.stop_gradient(jnp.asarray(logits))
    if mask is None:
        mask = jnp.ones(logits.shape, bool)
    gates = threshold_gates(logits) if key is None else sample_gates(logits, key=key)
    with_one_open, closed = ensure_open(gates, logits, mask)
    if empty == "max_gate":
        return with_one_open
    if empty == "soft":
        gates = jnp.where(closed[..., None], jax.nn.sigmoid(logits), gates)
    return jnp.where(mask, gates, jnp.zeros_like(gates))


def gate_penalty(
    gates: Float[Array, "*B T"], mask: Bool[Array, "*B T"] | None = None
) -> Float[Array, "*B"]:
    """Averages the gates over real positions: (1 / T) sum_t g_t with T the true length.

        >>> mask = jnp.array([True, True, False])
        >>> float(gate_penalty(jnp.array([1.0, 0.5, 1.0]), mask))
        0.75

    Args:
      gates: soft or hard gates, or open probabilities.
      mask: True at real positions; None means all.

    Returns:
      Mean gate per row, float32 or wider; 0 for a row without real positions. The gradient at
      padding is 0.

    Reference: Xue et al. 2020 (GA-Net), eq. 10, second term without lambda.
    Deviation: T is the length of the example, not the padded length of its batch.
    """
    check_floating(gates=gates)
    gates = jnp.asarray(gates, wide_dtype(gates))
    if mask is None:
        mask = jnp.ones(gates.shape, bool)
    check_same_shape(gates=gates, mask=mask)
    check_mask(mask, gates.shape)
    total = jnp.sum(jnp.where(mask, gates, 0), axis=-1)
    count = jnp.sum(mask, axis=-1).astype(gates.dtype)
    # A row without real positions divides 0 by 1.
    return total / jnp.maximum(count, 1)


def score_function_loss(
    log_prob: Float[Array, "*B"],
    reward: Float[Array, "*B"],
    baseline: Float[Array, "*B"] | float = 0.0,
) -> Float[Array, "*B"]:
    """Returns a surrogate loss with the score-function (REINFORCE) estimate as its gradient.

    loss = -(R - b) log pi, with R and b held constant; minimising it raises the expected reward.

        >>> float(score_function_loss(jnp.array(-0.5), jnp.array(2.0), 1.0))
        0.5

    Args:
      log_prob: log pi, the log-probability of the sampled gates of each example, in nats.
      reward: R of each example, larger is better.
      baseline: b, any value that does not depend on the sample; lowers the variance.

    Returns:
      The surrogate per example. Only its gradient has a meaning, not its value.

    Reference: Williams 1992; the policy-gradient variants compared with GA-Net and SSAN.
    """
    check_same_shape(log_prob=log_prob, reward=reward)
    if jnp.ndim(baseline):
        check_same_shape(reward=reward, baseline=baseline)
    advantage = jnp.subtract(*promote(reward, baseline))
    return jnp.multiply(*promote(-lax.stop_gradient(advantage), log_prob))
