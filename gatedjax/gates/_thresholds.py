"""The threshold that makes a row of gates sum to what it shall, and its exact derivative.

Every map of this package is g_i = phi(z_i - theta) with theta from sum_i phi(z_i - theta) = total.
theta is found by Newton's steps inside a bracket. Where phi is piecewise linear a step solves the
piece at hand, so that the search ends with the exact root after finitely many steps, as sorting
does: it is Michelot's (1986) algorithm for the simplex. Sorting, the usual closed form, costs more
than 26 bisections under XLA on a CPU (`python -m tests.gates.timing`).

The derivative is that of the implicit function: with s_i = phi'(z_i - theta),
d theta = (sum_i d phi_i - d total) / sum_i s_i, where d phi_i is the change at a fixed theta.
It is made of the same differentiable parts, so that it can be differentiated again.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gatedjax.functional._types import ArrayLike

Parts = tuple[Array, Array]
_State = tuple[Array, Array, Array, Array, Array]
# So far below every score that no map opens a gate; finite, so that its multiples are numbers.
_FAR = -1e30
# |x| below which log(1 + x) / x comes from its series; ten terms are exact to float64 there.
_NEAR = 0.02
# From this step on every second one is a bisection, which bounds their number whatever phi is.
_PATIENCE = 8
_MOST_STEPS = 160


class Family(NamedTuple):
    """One phi, and what the search for its threshold needs."""

    parts: Callable[[Array, Array | None], Parts]
    """phi and phi' at u = z - theta; a is a parameter of some."""
    excess: Callable[[Array, Array, Array | None], Array]
    """Newton's step is excess(sum phi, total, a) / sum phi'."""
    bracket: Callable[[Array, Array, Array], tuple[Array, Array]]
    """Where theta must be, from the scores, which of them are real, and the total."""


def _linear(u: Array, a: Array | None) -> Parts:
    del a
    is_open = u > -1
    return jnp.where(is_open, 1 + u, 0), is_open.astype(u.dtype)


def _square(u: Array, a: Array | None) -> Parts:
    del a
    root = jnp.where(u > -2, 1 + u / 2, 0)
    return root * root, root


def _log1p_ratio(x: Array) -> Array:
    """log(1 + x) / x for x > -1, smooth through 0."""
    is_near = jnp.abs(x) < _NEAR
    near, far = jnp.where(is_near, x, 0), jnp.where(is_near, 1, x)
    series = jnp.polyval(jnp.array([(-1) ** k / (k + 1) for k in range(10, -1, -1)], x.dtype), near)
    return jnp.where(is_near, series, jnp.log1p(far) / far)


def _power(u: Array, a: Array | None) -> Parts:
    """[1 + a u]_+^(1 / a) and its slope [1 + a u]_+^(1 / a - 1); exp(u) at a = 0."""
    assert a is not None
    is_open = a * u > -1
    u = jnp.where(is_open, u, 0)
    value = jnp.where(is_open, jnp.exp(u * _log1p_ratio(a * u)), 0)
    return value, value / (1 + a * u)


def _clipped(u: Array, a: Array | None) -> Parts:
    del a
    inside = (u > 0) & (u < 1)
    return jnp.where(inside, u, (u > 0).astype(u.dtype)), inside.astype(u.dtype)


def _laplace(u: Array, a: Array | None) -> Parts:
    del a
    above = u > 0
    # not abs: its derivative at 0 is 0, and that of this function is not
    density = 0.5 * jnp.exp(jnp.where(above, -u, u))
    return jnp.where(above, 1 - density, density), density


def _difference(found: Array, total: Array, a: Array | None) -> Array:
    del a
    return found - total


def _square_excess(found: Array, total: Array, a: Array | None) -> Array:
    del total, a
    return 2 * (found - jnp.sqrt(found))


def _power_excess(found: Array, total: Array, a: Array | None) -> Array:
    """That of Newton's step for (sum phi)^a = 1, convex in theta for a <= 1, linear at a = 0."""
    del total
    assert a is not None
    log = jnp.log(jnp.where(found > 0, found, 1))
    is_near = jnp.abs(a * log) < 1e-6
    return found * jnp.where(is_near, log, -jnp.expm1(-a * log) / jnp.where(is_near, 1, a))


def _from_top(u: Array, keep: Array, total: Array) -> tuple[Array, Array]:
    """The best score is 0: one gate of 1 at theta = 0, all 1/n at theta <= log n."""
    del keep
    return jnp.zeros_like(total), jnp.full_like(total, 1 + jnp.log(1.0 + u.shape[-1]))


