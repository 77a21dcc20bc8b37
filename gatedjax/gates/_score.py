"""Unbiased estimators that need only values of the loss; p = sigmoid(a) and b - p is the score."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax._utils.fields import check_type
from gatedjax.functional._checks import check_numbers, promote
from gatedjax.gates._estimator import ByValues, Noise, Patterns, PerGate, Values, draw_gates


def _multiply(values: Array, weights: Array) -> Array:
    return jnp.multiply(*promote(values, weights))


def score(logits: Float[Array, " n"], gates: Float[Array, " n"]) -> Float[Array, " n"]:
    """Computes the score b - p, the gradient of log P(b) by the logits, without cancellation."""
    return jnp.where(gates > 0, jax.nn.sigmoid(-logits), -jax.nn.sigmoid(logits))


@dataclasses.dataclass(frozen=True)
class Reinforce(ByValues):
    """The score-function estimator.

        gradient = (f(b) - c) (b - p)

    f is the loss, b the draw of the gates, and p = sigmoid(a) for the logits a [n]. The estimate is
    unbiased for any c that does not depend on b. It evaluates the loss once, without its
    derivative.

        >>> logits, noise = jnp.zeros(2), jnp.array([[1.0, -1.0]])
        >>> reinforce = Reinforce(baseline=1.0)
        >>> patterns = reinforce.patterns(logits, noise)
        >>> print(patterns, reinforce.gradient(logits, noise, patterns, jnp.array([3.0])))
        [[1. 0.]] [ 1. -1.]

    Attributes:
      baseline: c, a number such as a running mean of the loss; may be a traced scalar.

    Reference: Williams 1992.
    """

    unbiased: ClassVar[bool] = True
    baseline: float | Float[Array, ""] = 0.0

    def __post_init__(self) -> None:
        check_numbers(baseline=self.baseline)

    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns the score b - p times the advantage f(b) - c, for the baseline c.

        logits are [n], patterns have the single row b [1, n], and values [1] are the loss f(b). The
        noise is not used.
        """
        advantage = jnp.subtract(*promote(values[0], self.baseline))
        return _multiply(advantage, score(logits, patterns[0]))


class MultiPass(ByValues):
    """An estimator of gates in several layers, by k passes of the whole network with losses f_j.

        gradient = 1 / (k - 1) sum_j (f_j - mean f) w_j

    The weights w_j of a pass depend only on its logits, noise and gates.
    """

    unbiased: ClassVar[bool] = True
    mirrored: ClassVar[bool] = False
    """True if there are two passes with opposite noise; otherwise each pass draws its noise."""

    def weights(self, logits: Array, noise: Array, gates: Array) -> Array:
        """Returns w_j, for this draw [1, ...] or also that under opposite noise [2, ...]."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class LeaveOneOut(MultiPass):
    """REINFORCE with k draws; the baseline of each draw is the mean loss of the other draws.

        gradient = 1 / (k - 1) sum_j (f(b_j) - mean_i f(b_i)) (b_j - p)

    f is the loss, b_j are the k draws of the gates, and p = sigmoid(a) for the logits a [n]. The
    estimate is unbiased. It evaluates the loss k times, without its derivative. Its value is the
    mean of the k losses.

        >>> logits, noise = jnp.zeros(1), jnp.array([[1.0], [-1.0]])
        >>> estimator = LeaveOneOut(k=2)
        >>> patterns = estimator.patterns(logits, noise)
        >>> print(estimator.gradient(logits, noise, patterns, jnp.array([3.0, 1.0])))
        [1.]

    Attributes:
      k: the number of draws, at least 2.

    Reference: Kool et al. 2019, "Buy 4 REINFORCE Samples, Get a Baseline for Free!".
    """

    k: int = 2

    def __post_init__(self) -> None:
        check_type("k", self.k, int)
        if self.k < 2:
            raise ValueError(f"k must be at least 2, got {self.k}")

    @property
    def rows(self) -> int:  # type: ignore[override]
        """The number of rows of noise, equal to the number k of draws."""
        return self.k

    def weights(self, logits: Array, noise: Array, gates: Array) -> Array:
        """Returns the score b - p, with the shape of the logits a, of the draw b = gates[0].

        gates are [1, ...], and p = sigmoid(a). The noise is not used.
        """
        return score(logits, gates[0])

    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns sum_j (f(b_j) - mean f) (b_j - p) / (k - 1), for the k patterns b_j.

        logits are [n], patterns are [k, n], and values [k] are their losses; f stands for these
        values. The noise is not used.
        """
        scores = jax.vmap(score, in_axes=(None, 0))(logits, patterns)
        advantages = values - jnp.mean(values)
        return jnp.sum(_multiply(advantages[:, None], scores), axis=0) / (self.k - 1)


