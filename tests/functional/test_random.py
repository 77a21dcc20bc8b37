"""An example's random bits belong to the example: no batch, padding or device changes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from gatedjax.functional._random import example_dropout, example_keys, example_noise
from tests._modes import mesh_of
from tests.tolerances import F32

# Compiling threefry takes half a second a shape: the tests share these few.
IDS = np.array([11, 3, 70_000, 8, 2**31 - 1, 0, 5, 4], np.int32)
ORDER = np.array([4, 0, 7, 2, 5, 1, 6, 3])
SIZE = 40
noise = jax.jit(
    lambda key, ids, size: example_noise(example_keys(key, ids), size), static_argnums=2
)


@jax.jit
def dropped(key, ids, inputs):
    return example_dropout(inputs, 0.4, example_keys(key, ids))


def test_key_of_an_example_is_the_fold_in_of_its_id(rng):
    got = jax.random.key_data(example_keys(rng, IDS))
    want = [jax.random.key_data(jax.random.fold_in(rng, int(i))) for i in IDS]
    np.testing.assert_array_equal(got, np.stack(want))


def test_noise_is_the_same_in_another_order_and_batch_size(rng):
    whole = np.asarray(noise(rng, IDS, SIZE))
    np.testing.assert_array_equal(noise(rng, IDS[ORDER], SIZE), whole[ORDER])
    np.testing.assert_array_equal(noise(rng, IDS[2:5], SIZE), whole[2:5])
    # Compiled apart, the logarithms may differ in the last bit.
    np.testing.assert_allclose(example_noise(example_keys(rng, IDS), SIZE), whole, **F32)


def test_filler_rows_have_legal_keys_and_change_no_other_row(rng):
    ids = np.array([-1, 4, -1], np.int32)
    got = np.asarray(noise(rng, ids, SIZE))
    assert np.all(np.isfinite(got))
    np.testing.assert_array_equal(got[1], noise(rng, IDS, SIZE)[IDS.tolist().index(4)])


@pytest.mark.parametrize("size", [0, 1, 7, 64])
def test_longer_padding_continues_the_noise_of_the_shorter(size, rng):
    usual, other = np.asarray(noise(rng, IDS, SIZE)), np.asarray(noise(rng, IDS, size))
    shared = min(size, SIZE)
    assert other.shape == (8, size)
    np.testing.assert_array_equal(other[:, :shared], usual[:, :shared])


def test_noise_is_logistic_across_examples_and_uncorrelated_between_them(rng):
    got = np.asarray(noise(rng, np.arange(400, dtype=np.int32), 250), np.float64)
    n, variance = got.size, np.pi**2 / 3
    assert abs(got.mean()) < 5 * np.sqrt(variance / n)
    assert abs(got.var() / variance - 1) < 5 * np.sqrt(3.2 / n)
    for a, b in ((got[1:], got[:-1]), (got[:, 1:], got[:, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(n)


def test_bits_are_the_same_on_eight_devices(rng):
    inputs = np.ones((8, 10, 3), np.float32)
    mesh = mesh_of(8, AxisType.Auto)
    spread = NamedSharding(mesh, PartitionSpec("d"))
    many = noise(rng, jax.device_put(IDS, spread), SIZE)
    assert len(many.sharding.device_set) == 8
    np.testing.assert_array_equal(many, noise(rng, IDS, SIZE))
    many = dropped(rng, jax.device_put(IDS, spread), jax.device_put(inputs, spread))
    np.testing.assert_array_equal(many, dropped(rng, IDS, inputs))


def test_dropout_of_an_example_is_the_same_in_any_batch_and_padding(rng, np_rng):
    inputs = np_rng.normal(size=(8, 10, 3)).astype(np.float32)
    whole = np.asarray(dropped(rng, IDS, inputs))
    np.testing.assert_array_equal(dropped(rng, IDS[ORDER], inputs[ORDER]), whole[ORDER])
    np.testing.assert_array_equal(dropped(rng, IDS[1:3], inputs[1:3]), whole[1:3])
    np.testing.assert_array_equal(dropped(rng, IDS, inputs[:, :7]), whole[:, :7])


def test_dropout_scales_what_it_keeps_and_is_its_own_gradient_mask(rng, np_rng):
    inputs = np_rng.uniform(1, 2, size=(8, 10, 3)).astype(np.float32)
    got = np.asarray(dropped(rng, IDS, inputs))
    kept = got != 0
    assert 0 < kept.mean() < 1
    np.testing.assert_allclose(got[kept], inputs[kept] / 0.6, **F32)
    gradient = jax.grad(lambda x: jnp.sum(dropped(rng, IDS, x)))(inputs)
    np.testing.assert_allclose(gradient, kept / 0.6, **F32)
    assert not np.array_equal(kept[0], kept[1]), "examples share a dropout mask"
    assert not np.array_equal(kept, np.asarray(dropped(jax.random.key(1), IDS, inputs)) != 0)


def test_dropout_rate_and_mean(rng):
    inputs, rate = jnp.ones((40, 50, 20)), 0.9
    keys = example_keys(rng, np.arange(40, dtype=np.int32))
    got = np.asarray(jax.jit(example_dropout, static_argnums=1)(inputs, rate, keys), np.float64)
    sigma = np.sqrt(rate * (1 - rate) / got.size)
    assert abs(np.mean(got == 0) - rate) < 5 * sigma
    assert abs(got.mean() - 1) < 5 * sigma / (1 - rate)
    # No position and no feature is favoured: 800 and 2000 draws each.
    assert np.all(
        np.abs((got == 0).mean(axis=(0, 2)) - rate) < 6 * np.sqrt(rate * (1 - rate) / 800)
    )
    assert np.all(
        np.abs((got == 0).mean(axis=(0, 1)) - rate) < 6 * np.sqrt(rate * (1 - rate) / 2000)
    )


def test_dropout_of_rate_zero_returns_the_inputs(rng):
    inputs = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(example_dropout(inputs, 0.0, example_keys(rng, IDS[:2])), inputs)


@pytest.mark.parametrize("shape", [(2,), (2, 0, 4), (0, 3)])
def test_dropout_keeps_shape_and_dtype(shape, rng):
    inputs = jnp.ones(shape, jnp.bfloat16)
    got = example_dropout(inputs, 0.5, example_keys(rng, IDS[: shape[0]]))
    assert got.shape == shape
    assert got.dtype == jnp.bfloat16


@pytest.mark.slow
def test_dropout_removes_nonfinite_values_and_their_gradients(rng):
    inputs = jnp.ones((8, 10, 3))
    kept = np.asarray(dropped(rng, IDS, inputs)) != 0
    dirty = jnp.where(kept, inputs, jnp.inf)
    assert np.all(np.isfinite(dropped(rng, IDS, dirty)))
    assert np.all(np.isfinite(jax.grad(lambda x: jnp.sum(dropped(rng, IDS, x)))(dirty)))
