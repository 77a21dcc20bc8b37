"""An LSTM as an Equinox module: its fields are the weights, its computation `functional.lstm`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from gatedjax import functional as F


class Tagger(eqx.Module):
    forward: F.LSTMWeights
    backward: F.LSTMWeights
    out: jax.Array

    def __init__(self, inputs, hidden, classes, key):
        keys = jax.random.split(key, 5)
        glorot = jax.nn.initializers.glorot_uniform()
        shapes = (inputs, 4 * hidden), (hidden, 4 * hidden)
        kernels = [glorot(key, shape) for key, shape in zip(keys, 2 * shapes, strict=False)]
        self.forward = F.LSTMWeights(*kernels[:2], jnp.zeros(4 * hidden))
        self.backward = F.LSTMWeights(*kernels[2:], jnp.zeros(4 * hidden))
        self.out = glorot(keys[4], (2 * hidden, classes))

    def __call__(self, xs, lengths):
        _, states = F.bidirectional(F.lstm, self.forward, self.backward, xs, lengths=lengths)
        return states @ self.out


@eqx.filter_jit
def train_step(tagger, opt_state, xs, lengths, tags):
    def loss(tagger):
        each = optax.softmax_cross_entropy_with_integer_labels(tagger(xs, lengths), tags)
        real = F.length_mask(lengths, xs.shape[1])
        return jnp.mean(each, where=real)

    value, gradient = eqx.filter_value_and_grad(loss)(tagger)
    updates, opt_state = optimizer.update(gradient, opt_state)
    return eqx.apply_updates(tagger, updates), opt_state, value


xs, lengths = jax.random.normal(jax.random.key(0), (32, 6, 3)), jnp.arange(32) % 6 + 1
tags = (xs[..., 0] > jnp.roll(xs[..., 0], 1, axis=1)).astype(jnp.int32)
tagger, optimizer, losses = Tagger(3, 8, 2, jax.random.key(1)), optax.adam(3e-2), []
opt_state = optimizer.init(eqx.filter(tagger, eqx.is_array))
for _ in range(100):
    tagger, opt_state, value = train_step(tagger, opt_state, xs, lengths, tags)
    losses.append(float(value))
assert losses[-1] < 0.5 * losses[0]

# Equinox's cell with the same weights; its blocks i, f, g, o have the same order.
cell, weights = eqx.nn.LSTMCell(3, 8, key=jax.random.key(2)), tagger.forward
of_torch = weights.input.T, weights.recurrent.T, weights.bias
cell = eqx.tree_at(lambda c: (c.weight_ih, c.weight_hh, c.bias), cell, of_torch)
state = jnp.zeros(8), jnp.zeros(8)
for x in xs[5]:  # row 5 has no padding
    state = cell(x, state)
_, states = F.lstm(weights, xs, lengths=lengths)
assert float(jnp.max(jnp.abs(states[5, -1] - state[0]))) < 1e-5
