"""Shards parameters and the optimizer's state over eight devices (FSDP), by JAX's shardings."""

import os

# This line makes eight devices of a CPU; delete it where there are accelerators.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from gatedjax import functional as F
from gatedjax import nn as gnn


class Regressor(nn.Module):
    @nn.compact
    def __call__(self, xs, lengths):
        mask = F.length_mask(lengths, xs.shape[1])
        _, states = gnn.GRU(16, bidirectional=True)(xs, mask)
        pooled, _ = gnn.AttentionPool("mlp1")(states, mask)
        return nn.Dense(1)(pooled)[:, 0]


def sharding_of(leaf):
    """The rule: the first axis that eight divides is sharded; other arrays are on every device."""
    axes = [i for i, size in enumerate(leaf.shape) if size % 8 == 0]
    spec = [*[None] * axes[0], "data"] if axes else []
    return NamedSharding(mesh, PartitionSpec(*spec))


def train_step(params, opt_state, xs, lengths, targets):
    def loss(params):
        predictions = Regressor().apply({"params": params}, xs, lengths)
        return jnp.mean((predictions - targets) ** 2)

    value, gradient = jax.value_and_grad(loss)(params)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, value


mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:8])
key, optimizer = jax.random.key(0), optax.adam(1e-2)
batch = jax.random.normal(key, (32, 6, 8)), jnp.arange(32) % 7, jax.random.normal(key, 32)
params = Regressor().init(key, *batch[:2])["params"]
state = params, optimizer.init(params)
*alone, loss_alone = jax.jit(train_step)(*state, *batch)  # on a single device

shardings = jax.tree.map(sharding_of, state)
state = jax.device_put(state, shardings)
batch = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data")))
step = jax.jit(train_step, out_shardings=(*shardings, None), donate_argnums=(0, 1))
*state, value = step(*state, *batch)
held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
assert held < 0.15 * sum(leaf.nbytes for leaf in jax.tree.leaves(state))  # about an eighth
assert abs(value - loss_alone) < 1e-6
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), state[0], alone[0])
