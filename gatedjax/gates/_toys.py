"""The classic problems of gradient estimation, with their exact gradients."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from gatedjax._utils.fields import check_type
from gatedjax._utils.tracing import check_key
from gatedjax.functional import sample_gates
from gatedjax.gates._enumerate import Truth, enumerate
from gatedjax.gates._estimator import Estimator
from gatedjax.gates._registry import standard_estimators
from gatedjax.gates._report import (
    Measured,
    ModeRow,
    Sample,
    Study,
    estimate_gradients,
    rounding_tolerance,
    summarize,
)

_TAU = 0.5


def _squared_distance(gates: Array, target: Array) -> Array:
    return jnp.sum((gates - target) ** 2)


def _steep_sigmoid(gates: Array, threshold: Array) -> Array:
    return jax.nn.sigmoid(4 * (jnp.sum(gates) - threshold))


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A problem of gradient estimation: a loss of a few gates, with their logits."""

    title: str  # the equation of the loss
    loss: Callable[..., Any]  # (gates [n], parameter) -> scalar
    logits: tuple[float, ...]
    parameter: tuple[float, ...] | float
    shared: bool = False  # all gates share a logit, and the gradient is their sum


PROBLEMS = (
    *(
        Problem(f"(b - {t})^2, theta {theta}", _squared_distance, (float(theta),), t)
        for theta in (0, 1)
        for t in (0.49, 0.45)
    ),
    Problem(
        "Liu et al. 2019: sum (b - p0)^2, p0 = (0.6, 0.51, 0.48), one phi = 0",
        _squared_distance, (0.0,) * 3, (0.6, 0.51, 0.48), shared=True,
    ),
    Problem(
        "sigmoid(4 (b1 + b2 + b3) - 6), theta 0.4: the modes disagree",
        _steep_sigmoid, (0.4,) * 3, 1.5,
    ),
)  # fmt: skip
"""The problems of `toys`; the squared losses are from Tucker et al. 2017 and Liu et al. 2019."""


@functools.partial(jax.jit, static_argnames="loss")
def _sample_losses(
    loss: Callable[..., Any], logits: Array, parameter: Array, keys: Key[Array, " draws"]
) -> Float[Array, " draws"]:
    return jax.vmap(lambda key: loss(sample_gates(logits, key=key), parameter))(keys)


def _make_mode_rows(truth: Truth, losses: np.ndarray) -> tuple[ModeRow, ...]:
    """Returns the rows of the gate modes, from the exact `truth` and losses of hard draws."""
    exact = float(truth.expectation)
    error = float(np.std(losses, ddof=1) / np.sqrt(len(losses)))
    source = f"mean of {len(losses):,} draws"
    values = {
        "sample": (f"sampled, {source}", float(np.mean(losses)), error),
        "exact": ("exact expectation", exact, None),
        "threshold": ("thresholded", float(truth.modes["threshold"]), None),
        "best": ("best pattern", float(truth.modes["best"]), None),
        "expected": ("mean field", float(truth.modes["expected"]), None),
        "relaxed": (f"relaxed, tau {_TAU}, {source}", float(truth.modes["relaxed"]), None),
    }
    return tuple(
        ModeRow(mode, title, loss, error, loss - exact, None, None, None)
        for mode, (title, loss, error) in values.items()
    )


def toys(
    draws: int = 16_384,
    *,
    estimators: Sequence[Estimator] | None = None,
    key: Key[Array, ""] | None = None,
) -> Iterator[Study]:
    """Compares gate modes, and estimators with the exact gradient, on the classic problems.

        >>> from gatedjax.gates import MeanField
        >>> study = next(toys(draws=2, estimators=[MeanField()]))
        >>> study.title, study.facts["best_pattern"]
        ('(b - 0.49)^2, theta 0', [0])

    Args:
      draws: the number of estimates per estimator, and of samples of the loss, at least 2.
      estimators: the estimators; None means all except `Relax` and `Enumerate`, with a temperature
        of 0.5.
      key: the PRNG key of all draws; None means `jax.random.key(0)`.

    Yields:
      A `Study` for each problem: the loss of each gate mode, and the bias, variance and cost of
      each estimator.

    Raises:
      ValueError: if draws is below 2.

    References: Tucker et al. 2017, "REBAR"; Liu et al. 2019, "Rao-Blackwellized Stochastic
      Gradients for Discrete Distributions".
    """
    check_type("draws", draws, int)
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    key = jax.random.key(0) if key is None else key
    check_key(key=key)
    keys = jax.random.split(key, draws)
    estimators = standard_estimators(_TAU) if estimators is None else estimators
    for problem in PROBLEMS:
        logits: Any = np.asarray(problem.logits, np.float32)
        parameter = np.asarray(problem.parameter, np.float32)
        n = len(logits)
        truth = jax.device_get(
            enumerate(
                problem.loss, logits, parameter, key=keys[0], temperature=_TAU, draws=draws
            )
        )  # fmt: skip
        # The gradient of a logit that all gates share is the sum of their gradients.
        sum_shared = (lambda x: x.sum(-1, keepdims=True)) if problem.shared else (lambda x: x)
        exact = sum_shared(np.asarray(truth.gradient, np.float64))
        size = float(abs(truth.expectation) + np.sqrt(truth.variance))
        rows = []
        for estimator in estimators:
            estimates = estimate_gradients(
                problem.loss, estimator, logits, keys, (parameter,), None
            )
            # Float32 would lose the small differences between the estimates of a shared parameter.
            estimates = sum_shared(np.asarray(estimates, np.float64))
            rounding = rounding_tolerance(size, logits.dtype)
            sample = Sample(estimates, exact, rounding, estimator.evaluations(n))
            rows.append(summarize(estimator, [sample]))
        norm = float(np.linalg.norm(exact))
        yield Study(
            title=problem.title,
            modes=_make_mode_rows(
                truth, np.asarray(_sample_losses(problem.loss, logits, parameter, keys))
            ),
            measured=Measured(tuple(rows), 1, draws, norm),
            facts={
                "logits": list(problem.logits),
                "gradient": exact.tolist(),
                "variance": float(truth.variance),
                "best_pattern": np.asarray(truth.best).astype(int).tolist(),
            },
        )
