"""The protocols of estimators: `Estimator`, and the two kinds that networks train with directly."""

import abc
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gatedjax.functional._checks import promoted
from gatedjax.functional._relaxations import opened
from gatedjax.gates._objective import Objective
from gatedjax.gates._slopes import attached

Noise: TypeAlias = Float[Array, "rows n"]
PerGate: TypeAlias = Float[Array, " n"]
Patterns: TypeAlias = Float[Array, "k n"]
Values: TypeAlias = Float[Array, " k"]


def drawn(logits: Float[Array, " n"], noise: Float[Array, "*k n"]) -> Float[Array, "*k n"]:
    """Returns b = [a + L > 0], as `functional.sample_gates` draws; NaN for a logit of NaN."""
    perturbed = jnp.add(*promoted(jnp.broadcast_to(logits, noise.shape), noise))
    return opened(perturbed).astype(logits.dtype)


@runtime_checkable
class Estimator(Protocol):
    """An estimator of the gradient of an expected loss: a frozen, hashable dataclass."""

    @property
    def unbiased(self) -> bool:
        """Whether the mean of the estimates is the gradient of the expectation."""

    @property
    def needs_gradient(self) -> bool:
        """Whether it needs the derivative of the loss with respect to the gates."""

    @property
    def rows(self) -> int:
        """The number of rows of logistic noise that one estimate takes."""

    def evaluations(self, n: int) -> int:
        """Returns the number of evaluations of the loss in one estimate, for n gates."""

    def surrogate(self, objective: Objective, logits: PerGate, noise: Noise) -> Float[Array, ""]:
        """Returns an estimate of the expected loss whose derivative is the estimated gradient.

        Args:
          objective: the loss; with respect to its other arguments the derivative is that of the
            value.
          logits: a, float32 or wider; -inf closes a gate and has the gradient 0.
          noise: logistic noise; b = [a + L > 0] is a draw.
        """


@runtime_checkable
class Pathwise(Estimator, Protocol):
    """An estimator by gates that carry a derivative: the loss is evaluated once, at these gates.

    A subclass defines `gates`, which takes arrays of any shape. The other members have defaults;
    `hard` is True if the gates are 0 or 1.
    """

    unbiased: ClassVar[bool] = False
    needs_gradient: ClassVar[bool] = True
    rows: ClassVar[int] = 1
    hard: ClassVar[bool] = False

    @abc.abstractmethod
    def gates(self, logits: Float[Array, "*n"], noise: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Returns the gates."""

    def evaluations(self, n: int) -> int:
        """Returns 1."""
        return 1

    def surrogate(self, objective: Objective, logits: PerGate, noise: Noise) -> Float[Array, ""]:
        """Returns the loss at the gates, differentiated through them."""
        return objective(self.gates(logits, noise[0] if self.rows else noise))


@runtime_checkable
class ByValues(Estimator, Protocol):
    """An estimator by values of the loss at patterns that follow from logits and noise alone.

    A subclass defines `gradient`, and `patterns` unless they are independent draws. `live` is the
    number of patterns, from the first on, whose mean loss is the value of the estimate; None is all
    of them. The other patterns are evaluated without derivatives.
    """

    unbiased: ClassVar[bool] = True
    needs_gradient: ClassVar[bool] = False
    rows: ClassVar[int] = 1
    live: ClassVar[int | None] = None

    def patterns(self, logits: PerGate, noise: Noise) -> Patterns:
        """Returns the gates of 0 and 1 that the loss is evaluated at: a draw for each row of noise.

        Whatever a subclass returns, the first pattern is the draw of the first row.
        """
        return drawn(logits, noise)

    @abc.abstractmethod
    def gradient(
        self, logits: PerGate, noise: Noise, patterns: Patterns, values: Values
    ) -> PerGate:
        """Returns the estimate of the gradient, from the losses of the patterns."""

    def evaluations(self, n: int) -> int:
        """Returns the number of patterns."""
        shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n,), (self.rows, n))]
        return jax.eval_shape(self.patterns, *shapes).shape[0]

    def surrogate(self, objective: Objective, logits: PerGate, noise: Noise) -> Float[Array, ""]:
        """Returns the mean loss of the first patterns, with `gradient` as its derivative."""
        patterns = self.patterns(logits, noise)
        first = patterns[: self.live]
        value = objective(first[0])[None] if first.shape[0] == 1 else objective.values(first)
        values = value
        if self.live is not None:
            values = jnp.concatenate([value, objective.held.values(patterns[self.live :])])
        gradient = self.gradient(logits, noise, patterns, values)
        return attached(jnp.mean(value), logits, gradient)


_MEMBERS = ("unbiased", "needs_gradient", "rows", "evaluations", "surrogate")


def check_estimator(estimator: object) -> None:
    """Raises unless this is an object with the members of `Estimator`."""
    if isinstance(estimator, type):
        name = estimator.__name__
        raise ValueError(f"estimator must be an object, got the class {name}: write {name}()")
    lacking = [member for member in _MEMBERS if not hasattr(estimator, member)]
    if lacking:
        raise ValueError(
            "estimator must have the members of gates.Estimator, "
            f"{estimator!r} lacks {', '.join(lacking)}"
        )
    for member in _MEMBERS:
        is_method = member in ("evaluations", "surrogate")
        if callable(getattr(estimator, member)) != is_method:
            kind = "a method" if is_method else "a value or a property, no method"
            raise ValueError(f"{member} of the estimator {estimator!r} must be {kind}")
