"""All gradients of `rau`, under its options, equal those of the stepwise form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from tests.tolerances import F64

B, T, D, H = 2, 3, 2, 3
MASK = np.array([[1, 1, 1], [0, 1, 0]], bool)


@pytest.mark.parametrize(("reset_after", "reverse"), [(False, True), (True, False)])
@pytest.mark.usefixtures("x64")
def test_gradients_under_rescale_equal_those_of_the_steps(reset_after, reverse, np_rng):
    shapes = {"input": (D, 5 * H), "recurrent": (H, 5 * H), "bias": (5 * H,)}
    shapes |= {"recurrent_bias": (H,)} if reset_after else {}
    weights = F.RAUWeights(**{name: np_rng.normal(size=shape) for name, shape in shapes.items()})
    xs, initial = np_rng.normal(size=(B, T, D)), np_rng.normal(size=(B, H))
    drop = np_rng.uniform(0.5, 2, (B, H))
    of_final, of_outputs = np_rng.normal(size=(B, H)), np_rng.normal(size=(B, T, H))
    options = {"rescale": True, "reset_after": reset_after}

    def scanned(weights, xs, initial, drop):
        final, outputs = F.rau(
            weights, xs, MASK, initial=initial, reverse=reverse, recurrent_dropout_mask=drop,
            **options,
        )  # fmt: skip
        return jnp.sum(final * of_final) + jnp.sum(outputs * of_outputs)

    def stepwise(weights, xs, initial, drop):
        total, h = 0.0, initial
        for t in reversed(range(T)) if reverse else range(T):
            new = F.rau_step(weights, h, xs[:, t], recurrent_dropout_mask=drop, **options)
            h = jnp.where(MASK[:, t, None], new, h)
            total += jnp.sum(jnp.where(MASK[:, t, None], h, 0) * of_outputs[:, t])
        return total + jnp.sum(h * of_final)

    every = (0, 1, 2, 3)
    both = jax.jit(lambda *x: (jax.grad(scanned, every)(*x), jax.grad(stepwise, every)(*x)))
    fast, slow = both(weights, xs, initial, drop)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **F64), fast, slow)
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(slow))
