"""Splits the rows of a batch over eight devices with `shard_map`; the gradients are summed."""

import os

# This line makes eight devices of a CPU; delete it where there are accelerators.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from gatedjax import functional as F


def init_params(key):
    keys, glorot = jax.random.split(key, 3), jax.nn.initializers.glorot_uniform()
    weights = F.GRUWeights(glorot(keys[0], (4, 24)), glorot(keys[1], (8, 24)), jnp.zeros(24))
    return {"gru": weights, "score": glorot(keys[2], (8, 1))[:, 0]}


def loss(params, xs, lengths, targets):
    """The sum over the rows and their number: sums can be added over devices, means cannot."""
    mask = F.length_mask(lengths, xs.shape[1])
    _, states = F.gru(params["gru"], xs, mask)
    pooled = F.attention_pool(states, F.masked_softmax(states @ params["score"], mask), mask)
    return jnp.sum((pooled.sum(-1) - targets) ** 2), jnp.sum(lengths > 0)


def step_of_device(params, xs, lengths, targets):
    """Sees the rows of its device. The gradient of shared parameters is summed by JAX."""
    (total, count), gradient = jax.value_and_grad(loss, has_aux=True)(params, xs, lengths, targets)
    total, count = jax.lax.psum((total, count), "data")
    return total / count, jax.tree.map(lambda g: g / count, gradient)


@jax.jit
def train_step(params, opt_state, *batch):
    value, gradient = sharded(params, *batch)
    updates, opt_state = optimizer.update(gradient, opt_state)
    return optax.apply_updates(params, updates), opt_state, value


mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:8])
specs = P(), P("data"), P("data"), P("data")
sharded = jax.shard_map(step_of_device, mesh=mesh, in_specs=specs, out_specs=(P(), P()))
params, optimizer, key = init_params(jax.random.key(0)), optax.sgd(0.1), jax.random.key(1)
batch = jax.random.normal(key, (32, 6, 4)), jnp.arange(32) % 7, jax.random.normal(key, 32)
new, _, value = train_step(params, optimizer.init(params), *batch)

# The same step on a single device, with the mean over the whole batch.
alone, gradient = jax.jit(jax.value_and_grad(lambda p: jnp.divide(*loss(p, *batch))))(params)
expected = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
assert abs(value - alone) < 1e-5
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), new, expected)
