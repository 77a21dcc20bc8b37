"""The protocol `Estimator`, and the two kinds of estimators that train networks in batches."""

import abc
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import promote
from gatedjax.functional._relaxations import binarize
from gatedjax.gates._objective import Objective
from gatedjax.gates._slopes import attached

Noise: TypeAlias = Float[Array, "rows n"]
PerGate: TypeAlias = Float[Array, " n"]
Patterns: TypeAlias = Float[Array, "k n"]
Values: TypeAlias = Float[Array, " k"]


def draw_gates(logits: Float[Array, " n"], noise: Float[Array, "*k n"]) -> Float[Array, "*k n"]:
    """Draws hard gates b = [a + L > 0], like `functional.sample_gates`."""
    perturbed = jnp.add(*promote(jnp.broadcast_to(logits, noise.shape), noise))
    return binarize(perturbed).astype(logits.dtype)


@runtime_checkable
class Estimator(Protocol):
    """An estimator of the gradient of an expected loss: a frozen, hashable dataclass.

    The loss f(b) depends on n gates b_i ~ Bernoulli(sigmoid(a_i)), and the gradient of E f(b) is
    with respect to the logits a.

        >>> from gatedjax.gates import ARM
        >>> isinstance(ARM(), Estimator), ARM().unbiased, ARM().evaluations(5)
        (True, True, 2)

    An object with these five members needs no base class. `Pathwise` and `ByValues` define most of
    them.

    Attributes:
      unbiased: True if the mean of the estimates is the gradient, False if it is not, and None
        without a statement. Reports show it; it changes no estimate.
      needs_gradient: True if the estimator needs the derivative of the loss by the gates.
      rows: the number of rows of logistic noise [rows, n] that an estimate needs.
      evaluations: a method of the number n of gates; returns the number of evaluations of the loss.
      surrogate: a method of (loss as a function of the gates, logits [n], noise [rows, n]); returns
        a scalar, the estimate of E f(b), with the estimate of the gradient as its derivative.
    """

    @property
    def unbiased(self) -> bool | None:
        """True if the mean of the estimates is the gradient; None without a statement."""

    @property
    def needs_gradient(self) -> bool:
        """True if the estimator needs the derivative of the loss with respect to the gates."""

    @property
    def rows(self) -> int:
        """The number of rows of logistic noise [rows, n] that an estimate needs."""

    def evaluations(self, n: int) -> int:
        """Returns the number of evaluations of the loss per estimate, for n gates."""

    def surrogate(self, objective: Objective, logits: PerGate, noise: Noise) -> Float[Array, ""]:
        """Returns an estimate of the expected loss whose derivative is the estimated gradient.

        Args:
          objective: the loss as a function of the gates [n], which returns a scalar. With respect
            to the other arguments of the loss, the result has the ordinary derivative of its value.
          logits: a [n], float32 or wider; -inf closes a gate and has the gradient 0.
          noise: logistic noise L [rows, n]; b = [a + L > 0] is a draw.

        Returns:
          A scalar, the estimate of E f(b).
        """


