"""Sparsemax, entmax, budget and top-k against bisection in NumPy and the papers' Jacobians."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.functional import masked_softmax
from gatedjax.gates import _maps, budget, entmax, entmax15, hard_top_k, soft_top_k, sparsemax
from tests._modes import assert_same, run
from tests.tolerances import BF16, F32, F64

T = 7
LENGTHS = np.array([0, 1, 4, 7])
MASK = np.arange(T)[None, :] < LENGTHS[:, None]


def power(alpha):
    """phi and phi' of entmax: [1 + (alpha - 1) u]_+^(1 / (alpha - 1)), exp at alpha = 1."""
    if alpha == 1:
        return np.exp, np.exp
    a = alpha - 1

    def value(u):
        inside = a * u > -1
        return np.where(inside, np.exp(np.log1p(np.where(inside, a * u, 0)) / a), 0)

    return value, lambda u: np.where(value(u) > 0, np.maximum(value(u), 1e-300) ** (2 - alpha), 0)


def clipped(u):
    return np.clip(u, 0, 1)


def laplace(tau):
    def value(u):
        return np.where(u > 0, 1 - np.exp(-np.abs(u) / tau) / 2, np.exp(-np.abs(u) / tau) / 2)

    return value, lambda u: np.exp(-np.abs(u) / tau) / (2 * tau)


def bisected(row, phi, total):
    """theta with sum phi(z - theta) = total, halving until the bounds are neighbours."""
    low, high = row.min() - 1e3, row.max() + 1e3
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if phi(row - middle).sum() > total else (low, middle)
    return (low + high) / 2


# name -> the map, phi, phi', the total
MAPS = {
    "sparsemax": (sparsemax, *power(2), 1),
    "entmax15": (entmax15, *power(1.5), 1),
    **{
        f"entmax {alpha}": (lambda z, m, axis=-1, a=alpha: entmax(z, a, m, axis), *power(alpha), 1)
        for alpha in (1.2, 2.5)
    },
    **{
        f"budget {k}": (
            lambda z, m, axis=-1, k=k: budget(z, k, m, axis),
            clipped,
            lambda u: ((u > 0) & (u < 1)).astype(float),
            k,
        )
        for k in (2, 2.5)
    },
    **{
        f"soft {k}, {tau}": (
            lambda z, m, axis=-1, k=k, tau=tau: soft_top_k(z, k, m, axis, temperature=tau),
            *laplace(tau),
            k,
        )
        for k, tau in ((2, 0.5), (1.5, 0.1))
    },
}
NAMES = pytest.mark.parametrize("name", MAPS)
SIMPLEX = [name for name in MAPS if MAPS[name][3] == 1]


def oracle(name, scores, mask):
    """The gates and the Jacobian of each row, from bisection."""
    _, phi, slope, total = MAPS[name]
    gates, jacobians = np.zeros(scores.shape), np.zeros((*scores.shape, scores.shape[-1]))
    for row, (z, keep) in enumerate(zip(scores, mask, strict=True)):
        real = np.flatnonzero(keep)
        if total >= len(real) and name not in SIMPLEX:
            gates[row, real] = 1
        elif len(real):
            theta = bisected(z[real], phi, total)
            gates[row, real] = phi(z[real] - theta)
            s = slope(z[real] - theta)
            inner = np.diag(s) - np.outer(s, s) / s.sum() if s.sum() else np.diag(s)
            jacobians[np.ix_([row], real, real)] = inner
    return gates, jacobians


@jax.jit
def every(scores, mask, cotangent):
    """All maps with their gradients, in one program per shape."""
    found = {}
    for name, (function, *_) in MAPS.items():
        value, pull = jax.vjp(lambda z, f=function: f(z, mask), scores)
        found[name] = value, pull(cotangent.astype(value.dtype))[0]
    return found


def both(name, scores, mask=None, cotangent=None):
    if cotangent is None:
        cotangent = np.arange(scores.size, dtype=np.float32).reshape(scores.shape)
    mask = np.ones(scores.shape, bool) if mask is None else mask
    return jax.tree.map(np.asarray, every(scores, mask, cotangent)[name])


@pytest.mark.slow
@NAMES
def test_value_and_gradient_equal_bisection_and_the_papers_jacobian(name, np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 4, T)) * 1.5
    gates, jacobians = oracle(name, scores, MASK)
    value, gradient = both(name, scores, MASK, cotangent)
    np.testing.assert_allclose(value, gates, **F64)
    want = np.einsum("bi,bij->bj", cotangent, jacobians)
    np.testing.assert_allclose(gradient, want, rtol=1e-9, atol=1e-11)


