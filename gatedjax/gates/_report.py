"""Bias, variance and cost of estimators against the exact gradient, and tables of gate modes."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from gatedjax._utils.fields import check_type
from gatedjax._utils.tracing import check_key
from gatedjax._utils.types import Json
from gatedjax.analysis import render_table
from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._types import Dtype
from gatedjax.gates._enumerate import Truth, enumerate
from gatedjax.gates._estimator import Estimator, check_estimator
from gatedjax.gates._expectation import check_row, expectation
from gatedjax.gates._objective import Loss

SHOWN = 4.0
"""The z from which on an estimator counts as biased; 1 of 30,000 unbiased ones reaches it."""
# Estimates are computed in batches of this size, because all at once could exceed the memory.
_BATCH = 256
# The difference of gradients, relative to the loss, that counts as rounding: 16 units of rounding,
# and at least 1e-12, because the vectorised functions of XLA on a CPU have errors of 1e-13 in
# float64.
_ROUNDINGS, _LEAST = 16, 1e-12


class Sample(NamedTuple):
    """The gradients that an estimator gave for a text, and the exact gradient."""

    estimates: Float[np.ndarray, "draws n"]
    exact: Float[np.ndarray, " n"]
    rounding: float  # the largest difference that counts as rounding
    evaluations: int  # of the loss per estimate


class _Columns:
    """The columns that `Row` and `Measure`, the rows of the tables of estimators, share."""

    estimator: Estimator
    z: float  # the bias in standard deviations

    @property
    def shown_biased(self) -> bool:
        """True if z, the bias in standard deviations, is above 4, so that the data show a bias."""
        return self.z > SHOWN

    @property
    def title(self) -> str:
        """The class of the estimator and its options, such as "LeaveOneOut(k=2)".

        The options are the temperature, the number of draws and all that differ from their
        defaults. The attributes of a class that is no dataclass are not options.
        """
        estimator: Any = self.estimator
        is_dataclass = dataclasses.is_dataclass(estimator)
        options = [
            f"{field.name}={value:.3g}"
            if isinstance(value, float)
            # A function appears by its name, so that reports of different runs are equal.
            else f"{field.name}={getattr(value, '__name__', value)}"
            for field in (dataclasses.fields(estimator) if is_dataclass else ())
            if (value := getattr(estimator, field.name)) != field.default
            or field.name in ("tau", "k")
        ]
        return type(estimator).__name__ + (f"({', '.join(options)})" if options else "")

    def record(self) -> Json:
        """Returns the fields of the row, "unbiased" and "shown_biased" as a dict for JSON.

        The keys are the names of the fields of `Row` or `Measure`, such as "bias", "variance" and
        "mse". "estimator" is the `repr` of the estimator, "unbiased" is what it states, True if its
        mean is the gradient or None, "shown_biased" is True if the data show a bias, and arrays are
        lists.
        """
        row: Any = self
        names = [field.name for field in dataclasses.fields(row) if field.name != "estimator"]
        return {
            "estimator": repr(self.estimator),
            "unbiased": self.estimator.unbiased,
            **{name: np.asarray(getattr(row, name)).tolist() for name in names},
            "shown_biased": self.shown_biased,
        }


@dataclasses.dataclass(frozen=True)
class Row(_Columns):
    """The gradients of an estimator with respect to the logits, compared with the exact gradient.

    Attributes:
      estimator: the estimator.
      evaluations: the number of evaluations of the loss per estimate; masked gates count.
      bias: the mean gradient minus the exact gradient [n], per gate.
      standard_error: the standard error of the bias [n], per gate.
      z: the largest |bias| / (standard_error + rounding) over all gates, where rounding is the
        largest difference of gradients that counts as a rounding error.
      variance: the variance of an estimate, summed over gates.
      mse: the mean squared distance of an estimate from the exact gradient.
      cosine: the mean cosine of an estimate and the exact gradient; 0 if either is 0.
      mse_per_evaluation: mse * evaluations. It is proportional to the MSE of unbiased estimators
        that are averaged over as many estimates as fit into the same number of evaluations.
        Smaller is better.
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

    @property
    def error(self) -> float:
        """The norm over gates of the standard errors of the bias."""
        return float(np.linalg.norm(self.standard_error))


