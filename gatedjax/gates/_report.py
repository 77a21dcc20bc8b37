"""Estimators beside the exact truth: bias, variance, and what an evaluation of the loss buys."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._types import Dtype
from gatedjax.gates._enumerate import Truth, enumerate
from gatedjax.gates._expectation import Estimator, check_estimator, check_row, expectation
from gatedjax.gates._objective import Loss

_BATCH = 256
# What a gradient may differ by, as a part of the loss, before it counts as biased: 16 roundings;
# the vectorised functions of XLA on CPU are good to 1e-13 in float64.
_ROUNDINGS, _LEAST = 16, 1e-12


@dataclasses.dataclass(frozen=True)
class Row:
    """One estimator's gradients of the logits at a point, against the exact one.

    Attributes:
      estimator: what was measured.
      evaluations: of the loss, per estimate; masked gates count.
      bias: the mean gradient less the exact one, per gate.
      standard_error: of the bias, per gate.
      z: the largest |bias| / (standard_error + rounding) of all gates.
      variance: of one estimate, summed over gates.
      mse: the mean squared distance of one estimate from the exact gradient.
      cosine: the mean cosine of one estimate and the exact gradient; 0 where either is 0.
      mse_per_evaluation: mse * evaluations: what is left where estimators without bias are averaged
        over as many estimates as one evaluation each pays for. Smaller is better.
    """

    estimator: Estimator
    evaluations: int
    bias: Float[np.ndarray, " n"]
    standard_error: Float[np.ndarray, " n"]
    z: float
    variance: float
    mse: float
    cosine: float
    mse_per_evaluation: float


@dataclasses.dataclass(frozen=True)
class Report:
    """A row per estimator, and the truth they are measured against; `str` is a Markdown table."""

    truth: Truth
    rows: tuple[Row, ...]
    draws: int

    def __str__(self) -> str:
        from gatedjax.analysis import render_table

        head = ["estimator", "unbiased", "bias", "+-", "z", "variance", "MSE", "cosine"]
        return render_table(
            [*head, "evaluations", "MSE x evaluations"], [_cells(row) for row in self.rows]
        )

    def records(self) -> list[dict[str, Any]]:
        """The rows as numbers and lists, for JSON."""
        return [
            {
                "estimator": repr(row.estimator),
                "unbiased": row.estimator.unbiased,
                "bias": row.bias.tolist(),
                "standard_error": row.standard_error.tolist(),
                **{
                    name: getattr(row, name)
                    for name in (
                        "evaluations", "z", "variance", "mse", "cosine", "mse_per_evaluation"
                    )
                },
            }
            for row in self.rows
        ]  # fmt: skip


def _cells(row: Row) -> list[object]:
    numbers = (
        np.linalg.norm(row.bias), np.linalg.norm(row.standard_error), row.z, row.variance, row.mse,
        row.cosine,
    )  # fmt: skip
    return [
        repr(row.estimator),
        "yes" if row.estimator.unbiased else "no",
        *(f"{number:.3g}" for number in numbers),
        row.evaluations,
        f"{row.mse_per_evaluation:.3g}",
    ]


@functools.partial(jax.jit, static_argnames=("loss", "estimator"))
def gradients(
    loss: Loss,
    estimator: Estimator,
    logits: Float[Array, " n"],
    keys: Key[Array, " draws"],
    args: tuple[Any, ...],
    mask: Bool[Array, " n"] | None,
) -> Float[Array, "draws n"]:
    """One estimate for every key."""
    gradient = jax.grad(expectation(loss, estimator))

    def one(key):
        return gradient(logits, key, *args, mask=mask)

    return jax.lax.map(one, keys, batch_size=min(_BATCH, keys.shape[0]))


def rounding_of(size: float, dtype: Dtype) -> float:
    """What two gradients of a loss of this size may differ by for no other reason."""
    return size * max(_LEAST, _ROUNDINGS * float(jnp.finfo(dtype).eps))


def report(
    loss: Loss,
    logits: Float[Array, " n"],
    estimators: Sequence[Estimator],
    key: Key[Array, ""],
    *args: Any,
    draws: int = 4096,
    mask: Bool[Array, " n"] | None = None,
    chunks: int | None = None,
) -> Report:
    """Measures estimators of the gradient of E f(b) against the exact one.

    Every estimator gets the same keys. Biases are of the Bernoulli expectation, also for those that
    follow another variable (`SoftGumbel`, `HardConcrete`, `HardKuma`). Statistics are taken in
    float64, on the host: not for use inside `jit`.

    Args:
      loss: loss(gates, *args) -> scalar.
      logits: a [n]; estimates are made in float32 or wider.
      estimators: what to measure; hashable.
      key: of all draws.
      *args: what else the loss takes.
      draws: estimates per estimator, at least 2.
      mask: True at real gates.
      chunks: as of `enumerate`, for the truth.

    Raises:
      ValueError: as `enumerate` and `expectation`.
    """
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    estimators = tuple(estimators)
    for estimator in estimators:
        check_estimator(estimator)
    check_row(logits, mask)
    logits = jnp.asarray(logits, wide_dtype(logits))
    truth = enumerate(loss, logits, *args, mask=mask, chunks=chunks)
    keys = jax.random.split(key, draws)
    size = float(abs(truth.expectation) + np.sqrt(truth.variance))
    rounding = rounding_of(size, logits.dtype)
    rows = []
    for estimator in estimators:
        found = gradients(loss, estimator, logits, keys, args, mask)
        exact = np.asarray(truth.gradient, np.float64)
        rows.append(_row(estimator, np.asarray(found, np.float64), exact, rounding))
    return Report(truth, tuple(rows), draws)


def _row(estimator: Estimator, found: np.ndarray, exact: np.ndarray, rounding: float) -> Row:
    """The statistics of gradients [draws, n]."""
    with np.errstate(all="ignore"):  # gradients may be infinite
        bias = np.mean(found, axis=0) - exact
        variances = np.var(found, axis=0, ddof=1)
        error = np.sqrt(variances / found.shape[0])
        mse = float(np.mean(np.sum((found - exact) ** 2, axis=1)))
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(exact)
        cosine = np.divide(found @ exact, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        z = np.abs(bias) / (error + rounding)
    # 0 / 0 is no bias; what is no number is none that could be trusted
    z = np.where(np.isfinite(bias), np.nan_to_num(z, nan=0.0, posinf=np.inf), np.inf)
    evaluations = estimator.evaluations(found.shape[1])
    return Row(
        estimator=estimator,
        evaluations=evaluations,
        bias=bias,
        standard_error=error,
        z=float(np.max(z, initial=0.0)),
        variance=float(np.sum(variances)),
        mse=mse,
        cosine=float(np.mean(cosine)),
        mse_per_evaluation=mse * evaluations,
    )
