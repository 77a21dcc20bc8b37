"""A peephole LSTM with layer norm as a cell, stacked in two bidirectional layers with lengths."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import nn as gnn


class PeepholeLSTM(nn.RNNCellBase):
    features: int
    num_feature_axes = 1

    @nn.compact
    def __call__(self, carry, x, recurrent_dropout_mask=1.0):
        c, h = carry
        inputs = jnp.concatenate([x, recurrent_dropout_mask * h], axis=-1)
        sums = nn.LayerNorm(name="norm")(nn.Dense(4 * self.features, name="dense")(inputs))
        i, f, g, o = jnp.split(sums, 4, axis=-1)
        p, q, r = self.param("peepholes", nn.initializers.normal(0.1), (3, 1, self.features))
        c = nn.sigmoid(f + q * c) * c + nn.sigmoid(i + p * c) * jnp.tanh(g)
        h = nn.sigmoid(o + r * c) * jnp.tanh(nn.LayerNorm(name="cell_norm")(c))
        return (c, h), h

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        zeros = jnp.zeros((*input_shape[:-1], self.features))
        return zeros, zeros


xs, lengths = jax.random.normal(jax.random.key(0), (4, 5, 3)), jnp.array([5, 3, 1, 0])
xs = xs.at[1, 3:].set(jnp.nan)  # padding has no effect, whatever is there
encoder = gnn.Recurrent(PeepholeLSTM(6), num_layers=2, bidirectional=True, return_carry=False)
variables = encoder.init(jax.random.key(1), xs)
states = jax.jit(encoder.apply)(variables, xs, lengths=lengths)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def norm(a, params):
    return (a - a.mean()) / np.sqrt(a.var() + 1e-6) * params["scale"] + params["bias"]


expected, params = np.asarray(xs), jax.tree.map(np.asarray, variables["params"])
for layer in ("layer_0", "layer_1"):
    inputs, expected = expected, np.zeros((4, 5, 12))
    for row, length in enumerate(lengths.tolist()):
        for half, way in enumerate(("forward", "backward")):
            own, c, h = params[layer][way], np.zeros(6), np.zeros(6)
            p, q, r = own["peepholes"][:, 0]
            for t in range(length) if way == "forward" else reversed(range(length)):
                sums = np.concatenate([inputs[row, t], h]) @ own["dense"]["kernel"]
                i, f, g, o = np.split(norm(sums + own["dense"]["bias"], own["norm"]), 4)
                c = sigmoid(f + q * c) * c + sigmoid(i + p * c) * np.tanh(g)
                h = sigmoid(o + r * c) * np.tanh(norm(c, own["cell_norm"]))
                expected[row, t, 6 * half : 6 * half + 6] = h
np.testing.assert_allclose(states, expected, atol=1e-5)
