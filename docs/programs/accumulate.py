"""Adds the gradients of the parts of a batch that is too large for the memory."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gatedjax import functional as F


def init_params(key):
    keys, glorot = jax.random.split(key, 3), jax.nn.initializers.glorot_uniform()
    weights = F.LSTMWeights(glorot(keys[0], (4, 32)), glorot(keys[1], (8, 32)), jnp.zeros(32))
    return {"lstm": weights, "out": glorot(keys[2], (8, 5))}


def loss(params, batch):
    """The sum over the real words and their number, because parts differ in their numbers."""
    _, states = F.lstm(params["lstm"], batch["xs"], lengths=batch["lengths"])
    real = F.length_mask(batch["lengths"], batch["xs"].shape[1])
    each = optax.softmax_cross_entropy_with_integer_labels(states @ params["out"], batch["tags"])
    return jnp.sum(jnp.where(real, each, 0)), jnp.sum(real)


@jax.jit
def train_step(params, opt_state, parts):
    """`parts` has a leading axis; a single part at a time is in memory with its activations."""

    def add(sums, part):
        (total, count), gradient = jax.value_and_grad(loss, has_aux=True)(params, part)
        return jax.tree.map(jnp.add, sums, (total, count, gradient)), None

    zeros = jnp.zeros(()), jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, params)
    (total, count, gradient), _ = jax.lax.scan(add, zeros, parts)
    gradient = jax.tree.map(lambda g: g / count, gradient)
    updates, opt_state = optimizer.update(gradient, opt_state)
    return optax.apply_updates(params, updates), opt_state, total / count


rng = np.random.default_rng(0)
batch = {
    "xs": rng.normal(size=(32, 7, 4)).astype("f4"),
    "lengths": np.sort(rng.integers(0, 8, 32)),  # the first part has the shortest texts
    "tags": rng.integers(0, 5, (32, 7)),
}
# Clipping follows the division: it sees the gradient of the whole batch.
optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(1.0))
params = init_params(jax.random.key(0))
parts = jax.tree.map(lambda leaf: leaf.reshape(4, 8, *leaf.shape[1:]), batch)
new, _, value = train_step(params, optimizer.init(params), parts)

whole = jax.tree.map(lambda leaf: leaf[None], batch)  # the whole batch as a single part
expected, _, at_once = train_step(params, optimizer.init(params), whole)
assert abs(value - at_once) < 1e-6
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), new, expected)
each = [loss(params, jax.tree.map(lambda leaf, i=i: leaf[i], parts)) for i in range(4)]
assert abs(value - sum(t for t, _ in each) / sum(n for _, n in each)) < 1e-6
# The mean of the means of the parts is another number: it weighs words of short texts more.
assert abs(value - np.mean([t / n for t, n in each])) > 1e-3