@dataclasses.dataclass(frozen=True)
class Measure(_Columns):
    """The results of an estimator, as means over several texts (or problems).

    Attributes:
      estimator: the estimator.
      evaluations: the mean number of evaluations of the loss per estimate.
      bias: the root mean square over texts of the norm of (mean gradient minus exact gradient). For
        an unbiased estimator it is about as large as `error`.
      error: the root mean square over texts of the norm of the standard errors.
      z: the number of standard deviations by which the biases of all texts exceed those of an
        unbiased estimator, with sum_x |bias_x|^2 as a scaled chi-square.
      variance: the mean over texts of the variance of an estimate, summed over gates.
      mse: the mean over texts of the mean squared distance of an estimate from the exact gradient.
      cosine: the mean cosine of an estimate and the exact gradient.
      mse_per_evaluation: the mean of mse * evaluations; smaller is better.
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


@dataclasses.dataclass(frozen=True)
class Measured:
    """The results of several estimators over texts.

    Attributes:
      rows: a `Measure` for each estimator, with its bias, variance and cost, in the order of the
        table.
      texts: the number of texts.
      draws: the number of estimates per text and estimator.
      gradient: the root mean square over texts of the norm of the exact gradient.
    """

    rows: tuple[Measure, ...]
    texts: int
    draws: int
    gradient: float


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of `report`; `str` of it is a Markdown table.

    Attributes:
      truth: a `Truth`, the exact gradient and moments of the loss.
      rows: a `Row` for each estimator, with its bias, variance and cost, in the order of the call.
      draws: the number of estimates per estimator.
    """

    truth: Truth
    rows: tuple[Row, ...]
    draws: int

    def __str__(self) -> str:
        return estimator_table(self.rows)


def estimator_table(rows: Sequence[Row] | Sequence[Measure]) -> str:
    """Returns a Markdown table with a line for each of the rows, in their order."""
    heads = [
        "estimator", "unbiased", "bias", "+-", "z", "shown biased", "variance", "MSE", "cosine",
        "evaluations", "MSE x evaluations",
    ]  # fmt: skip
    cells = []
    for row in rows:
        numbers = (np.linalg.norm(row.bias), row.error, row.z)
        costs = (row.variance, row.mse, row.cosine, row.evaluations, row.mse_per_evaluation)
        stated = row.estimator.unbiased
        cells.append([
            row.title,
            "not stated" if stated is None else "yes" if stated else "no",
            *(f"{x:.3g}" for x in numbers),
            "yes" if row.shown_biased else "no",
            *(f"{x:.3g}" for x in costs),
        ])  # fmt: skip
    return render_table(heads, cells)


@functools.partial(jax.jit, static_argnames=("loss", "estimator"))
def estimate_gradients(
    loss: Loss,
    estimator: Estimator,
    logits: Float[Array, " n"],
    keys: Key[Array, " draws"],
    args: tuple[Any, ...],
    mask: Bool[Array, " n"] | None,
) -> Float[Array, "draws n"]:
    """Computes an estimate of the gradient [n] of the expected loss for each key."""
    gradient = jax.grad(expectation(loss, estimator))

    def estimate(key):
        return gradient(logits, key, *args, mask=mask)

    return jax.lax.map(estimate, keys, batch_size=min(_BATCH, keys.shape[0]))


def rounding_tolerance(size: float, dtype: Dtype) -> float:
    """Returns the largest difference that counts as rounding, for losses of magnitude `size`."""
    return size * max(_LEAST, _ROUNDINGS * float(jnp.finfo(dtype).eps))


