"""The exact truth about a loss of few gates, by enumeration; as an oracle and as an estimator."""

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from gatedjax.functional import gumbel_sigmoid, logistic_noise, threshold_gates
from gatedjax.functional._checks import check_positive, wide_dtype
from gatedjax.functional._export import exportable
from gatedjax.functional._tracing import known
from gatedjax.functional._types import ArrayLike
from gatedjax.gates._exact import all_losses, check_known, check_size, contract, pattern, places
from gatedjax.gates._expectation import check_row
from gatedjax.gates._objective import Loss, Objective


@exportable
class Truth(NamedTuple):
    """What is exactly true of a loss f over gates b_i ~ Bernoulli(sigmoid(a_i)).

    Attributes:
      expectation: E f(b).
      variance: of f(b).
      gradient: of E f(b) with respect to the logits; 0 at masked gates.
      effects: E[f(b) | b_i = 1] - E[f(b) | b_i = 0]; 0 at masked gates.
      best: the pattern of the smallest loss (of equal ones, the first by its code, gate 0 the
        lowest bit), whatever its probability. In the dtype of the logits.
      modes: the loss under each way to choose gates, all but "relaxed" exact: "sample" (the
        expectation), "threshold" ([a > 0], the likeliest pattern), "best", "expected" (mean field:
        the loss of the gates sigmoid(a)) and, where a key was given, "relaxed".
    """

    expectation: Float[Array, ""]
    variance: Float[Array, ""]
    gradient: Float[Array, " n"]
    effects: Float[Array, " n"]
    best: Float[Array, " n"]
    modes: dict[str, Float[Array, ""]]


class _Found(NamedTuple):
    """The truth, and the code of a pattern whose loss is not finite, or -1."""

    truth: Truth
    bad: Int[Array, ""]


@functools.partial(jax.jit, static_argnames=("loss", "bits", "chunks", "draws"))
def _exact(
    loss: Loss,
    logits: Float[Array, " n"],
    mask: Bool[Array, " n"],
    args: tuple[Any, ...],
    key: Key[Array, ""] | None,
    temperature: ArrayLike,
    *,
    bits: int,
    chunks: int,
    draws: int,
) -> _Found:
    objective = Objective(loss, args, logits.dtype)
    wide = jnp.where(mask, logits, -jnp.inf).astype(wide_dtype(logits))
    p, q, where = jax.nn.sigmoid(wide), jax.nn.sigmoid(-wide), places(mask, bits)
    losses = all_losses(objective, where, bits, chunks)
    probability = jnp.where(where.used, p[where.position], 0).astype(losses.dtype)
    # a gate that takes no part has the rank of another: its share is cut by the mask
    expectation, by_bit = jax.value_and_grad(contract, argnums=1)(losses, probability)
    effects = jnp.where(mask, by_bit[where.rank] if bits else 0, 0).astype(wide.dtype)
    best, finite = jnp.argmin(losses), jnp.isfinite(losses)
    modes = {
        "sample": expectation,
        "threshold": objective(threshold_gates(wide)),
        "best": losses[best],
        "expected": objective(p),
    }
    if key is not None:
        modes["relaxed"] = _relaxed(objective, wide, key, temperature, draws)
    truth = Truth(
        expectation=expectation,
        variance=contract((losses - expectation) ** 2, probability),
        gradient=effects * p * q,
        effects=effects,
        best=pattern(best, where).astype(logits.dtype),
        modes=modes,
    )
    return _Found(truth, jnp.where(jnp.all(finite), -1, jnp.argmin(finite)))


def _relaxed(
    objective: Objective,
    logits: Float[Array, " n"],
    key: Key[Array, ""],
    temperature: ArrayLike,
    draws: int,
) -> Float[Array, ""]:
    def one(key):
        noise = logistic_noise(key, logits.shape)
        return objective(gumbel_sigmoid(logits, noise, temperature=temperature))

    return jnp.mean(jax.lax.map(one, jax.random.split(key, draws), batch_size=min(draws, 256)))


