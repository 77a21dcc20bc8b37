"""Writes the weights of a network to files, and runs the network with NumPy alone."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from gatedjax import functional as F


def init_params(key):
    keys, glorot = jax.random.split(key, 5), jax.nn.initializers.glorot_uniform()
    return {
        "gru.kernel": glorot(keys[0], (4, 24)),
        "gru.recurrent_kernel": glorot(keys[1], (8, 24)),
        "gru.bias": jnp.zeros(24),
        "gate.kernel": glorot(keys[2], (8, 1)),
        "score.kernel": glorot(keys[3], (8, 1)),
        "out.kernel": glorot(keys[4], (8, 2)),
    }


@jax.jit
def predict(params, xs, lengths):
    """A GRU, a hard gate for each word, attention over the words with open gates."""
    mask = F.length_mask(lengths, xs.shape[1])
    weights = F.GRUWeights(params["gru.kernel"], params["gru.recurrent_kernel"], params["gru.bias"])
    _, states = F.gru(weights, xs, mask)
    gates = F.hard_gates((states @ params["gate.kernel"])[..., 0], mask)
    attention = F.gated_softmax((states @ params["score.kernel"])[..., 0], gates, mask)
    return F.attention_pool(states, attention, mask) @ params["out.kernel"]


def predict_with_numpy(path, xs):
    """The logits [2] for a text [T, 4] without padding."""
    params = np.load(path) if path.suffix == ".npz" else load_file(path)
    hidden, states, recurrent = np.zeros(8, "f4"), [], params["gru.recurrent_kernel"]
    for x in xs:
        inputs = x @ params["gru.kernel"] + params["gru.bias"]
        reset, update = np.split(1 / (1 + np.exp(-inputs[:16] - hidden @ recurrent[:, :16])), 2)
        candidate = np.tanh(inputs[16:] + (reset * hidden) @ recurrent[:, 16:])
        states.append(hidden := (1 - update) * hidden + update * candidate)
    logits = (np.array(states) @ params["gate.kernel"])[:, 0]
    is_open = logits > 0 if np.any(logits > 0) else logits == logits.max()
    scores = np.exp((np.array(states) @ params["score.kernel"])[:, 0]) * is_open
    return scores / scores.sum() @ states @ params["out.kernel"]


params, folder = init_params(jax.random.key(0)), Path(tempfile.mkdtemp())
xs, lengths = jax.random.normal(jax.random.key(1), (16, 6, 4)), jnp.arange(16) % 6 + 1
logits, arrays = predict(params, xs, lengths), jax.tree.map(np.asarray, params)
save_file(arrays, folder / "weights.safetensors")
np.savez(folder / "weights.npz", **arrays)
for path in sorted(folder.iterdir()):
    texts = [row[:length] for row, length in zip(np.asarray(xs), lengths, strict=True)]
    by_numpy = [predict_with_numpy(path, text) for text in texts]
    np.testing.assert_allclose(logits, by_numpy, atol=1e-5)
