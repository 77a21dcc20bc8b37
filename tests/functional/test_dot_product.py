"""Dot-product attention: scores, sinusoids and biases of positions, against loops in float64."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.functional import relative_bias, scaled_dot_product, sinusoids
from gatedjax.functional._dot_product import pair_products, weighted_values
from tests.tolerances import F32, F64


@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_scores_are_products_over_the_root_of_the_width(lead, np_rng):
    query, key = (np_rng.normal(size=(*lead, n, 5)).astype(np.float32) for n in (3, 4))
    got = jax.jit(scaled_dot_product)(query, key)
    wanted = np.zeros((*lead, 3, 4))
    for place in np.ndindex(*lead, 3, 4):
        q, k = query[place[:-1]], key[(*place[:-2], place[-1])]
        wanted[place] = sum(float(a) * float(b) for a, b in zip(q, k, strict=True)) / math.sqrt(5)
    np.testing.assert_allclose(got, wanted, **F32)


@pytest.mark.parametrize("product", [pair_products, weighted_values])
@pytest.mark.parametrize(("q", "n", "h"), [(3, 5, 4), (64, 65, 8)])
def test_derivatives_of_products_over_pairs_are_those_of_einsum(product, q, n, h, np_rng, x64):
    shapes = [(2, q, h if product is pair_products else n), (2, n, h)]
    axes = "...qd,...kd->...qk" if product is pair_products else "...qk,...kd->...qd"
    arrays, directions = (
        [jnp.asarray(np_rng.normal(size=shape)) for shape in shapes] for _ in range(2)
    )

    def everything(function):
        def loss(*arrays):
            return jnp.sum(jnp.sin(function(*arrays)))

        gradient = jax.grad(loss, argnums=(0, 1))
        forward = jax.jvp(function, arrays, directions)
        twice = jax.jvp(gradient, arrays, directions)
        return forward, twice, jax.vmap(gradient)(*arrays), jax.grad(loss)(*arrays)

    got, wanted = (
        jax.jit(everything, static_argnums=0)(function)
        for function in (product, functools.partial(jnp.einsum, axes))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F64), got, wanted)


@pytest.mark.parametrize("width", [1, 4, 7])
def test_a_table_holds_sines_and_cosines_of_every_rate(width):
    table = sinusoids(np.array([0, 1, 2, 1000]), width)
    for row, t in enumerate((0, 1, 2, 1000)):
        for d in range(width):
            angle = t * 10_000 ** (-2 * (d // 2) / width)
            wanted = math.cos(angle) if d % 2 else math.sin(angle)
            assert table[row, d] == np.float32(wanted)


def test_traced_positions_have_the_rows_of_the_table():
    positions = np.arange(40)
    traced = jax.jit(sinusoids, static_argnums=1)(positions, 6)
    np.testing.assert_allclose(traced, sinusoids(positions, 6), rtol=1e-5, atol=1e-5)
    narrow = functools.partial(sinusoids, width=6, dtype=jnp.bfloat16)
    assert narrow(positions).dtype == jax.eval_shape(narrow, positions).dtype == jnp.bfloat16


def biases(table, queries, keys, upstream):
    """b of every pair, and what the gradient of sum(b * upstream) adds to every number of t."""
    furthest = table.shape[1] // 2
    values, gradient = np.zeros(upstream.shape), np.zeros(table.shape)
    for m, i, j in np.ndindex(values.shape):
        column = furthest + max(-furthest, min(furthest, int(keys[j] - queries[i])))
        values[m, i, j] = table[m, column]
        gradient[m, column] += upstream[m, i, j]
    return values, gradient


@pytest.mark.parametrize("furthest", [0, 2, 9])
def test_a_relative_bias_and_its_gradient_equal_the_loop(furthest, np_rng, x64):
    queries, keys = np.arange(3, 6), np.arange(7)
    table = np_rng.normal(size=(2, 2 * furthest + 1)) * 1e3
    upstream = np_rng.normal(size=(2, 3, 7))
    values, gradient = biases(table, queries, keys, upstream)

    @jax.jit
    def both(table, queries):
        got, pull = jax.vjp(lambda t: relative_bias(t, queries, keys), table)
        return got, pull(upstream)[0]

    got = both(table, queries)
    for one, wanted in zip(got, (values, gradient), strict=True):
        np.testing.assert_allclose(one, wanted, **F64)


@pytest.mark.slow
def test_a_relative_bias_of_half_precision_of_unsigned_places_and_of_no_key(np_rng):
    table, places = np_rng.normal(size=(3, 5)).astype(jnp.bfloat16), np.arange(4)
    got = jax.jit(relative_bias)(table, places.astype("uint8"), places.astype("uint8"))
    assert got.dtype == jnp.bfloat16
    values, _ = biases(table, places, places, np.zeros((3, 4, 4)))
    np.testing.assert_array_equal(np.asarray(got, float), values)
    for size in (0, 1):
        found = jax.eval_shape(relative_bias, table, places[:size], places[:size])
        assert found.shape == (3, size, size)
