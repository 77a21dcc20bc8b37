"""A GRU as an NNX module: its parameters are `nnx.Param`, its computation is `functional.gru`."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from gatedjax import functional as F


class GRU(nnx.Module):
    """The GRU of Flax and PyTorch (reset after the product), with lengths."""

    def __init__(self, inputs, hidden, rngs):
        glorot = nnx.initializers.glorot_uniform()
        self.kernel = nnx.Param(glorot(rngs.params(), (inputs, 3 * hidden)))
        self.recurrent_kernel = nnx.Param(glorot(rngs.params(), (hidden, 3 * hidden)))
        self.bias = nnx.Param(jnp.zeros(3 * hidden))

    def __call__(self, xs, lengths):
        weights = F.GRUWeights(self.kernel[...], self.recurrent_kernel[...], self.bias[...])
        return F.gru(weights, xs, lengths=lengths, reset_after=True)


class Mean(nnx.Module):
    """Predicts the mean of the first feature over the real steps of each row."""

    def __init__(self, rngs):
        self.gru, self.out = GRU(3, 8, rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, xs, lengths):
        return self.out(self.gru(xs, lengths)[0])[:, 0]


@nnx.jit
def train_step(model, optimizer, xs, lengths, targets):
    def loss(model):
        return jnp.mean((model(xs, lengths) - targets) ** 2)

    value, gradient = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradient)
    return value


model = Mean(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
xs, lengths = jax.random.normal(jax.random.key(0), (32, 6, 3)), jnp.arange(32) % 6 + 1
real = F.length_mask(lengths, 6)
targets = jnp.mean(xs[..., 0], axis=1, where=real)
losses = [float(train_step(model, optimizer, xs, lengths, targets)) for _ in range(100)]
assert losses[-1] < 0.1 * losses[0]

# Flax's cell with the same parameters. Its update gate multiplies the old state, so that the
# columns of that gate have the opposite sign.
cell, sign = nnx.GRUCell(3, 8, rngs=nnx.Rngs(1)), jnp.repeat(jnp.array([1.0, -1.0, 1.0]), 8)
cell.dense_i.kernel[...] = model.gru.kernel[...] * sign
cell.dense_i.bias[...] = model.gru.bias[...] * sign
cell.dense_h.kernel[...] = model.gru.recurrent_kernel[...] * sign
difference = nnx.RNN(cell)(xs, seq_lengths=lengths) - model.gru(xs, lengths)[1]
assert jnp.max(jnp.abs(jnp.where(real[..., None], difference, 0))) < 1e-5
