"""Scores of dot-product attention and positions as sinusoids, against loops in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax.functional import scaled_dot_product, sinusoids
from tests.tolerances import F32


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_scores_are_products_over_the_root_of_the_width(lead, np_rng):
    query, key = (np_rng.normal(size=(*lead, n, 5)).astype(np.float32) for n in (3, 4))
    got = jax.jit(scaled_dot_product)(query, key)
    wanted = np.zeros((*lead, 3, 4))
    for place in np.ndindex(*lead, 3, 4):
        q, k = query[place[:-1]], key[(*place[:-2], place[-1])]
        wanted[place] = sum(float(a) * float(b) for a, b in zip(q, k, strict=True)) / math.sqrt(5)
    np.testing.assert_allclose(got, wanted, **F32)


def test_half_precision_has_scores_of_float32(np_rng):
    query = np_rng.normal(size=(3, 4)).astype(jnp.bfloat16)
    assert jax.eval_shape(scaled_dot_product, query, query).dtype == jnp.float32


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (
            np.ones((3, 4, 6), np.float32),
            ValueError,
            r"key must be .* got \(3, 4, 6\)",
        ),
        (np.ones((2, 4, 5), np.float32), ValueError, "key must be"),
        (np.ones((4, 5), np.float32), ValueError, "key must be"),
        (np.ones((3, 4, 5), int), TypeError, "key must be floating point"),
    ],
)
def test_keys_of_another_kind_are_refused_by_name(key, error, message):
    with pytest.raises(error, match=message):
        scaled_dot_product(np.ones((3, 2, 5), np.float32), key)


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
    assert sinusoids(positions, 6, jnp.bfloat16).dtype == jnp.bfloat16