def enumerate(
    loss: Loss,
    logits: Float[Array, " n"],
    *args: Any,
    mask: Bool[Array, " n"] | None = None,
    chunks: int | None = None,
    key: Key[Array, ""] | None = None,
    temperature: float | Float[Array, ""] = 0.5,
    draws: int = 1024,
) -> Truth:
    """Evaluates a loss at all 2^n patterns of its gates: the truth that estimators estimate.

        E f(b) = sum_b prod_i p_i^b_i (1 - p_i)^(1 - b_i) f(b),  p = sigmoid(a)

    The loss is evaluated once per pattern; moments, effects and gradients come of those values in
    two passes. Where the mask is known, masked gates are no gates: 2^(real ones) patterns. Compiled
    once per loss (the same function object), shapes and number of gates, so what changes between
    calls belongs in args. Composes under `jit` and `vmap`.

    Args:
      loss: loss(gates, *args) -> scalar; gates [n] in the dtype of the logits.
      logits: a, the log-odds of open gates; infinite ones are certain.
      *args: what else the loss takes.
      mask: True at real gates; others are closed in every pattern.
      chunks: in how many equal parts, one after the other, the patterns are evaluated (rounded up
        to a power of 2); None means parts of at most 4096. All losses are held at once. More than
        20 gates are enumerated only where chunks is given, at most 30.
      key: for the mode "relaxed", the mean loss of Gumbel-sigmoid gates over draws; None leaves it
        out.
      temperature: of that mode.
      draws: of that mode.

    Returns:
      The truth. Under `jit`, where no value can be checked, a loss that is not finite at one
      pattern gives an expectation that is not, either.

    Raises:
      ValueError: for more than 20 gates without chunks, for a number of gates that `jax.export`
        leaves open (the number of rows of a `vmap` may be open), for a loss that is no scalar, and
        for one that is NaN or infinite at a pattern, which is named.
    """
    check_positive(temperature=temperature, draws=draws)
    check_row(logits, mask)
    logits = jnp.asarray(logits)
    n = logits.shape[0]
    check_known(n)
    real: ArrayLike = np.ones(n, bool) if mask is None else mask
    bits = int(np.sum(np.asarray(real))) if known(real) else n
    chunks = check_size(bits, chunks, wide_dtype(logits).itemsize)
    found = _exact(
        loss, logits, real, args, key, temperature, bits=bits, chunks=chunks, draws=draws
    )
    if known(found.bad) and int(found.bad) >= 0:
        _refuse(loss, logits, real, args, int(found.bad), bits)
    return found.truth


def _refuse(
    loss: Loss, logits: ArrayLike, mask: ArrayLike, args: tuple[Any, ...], code: int, bits: int
) -> None:
    gates = pattern(jnp.int32(code), places(jnp.asarray(mask), bits))
    value = Objective(loss, args, jnp.result_type(logits))(gates)
    named = np.asarray(gates).astype(int).tolist()
    raise ValueError(f"the loss must be finite at every pattern, got {value} at gates {named}")


@dataclasses.dataclass(frozen=True)
class Enumerate:
    """The exact gradient, as an estimator.

        gradient = d/da sum_b P(b) f(b)

    Unbiased, variance 0; 2^n evaluations, where masked gates count, too; values alone. The
    gradients of the loss's other arguments are exact, too.

    Attributes:
      chunks: as of `enumerate`.

    Reference: the definition of the expectation.
    """

    chunks: int | None = None
    unbiased: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = False
    rows: ClassVar[int] = 0

    def evaluations(self, n: int) -> int:
        """2^n."""
        return 1 << n

    def surrogate(
        self, objective: Objective, logits: Float[Array, " n"], noise: Float[Array, "rows n"]
    ) -> Float[Array, ""]:
        """E f(b)."""
        bits = logits.shape[0]
        check_known(bits)
        chunks = check_size(bits, self.chunks, logits.dtype.itemsize)
        # a gate with the logit -inf is closed in every pattern: what is there may be no number
        where = places(jnp.ones(bits, bool), bits)._replace(real=logits > -jnp.inf)
        losses = all_losses(objective, where, bits, chunks)
        return contract(losses, jax.nn.sigmoid(logits).astype(losses.dtype))
