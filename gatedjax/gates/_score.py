"""Unbiased estimators by values of the loss alone; p = sigmoid(a), and b - p is the score."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import promoted
from gatedjax.functional._relaxations import opened
from gatedjax.gates._objective import Objective
from gatedjax.gates._slopes import attached


def drawn(logits: Float[Array, " n"], noise: Float[Array, "*k n"]) -> Float[Array, "*k n"]:
    """b = [a + L > 0], as `functional.sample_gates` draws; NaN for a logit of NaN."""
    perturbed = jnp.add(*promoted(jnp.broadcast_to(logits, noise.shape), noise))
    return opened(perturbed).astype(logits.dtype)


def _times(values: Array, weights: Array) -> Array:
    """The product of values of the loss, whose dtype is its own, and of weights."""
    return jnp.multiply(*promoted(values, weights))


def score(logits: Float[Array, " n"], gates: Float[Array, " n"]) -> Float[Array, " n"]:
    """The gradient of log P(b): b - p, without its cancellation."""
    return jnp.where(gates > 0, jax.nn.sigmoid(-logits), -jax.nn.sigmoid(logits))


@dataclasses.dataclass(frozen=True)
class ByValues:
    """Unbiased, from values of the loss at hard gates, which follow from logits and noise alone."""

    unbiased: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = False


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
    rows: ClassVar[int] = 1

    def evaluations(self, n: int) -> int:
        """One."""
        return 1

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """f(b)."""
        gates = drawn(logits, noise[0])
        value = objective(gates)
        advantage = jnp.subtract(*promoted(value, self.baseline))
        return attached(value, logits, _times(advantage, score(logits, gates)))


@dataclasses.dataclass(frozen=True)
class LeaveOneOut(ByValues):
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
    def rows(self) -> int:
        """k."""
        return self.k

    def evaluations(self, n: int) -> int:
        """The draws k."""
        return self.k

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """The mean of the losses."""
        gates = drawn(logits, noise)
        values = objective.values(gates)
        mean = jnp.mean(values)
        scores = jax.vmap(score, in_axes=(None, 0))(logits, gates)
        gradient = jnp.sum(_times((values - mean)[:, None], scores), axis=0) / (self.k - 1)
        return attached(mean, logits, gradient)


@dataclasses.dataclass(frozen=True)
class _Antithetic(ByValues):
    """Two draws from one noise: b = [a + L > 0] and c = [a - L > 0]; the value is their mean."""

    rows: ClassVar[int] = 1

    def evaluations(self, n: int) -> int:
        """Two."""
        return 2

    def weights(
        self, logits: Float[Array, " n"], noise: Float[Array, " n"], pair: Float[Array, "2 n"]
    ) -> Float[Array, " n"]:
        """What f(b) - f(c) is multiplied with."""
        raise NotImplementedError

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """The mean of both losses."""
        pair = drawn(logits, jnp.concatenate([noise, -noise]))
        values = objective.values(pair)
        weights = self.weights(logits, noise[0], pair)
        return attached(jnp.mean(values), logits, _times(values[0] - values[1], weights))


@dataclasses.dataclass(frozen=True)
class ARM(_Antithetic):
    """Augment-REINFORCE-merge.

        gradient = (f(b) - f(c)) (u - 1/2),  b = [u > sigmoid(-a)],  c = [u < sigmoid(a)]

    Unbiased; two evaluations; values alone. `DisARM` has less variance at the same cost.

    Reference: Yin and Zhou 2019, "ARM: Augment-REINFORCE-Merge Gradient for Stochastic Binary
    Networks".
    """

    def weights(
        self, logits: Float[Array, " n"], noise: Float[Array, " n"], pair: Float[Array, "2 n"]
    ) -> Float[Array, " n"]:
        """u - 1/2 = tanh(L / 2) / 2; NaN for a logit of NaN, which L does not know."""
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

    def weights(
        self, logits: Float[Array, " n"], noise: Float[Array, " n"], pair: Float[Array, "2 n"]
    ) -> Float[Array, " n"]:
        """(b - c) sigmoid(|a|) / 2."""
        return (pair[0] - pair[1]) * jax.nn.sigmoid(jnp.abs(logits)) / 2


@dataclasses.dataclass(frozen=True)
class LocalExpectation(ByValues):
    """The exact expectation over each gate, given a draw of the others.

        gradient_i = p_i (1 - p_i) (f(b with b_i = 1) - f(b with b_i = 0))

    Unbiased; n + 1 evaluations; values alone. Exact, variance 0, for one gate and for losses
    without interactions. A gate that cannot change, its logit infinite, is never flipped.

    Reference: Titsias and Lazaro-Gredilla 2015, "Local Expectation Gradients for Black Box
    Variational Inference".
    """

    rows: ClassVar[int] = 1

    def evaluations(self, n: int) -> int:
        """The draw, and with each gate flipped."""
        return n + 1

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """f(b)."""
        gates = drawn(logits, noise[0])
        flip = jnp.eye(gates.shape[0], dtype=bool) & jnp.isfinite(logits)[None]
        rows = jnp.broadcast_to(gates, flip.shape)
        value, others = objective(gates), objective.held.values(jnp.where(flip, 1 - rows, rows))
        difference = jnp.where(gates > 0, value - others, others - value)
        slope = jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits)
        return attached(value, logits, _times(difference, slope))