def report(
    loss: Loss,
    logits: Float[Array, " n"],
    estimators: Sequence[Estimator],
    *args: Any,
    key: Key[Array, ""],
    draws: int = 4096,
    mask: Bool[Array, " n"] | None = None,
    chunks: int | None = None,
) -> Report:
    """Measures the bias, variance and cost of gradient estimators.

    The estimated gradient is that of E f(b) by the logits a, for the loss f and gates b that are 1
    with probability sigmoid(a). `enumerate` computes it exactly, and the bias of each estimator is
    measured against it, even if the estimator relaxes the gates (`SoftGumbel`, `HardConcrete`,
    `HardKuma`). All estimators use the same keys. The function runs on the host, not inside `jit`.

        >>> from gatedjax.gates import MeanField
        >>> measured = report(
        ...     lambda gates: jnp.sum(gates) ** 2, jnp.zeros(2), [MeanField()],
        ...     key=jax.random.key(0), draws=2,
        ... )
        >>> row = measured.rows[0]
        >>> print(measured.truth.gradient, row.bias, row.variance, row.shown_biased)
        [0.5 0.5] [0. 0.] 0.0 False

    Args:
      loss: f, a function loss(gates [n], *args) -> scalar.
      logits: a [n]; estimates are computed in float32 or wider.
      estimators: hashable estimators, such as `[Reinforce(), ARM()]`.
      *args: passed on to the loss after the gates.
      key: the PRNG key of all draws.
      draws: the number of estimates per estimator, at least 2.
      mask: True at real gates; None means all.
      chunks: the number of parts in which `enumerate` evaluates the patterns for the exact
        gradient; None means parts of at most 4096.

    Returns:
      A `Report` with a `Row` for each estimator: its bias, variance and cost.

    Raises:
      TypeError: if estimators are not a sequence, or not hashable.
      ValueError: if draws is below 2, and as `enumerate` and `expectation`.
    """
    check_type("draws", draws, int)
    if draws < 2:
        raise ValueError(f"draws must be at least 2, got {draws}")
    if not isinstance(estimators, Iterable):
        raise TypeError(f"estimators must be a list, got {estimators!r}: write [{estimators!r}]")
    estimators = tuple(estimators)
    for estimator in estimators:
        check_estimator(estimator)
        try:
            hash(estimator)
        except TypeError as error:
            raise TypeError(
                f"estimators must be hashable, got {estimator!r}: give its class the decorator "
                "@dataclasses.dataclass(frozen=True), and its fields numbers instead of arrays"
            ) from error
    check_row(logits, mask)
    check_key(key=key)
    logits = jnp.asarray(logits, wide_dtype(logits))
    truth = enumerate(loss, logits, *args, mask=mask, chunks=chunks)
    keys = jax.random.split(key, draws)
    # Rounding errors of a gradient are proportional to the size of the losses it is computed from.
    size = float(abs(truth.expectation) + np.sqrt(truth.variance))
    rounding = rounding_tolerance(size, logits.dtype)
    rows = []
    for estimator in estimators:
        estimates = estimate_gradients(loss, estimator, logits, keys, args, mask)
        exact = np.asarray(truth.gradient, np.float64)
        rows.append(_make_row(estimator, np.asarray(estimates, np.float64), exact, rounding))
    return Report(truth, tuple(rows), draws)