class _Antithetic(MultiPass):
    """An estimator with the two draws b = [a + L > 0] and c = [a - L > 0]."""

    mirrored: ClassVar[bool] = True

    def patterns(self, logits: PerGate, noise: Noise) -> Patterns:
        """Returns the two draws b = [a + L > 0] and c = [a - L > 0] as rows [2, n].

        logits a are [n], and noise is a single row L [1, n] of logistic noise.
        """
        # The distribution of the noise is symmetric, so both draws have the same distribution.
        return draw_gates(logits, jnp.concatenate([noise, -noise]))

    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns the estimate [n] of the gradient with respect to the logits: (f(b) - f(c)) w.

        w [n] is the factor that the method `weights` of the subclass computes. logits are [n],
        noise [1, n] is the logistic noise of the draw, patterns [2, n] are b and c, and values [2]
        are f(b) and f(c).
        """
        return _multiply(values[0] - values[1], self.weights(logits, noise[0], patterns))


@dataclasses.dataclass(frozen=True)
class ARM(_Antithetic):
    """The augment-REINFORCE-merge estimator.

        gradient = (f(b) - f(c)) (u - 1/2),  b = [u > sigmoid(-a)],  c = [u < sigmoid(a)]

    a are the logits, and u = sigmoid(L) is uniform for logistic noise L. b and c are the two draws
    (patterns [2, n]), and f is the loss. The estimate is unbiased.
    It evaluates the loss twice, without its derivative. `DisARM` has less variance at the same
    cost.

        >>> print(ARM().patterns(jnp.zeros(2), jnp.array([[1.0, -1.0]])))
        [[1. 0.]
         [0. 1.]]

    Reference: Yin and Zhou 2019, "ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary
    Networks".
    """

    def weights(self, logits: Array, noise: Array, gates: Array) -> Array:
        """Returns u - 1/2 = tanh(L / 2) / 2 for the logistic noise L of the shape of the logits.

        f(b) - f(c), the difference of the losses of both draws, is multiplied by these weights.

        The gates [2, ...] are not used. A logit of NaN gets the weight NaN explicitly, because the
        noise does not depend on the logits.
        """
        return jnp.where(jnp.isnan(logits), logits, jnp.tanh(noise.astype(logits.dtype) / 2) / 2)


@dataclasses.dataclass(frozen=True)
class DisARM(_Antithetic):
    """The ARM estimator with its augmentation integrated out; also called U2G.

        gradient = (f(b) - f(c)) / 2 * (-1)^c [b != c] sigmoid(|a|)
        b = [a + L > 0],  c = [a - L > 0]

    a are the logits [n], and L is a single row [1, n] of logistic noise. The patterns [2, n] are b
    and c, and the losses that `gradient` takes are f(b) and f(c), in this order.

    The estimate is unbiased. It evaluates the loss twice, without its derivative. It is the
    conditional mean of `ARM` given both draws, so its variance is never larger; for a single gate
    with a = 0 the variance is 0.

        >>> logits, noise = jnp.zeros(1), jnp.array([[1.0]])
        >>> patterns = DisARM().patterns(logits, noise)
        >>> print(DisARM().gradient(logits, noise, patterns, jnp.array([3.0, 1.0])))
        [0.5]

    Reference: Dong et al. 2020, "DisARM: An Antithetic Gradient Estimator for Binary Latent
    Variables"; Yin et al. 2020 (U2G).
    """

    def weights(self, logits: Array, noise: Array, gates: Array) -> Array:
        """Returns (b - c) sigmoid(|a|) / 2 for draws b, c = gates [2, ...].

        f(b) - f(c), the difference of the losses of both draws, is multiplied by these weights. a
        are the logits; the result has their shape. The noise is not used.
        """
        # b - c is (-1)^c [b != c].
        return (gates[0] - gates[1]) * jax.nn.sigmoid(jnp.abs(logits)) / 2


@dataclasses.dataclass(frozen=True)
class LocalExpectation(ByValues):
    """The exact expectation over each gate, given a draw of the other gates.

        gradient_i = p_i (1 - p_i) (f(b with b_i = 1) - f(b with b_i = 0))

    f is the loss, b the draw of the n gates, and p = sigmoid(a) for the logits a [n]. The estimate
    is unbiased, and exact (with variance 0) for a single gate and for losses without interactions.
    It evaluates the loss n + 1 times, without its derivative. A gate with an infinite logit is
    never flipped, because it is certain.

        >>> logits, noise = jnp.zeros(2), jnp.array([[1.0, -1.0]])
        >>> patterns = LocalExpectation().patterns(logits, noise)
        >>> losses = jnp.array([1.0, 0.0, 3.0])  # f(1, 0), f(0, 0), f(1, 1)
        >>> print(LocalExpectation().gradient(logits, noise, patterns, losses))
        [0.25 0.5 ]

    Reference: Titsias and Lazaro-Gredilla 2015, "Local Expectation Gradients for Black Box
    Variational Inference".
    """

    unbiased: ClassVar[bool] = True
    live: ClassVar[int | None] = 1

    def patterns(self, logits: PerGate, noise: Noise) -> Patterns:
        """Returns a draw b, followed by n patterns, [1 + n, n]; pattern i is b with gate i flipped.

        A gate with an infinite logit is not flipped. logits are [n], and noise is a single row
        [1, n] of logistic noise.
        """
        gates = draw_gates(logits, noise)
        flip = jnp.eye(gates.shape[1], dtype=bool) & jnp.isfinite(logits)[None]
        rows = jnp.broadcast_to(gates, flip.shape)
        return jnp.concatenate([gates, jnp.where(flip, 1 - rows, rows)])

    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns p_i (1 - p_i) (f(b with b_i = 1) - f(b with b_i = 0)) for each gate i.

        p = sigmoid(a) for the logits a [n]. The patterns [1 + n, n] come from `patterns`, and
        values [1 + n] are their losses f. The noise is not used. The result is [n].
        """
        value, flipped = values[0], values[1:]
        # f(b with b_i = 1) - f(b with b_i = 0): the draw has one of the two values of the gate, its
        # flipped pattern has the other.
        difference = jnp.where(patterns[0] > 0, value - flipped, flipped - value)
        slope = jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits)
        return _multiply(difference, slope)
