"""Unbiased estimators by values of the loss alone; p = sigmoid(a), and b - p is the score."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import promoted
from gatedjax.gates._estimator import ByValues, Noise, Patterns, PerGate, Values, drawn


def _times(values: Array, weights: Array) -> Array:
    """The product of values of the loss, whose dtype is its own, and of weights."""
    return jnp.multiply(*promoted(values, weights))


def score(logits: Float[Array, " n"], gates: Float[Array, " n"]) -> Float[Array, " n"]:
    """The gradient of log P(b): b - p, without its cancellation."""
    return jnp.where(gates > 0, jax.nn.sigmoid(-logits), -jax.nn.sigmoid(logits))


@dataclasses.dataclass(frozen=True)
class Reinforce(ByValues):
    """The score-function estimator.

        gradient = (f(b) - c) (b - p)

    Unbiased for every c that does not depend on b. One evaluation; values alone.

    Attributes:
      baseline: c; may be traced (a running mean of the loss).

    Reference: Williams 1992.
    """

    baseline: float | Float[Array, ""] = 0.0

    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns the score times the advantage."""
        advantage = jnp.subtract(*promoted(values[0], self.baseline))
        return _times(advantage, score(logits, patterns[0]))


class OfPasses(ByValues):
    """An estimator that also trains gates in several layers, by k passes of the whole network.

        gradient = 1 / (k - 1) sum_j (f_j - mean f) w_j

    where the weights w_j depend on the logits, the noise and the gates of pass j alone.
    """

    mirrored: ClassVar[bool] = False
    """Whether there are two passes, under opposite noise; otherwise each has noise of its own."""

    def weights(self, logits: Array, noise: Array, gates: Array) -> Array:
        """Returns the weights of a pass.

        Args:
          logits, noise: of this pass, of any shape.
          gates: the draw [1, ...] of this pass, or [2, ...] with that under the opposite noise.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class LeaveOneOut(OfPasses):
    """REINFORCE of k draws, the mean of the others the baseline of each.

        gradient = 1 / (k - 1) sum_j (f(b_j) - mean_i f(b_i)) (b_j - p)

    Unbiased; k evaluations; values alone. The value is the mean of the k losses.

    Attributes:
      k: draws, at least 2.

    Reference: Kool et al. 2019, "Buy 4 REINFORCE Samples, Get a Baseline for Free!".
    """

    k: int = 2

    def __post_init__(self) -> None:
        if self.k < 2:
            raise ValueError(f"k must be at least 2, got {self.k}")

    @property
    def rows(self) -> int:  # type: ignore[override]
        """k."""
        return self.k

    def weights(self, logits: Array, noise: Array, gates: Array) -> Array:
        """Returns the score b - p."""
        return score(logits, gates[0])

    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns the sum of the scores, each times its loss less the mean loss."""
        scores = jax.vmap(score, in_axes=(None, 0))(logits, patterns)
        advantages = values - jnp.mean(values)
        return jnp.sum(_times(advantages[:, None], scores), axis=0) / (self.k - 1)


class _Antithetic(OfPasses):
    """Two draws from one noise: b = [a + L > 0] and c = [a - L > 0]; the value is their mean."""

    mirrored: ClassVar[bool] = True

    def patterns(self, logits: PerGate, noise: Noise) -> Patterns:
        """Returns b and c."""
        return drawn(logits, jnp.concatenate([noise, -noise]))

    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns the difference of the losses times the weights of b."""
        return _times(values[0] - values[1], self.weights(logits, noise[0], patterns))


@dataclasses.dataclass(frozen=True)
class ARM(_Antithetic):
    """Augment-REINFORCE-merge.

        gradient = (f(b) - f(c)) (u - 1/2),  b = [u > sigmoid(-a)],  c = [u < sigmoid(a)]

    Unbiased; two evaluations; values alone. `DisARM` has less variance at the same cost.

    Reference: Yin and Zhou 2019, "ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary
    Networks".
    """

    def weights(self, logits: Array, noise: Array, gates: Array) -> Array:
        """Returns u - 1/2 = tanh(L / 2) / 2; NaN for a logit of NaN, on which L does not depend."""
        return jnp.where(jnp.isnan(logits), logits, jnp.tanh(noise.astype(logits.dtype) / 2) / 2)


@dataclasses.dataclass(frozen=True)
class DisARM(_Antithetic):
    """ARM with its augmentation integrated out; also known as U2G.

        gradient = (f(b) - f(c)) / 2 * (-1)^c [b != c] sigmoid(|a|)

    Unbiased; two evaluations; values alone. The conditional mean of `ARM` given both draws, so its
    variance is never larger; for one gate with a = 0 it is 0.

    Reference: Dong et al. 2020, "DisARM: An Antithetic Gradient Estimator for Binary Latent
    Variables"; Yin et al. 2020 (U2G).
    """

    def weights(self, logits: Array, noise: Array, gates: Array) -> Array:
        """Returns (b - c) sigmoid(|a|) / 2."""
        return (gates[0] - gates[1]) * jax.nn.sigmoid(jnp.abs(logits)) / 2


@dataclasses.dataclass(frozen=True)
class LocalExpectation(ByValues):
    """The exact expectation over each gate, given a draw of the others.

        gradient_i = p_i (1 - p_i) (f(b with b_i = 1) - f(b with b_i = 0))

    Unbiased; n + 1 evaluations; values alone. Exact, variance 0, for one gate and for losses
    without interactions. A gate that cannot change, its logit infinite, is never flipped.

    Reference: Titsias and Lazaro-Gredilla 2015, "Local Expectation Gradients for Black Box
    Variational Inference".
    """

    live: ClassVar[int | None] = 1

    def patterns(self, logits: PerGate, noise: Noise) -> Patterns:
        """Returns the draw, and the draw with each gate flipped."""
        gates = drawn(logits, noise)
        flip = jnp.eye(gates.shape[1], dtype=bool) & jnp.isfinite(logits)[None]
        rows = jnp.broadcast_to(gates, flip.shape)
        return jnp.concatenate([gates, jnp.where(flip, 1 - rows, rows)])

    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns the effect of every gate times p (1 - p)."""
        value, others = values[0], values[1:]
        difference = jnp.where(patterns[0] > 0, value - others, others - value)
        slope = jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits)
        return _times(difference, slope)
