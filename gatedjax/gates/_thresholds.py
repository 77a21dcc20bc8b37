"""The threshold at which a row of gates has a given sum, with its exact derivative.

The maps of this package are g_i = phi(z_i - theta) with theta from sum_i phi(z_i - theta) = total.
Newton steps inside a bracket find theta. For a piecewise linear phi each step solves the current
piece exactly, so the search ends with the exact root after finitely many steps; on the simplex this
is the algorithm of Michelot (1986). Sorting, the usual closed form, costs more than 26 bisections
under XLA on a CPU (`python -m tests.gates.timing`).

The derivative comes from the implicit function theorem: with s_i = phi'(z_i - theta),
d theta = (sum_i d phi_i - d total) / sum_i s_i, where d phi_i is the change at a fixed theta.
It consists of differentiable functions, so that it can be differentiated again.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gatedjax.functional._devices import compile_outside_jit, vary_together

Parts = tuple[Array, Array]
Bounds = tuple[Array, Array, Array]
"""Lower bound, upper bound and start of the search for theta; they have no derivative."""
_State = tuple[Array, Array, Array, Array, Array]
# For |x| below this, log(1 + x) / x comes from its series; ten terms are exact to float64 there.
_NEAR = 0.02
# From this step on each second step is a bisection, which bounds the number of steps for any phi.
_PATIENCE = 8
_MOST_STEPS = 160


class Family(NamedTuple):
    """A function phi of gates phi(z_i - theta), and the functions of the search for theta."""

    parts: Callable[[Array, Array | None], Parts]
    """Maps (u, a) to phi(u) and phi'(u); a is a parameter that only some phi have."""
    excess: Callable[[Array, Array, Array | None], Array]
    """The Newton step is excess(sum phi, total, a) / sum phi'."""
    bracket: Callable[[Array, Array, Array, Array | None], tuple[Array, Array]]
    """Maps (scores, mask of real scores, total, a) to the bounds of theta."""


def length_of(rows: Array) -> Any:
    """Returns the number n of positions in rows [..., n], at least 1."""
    size = rows.shape[-1]
    return max(size, 1) if isinstance(size, int) else jnp.maximum(jnp.asarray(size, rows.dtype), 1)


def _linear(u: Array, a: Array | None) -> Parts:
    del a
    is_open = u > -1
    return jnp.where(is_open, 1 + u, 0), is_open.astype(u.dtype)


def _square(u: Array, a: Array | None) -> Parts:
    del a
    root = jnp.where(u > -2, 1 + u / 2, 0)
    return root * root, root


def _log1p_ratio(x: Array) -> Array:
    """Computes log(1 + x) / x for x > -1, smooth through 0, elementwise for x of any shape."""
    is_small = jnp.abs(x) < _NEAR
    # Both branches get finite arguments, because `where` multiplies the derivative of the branch
    # that it discards by 0, and 0 * inf is NaN.
    small, large = jnp.where(is_small, x, 0), jnp.where(is_small, 1, x)
    series = jnp.zeros_like(x)
    # Horner's rule for sum_k (-x)^k / (k + 1).
    for k in range(10, -1, -1):
        series = series * small + (-1) ** k / (k + 1)
    return jnp.where(is_small, series, jnp.log1p(large) / large)


def _power(u: Array, a: Array | None) -> Parts:
    assert a is not None
    is_open = a * u > -1
    u = jnp.where(is_open, u, 0)
    value = jnp.where(is_open, jnp.exp(u * _log1p_ratio(a * u)), 0)
    return value, value / (1 + a * u)


def _clip(u: Array, a: Array | None) -> Parts:
    del a
    inside = (u > 0) & (u < 1)
    return jnp.where(inside, u, (u > 0).astype(u.dtype)), inside.astype(u.dtype)


def _laplace(u: Array, a: Array | None) -> Parts:
    assert a is not None
    above = u > 0
    # Not abs(u), because the derivative of abs at 0 is 0.
    tail = 0.5 * jnp.exp(jnp.where(above, -u, u) / a)
    return jnp.where(above, 1 - tail, tail), tail / a


def _difference(sums: Array, total: Array, a: Array | None) -> Array:
    del a
    return sums - total


def _square_excess(sums: Array, total: Array, a: Array | None) -> Array:
    del total, a
    # Newton's step for (sum phi)^(1/2) = 1, which is convex in theta.
    return 2 * (sums - jnp.sqrt(sums))


def _power_excess(sums: Array, total: Array, a: Array | None) -> Array:
    del total
    assert a is not None
    # Newton's step for (sum phi)^a = 1, which is convex in theta for a <= 1.
    log = jnp.log(jnp.where(sums > 0, sums, 1))
    # For a log near 0 the quotient loses its digits, and at 0 it is 0 / 0; the limit is log.
    is_small = jnp.abs(a * log) < 1e-6
    return sums * jnp.where(is_small, log, -jnp.expm1(-a * log) / jnp.where(is_small, 1, a))


def _from_top(u: Array, keep: Array, total: Array, a: Array | None) -> tuple[Array, Array]:
    del keep, a
    # At 0 the largest score, which is 0, has the gate 1; from log n on all gates are at most 1/n.
    return jnp.zeros_like(total), jnp.full_like(total, 1 + jnp.log(1.0 + length_of(u)))


