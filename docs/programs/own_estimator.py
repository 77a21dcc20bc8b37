"""An estimator of gradients through gates, which trains a network and is measured exactly."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax import gates


@dataclasses.dataclass(frozen=True)
class Antithetic(gates.ByValues):
    """(f(b) (b - p) + f(c) (c - p)) / 2 with opposite draws b = [a + L > 0], c = [a - L > 0]."""

    def patterns(self, logits, noise):
        return (logits + jnp.concatenate([noise, -noise]) > 0).astype(logits.dtype)

    def gradient(self, logits, noise, patterns, values):
        return jnp.mean(values[:, None] * (patterns - jax.nn.sigmoid(logits)), axis=0)


def loss(pattern, kernel):
    return jnp.sum((pattern @ kernel - 1) ** 2) + 0.1 * jnp.sum(pattern)


kernel, logits = jax.random.normal(jax.random.key(0), (6, 3)), jnp.linspace(-1.0, 1.0, 6)
expected = gates.expectation(loss, Antithetic())
keys = jax.random.split(jax.random.key(1), 20_000)
draws = jax.jit(jax.vmap(lambda key: jax.grad(expected)(logits, key, kernel)))(keys)


def enumerate_patterns(logits):
    """E f(b) = sum_b P(b) f(b) and its gradient, by a loop over the 64 patterns."""
    p, mean, gradient = 1 / (1 + np.exp(-np.asarray(logits, float))), 0, 0
    for pattern in map(np.array, itertools.product([0.0, 1.0], repeat=6)):
        share = np.prod(np.where(pattern == 1, p, 1 - p)) * float(loss(pattern, kernel))
        mean, gradient = mean + share, gradient + share * (pattern - p)
    return mean, gradient


error = jnp.std(draws, axis=0) / len(draws) ** 0.5
start, exact = enumerate_patterns(logits)
assert np.all(np.abs(jnp.mean(draws, axis=0) - exact) < 4.5 * error)  # it is unbiased


@jax.jit
def train_step(logits, opt_state, key):
    updates, opt_state = optimizer.update(jax.grad(expected)(logits, key, kernel), opt_state)
    return optax.apply_updates(logits, updates), opt_state


optimizer = optax.adam(0.05)
opt_state = optimizer.init(logits)
for i in range(300):
    logits, opt_state = train_step(logits, opt_state, jax.random.key(i))
assert enumerate_patterns(logits)[0] < 0.5 * start
