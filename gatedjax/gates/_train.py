"""The one road on which networks train gates, whatever the estimator.

`draw` makes the gates of one pass, `train` the loss of a batch whose logits are computed before the
gates are read, and `train_passes` the loss of a network that has gates in several layers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from gatedjax.functional import log_gumbel_sigmoid
from gatedjax.functional._checks import wide_dtype
from gatedjax.functional._export import exportable
from gatedjax.gates._estimator import ByValues, Estimator, Pathwise, check_estimator, drawn
from gatedjax.gates._expectation import cut, expectation, noise_rows
from gatedjax.gates._pathwise import SoftGumbel
from gatedjax.gates._score import OfPasses
from gatedjax.gates._slopes import attached

Reader = Callable[..., tuple[Float[Array, "B k"], Any]]
"""(gates [B, k, n], *rows) -> (the losses [B, k] of k patterns of every row, other results)."""


@exportable
class Gates(NamedTuple):
    """The gates of one pass, or of several draws at once.

    Attributes:
      values: g.
      logarithms: log g of a relaxation, whose g may be too small for float32.
      hard: whether the gates are 0 or 1 (in GA-Net: whether all of a row may be closed).
      weights: the weights of the logits of an estimator by several passes (see `OfPasses`).
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

    Args:
      estimator: a `Pathwise` gives gates that carry its derivative; any other one the first draw
        b = [a + L > 0], as a constant.
      logits: a, of any shape.
      noise: logistic noise.
      mask: True at real gates; others are 0.

    Returns:
      The gates, with their logarithms for `SoftGumbel`.
    """
    if isinstance(estimator, SoftGumbel):
        log_gates = log_gumbel_sigmoid(logits, noise, temperature=estimator.tau)
        return Gates(jnp.exp(log_gates), log_gates)
    wide = logits.astype(wide_dtype(logits))
    if not isinstance(estimator, Pathwise):
        return Gates(drawn(wide, noise), hard=True)
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
    """Estimates the expected loss of every row of a batch over its gates.

    The derivative with respect to the logits is the estimate of the gradient; with respect to what
    `reader` closes over and to `rows` it is that of the loss at the gates that were drawn.
    `jax.vmap` of `expectation` gives the same numbers, but runs a network row by row, so that the
    gradient of its parameters is formed for every row before it is summed.

    Args:
      estimator: a `Pathwise` or a `ByValues` reads all rows of the batch at once, any other
        `Estimator` one row at a time.
      logits: a.
      keys: the key of the noise of each row.
      reader: reader(gates, *rows) returns the losses [B, k] of gates [B, k, n], in the dtype of
        the logits, and other results, those of the first pattern.
      mask: True at real gates; a masked gate is closed and has the gradient 0.
      rows: arrays that `reader` takes row by row, each with a first axis B.

    Returns:
      The estimates, and the other results of `reader` for the first draw; without derivatives
      unless the estimator is one of the two kinds.

    Raises:
      ValueError: if the estimator has not the members of `Estimator`.
    """
    check_estimator(estimator)
    a = logits if mask is None else jax.vmap(cut)(logits, mask)
    wide, n = a.astype(wide_dtype(a)), a.shape[-1]
    noise = jax.vmap(lambda key: noise_rows(key, max(estimator.rows, 1), n))(keys)
    if isinstance(estimator, Pathwise):
        values, more = reader(
            draw(estimator, a, noise[:, 0], mask).values[:, None].astype(a.dtype), *rows
        )
        return values[:, 0], more
    if isinstance(estimator, ByValues):
        patterns = jax.lax.stop_gradient(jax.vmap(estimator.patterns)(wide, noise))
        live = estimator.live
        values, more = reader(patterns[:, :live].astype(a.dtype), *rows)
        every = values
        if live is not None:
            constant, _ = reader(patterns[:, live:].astype(a.dtype), *rows)
            every = jnp.concatenate([values, jax.lax.stop_gradient(constant)], axis=1)
        gradient = jax.vmap(estimator.gradient)(wide, noise, patterns, every)
        return jax.vmap(attached)(jnp.mean(values, axis=1), wide, gradient), more

    def loss(gates: Float[Array, " n"], *row: Any) -> Float[Array, ""]:
        return reader(gates[None, None], *jax.tree.map(lambda x: x[None], row))[0][0, 0]

    expected = expectation(loss, estimator)

    def estimate(logits, key, mask, *row):
        return expected(logits, key, *row, mask=mask)

    _, more = reader(draw(estimator, a, noise[:, 0]).values[:, None], *rows)
    return jax.vmap(estimate)(logits, keys, mask, *rows), jax.lax.stop_gradient(more)


def train_passes(
    estimator: OfPasses,
    key: Key[Array, ""],
    run: Callable[[dict[str, Key[Array, ""]]], tuple[Float[Array, " B"], Float[Array, " B"], Any]],
) -> tuple[Float[Array, " B"], Any]:
    """Estimates the expected loss of a network with gates in several layers, by whole passes.

    Args:
      estimator: the number of passes, and whether they draw opposite noise.
      key: the key of the gates' noise.
      run: one pass, from the key of the stream "gate" (or of "antithetic": the same noise with the
        opposite sign) to the loss of every row, the sum of all logits times their weights, and
        other results.

    Returns:
      The estimates, and the other results of all passes along a new first axis.
    """
    if estimator.mirrored:
        pair = [run({stream: key}) for stream in ("gate", "antithetic")]
        passes = jax.tree.map(lambda *both: jnp.stack(both), *pair)
    else:
        passes = jax.vmap(lambda one: run({"gate": one}))(jax.random.split(key, estimator.rows))
    values, scores, more = passes
    mean = jnp.mean(values, axis=0)
    slopes = jax.lax.stop_gradient(values - mean[None]) / (len(values) - 1)
    return jax.vmap(attached, in_axes=(0, 1, 1))(mean, scores, slopes), more
