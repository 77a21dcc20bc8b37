"""A recurrence of your own: the step of a cell, `masked_scan`, and a Linen module around both."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from gatedjax import functional as F


def janet(kernels, xs, mask=None, **options):
    """An LSTM with a forget gate alone (van der Westhuizen and Lasenby 2018).

    f = sigmoid(x W_f + h U_f + b_f);  g = tanh(x W_g + h U_g);  h' = f h + (1 - f) g
    """
    kernel, recurrent_kernel, bias = kernels

    def step(hidden, x):
        forget, candidate = jnp.split(x @ kernel + hidden @ recurrent_kernel, 2, axis=-1)
        forget = jax.nn.sigmoid(forget + bias)
        hidden = forget * hidden + (1 - forget) * jnp.tanh(candidate)
        return hidden, hidden  # the carry and the output

    initial = jnp.zeros((xs.shape[0], recurrent_kernel.shape[0]), xs.dtype)
    return F.masked_scan(step, initial, xs, mask, **options)


class Janet(nn.Module):
    features: int

    @nn.compact
    def __call__(self, xs, lengths):
        glorot, size = nn.initializers.glorot_uniform(), self.features
        directions = []
        for name in ("forward", "backward"):
            kernel = self.param(f"{name}_kernel", glorot, (xs.shape[-1], 2 * size))
            recurrent_kernel = self.param(f"{name}_recurrent_kernel", glorot, (size, 2 * size))
            bias = self.param(f"{name}_bias", nn.initializers.ones, (size,))
            directions.append((kernel, recurrent_kernel, bias))
        return F.bidirectional(janet, *directions, xs, lengths=lengths)


xs, lengths = jax.random.normal(jax.random.key(0), (4, 5, 3)), jnp.array([5, 3, 1, 0])
xs = xs.at[1, 3:].set(jnp.nan)  # padding has no effect, whatever is there
variables = Janet(6).init(jax.random.key(1), xs, lengths)
_, states = jax.jit(Janet(6).apply)(variables, xs, lengths)
gradient = jax.grad(lambda v: jnp.sum(Janet(6).apply(v, xs, lengths)[1] ** 2))(variables)
assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))

expected, params = np.zeros((4, 5, 12)), jax.tree.map(np.asarray, variables["params"])
for row, length in enumerate(lengths.tolist()):
    for half, name in enumerate(("forward", "backward")):
        hidden = np.zeros(6)
        for t in range(length) if name == "forward" else reversed(range(length)):
            product = np.asarray(xs[row, t]) @ params[f"{name}_kernel"]
            product = product + hidden @ params[f"{name}_recurrent_kernel"]
            forget = 1 / (1 + np.exp(-product[:6] - params[f"{name}_bias"]))
            hidden = forget * hidden + (1 - forget) * np.tanh(product[6:])
            expected[row, t, 6 * half : 6 * half + 6] = hidden
np.testing.assert_allclose(states, expected, atol=1e-6)
