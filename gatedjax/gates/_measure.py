"""Estimators at trained parameters: what their gradients of the logits are worth, over texts."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from gatedjax._utils.types import Json, Params, Tree
from gatedjax.gates._control import Rebar
from gatedjax.gates._exact import LARGEST
from gatedjax.gates._expectation import Estimator
from gatedjax.gates._modes import (
    Network,
    Texts,
    check_gated,
    read_texts,
    temperature_of,
    truths_of,
)
from gatedjax.gates._pathwise import MeanField, ReinMax, SoftGumbel, STGumbel, StraightThrough
from gatedjax.gates._report import gradients, rounding_of
from gatedjax.gates._score import ARM, DisARM, LeaveOneOut, LocalExpectation, Reinforce
from gatedjax.gates._stretched import HardConcrete, HardKuma

SHOWN = 4.0
"""From this z on an estimator is shown biased: 1 of 30,000 unbiased ones reaches it."""


def standard(tau: float = 0.5) -> tuple[Estimator, ...]:
    """The estimators that need nothing but a temperature, tau where they have one.

    Without `Relax`, which is as good as its critic, and `Enumerate`, which is the truth.
    """
    return (
        SoftGumbel(tau),
        STGumbel(tau),
        StraightThrough(),
        ReinMax(),
        MeanField(),
        HardConcrete(),
        HardKuma(),
        Reinforce(),
        LeaveOneOut(2),
        LeaveOneOut(4),
        ARM(),
        DisARM(),
        LocalExpectation(),
        Rebar(tau),
    )


class Sample(NamedTuple):
    """Gradients that an estimator gave of one text, beside the exact one.

    Attributes:
      found: the estimates.
      exact: the gradient.
      rounding: what numbers of this size may differ by for no other reason.
      evaluations: of the loss, per estimate.
    """

    found: Float[np.ndarray, "draws n"]
    exact: Float[np.ndarray, " n"]
    rounding: float
    evaluations: int


@dataclasses.dataclass(frozen=True)
class Measure:
    """One estimator over several texts (or problems): means over them.

    Attributes:
      estimator: what was measured.
      evaluations: of the loss, per estimate.
      bias: root mean square over texts of the norm of (mean gradient less the exact one). Of an
        unbiased estimator it is about as large as its error.
      error: likewise of the norm of the standard errors.
      z: by how many standard deviations the biases of all texts together are larger than those that
        an estimator without bias shows, by sum_x |bias_x|^2 as a scaled chi-square.
      variance: of one estimate, summed over gates.
      mse: squared distance of one estimate from the exact gradient.
      cosine: of one estimate and the exact gradient; 0 where either is 0.
      mse_per_evaluation: mse * evaluations.
    """

    estimator: Estimator
    evaluations: float
    bias: float
    error: float
    z: float
    variance: float
    mse: float
    cosine: float
    mse_per_evaluation: float

    @property
    def shown_biased(self) -> bool:
        """Whether z is above 4."""
        return self.z > SHOWN

    def record(self) -> Json:
        """As JSON can hold it."""
        numbers = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "estimator"
        }
        return {
            "estimator": repr(self.estimator),
            "unbiased": self.estimator.unbiased,
            **numbers,
            "shown_biased": self.shown_biased,
        }


def summed_up(estimator: Estimator, samples: Iterable[Sample]) -> Measure:
    """The means of one estimator over texts.

    With b the mean error of N draws, S their covariance and r the rounding, sum_x |b_x|^2 of an
    estimator without bias is about a chi-square whose mean and variance are those of

        sum_x tr(S_x) / N + n r^2,   2 sum_x tr(S_x^2) / N^2 + n r^4

    (Satterthwaite), which Wilson and Hilferty's cube root makes normal. A gate that opens once in
    10,000 draws adds to it what it adds to the bias, however many deviations it is away. What
    is within rounding counts as 0.
    """
    squares, noise, spread, mses, cosines, variances, counts, dear = [], [], [], [], [], [], [], []
    for found, exact, rounding, evaluations in samples:
        draws, n = found.shape
        least = n * rounding**2
        near = np.abs(found - exact) <= rounding
        found = np.where(near, exact, found.astype(np.float64))
        off = np.mean(found, axis=0) - exact
        centred = found - np.mean(found, axis=0)
        covariance = centred.T @ centred / (draws - 1)
        if np.trace(covariance) <= least:
            covariance = np.zeros_like(covariance)
        squares.append(off @ off if off @ off > least else 0.0)
        noise.append(np.trace(covariance) / draws + least)
        spread.append(2 * (np.sum((covariance / draws) ** 2) + n * rounding**4))
        variances.append(np.trace(covariance))
        mses.append(np.mean(np.sum((found - exact) ** 2, axis=1)))
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(exact)
        cosine = np.divide(found @ exact, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        cosines.append(np.mean(cosine))
        counts.append(evaluations)
        dear.append(mses[-1] * evaluations)
    expected, deviation = sum(noise), sum(spread)
    return Measure(
        estimator=estimator,
        evaluations=float(np.mean(counts)),
        bias=float(np.sqrt(np.mean(squares))),
        error=float(np.sqrt(np.mean(variances) / draws)),
        z=_normal(sum(squares), expected, deviation),
        variance=float(np.mean(variances)),
        mse=float(np.mean(mses)),
        cosine=float(np.mean(cosines)),
        mse_per_evaluation=float(np.mean(dear)),
    )


def _normal(square: float, mean: float, variance: float) -> float:
    """A scaled chi-square as a standard normal number."""
    if square == 0:
        return 0.0
    part = variance / (9 * mean**2)  # 2 / (9 k), with k = 2 mean^2 / variance
    return float((np.cbrt(square / mean) - (1 - part)) / np.sqrt(part))


@dataclasses.dataclass(frozen=True)
class Measured:
    """Estimators over texts.

    Attributes:
      rows: one for each.
      texts: how many.
      draws: estimates per text and estimator.
      gradient: root mean square over texts of the norm of the exact gradient.
    """

    rows: tuple[Measure, ...]
    texts: int
    draws: int
    gradient: float


@dataclasses.dataclass(frozen=True)
class TextLoss:
    """The cross-entropy of one text as a function of its gates; a static argument of programs."""

    network: Network

    def __call__(
        self, gates: Float[Array, " T"], params: Params, encoded: Tree, label: Array
    ) -> Float[Array, ""]:
        """loss(gates), hard or soft, of what `encode` gave of a batch of one text."""
        mask = encoded.mask
        batch = {"tokens": jnp.zeros(mask.shape, jnp.int32), "lengths": jnp.sum(mask, axis=1)}
        output: Tree = self.network.model.apply(
            {"params": params}, batch, gates[None, None], encoded=encoded, method="with_gates"
        )
        return -jnp.take(jax.nn.log_softmax(output.logits[0, 0]), label)


def measure(
    model: Any,
    params: Params,
    batch: Mapping[str, ArrayLike],
    estimators: Sequence[Estimator] | None = None,
    *,
    texts: int = 32,
    draws: int = 1024,
    longest: int = LARGEST,
    key: Key[Array, ""] | None = None,
    on_estimator: Callable[[Estimator], None] | None = None,
) -> Measured:
    """Measures estimators of the gradient of a trained GA-Net's logits against the exact one.

    The loss of a text is its cross-entropy as a function of its gates, the encoder's states fixed;
    `texts` of the batch are taken, at equal distances. Every estimator gets the same keys. One
    program per estimator, whatever the lengths.

    Args:
      model, params, batch, longest: as of `gate_modes`.
      estimators: what to measure, hashable; None is every one that needs nothing but a
        temperature, which is that of the model.
      texts: how many, at most.
      draws: estimates per text, at least 2.
      key: of all draws; None is that of 0.
      on_estimator: called before each of them.

    Raises:
      ValueError: as `gate_modes`.
    """
    check_gated(model)
    for name, value, least in (("texts", texts, 1), ("draws", draws, 2)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    every = Texts.of(batch, longest)
    count = min(texts, len(every.rows))
    some = every.taken(np.unique(np.linspace(0, len(every.rows) - 1, count).round().astype(int)))
    key = jax.random.key(0) if key is None else key
    if estimators is None:
        estimators = standard(temperature_of(model, None))
    network, params = Network(model), jax.device_put(params)
    exact, sizes, encoded = [], [], []
    tau = temperature_of(model, None)
    for read, held, modes in read_texts(network, params, some, 2, key, tau):
        centres = modes["threshold"].loss[0]
        encoded += [jax.tree.map(lambda x, i=i: x[i : i + 1], read) for i in range(len(centres))]
        for _, truth in truths_of(network, params, held, centres):
            exact.append(truth.gradient)
            sizes.append(abs(truth.loss) + np.sqrt(truth.variance))
    keys = [jax.random.split(jax.random.fold_in(key, i), draws) for i in some.ids.tolist()]
    loss, rows = TextLoss(network), []

    for estimator in estimators:
        if on_estimator is not None:
            on_estimator(estimator)

        def sample(i: int, estimator: Estimator = estimator) -> Sample:
            n, one = int(some.lengths[i]), encoded[i]
            logits = jnp.asarray(one.gate_logits[0], jnp.float32)
            args = (params, one, np.int32(some.labels[i]))
            found = gradients(loss, estimator, logits, keys[i], args, one.mask[0])
            rounding = rounding_of(sizes[i], logits.dtype)
            return Sample(np.asarray(found)[:, :n], exact[i], rounding, estimator.evaluations(n))

        rows.append(summed_up(estimator, map(sample, range(len(exact)))))
    norm = float(np.sqrt(np.mean([g @ g for g in exact])))
    return Measured(tuple(rows), len(exact), draws, norm)