def _measure_distances(estimates: np.ndarray, exact: np.ndarray) -> tuple[float, float]:
    mse = float(np.mean(np.sum((estimates - exact) ** 2, axis=1)))
    lengths = np.linalg.norm(estimates, axis=1) * np.linalg.norm(exact)
    # An estimate of 0 has no direction and counts with a cosine of 0.
    cosine = np.divide(estimates @ exact, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return mse, float(np.mean(cosine))


def _make_row(
    estimator: Estimator, estimates: np.ndarray, exact: np.ndarray, rounding: float
) -> Row:
    """Computes the `Row` of an estimator from its estimates of the gradient [draws, n]."""
    with np.errstate(all="ignore"):  # Gradients may be infinite.
        bias = np.mean(estimates, axis=0) - exact
        variances = np.var(estimates, axis=0, ddof=1)
        error = np.sqrt(variances / estimates.shape[0])
        mse, cosine = _measure_distances(estimates, exact)
        z = np.abs(bias) / (error + rounding)
    # A z of 0 / 0 becomes 0, because there is no bias. If the bias is not finite, z is infinite.
    z = np.where(np.isfinite(bias), np.nan_to_num(z, nan=0.0, posinf=np.inf), np.inf)
    evaluations = estimator.evaluations(estimates.shape[1])
    return Row(
        estimator=estimator,
        evaluations=evaluations,
        bias=bias,
        standard_error=error,
        z=float(np.max(z, initial=0.0)),
        variance=float(np.sum(variances)),
        mse=mse,
        cosine=cosine,
        mse_per_evaluation=mse * evaluations,
    )


def summarize(estimator: Estimator, samples: Iterable[Sample]) -> Measure:
    """Computes the means of an estimator over texts, and the z of its bias.

    Let b_x be the mean error of N draws in text x, S_x their covariance, n the number of gates and
    r the rounding. Without a bias sum_x |b_x|^2 is about a scaled chi-square (Satterthwaite), with
    mean and variance

        sum_x tr(S_x) / N + n r^2,   2 sum_x tr(S_x^2) / N^2 + n r^4

    A gate that opens once in 10,000 draws contributes to the sum as much as to the bias.
    """
    squares, noise, spread, mses, cosines, variances, counts, costs = [], [], [], [], [], [], [], []
    for estimates, exact, rounding, evaluations in samples:
        draws, n = estimates.shape
        floor = n * rounding**2
        is_close = np.abs(estimates - exact) <= rounding
        estimates = np.where(is_close, exact, estimates.astype(np.float64))
        bias = np.mean(estimates, axis=0) - exact
        centred = estimates - np.mean(estimates, axis=0)
        covariance = centred.T @ centred / (draws - 1)
        # Rounding alone gives a deterministic estimator a small covariance.
        if np.trace(covariance) <= floor:
            covariance = np.zeros_like(covariance)
        squares.append(bias @ bias if bias @ bias > floor else 0.0)
        noise.append(np.trace(covariance) / draws + floor)
        # tr(S^2) is the sum of the squares of all entries, because S is symmetric.
        spread.append(2 * (np.sum((covariance / draws) ** 2) + n * rounding**4))
        variances.append(np.trace(covariance))
        mse, cosine = _measure_distances(estimates, exact)
        mses.append(mse)
        cosines.append(cosine)
        counts.append(evaluations)
        costs.append(mses[-1] * evaluations)
    expected, deviation = sum(noise), sum(spread)
    return Measure(
        estimator=estimator,
        evaluations=float(np.mean(counts)),
        bias=float(np.sqrt(np.mean(squares))),
        error=float(np.sqrt(np.mean(variances) / draws)),
        z=_convert_to_normal(sum(squares), expected, deviation),
        variance=float(np.mean(variances)),
        mse=float(np.mean(mses)),
        cosine=float(np.mean(cosines)),
        mse_per_evaluation=float(np.mean(costs)),
    )


def _convert_to_normal(square: float, mean: float, variance: float) -> float:
    if square == 0:
        return 0.0
    # The cube root of Wilson and Hilferty.
    part = variance / (9 * mean**2)  # 2 / (9 k), with k = 2 mean^2 / variance
    return float((np.cbrt(square / mean) - (1 - part)) / np.sqrt(part))


class ModeRow(NamedTuple):
    """The results of a gate mode, as means over all texts.

    Standard errors are over the draws of gates and not over the texts, which are fixed.

    Attributes:
      mode: the gate mode, that is, the kind of gates with which the loss is computed: "sample"
        (draws), "exact" (the expected loss over all patterns), "marginal" (the loss of the mean
        probabilities of the classes), "threshold" ([a > 0]), "best" (the pattern of the smallest
        loss), "expected" (the open probabilities as gates) or "relaxed" (Gumbel-sigmoid gates).
      title: the name of the mode in tables.
      loss: the mean cross-entropy.
      loss_error: the standard error of the loss; None if no gates are drawn.
      gap: the loss minus the loss of the mode "exact".
      accuracy: the share of texts with a correct prediction; None if there are no classes.
      accuracy_error: the standard error of the accuracy; None if no gates are drawn.
      density: the mean share of open words; None if there are no classes.
    """

    mode: str
    title: str
    loss: float
    loss_error: float | None
    gap: float
    accuracy: float | None
    accuracy_error: float | None
    density: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """The gate modes and the estimators of a loss, or of a network on the texts of a data set.

    `gatedjax.gates.toys` and `gatedjax.text.gate_modes` return studies, and
    `gatedjax.analysis.plot_studies` draws them.

        >>> from gatedjax.gates import MeanField, toys
        >>> study = next(toys(draws=2, estimators=[MeanField()]))
        >>> study.title, [row.mode for row in study.modes[:3]]
        ('(b - 0.49)^2, theta 0', ['sample', 'exact', 'threshold'])

    Attributes:
      title: the heading of the Markdown text.
      modes: a `ModeRow` for each gate mode, with its loss and accuracy.
      measured: a `Measured`, the bias, variance and cost of each estimator.
      facts: further entries of the dict that `record` returns, such as {"variance": 0.1}.
      notes: sentences below the tables.
    """

    title: str
    modes: tuple[ModeRow, ...]
    measured: Measured
    facts: Json
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Returns the title, the table of gate modes, that of the estimators, and the notes.

        They are a single string of Markdown.
        """
        parts = [
            f"## {self.title}\n",
            _render_modes(self.modes),
            estimator_table(self.measured.rows),
        ]
        return "\n".join([*parts, *(f"{note}\n" for note in self.notes)])

    def record(self) -> Json:
        """Returns the study as a dict for JSON, with None for numbers that are not finite.

        The keys are "title", the keys of `facts`, "modes" and "estimators" (a dict for each row),
        "texts", "draws", "gradient_norm" and "notes".
        """
        return {
            "title": self.title,
            **self.facts,
            "modes": [_to_json_numbers(row._asdict()) for row in self.modes],
            "texts": self.measured.texts,
            "draws": self.measured.draws,
            "gradient_norm": self.measured.gradient,
            "estimators": [_to_json_numbers(row.record()) for row in self.measured.rows],
            "notes": list(self.notes),
        }


def _to_json_numbers(record: Json) -> Json:
    # JSON has no NaN and no infinity, and the loss of a gate mode may be infinite.
    is_not_finite = lambda x: isinstance(x, float) and not math.isfinite(x)  # noqa: E731
    return {name: None if is_not_finite(value) else value for name, value in record.items()}


def _format_number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _render_modes(rows: Sequence[ModeRow]) -> str:
    """Returns a Markdown table with a line for each gate mode: its loss, errors and accuracy."""
    # The classic problems have a loss but no classes, and columns of dashes would hide the numbers.
    classes = any(row.accuracy is not None for row in rows)
    heads = ["gates", "loss", "+-", "less exact"]
    heads += ["accuracy", "+-", "open"] if classes else []
    cells = []
    for row in rows:
        gap = "-" if row.mode == "exact" else f"{row.gap:+.5f}"
        line = [row.title, f"{row.loss:.5f}", _format_number(row.loss_error, ".5f"), gap]
        if classes:
            numbers = ((row.accuracy, ".4f"), (row.accuracy_error, ".4f"), (row.density, ".3f"))
            line += [_format_number(value, form) for value, form in numbers]
        cells.append(line)
    return render_table(heads, cells)