def _around(z: Array, keep: Array, total: Array, a: Array | None) -> tuple[Array, Array]:
    del total, a
    low = jnp.min(z, axis=-1, keepdims=True, where=keep, initial=jnp.inf)
    high = jnp.max(z, axis=-1, keepdims=True, where=keep, initial=-jnp.inf)
    alive = jnp.any(keep, axis=-1, keepdims=True)
    # Gates that are clipped to [0, 1] are all 1 for theta <= low - 1 and all 0 for theta >= high.
    return jnp.where(alive, low - 2, 0), jnp.where(alive, high + 1, 0)


def _beyond(z: Array, keep: Array, total: Array, a: Array | None) -> tuple[Array, Array]:
    assert a is not None
    low, high = _around(z, keep, total, a)
    count = jnp.sum(keep, axis=-1, keepdims=True, dtype=z.dtype)
    room = jnp.where(total < count, count - total, 1)
    share = jnp.where(total > 0, total, 1)
    # sum phi <= n/2 exp((high - theta) / a),  n - sum phi <= n/2 exp((theta - low) / a)
    return low - a * jnp.log1p(count / room), high + a * jnp.log1p(count / share)


SPARSEMAX = Family(_linear, _difference, _from_top)
ENTMAX15 = Family(_square, _square_excess, _from_top)
ENTMAX = Family(_power, _power_excess, _from_top)
CAPPED = Family(_clip, _difference, _around)
LAPLACE = Family(_laplace, _difference, _beyond)


@compile_outside_jit(0)
def search(
    family: Family,
    u: Float[Array, "*B n"],
    keep: Bool[Array, "*B n"],
    total: Float[Array, "*B 1"],
    bounds: Bounds,
    a: Array | None = None,
    tolerance: float | Array | None = None,
) -> Float[Array, "*B 1"]:
    """Finds theta with sum phi(u - theta) = total over the real positions; not differentiable. The
    search ends a step after all sums are equal to their totals up to the tolerance, or after no
    number is left between the bounds.
    """
    # phi(-inf) = 0 in all families, so that padding adds nothing to the sums.
    u = jnp.where(keep, u, -jnp.inf)
    if tolerance is None:
        # Rounding errors of a sum of n gates grow like sqrt(n).
        tolerance = 16 * float(jnp.finfo(u.dtype).eps) * length_of(u) ** 0.5
    tolerances = tolerance * jnp.maximum(total, 1)

    def step(state: _State) -> _State:
        """Computes a step of the search: Newton's if it stays in the bracket, else a bisection."""
        count, theta, low, high, _ = state
        values, slopes = family.parts(u - theta, a)
        sums = jnp.sum(values, axis=-1, keepdims=True)
        slope = jnp.sum(slopes, axis=-1, keepdims=True)
        # The sum falls with theta, so a sum that is too large moves the lower bound up.
        low, high = jnp.where(sums > total, theta, low), jnp.where(sums > total, high, theta)
        newton = theta + family.excess(sums, total, a) / jnp.where(slope > 0, slope, 1)
        middle = (low + high) / 2
        is_inside = (newton > low) & (newton < high) & (slope > 0)
        is_settled = jnp.abs(sums - total) <= tolerances
        is_stuck = (middle <= low) | (middle >= high)
        allows_newton = (count < _PATIENCE) | (count % 2 == 0)
        other = jnp.where(is_settled, theta, middle)
        new = jnp.where(is_inside & (allows_newton | is_settled), newton, other)
        return count + 1, new, low, high, jnp.all(is_settled | is_stuck)

    def is_unfinished(state: _State) -> Array:
        return (state[0] < _MOST_STEPS) & ~state[4]

    low, high, start = bounds
    start = jnp.clip(start, low, high)
    state = jnp.int32(0), start, low, high, jnp.bool_(False)
    state, *_ = vary_together((state, u, total, a))
    return lax.while_loop(is_unfinished, step, state)[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def find_threshold(
    family: Family, u: Array, keep: Array, total: Array, bounds: Bounds, a: Array | None
) -> Array:
    """Finds theta [..., 1] with sum phi(u - theta) = total over the real positions, by `search`."""
    return search(family, u, keep, total, bounds, a)


@find_threshold.defjvp
def _find_threshold_jvp(family, primals, tangents):
    """Returns theta and its tangent by the implicit function theorem, both [..., 1]."""
    u, keep, total, bounds, a = primals
    d_u, _, d_total, _, d_a = tangents
    theta = find_threshold(family, u, keep, total, bounds, a)

    def sum_gates(u, a):
        return jnp.sum(compute_gates(family, u, keep, theta, a), axis=-1, keepdims=True)

    _, sum_change = jax.jvp(sum_gates, (u, a), (d_u, d_a))
    slopes = jnp.where(keep, family.parts(jnp.where(keep, u - theta, 0), a)[1], 0)
    slope = jnp.sum(slopes, axis=-1, keepdims=True)
    # If all gates are at an end of their range, theta does not move.
    change = jnp.where(slope > 0, (sum_change - d_total) / jnp.where(slope > 0, slope, 1), 0)
    return theta, change


def compute_gates(family: Family, u: Array, keep: Array, theta: Array, a: Array | None) -> Array:
    """Computes the gates phi(u - theta) [..., n] at the real positions; 0 elsewhere."""
    return jnp.where(keep, family.parts(jnp.where(keep, u - theta, 0), a)[0], 0)
