"""Bytes of dropout and noise of pairs: no two features or heads are the same; the mean stays."""

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import functional as F
from gatedjax.functional import _bits

KEYS = F.example_keys(jax.random.key(3), jnp.array([4, 9]))


def test_no_two_features_and_no_two_heads_share_their_bits():
    # more than one block of the generator holds: 8 features, 2 or 8 heads
    @jax.jit
    def draws(keys):
        places = jnp.array([0, 1, 2, 7, 1 << 10, (1 << 20) - 1])
        return (
            F.feature_bytes(keys, 6, 19),
            F.pair_uniform(keys, 5, places, 6),
            F.pair_bytes(keys, 19, places, 6),
        )

    features, noise, heads = map(np.asarray, draws(KEYS))
    assert len(np.unique(noise)) == noise.size  # no place of a long text is that of another head
    for axis, drawn in ((2, features), (1, noise), (1, heads), (0, features), (0, heads)):
        columns = np.moveaxis(drawn, axis, 0).reshape(drawn.shape[axis], -1)
        assert len(np.unique(columns, axis=0)) == len(columns)


def test_the_least_and_the_largest_draw_have_logarithms(monkeypatch):
    words = [jnp.full((2, 1, 1), word, jnp.uint32) for word in (0, 2**32 - 1)]
    monkeypatch.setattr(_bits, "threefry", lambda *_: words)
    draws = F.pair_uniform(KEYS, 2, jnp.arange(1), 1)[0].ravel()
    np.testing.assert_allclose(draws, [1e-7, 1 - 2**-23], rtol=1e-7)


def test_dropout_of_bytes_keeps_the_mean_and_what_it_keeps_is_scaled():
    draws = np.arange(256, dtype=np.uint8)
    x = np.full(256, 3.0, np.float32)
    np.testing.assert_array_equal(F.byte_dropout(x, 0.0, draws), x)
    for rate in (0.1, 0.3, 0.5, 0.999):
        y = np.asarray(F.byte_dropout(x, rate, draws))
        dropped = min(round(256 * rate), 255)
        assert (y[:dropped] == 0).all()
        np.testing.assert_allclose(y[dropped:], 3 * 256 / (256 - dropped), rtol=1e-6)
        np.testing.assert_allclose(y.mean(), 3, rtol=1e-5)