@NAMES
def test_the_jacobian_of_the_oracle_is_that_of_finite_differences(name, np_rng):
    scores = np_rng.normal(size=(4, T)) * 1.5
    _, jacobians = oracle(name, scores, MASK)
    for i in range(T):
        moved = 1e-6 * np.eye(T)[i]
        slope = oracle(name, scores + moved, MASK)[0] - oracle(name, scores - moved, MASK)[0]
        np.testing.assert_allclose(slope / 2e-6, jacobians[:, :, i], atol=1e-7)


@pytest.mark.slow
@NAMES
def test_float32_sums_to_its_total_in_long_rows(name, np_rng):
    scores = np_rng.normal(size=(2, 3000)).astype(np.float32)
    total = np.sum(both(name, scores)[0].astype(np.float64), axis=-1)
    np.testing.assert_allclose(total, MAPS[name][3], atol=2e-5)


def test_nearly_all_gates_of_a_long_row_may_be_open(np_rng):
    scores = np_rng.normal(size=(1, 1 << 15)).astype(np.float32)
    mask = np.arange(scores.size)[None] < 32_000
    gates = jax.jit(lambda z: [f(z, 31_998.0, mask) for f in (budget, soft_top_k)])(scores)
    closed = np.sum(np.where(mask, 1 - np.array(gates), 0), axis=-1, dtype=np.float64)
    np.testing.assert_allclose(closed, 2, atol=2e-4)
    np.testing.assert_array_equal(np.array(gates)[..., 32_000:], 0)


@pytest.mark.slow
def test_two_devices_with_half_of_the_rows_each_give_the_same(np_rng):
    """What an explicit mesh asks for is asked while tracing."""
    rows = (np_rng.normal(size=(4, T)).astype(np.float32), MASK)

    def function(_, rows, total):
        del total
        scores, mask = rows
        found = {}
        for name in ("entmax15", "entmax 1.2", "budget 2.5", "soft 2, 0.5"):
            value, pull = jax.vjp(lambda z, f=MAPS[name][0]: f(z, mask), scores)
            found[name] = value, pull(jnp.cos(scores))
        return (), (found, hard_top_k(scores, 2, mask))

    assert_same(run("shard_map", function, (), rows), run("one", function, (), rows))
    run("explicit", function, (), rows, only_trace=True)