def _ends(u: Array, keep: Array) -> tuple[Array, Array]:
    low = jnp.min(u, axis=-1, keepdims=True, where=keep, initial=-_FAR)
    high = jnp.max(u, axis=-1, keepdims=True, where=keep, initial=_FAR)
    return low, high


def _around(u: Array, keep: Array, total: Array) -> tuple[Array, Array]:
    del total
    low, high = _ends(u, keep)
    return low - 2, high + 1


def _beyond(u: Array, keep: Array, total: Array) -> tuple[Array, Array]:
    """sum phi <= n/2 exp(high - theta) and n - sum phi <= n/2 exp(theta - low)."""
    low, high = _ends(u, keep)
    count = jnp.sum(keep, axis=-1, keepdims=True, dtype=u.dtype)
    room = jnp.where(total < count, count - total, 1)
    share = jnp.where(total > 0, total, 1)
    return low - jnp.log1p(count / room), high + jnp.log1p(count / share)


SPARSEMAX = Family(_linear, _difference, _from_top)
ENTMAX15 = Family(_square, _square_excess, _from_top)
ENTMAX = Family(_power, _power_excess, _from_top)
CAPPED = Family(_clipped, _difference, _around)
LAPLACE = Family(_laplace, _difference, _beyond)


def search(
    family: Family,
    u: Float[Array, "*B n"],
    keep: Bool[Array, "*B n"],
    total: Float[Array, "*B 1"],
    start: Float[Array, "*B 1"],
    a: ArrayLike = None,
    tolerance: float | None = None,
) -> Float[Array, "*B 1"]:
    """theta with sum phi(u - theta) = total over the real positions; not differentiable.

    A step that leaves the bracket is replaced by its middle. The search of a row ends when the sum
    is within the tolerance (rounding), and one step more is made from there.
    """
    low, high = family.bracket(u, keep, total)
    u = jnp.where(keep, u, _FAR)
    if tolerance is None:
        tolerance = 16 * float(jnp.finfo(u.dtype).eps) * max(u.shape[-1], 1) ** 0.5
    near = tolerance * jnp.maximum(total, 1)
    theta = jnp.clip(start, low, high)

    def step(state: _State) -> _State:
        count, theta, low, high, done = state
        values, slopes = family.parts(u - theta, a)
        found = jnp.sum(values, axis=-1, keepdims=True)
        slope = jnp.sum(slopes, axis=-1, keepdims=True)
        low, high = jnp.where(found > total, theta, low), jnp.where(found > total, high, theta)
        newton = theta + family.excess(found, total, a) / jnp.where(slope > 0, slope, 1)
        middle = low + (high - low) / 2
        inside = (newton > low) & (newton < high) & (slope > 0)
        settled = jnp.abs(found - total) <= near
        patient = (count < _PATIENCE) | (count % 2 == 0)
        other = jnp.where(settled, theta, middle)
        new = jnp.where(inside & (patient | settled), newton, other)
        new = jnp.where(done, theta, new)
        stuck = (middle <= low) | (middle >= high)
        return count + 1, new, low, high, done | settled | stuck

    def goes_on(state: _State) -> Array:
        return (state[0] < _MOST_STEPS) & ~jnp.all(state[4])

    state = (jnp.int32(0), theta, low, high, jnp.zeros(theta.shape, bool))
    return lax.while_loop(goes_on, step, state)[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def threshold(
    family: Family, u: Array, keep: Array, total: Array, start: Array, a: Array | None
) -> Array:
    """`search` with the derivative of the implicit function by u, total and a."""
    return search(family, u, keep, total, start, a)


@threshold.defjvp
def _threshold_jvp(family, primals, tangents):
    u, keep, total, start, a = primals
    d_u, _, d_total, _, d_a = tangents
    theta = threshold(family, u, keep, total, start, a)

    def summed(u, a):
        return jnp.sum(gates(family, u, keep, theta, a), axis=-1, keepdims=True)

    _, moved = jax.jvp(summed, (u, a), (d_u, d_a))
    slopes = jnp.where(keep, family.parts(jnp.where(keep, u - theta, 0), a)[1], 0)
    slope = jnp.sum(slopes, axis=-1, keepdims=True)
    # where every gate is at an end of its range, none moves
    change = jnp.where(slope > 0, (moved - d_total) / jnp.where(slope > 0, slope, 1), 0)
    return theta, change


def gates(family: Family, u: Array, keep: Array, theta: Array, a: Array | None) -> Array:
    """phi(u - theta) at the real positions, 0 elsewhere."""
    return jnp.where(keep, family.parts(jnp.where(keep, u - theta, 0), a)[0], 0)