@runtime_checkable
class Pathwise(Estimator, Protocol):
    """An estimator that evaluates the loss once and differentiates it through the gates.

    A subclass defines `gates(logits, noise)`, which returns the gates, in [0, 1]. All three are
    arrays of one shape, which may be any. The other members have defaults.

        >>> class Flat(Pathwise):
        ...     def gates(self, logits, noise):
        ...         return jax.nn.sigmoid(logits / 2)
        >>> print(Flat().gates(jnp.zeros(2), jnp.zeros(2)), Flat().evaluations(2))
        [0.5 0.5] 1

    Attributes:
      unbiased: True if the mean of the estimates is the gradient; False by default.
      needs_gradient: True, because the loss is differentiated with respect to the gates.
      rows: the number of rows of logistic noise, 1 by default.
      hard: True if the gates are 0 or 1; False by default.
    """

    unbiased: ClassVar[bool] = False
    needs_gradient: ClassVar[bool] = True
    rows: ClassVar[int] = 1
    hard: ClassVar[bool] = False

    @abc.abstractmethod
    def gates(self, logits: Float[Array, "*n"], noise: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Computes the gates, in [0, 1], with the derivative that the estimator gives them.

        The logits a, the logistic noise and the gates have the same shape, which may be any.
        """

    def evaluations(self, n: int) -> int:
        """Returns 1 for any number n of gates, the number of evaluations of the loss."""
        return 1

    def surrogate(self, objective: Objective, logits: PerGate, noise: Noise) -> Float[Array, ""]:
        """Returns the loss at the gates, a scalar that JAX differentiates through the gates.

        objective is the loss as a function of the gates [n], logits are [n], and noise is logistic
        noise [rows, n], of which the first row is used.
        """
        return objective(self.gates(logits, noise[0] if self.rows else noise))


@runtime_checkable
class ByValues(Estimator, Protocol):
    """An estimator that takes values of the loss at patterns computed from logits and noise.

    A pattern has 0 or 1 for each of the n gates. There are k patterns, [k, n], and the values of
    the loss at them are [k]. A subclass defines `gradient`, which returns the estimate [n] of the
    gradient from the values, and `patterns` unless the patterns are independent draws. The value of
    the estimate is the mean loss of the first `live` patterns. The other patterns are evaluated
    without derivatives with respect to the other arguments of the loss.

        >>> class Score(ByValues):
        ...     def gradient(self, logits, noise, patterns, values):
        ...         return values[0] * (patterns[0] - jax.nn.sigmoid(logits))
        >>> patterns = Score().patterns(jnp.zeros(2), jnp.array([[1.0, -1.0]]))
        >>> print(patterns, Score().gradient(jnp.zeros(2), None, patterns, jnp.array([3.0])))
        [[1. 0.]] [ 1.5 -1.5]

    Attributes:
      unbiased: True if the mean of the estimates is the gradient, False if it is not; None (the
        default) makes no statement.
      needs_gradient: False, because the loss is not differentiated with respect to the gates.
      rows: the number of rows of logistic noise, 1 by default.
      live: the number of leading patterns that give the value of the estimate, their mean loss;
        None (the default) means all.
    """

    unbiased: ClassVar[bool | None] = None
    needs_gradient: ClassVar[bool] = False
    rows: ClassVar[int] = 1
    live: ClassVar[int | None] = None

    def patterns(self, logits: PerGate, noise: Noise) -> Patterns:
        """Returns the k patterns [k, n] of 0 and 1 at which the loss is evaluated.

        logits are [n] and noise is logistic noise [rows, n]. The default is a draw for each row of
        noise. In a subclass, too, the first pattern must be the draw of the first row.
        """
        return draw_gates(logits, noise)

    @abc.abstractmethod
    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns the estimate of the gradient [n] from the losses of the patterns.

        logits are [n], noise is the logistic noise [rows, n], patterns are the result [k, n] of the
        method `patterns`, and values are their losses [k].
        """

    def evaluations(self, n: int) -> int:
        """Returns the number k of patterns for n gates, at each of which the loss is evaluated."""
        # Shapes determine the number of patterns, so no pattern is computed.
        shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n,), (self.rows, n))]
        return jax.eval_shape(self.patterns, *shapes).shape[0]

    def surrogate(self, objective: Objective, logits: PerGate, noise: Noise) -> Float[Array, ""]:
        """Returns the mean loss of the first patterns, with the estimate as its derivative.

        The result is a scalar: the mean over the first `self.live` patterns, or over all if that is
        None. Its derivative with respect to the logits is the result of `self.gradient`. objective
        is the loss as a function of the gates [n], logits are [n], and noise is logistic noise
        [self.rows, n].
        """
        patterns = self.patterns(logits, noise)
        check_patterns(patterns, logits.shape[0])
        first = patterns[: self.live]
        # Only the first patterns have derivatives. All later patterns are evaluated as constants.
        value = objective(first[0])[None] if first.shape[0] == 1 else objective.values(first)
        values = value
        if self.live is not None:
            values = jnp.concatenate([value, objective.held.values(patterns[self.live :])])
        gradient = self.gradient(logits, noise, patterns, values)
        return attached(jnp.mean(value), logits, gradient)


def check_patterns(patterns: Array, n: int) -> None:
    """Raises ValueError unless patterns are [k, n], k >= 1 patterns of n gates."""
    shape = jnp.shape(patterns)
    if len(shape) != 2 or shape[0] < 1 or shape[1] != n:
        raise ValueError(
            f"patterns of the estimator must have shape (k, {n}), a row for each of k patterns, "
            f"got {shape}"
        )


_MEMBERS = ("unbiased", "needs_gradient", "rows", "evaluations", "surrogate")


def check_estimator(estimator: object) -> None:
    """Raises ValueError unless `estimator` is an object with the members of `Estimator`."""
    if isinstance(estimator, type):
        name = estimator.__name__
        raise ValueError(f"estimator must be an instance, got the class {name}: write {name}()")
    absent = [member for member in _MEMBERS if not hasattr(estimator, member)]
    if absent:
        raise ValueError(
            f"estimator must have the members {', '.join(absent)} of gates.Estimator, "
            f"got {estimator!r}"
        )
    for member in _MEMBERS:
        is_method = member in ("evaluations", "surrogate")
        if callable(getattr(estimator, member)) != is_method:
            kinds = ("a method", "a value") if is_method else ("a value", "a method")
            raise ValueError(
                f"estimator.{member} must be {kinds[0]}, got {kinds[1]} in {estimator!r}"
            )
