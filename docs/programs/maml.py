"""Learns initial weights from which a step of gradient descent fits a task (MAML)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax import functional as F


def init_params(key):
    keys, glorot = jax.random.split(key, 3), jax.nn.initializers.glorot_uniform()
    weights = F.GRUWeights(glorot(keys[0], (2, 24)), glorot(keys[1], (8, 24)), jnp.zeros(24))
    return {"gru": weights, "out": glorot(keys[2], (8, 1))}


def draw_task(key):
    """Sequences of two features; the target is a random combination of their sums over time."""
    keys, lengths = jax.random.split(key), jnp.arange(16) % 4 + 1
    xs = jax.random.normal(keys[0], (16, 4, 2))
    sums = jnp.sum(jnp.where(F.length_mask(lengths, 4)[..., None], xs, 0), axis=1)
    return xs, lengths, sums @ jax.random.normal(keys[1], (2,))


def loss(params, xs, lengths, targets):
    final, _ = F.gru(params["gru"], xs, lengths=lengths)
    return jnp.mean(((final @ params["out"])[:, 0] - targets) ** 2)


def adapted_loss(params, task):
    """The loss on the last rows after a step on the first rows."""
    gradient = jax.grad(loss)(params, *(leaf[:8] for leaf in task))
    return loss(optax.tree.add_scale(params, -0.1, gradient), *(leaf[8:] for leaf in task))


@jax.jit
def meta_loss(params, key):
    losses = jax.vmap(lambda key: adapted_loss(params, draw_task(key)))(jax.random.split(key, 8))
    return jnp.mean(losses)


@jax.jit
def train_step(params, opt_state, key):
    updates, opt_state = optimizer.update(jax.grad(meta_loss)(params, key), opt_state)
    return optax.apply_updates(params, updates), opt_state


params, optimizer = init_params(jax.random.key(0)), optax.adam(1e-2)
opt_state, before = optimizer.init(params), meta_loss(params, jax.random.key(1000))
for i in range(200):
    params, opt_state = train_step(params, opt_state, jax.random.key(i))
assert meta_loss(params, jax.random.key(1000)) < 0.7 * before

# The gradient through the inner step, against finite differences in float64.
with jax.enable_x64(True):
    point, task = optax.tree.cast(params, jnp.float64), draw_task(jax.random.key(1))
    evaluate = jax.jit(jax.value_and_grad(adapted_loss))
    value, gradient = evaluate(point, task)
    ahead, _ = evaluate(optax.tree.add_scale(point, 1e-6, gradient), task)
    assert np.isclose((ahead - value) / 1e-6, optax.tree.norm(gradient, squared=True), rtol=1e-4)
