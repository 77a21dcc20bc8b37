"""Training of networks with gates, for all estimators.

`draw` draws the gates of one pass. `train` estimates the loss of a batch in which the logits do not
depend on the gates, and `train_passes` the loss of a network that has gates in several layers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from gatedjax._utils.tracing import check_keys
from gatedjax.functional._checks import (
    check_floating,
    check_mask,
    check_same_shape,
    check_temperature,
    check_that,
    wide_dtype,
)
from gatedjax.functional._export import exportable
from gatedjax.functional._relaxations import log_gates_of
from gatedjax.gates._estimator import (
    ByValues,
    Estimator,
    Pathwise,
    check_estimator,
    check_patterns,
    draw_gates,
)
from gatedjax.gates._expectation import draw_noise_rows, expectation, mask_logits
from gatedjax.gates._pathwise import SoftGumbel
from gatedjax.gates._score import MultiPass
from gatedjax.gates._slopes import attached

Reader = Callable[..., tuple[Float[Array, "B k"], Any]]
"""(gates [B, k, n], *rows) -> (the losses [B, k] of k patterns of each row, other results)."""


@exportable
class Gates(NamedTuple):
    """The gates of one pass, or of several draws.

        >>> gates = Gates(jnp.array([1.0, 0.0]), hard=True)
        >>> print(gates.values, gates.logarithms, gates.hard)
        [1. 0.] None True

    Attributes:
      values: the gates g in [0, 1], with the shape of the logits, or with a leading axis of draws.
      logarithms: log g of relaxed gates, because g may be too small for float32; otherwise None.
        It has the shape of values.
      hard: True if the gates are 0 or 1 (in GA-Net: if all gates of a row may be closed).
      weights: the weights that an estimator with several passes (see `MultiPass`) gives the logits,
        with their shape: the gradient is an advantage of the loss times the weights. None for other
        estimators.
    """

    values: Array
    logarithms: Array | None = None
    hard: bool = False
    weights: Array | None = None


def draw(
    estimator: Estimator,
    logits: Float[Array, "*n"],
    noise: Float[Array, "*n"],
    mask: Bool[Array, "*n"] | None = None,
) -> Gates:
    """Draws the gates of one pass in training.

        >>> from gatedjax.gates import ARM
        >>> print(draw(ARM(), jnp.array([0.0, -jnp.inf]), jnp.ones(2)).values)
        [1. 0.]

    Args:
      estimator: the estimator. For a `Pathwise` the gates are those of the estimator, with their
        derivative; for any other estimator they are the draw b = [a + L > 0], without a derivative.
      logits: a, the log-odds that a gate is open, of any shape.
      noise: logistic noise L, of the same shape.
      mask: True at real gates; the other gates are 0. None means all.

    Returns:
      A `Gates` with the shape of the logits; it has `logarithms` for `SoftGumbel` only.
    """
    check_floating(logits=logits, noise=noise)
    check_same_shape(logits=logits, noise=noise, mask=mask)
    check_mask(mask, jnp.shape(logits))
    closed = logits if mask is None else jnp.where(mask, logits, -jnp.inf)
    return gates_of(estimator, closed, noise, mask)


def gates_of(estimator: Estimator, logits: Array, noise: Array, mask: Array | None = None) -> Gates:
    """Computes `draw` without its checks."""
    if isinstance(estimator, SoftGumbel):
        if jnp.ndim(estimator.tau):  # the estimator has checked only that it is positive
            check_temperature(estimator.tau, jnp.shape(logits))
        log_gates = log_gates_of(logits, noise, estimator.tau)
        return Gates(jnp.exp(log_gates), log_gates)
    wide = jnp.asarray(logits, wide_dtype(logits))
    if not isinstance(estimator, Pathwise):
        return Gates(draw_gates(wide, noise), hard=True)
    values = estimator.gates(wide, noise)
    return Gates(values if mask is None else jnp.where(mask, values, 0), hard=estimator.hard)


def train(
    estimator: Estimator,
    logits: Float[Array, "B n"],
    keys: Key[Array, " B"],
    reader: Reader,
    mask: Bool[Array, "B n"] | None = None,
    *,
    rows: tuple[Any, ...] = (),
) -> tuple[Float[Array, " B"], Any]:
    """Estimates the expected loss over the gates, for each row of a batch.

    The derivative with respect to the logits is the estimate of the gradient. With respect to
    `rows` and to the values that `reader` closes over, it is the derivative of the loss at the
    gates that were drawn. `jax.vmap` of `expectation` gives the same numbers, but runs the network
    row by row, so that the gradient of the parameters is computed for each row before it is summed.

        >>> from gatedjax.gates import LocalExpectation
        >>> def reader(gates):
        ...     return gates.sum(-1), gates[:, 0]
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> def loss(logits):
        ...     return train(LocalExpectation(), logits, keys, reader)[0].sum()
        >>> print(jax.grad(loss)(jnp.zeros((2, 3))))
        [[0.25 0.25 0.25]
         [0.25 0.25 0.25]]

    Args:
      estimator: the estimator. A `Pathwise` or a `ByValues` evaluates all rows of the batch in the
        same call of `reader`, any other `Estimator` row by row.
      logits: a [B, n], the log-odds of the n gates of each of B rows.
      keys: the PRNG keys of the noise, one for each row.
      reader: reader(gates, *rows) -> (losses, other results). It computes the losses [B, k] for
        gates [B, k, n] in the dtype of the logits, and other results for the first pattern.
      mask: True at real gates; a masked gate is closed and has the gradient 0. None means all.
      rows: further arguments of `reader`, arrays with a first axis B.

    Returns:
      (estimates, other): the estimates [B], and the other results of `reader` for the first draw.
      `other` has derivatives only if the estimator is a `Pathwise` or a `ByValues`.

    Raises:
      ValueError: if the estimator lacks a member of `Estimator`.
    """
    check_estimator(estimator)
    check_floating(logits=logits)
    check_that(jnp.ndim(logits) == 2, "logits must have shape [B, n]", logits)
    check_same_shape(logits=logits, mask=mask)
    check_mask(mask, jnp.shape(logits))
    check_keys(jnp.shape(logits)[0], keys=keys)
    if not isinstance(rows, tuple):
        raise TypeError(f"rows must be a tuple of arrays, got {type(rows).__name__}")
    a = jnp.asarray(logits) if mask is None else jax.vmap(mask_logits)(logits, mask)
    wide, n = a.astype(wide_dtype(a)), a.shape[-1]
    # An estimator without noise gets a row as well, because `draw` takes noise.
    noise = jax.vmap(lambda key: draw_noise_rows(key, max(estimator.rows, 1), n))(keys)
    if isinstance(estimator, Pathwise):
        gates = gates_of(estimator, a, noise[:, 0], mask).values
        values, other = reader(gates[:, None].astype(a.dtype), *rows)
        return values[:, 0], other
    if isinstance(estimator, ByValues):
        # The logits get their gradient from `attached` and not through the draws.
        patterns = jax.lax.stop_gradient(jax.vmap(estimator.patterns)(wide, noise))
        check_patterns(patterns[0], n)
        live = estimator.live
        values, other = reader(patterns[:, :live].astype(a.dtype), *rows)
        all_values = values
        if live is not None:
            constant, _ = reader(patterns[:, live:].astype(a.dtype), *rows)
            all_values = jnp.concatenate([values, jax.lax.stop_gradient(constant)], axis=1)
        gradient = jax.vmap(estimator.gradient)(wide, noise, patterns, all_values)
        return jax.vmap(attached)(jnp.mean(values, axis=1), wide, gradient), other

    def loss(gates: Float[Array, " n"], *row: Any) -> Float[Array, ""]:
        return reader(gates[None, None], *jax.tree.map(lambda x: x[None], row))[0][0, 0]

    expected = expectation(loss, estimator)

    def estimate(logits, key, mask, *row):
        return expected(logits, key, *row, mask=mask)

    # `expectation` returns only the estimate, so the other results need a separate pass.
    first = gates_of(estimator, a, noise[:, 0]).values
    _, other = reader(first[:, None].astype(a.dtype), *rows)
    return jax.vmap(estimate)(logits, keys, mask, *rows), jax.lax.stop_gradient(other)


def train_passes(
    estimator: MultiPass,
    key: Key[Array, ""],
    run: Callable[[dict[str, Key[Array, ""]]], tuple[Float[Array, " B"], Float[Array, " B"], Any]],
) -> tuple[Float[Array, " B"], Any]:
    """Estimates the losses [B] of a network with gates in several layers, by whole passes. `run`
    maps the keys of "gate" (or "antithetic", for opposite noise) to the losses [B], the logits
    times `MultiPass.weights` summed in each row [B], and other results.
    """
    if estimator.mirrored:
        pair = [run({stream: key}) for stream in ("gate", "antithetic")]
        # `vmap` needs a single function, and the two passes take different streams.
        passes = jax.tree.map(lambda *both: jnp.stack(both), *pair)
    else:
        passes = jax.vmap(lambda pass_key: run({"gate": pass_key}))(
            jax.random.split(key, estimator.rows)
        )
    values, scores, other = passes
    # The mean serves as the baseline of all passes. Dividing by k - 1 instead of k makes up for the
    # loss of a pass that is part of its baseline.
    mean = jnp.mean(values, axis=0)
    slopes = jax.lax.stop_gradient(values - mean[None]) / (len(values) - 1)
    return jax.vmap(attached, in_axes=(0, 1, 1))(mean, scores, slopes), other
