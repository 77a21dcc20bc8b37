"""Parameters in float32, products in bfloat16 or float16, and a scaled loss for float16."""

import jax
import jax.numpy as jnp
import optax
from flax.training.dynamic_scale import DynamicScale

from gatedjax import functional as F


def init_params(key):
    keys, glorot = jax.random.split(key, 3), jax.nn.initializers.glorot_uniform()
    weights = F.GRUWeights(glorot(keys[0], (4, 24)), glorot(keys[1], (8, 24)), jnp.zeros(24))
    return {"gru": weights, "out": glorot(keys[2], (8, 1))}


def loss(params, xs, lengths, targets, dtype):
    """The products are in the dtype of the inputs; carries, gates and sums are in float32."""
    final, _ = F.gru(params["gru"], xs.astype(dtype), lengths=lengths)
    predictions = (final.astype(dtype) @ params["out"].astype(dtype))[:, 0]
    return 1e-7 * jnp.mean((predictions.astype(jnp.float32) - targets) ** 2)


@jax.jit
def train_step(params, opt_state, scale, *batch):
    """Skips the update, and lowers the scale, where a gradient of float16 has overflowed."""
    scale, is_finite, _, gradient = scale.value_and_grad(loss)(params, *batch, jnp.float16)
    updates, new_state = optimizer.update(gradient, opt_state)
    new, old = (optax.apply_updates(params, updates), new_state), (params, opt_state)
    return *optax.tree.where(is_finite, new, old), scale, is_finite


params, optimizer, key = init_params(jax.random.key(0)), optax.adam(1e-2), jax.random.key(1)
batch = jax.random.normal(key, (16, 6, 4)), jnp.arange(16) % 7, jax.random.normal(key, 16)
gradient = jax.jit(jax.grad(loss), static_argnums=4)
exact = gradient(params, *batch, jnp.float32)


def relative_error(tree):
    return optax.tree.norm(optax.tree.sub(tree, exact)) / optax.tree.norm(exact)


assert relative_error(gradient(params, *batch, jnp.bfloat16)) < 0.02
# This loss is so small that its gradient is below the numbers of float16. A scale brings it back.
assert relative_error(gradient(params, *batch, jnp.float16)) > 0.1
scaled_gradient = DynamicScale(scale=2.0**24).value_and_grad(loss)
*_, scaled = jax.jit(scaled_gradient, static_argnums=4)(params, *batch, jnp.float16)
assert relative_error(scaled) < 0.01

# A scale that is too large halves itself until the gradients are finite; then training proceeds.
opt_state, scale, skipped = optimizer.init(params), DynamicScale(scale=2.0**44), 0
for _ in range(30):
    params, opt_state, scale, is_finite = train_step(params, opt_state, scale, *batch)
    skipped += int(~is_finite)
assert 0 < skipped < 30
assert float(scale.scale) == 2.0 ** (44 - skipped)
