"""An example's random bits belong to the example: no batch, padding or device changes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gatedjax.functional._random import example_dropout, example_keys, example_noise
from tests.tolerances import F32

IDS = np.array([11, 3, 70_000, 8, 2**31 - 1, 0], np.int32)
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


def test_filler_rows_have_legal_keys(rng):
    ids = np.array([-1, 4, -1], np.int32)
    got = np.asarray(noise(rng, ids, 5))
    assert np.all(np.isfinite(got))
    np.testing.assert_array_equal(got[1], noise(rng, ids[1:2], 5)[0])


def test_noise_is_the_same_in_another_order_and_batch_size(rng):
    whole = np.asarray(noise(rng, IDS, 9))
    order = np.array([4, 0, 2, 5, 1, 3])
    np.testing.assert_array_equal(noise(rng, IDS[order], 9), whole[order])
    np.testing.assert_array_equal(noise(rng, IDS[2:5], 9), whole[2:5])
    np.testing.assert_array_equal(example_noise(example_keys(rng, IDS), 9), whole)


def test_longer_padding_continues_the_noise_of_the_shorter(rng):
    longest = np.asarray(noise(rng, IDS, 64))
    for size in (0, 1, 2, 7, 8, 33):
        np.testing.assert_array_equal(noise(rng, IDS, size), longest[:, :size])


def test_noise_differs_between_examples_positions_and_steps(rng):
    got = np.asarray(noise(rng, np.arange(50, dtype=np.int32), 40))
    assert got.dtype == np.float32
    # 2000 draws of 2**23 values: some pair agrees by chance, a repeated row or column does not.
    assert len(np.unique(got)) > 1990
    steps = [np.asarray(noise(jax.random.fold_in(rng, step), IDS, 40)) for step in range(2)]
    assert np.mean(steps[0] == steps[1]) < 0.01


def test_noise_has_logistic_moments_across_examples_and_no_correlation_between_them(rng):
    got = np.asarray(noise(rng, np.arange(400, dtype=np.int32), 250), np.float64)
    n, variance = got.size, np.pi**2 / 3
    assert abs(got.mean()) < 5 * np.sqrt(variance / n)
    assert abs(got.var() / variance - 1) < 5 * np.sqrt(3.2 / n)
    for a, b in ((got[1:], got[:-1]), (got[:, 1:], got[:, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(n)


@pytest.mark.parametrize("devices", [2, 8])
def test_bits_are_the_same_on_any_number_of_devices(devices, rng):
    ids = np.arange(16, dtype=np.int32)
    inputs = np.ones((16, 6, 2), np.float32)
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    spread = NamedSharding(mesh, PartitionSpec("data"))
    many = noise(rng, jax.device_put(ids, spread), 12)
    assert len(many.sharding.device_set) == devices
    np.testing.assert_array_equal(many, noise(rng, ids, 12))
    many = dropped(rng, jax.device_put(ids, spread), jax.device_put(inputs, spread))
    np.testing.assert_array_equal(many, dropped(rng, ids, inputs))


def test_dropout_of_an_example_is_the_same_in_any_batch_and_padding(rng, np_rng):
    inputs = np_rng.normal(size=(6, 10, 3)).astype(np.float32)
    whole = np.asarray(dropped(rng, IDS, inputs))
    order = np.array([4, 0, 2, 5, 1, 3])
    np.testing.assert_array_equal(dropped(rng, IDS[order], inputs[order]), whole[order])
    np.testing.assert_array_equal(dropped(rng, IDS[1:3], inputs[1:3]), whole[1:3])
    for size in (1, 4, 7):
        short = dropped(rng, IDS, inputs[:, :size])
        np.testing.assert_array_equal(short, whole[:, :size])


def test_dropout_scales_what_it_keeps_and_is_its_own_gradient_mask(rng, np_rng):
    inputs = np_rng.uniform(1, 2, size=(6, 10, 3)).astype(np.float32)
    got = np.asarray(dropped(rng, IDS, inputs))
    kept = got != 0
    assert 0 < kept.mean() < 1
    np.testing.assert_allclose(got[kept], inputs[kept] / 0.6, **F32)
    gradient = jax.grad(lambda x: jnp.sum(dropped(rng, IDS, x)))(inputs)
    np.testing.assert_allclose(gradient, kept / 0.6, **F32)
    assert not np.array_equal(kept[0], kept[1]), "examples share a dropout mask"
    assert not np.array_equal(kept, np.asarray(dropped(jax.random.key(1), IDS, inputs)) != 0)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_rate_and_mean(rate, rng):
    inputs = jnp.ones((40, 50, 20))
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


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 0, 4), (0, 3)])
def test_dropout_keeps_shape_and_dtype(shape, rng):
    inputs = jnp.ones(shape, jnp.bfloat16)
    got = example_dropout(inputs, 0.5, example_keys(rng, IDS[: shape[0]]))
    assert got.shape == shape
    assert got.dtype == jnp.bfloat16


def test_dropout_removes_nonfinite_values_and_their_gradients(rng):
    inputs = jnp.ones((6, 10, 3))
    kept = np.asarray(dropped(rng, IDS, inputs)) != 0
    dirty = jnp.where(kept, inputs, jnp.inf)
    assert np.all(np.isfinite(dropped(rng, IDS, dirty)))
    assert np.all(np.isfinite(jax.grad(lambda x: jnp.sum(dropped(rng, IDS, x)))(dirty)))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_dropout_rate_outside_zero_to_one_is_refused(rate, rng):
    with pytest.raises(ValueError, match=rf"rate.*\[0, 1\).*{rate}"):
        example_dropout(jnp.ones((2, 3)), rate, example_keys(rng, IDS[:2]))