@pytest.mark.slow
@NAMES
def test_padding_changes_nothing_whatever_stands_there(name, np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    want = both(name, scores, MASK)
    for garbage in (np.nan, np.inf, -np.inf, 1e30):
        found = both(name, np.where(MASK, scores, np.float32(garbage)), MASK)
        for got, clean in zip(found, want, strict=True):
            np.testing.assert_array_equal(got, clean)
            np.testing.assert_array_equal(got[~MASK], 0.0)


@NAMES
def test_a_row_with_a_nan_is_nan_and_so_are_its_gradients(name, np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    want, slopes = both(name, scores, MASK)
    broken = scores.copy()
    broken[2, 1], broken[2, 5], broken[0] = np.nan, np.nan, np.nan  # the last two are padding
    value, gradient = both(name, broken, MASK)
    for found, healthy in ((value, want), (gradient, slopes)):
        assert np.isnan(found[2, MASK[2]]).all()
        np.testing.assert_array_equal(found[2, ~MASK[2]], 0)
        np.testing.assert_array_equal(found[[0, 1, 3]], healthy[[0, 1, 3]])


def test_no_gate_of_the_simplex_is_nearest_to_infinity(np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    scores[2, 1] = np.inf
    for name in ("sparsemax", "entmax15", "entmax 1.2", "entmax 2.5"):
        value, gradient = both(name, scores, MASK)
        assert np.isnan(value[2, MASK[2]]).all()  # as of `masked_softmax`
        assert np.isnan(gradient[2, MASK[2]]).any()
        assert np.isfinite(value[[0, 1, 3]]).all()


@pytest.mark.slow
def test_hard_and_cold_top_k_and_traced_options_show_nan():
    scores = np.array([[1, np.nan, 0.5], [1, 2, 0.5]], np.float32)
    mask = np.array([[True] * 3, [True, True, False]])
    per_row = np.array([[1], [np.nan]], np.float32)

    @jax.jit
    def run(scores, cold, per_row):
        hard = lambda s: hard_top_k(s, 1, mask)  # noqa: E731
        slopes = jax.grad(lambda s: jnp.sum(hard(s) ** 2))(scores)
        cold = soft_top_k(scores, 1, mask, temperature=cold)
        healthy = jnp.where(jnp.isnan(scores), 0, scores)
        of_options = (
            budget(healthy, per_row, mask),
            soft_top_k(healthy, per_row, mask),
            entmax(healthy, 1.0 + per_row, mask),
        )
        return (hard(scores), cold), slopes, of_options

    hard, slopes, of_options = jax.tree.map(np.asarray, run(scores, np.float32(0), per_row))
    for gates in hard:
        assert np.isnan(gates[0]).all()
        np.testing.assert_array_equal(gates[1], [0, 1, 0])
    assert np.isnan(slopes[0]).all()
    assert np.isfinite(slopes[1]).all()
    for gates in of_options:
        assert np.isfinite(gates[0]).all()
        assert np.isnan(gates[1, :2]).all()
        assert gates[1, 2] == 0


def test_rows_of_no_length_are_empty():
    for function, *_ in list(MAPS.values())[:3]:
        assert jax.eval_shape(function, np.ones((2, 0), np.float32), None).shape == (2, 0)


@NAMES
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_equal_scores_share_the_total_whatever_their_size(name, offset):
    value, gradient = both(name, np.full((4, T), offset, np.float32), MASK)
    count = np.maximum(LENGTHS, 1)[:, None]
    want = np.where(MASK, np.minimum(MAPS[name][3] / count, 1), 0)
    np.testing.assert_allclose(value, want, **F32)
    assert np.all(np.isfinite(gradient))


@NAMES
def test_extreme_scores_equal_bisection_and_have_finite_gradients(name):
    large = [[1e4, 1e4, -1e4], [1e4, 0.25, 0.0], [1e4, 9999.5, 0.5], [-1e4, -1e4, 1.0]]
    huge = [[1e30, 1.0, -1e30], [3e38, -3e38, 0.0], [1e20, -1e20, 3e19], [-1e30, 1.0, 1e30]]
    for rows in (large, huge):
        scores = np.array([row + [-np.inf] * (T - 3) for row in rows], np.float32)
        value, gradient = both(name, scores)
        if rows is large and name != "budget 2":  # where any threshold in a gap of more than 1 does
            gates, _ = oracle(name, scores.astype(np.float64), scores > -np.inf)
            np.testing.assert_allclose(value, gates, rtol=1e-4, atol=1e-5)
        assert np.all(np.isfinite(value))
        assert np.all(np.isfinite(gradient))
        np.testing.assert_allclose(value.sum(axis=-1), MAPS[name][3], rtol=1e-4)
        np.testing.assert_array_equal(value[:, 3:], 0.0)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_rough_threshold_that_is_off_by_rounding_loses_no_gate(monkeypatch, off):
    """Among scores that leave a gate no digit, where rounding may differ between processors."""
    scores = np.array([[1e20, -1e20, 0.0, -np.inf]], np.float32)
    near = scores[:, 1:2] + off * np.spacing(scores[:, :1])
    monkeypatch.setattr(_maps, "search", lambda *_: near)
    gates = jax.jit(lambda scores: budget(scores, 2.5))(scores)  # a program of its own
    np.testing.assert_array_equal(gates, [[1.0, 0.5, 1.0, 0.0]])


def test_the_fraction_of_a_budget_is_one_gate_whatever_the_gaps_between_scores(np_rng):
    n = 201
    rows = [np.linspace(-1, 1, n) * scale for scale in (1e2, 1e8, 1e10)]
    scores = np_rng.permuted(np.array([*rows, np_rng.normal(size=n) * 1e20], np.float32), axis=1)
    gates = np.asarray(jax.jit(lambda scores: budget(scores, 60.3))(scores))
    np.testing.assert_allclose(gates.sum(axis=-1), 60.3, rtol=1e-5)
    np.testing.assert_array_equal(np.sum((gates > 0) & (gates < 1), axis=-1), 1)


@pytest.mark.slow
@NAMES
def test_bfloat16_in_is_bfloat16_out_of_a_float32_search(name, np_rng):
    scores = np_rng.normal(size=(4, T)).astype(jnp.bfloat16)
    value, gradient = both(name, scores, MASK)
    assert value.dtype == gradient.dtype == jnp.bfloat16
    want, _ = oracle(name, scores.astype(np.float64), MASK)
    np.testing.assert_allclose(value.astype(np.float32), want, **BF16)


@jax.jit
def along_axes(scores, mask, counts, cold):
    axes = {"sparsemax": 0, "entmax15": 1, "entmax 1.2": -3, "budget 2": 1, "soft 2, 0.5": 0}
    found = {(name, axis): MAPS[name][0](scores, mask, axis) for name, axis in axes.items()}
    frozen = soft_top_k(scores, counts + 0.3, mask, 0, temperature=cold)
    return found, (hard_top_k(scores, counts, mask, 0), frozen)


@pytest.mark.slow
def test_the_named_axis_is_the_one_that_sums_under_a_broadcast_mask(np_rng):
    scores = np_rng.normal(size=(3, 4, 5)).astype(np.float32)
    mask = np_rng.uniform(size=(3, 1, 5)) > 0.2
    counts = np.arange(20).reshape(1, 4, 5) % 4
    found, hard = along_axes(scores, mask, counts, np.float32(0))
    turned = lambda x: np.moveaxis(np.broadcast_to(x, (3, 4, 5)), 0, -1).reshape(20, 3)  # noqa: E731
    rows = zip(turned(scores), turned(mask), turned(counts), strict=True)
    want = [best(row[None], keep[None], k[0])[0] for row, keep, k in rows]
    for got in hard:
        np.testing.assert_array_equal(turned(got), want)
    for (name, axis), got in found.items():
        moved = np.moveaxis(scores.astype(np.float64), axis, -1)
        keep = np.moveaxis(np.broadcast_to(mask, scores.shape), axis, -1)
        rows = oracle(name, moved.reshape(-1, moved.shape[-1]), keep.reshape(-1, keep.shape[-1]))[0]
        np.testing.assert_allclose(np.moveaxis(got, axis, -1), rows.reshape(moved.shape), **F32)


# the dearest programs to compile; what is linear where no gate opens or closes is there once
OF_SECOND_ORDER = ("sparsemax", "entmax 1.2", "soft 2, 0.5")


@jax.jit
def second(scores, direction, cotangent):
    """Along a direction: the gradient by forward mode, and its change by two ways."""
    found = {}
    for name in OF_SECOND_ORDER:
        function = MAPS[name][0]

        def gradient(z, function=function):
            return jax.grad(lambda z: jnp.sum(cotangent * function(z, MASK)))(z)

        def value(z, function=function):
            return jnp.sum(cotangent * function(z, MASK))

        forward = jax.jvp(value, (scores,), (direction,))[1]
        twice = jax.jvp(gradient, (scores,), (direction,))[1]
        reverse = jax.grad(lambda z, g=gradient: jnp.sum(g(z) * direction))(scores)
        found[name] = forward, jnp.sum(gradient(scores) * direction), twice, reverse
    return found


@pytest.mark.slow
def test_forward_mode_and_second_derivatives_equal_those_of_differences(np_rng, x64):
    scores, direction, cotangent = np_rng.normal(size=(3, 4, T))
    found = second(scores, direction, cotangent)
    up, down = (every(scores + step * direction, MASK, cotangent) for step in (1e-6, -1e-6))
    for name, (forward, slope, twice, reverse) in found.items():
        np.testing.assert_allclose(forward, slope, **F64, err_msg=name)
        np.testing.assert_allclose(twice, reverse, **F64, err_msg=name)
        want = (np.asarray(up[name][1]) - np.asarray(down[name][1])) / 2e-6
        np.testing.assert_allclose(twice, want, rtol=1e-6, atol=1e-7, err_msg=name)


ALPHAS = (1.0, 1 + 1e-6, 1.01, 1.02, 1.3, 1.5, 2.0, 2.5)


def correia(p, alpha):
    """d p / d alpha, proposition 1 of Correia et al. 2019, and its limit at 1."""
    log = np.log(np.where(p > 0, p, 1))
    if alpha == 1:
        return -p * (log**2 - np.sum(p * log**2)) / 2
    skewed = np.where(p > 0, np.where(p > 0, p, 1) ** (2 - alpha), 0)
    skewed /= skewed.sum()
    first = (p - skewed) / (alpha - 1) ** 2
    return first - (p * log - skewed * np.sum(p * log)) / (alpha - 1)


@jax.jit
def by_alpha(scores, alphas, cotangent):
    def value(alphas):
        return jax.vmap(lambda a: entmax(scores, a))(alphas)

    found, pull = jax.vjp(value, alphas)
    return found, pull(jnp.broadcast_to(cotangent, found.shape))[0]


@pytest.mark.slow
@pytest.mark.parametrize("index", range(len(ALPHAS)), ids=map(str, ALPHAS))
def test_alpha_is_traced_and_has_the_derivative_of_correia(index, np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 1, T))
    value, gradient = (np.asarray(x)[index] for x in by_alpha(scores, np.array(ALPHAS), cotangent))
    alpha = ALPHAS[index]
    p = np.asarray(value[0])
    phi = power(alpha)[0]
    np.testing.assert_allclose(p, phi(scores[0] - bisected(scores[0], phi, 1)), **F64)
    if 1 < alpha < 1.01:  # Correia's formula loses the digits that the map keeps; near its limit
        want = np.sum(
            cotangent * correia(np.asarray(by_alpha(scores, np.ones(8), cotangent)[0][0]), 1)
        )
        np.testing.assert_allclose(gradient, want, rtol=1e-4)
    else:
        np.testing.assert_allclose(gradient, np.sum(cotangent * correia(p, alpha)), rtol=1e-9)


@pytest.mark.slow
def test_alpha_one_is_softmax_and_two_sparsemax_traced_or_not(np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    alphas = np.float32([1, 1.5, 2] + [0.5] * 5)
    one, half, two = np.asarray(by_alpha(scores, alphas, np.ones_like(scores))[0])[:3]
    known = jax.jit(lambda z: [entmax(z, alpha) for alpha in (1, 1.5, 2)])(scores)
    same = jax.jit(lambda z: [masked_softmax(z), entmax15(z), sparsemax(z)])(scores)
    for traced, a, b in zip((one, half, two), known, same, strict=True):
        np.testing.assert_allclose(traced, a, **F32)
        np.testing.assert_array_equal(a, b)


def soft_top_k_at(scores, k, temperature):
    """The gates with all arguments that have a derivative as positional arguments."""
    return soft_top_k(scores, k, temperature=temperature)


@functools.partial(jax.jit, static_argnums=0)
def pulled(function, arguments, cotangent):
    value, pull = jax.vjp(function, *arguments)
    return value, pull(cotangent)


@pytest.mark.slow
def test_every_row_has_its_own_alpha_and_its_own_k(np_rng, x64):
    scores, cotangent = np_rng.normal(size=(2, 3, T))
    alpha, k, tau = np.array([[1.2], [2.0], [2.5]]), np.array([[1.5], [2.5], [7.0]]), np.array(0.5)
    full = np.ones(scores.shape, bool)
    got, _ = pulled(entmax, (scores, alpha), cotangent)
    for row, name in enumerate(("entmax 1.2", "sparsemax", "entmax 2.5")):
        np.testing.assert_allclose(got[row], oracle(name, scores, full)[0][row], **F64)
    soft, (_, by_k, by_tau) = pulled(soft_top_k_at, (scores, k, tau), cotangent)
    np.testing.assert_allclose(soft.sum(axis=-1), k[:, 0], **F64)
    np.testing.assert_array_equal(soft[2], 1.0)
    up = pulled(soft_top_k_at, (scores, k, tau + 1e-6), cotangent)[0]
    down = pulled(soft_top_k_at, (scores, k, tau - 1e-6), cotangent)[0]
    np.testing.assert_allclose(by_tau, np.sum(cotangent * (up - down)) / 2e-6, rtol=1e-6)
    up, down = (pulled(soft_top_k_at, (scores, k + e, tau), cotangent)[0] for e in (1e-6, -1e-6))
    want = np.sum(cotangent * (up - down), axis=-1, keepdims=True)[:2] / 2e-6
    np.testing.assert_allclose(by_k[:2], want, rtol=1e-6)
    gates, (_, by_k) = pulled(budget, (scores, k), cotangent)
    between = (gates > 0) & (gates < 1)
    want = [[c[b].mean() if b.any() else 0] for c, b in zip(cotangent, between, strict=True)]
    np.testing.assert_allclose(by_k, want, **F64)


def best(scores, mask, k):
    """1 at the first k of each row's real positions by falling score."""
    gates = np.zeros(scores.shape)
    for row in range(len(scores)):
        real = [t for t in range(scores.shape[1]) if mask[row, t]]
        gates[row, sorted(real, key=lambda t: -scores[row, t])[: int(k)]] = 1
    return gates


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float64])
def test_hard_top_k_opens_the_best_the_first_of_equals_first(dtype, np_rng, x64):
    scores = np.round(np_rng.normal(size=(4, T)) * 2).astype(dtype)
    scores[3, :4] = np.array([0.0, -0.0, 3e38, -3e38]).astype(dtype)
    for k in range(T + 1):
        got, _ = hardened(scores, MASK, np.int32(k))
        assert got.dtype == dtype
        want = best(scores.astype(np.float64), MASK, k)
        np.testing.assert_array_equal(got.astype(np.float64), want)


@jax.jit
def hardened(scores, mask, k):
    def value(z):
        return hard_top_k(z, k, mask, temperature=0.5)

    found, pull = jax.vjp(value, scores)
    return found, pull(jnp.arange(scores.size, dtype=scores.dtype).reshape(scores.shape))[0]


def test_hard_top_k_has_the_derivatives_of_the_soft_gates(np_rng):
    scores = np_rng.normal(size=(4, T)).astype(np.float32)
    value, gradient = hardened(scores, MASK, np.int32(2))
    np.testing.assert_array_equal(value, best(scores, MASK, 2))
    np.testing.assert_allclose(gradient, both("soft 2, 0.5", scores, MASK)[1], **F32)


@pytest.mark.slow
def test_a_traced_temperature_of_zero_is_hard_with_zero_gradient(np_rng):
    scores = np_rng.normal(size=(3, T)).astype(np.float32)
    full = np.ones(scores.shape, bool)
    for tau in (0.0, -1.0):
        arguments = scores, np.float32(2), np.float32(tau)
        got, gradients = pulled(soft_top_k_at, arguments, np.ones_like(scores))
        np.testing.assert_array_equal(got, best(scores, full, 2))
        assert all(np.all(np.asarray(g) == 0) for g in gradients)
    got, _ = pulled(soft_top_k_at, (scores, np.float32(2), np.float32(1e-3)), np.ones_like(scores))
    np.testing.assert_allclose(got, best(scores, full, 2), atol=1e-3)


@pytest.mark.slow
def test_a_traced_k_or_alpha_out_of_range_counts_as_the_nearest(np_rng):
    scores = np_rng.normal(size=(3, T)).astype(np.float32)
    for k, want in ((-1.0, 0.0), (0.0, 0.0), (99.0, 1.0)):
        for function in (budget, soft_top_k):
            got, gradients = pulled(function, (scores, np.float32(k)), np.ones_like(scores))
            np.testing.assert_array_equal(got, want)
            assert all(np.all(np.asarray(g) == 0) for g in gradients)
    alphas = np.float32([0.5] * 8)
    got, gradient = map(np.asarray, by_alpha(scores, alphas, np.ones_like(scores)))
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(got[0], weights, **F32)
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("k", [1, 5, 25, 49])
def test_budget_ends_on_scores_that_mislead_newton(k, x64):
    """Clusters far from each other: slopes of 0 over most of the range."""
    scores = np.concatenate([np.linspace(0, 1e-3, 20), [1e6, -1e6], 1e3 + np.arange(28.0) ** 3])
    got = np.asarray(clusters(scores[None], np.float64(k)))
    np.testing.assert_allclose(got.sum(), k, rtol=1e-9)
    want = clipped(scores - bisected(scores, clipped, k))
    np.testing.assert_allclose(got[0], want, atol=1e-7)


clusters = jax.jit(budget)


@pytest.mark.slow
def test_a_second_call_outside_jit_compiles_nothing(np_rng, caplog):
    def all_maps(rows):
        found = sparsemax(rows), entmax(rows, 1.3), budget(rows, 2.5)
        cold = soft_top_k(rows, 2, temperature=0.5)
        return *found, cold, jax.grad(lambda z: hard_top_k(z, 2)[0, 0])(rows)

    def compiled(rows):
        caplog.clear()
        with jax.log_compiles():
            found = all_maps(rows)
        return found, [r for r in caplog.records if "Compiling" in r.getMessage()]

    rows = jnp.asarray(np_rng.normal(size=(2, 5)), jnp.float32)
    first, seen = compiled(rows)
    assert seen  # else a compilation would not be in the log
    again, seen = compiled(rows)
    assert not seen
    jax.tree.map(np.testing.assert_array_equal, first, again)
