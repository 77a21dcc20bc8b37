"""Trains a text classifier with gates: a Linen module, an Optax optimizer, and a plain loop."""

import flax.linen as nn
import jax
import numpy as np
import optax

import gatedjax.nn as gnn
from gatedjax import functional as F

ROWS = np.arange(64)


def draw_batch(rng):
    """Texts of random words with a single key word, 1 to 4; its parity is the class."""
    lengths, keyword = rng.integers(3, 11, 64), rng.integers(1, 5, 64)
    tokens, places = rng.integers(5, 40, (64, 10)), rng.integers(0, lengths)
    tokens[ROWS, places] = keyword
    return tokens, lengths, keyword % 2, places


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, tokens, lengths, train=False):
        mask = F.length_mask(lengths, tokens.shape[1])
        words = nn.Embed(40, 16)(tokens)
        _, states = gnn.LSTM(8, bidirectional=True)(words, mask)
        logits = gnn.GatePredictor("fnn", features=16)(words, mask)
        if train:  # soft gates, with a gradient
            noise = F.logistic_noise(self.make_rng("gate"), logits.shape)
            gates = {"log_gates": F.log_gumbel_sigmoid(logits, noise, temperature=0.5)}
        else:  # hard gates, 0 or 1
            gates = {"gates": F.hard_gates(logits, mask)}
        pooled, _ = gnn.AttentionPool("mlp1")(states, mask, **gates)
        return nn.Dense(2)(pooled), logits, mask


@jax.jit
def train_step(params, opt_state, tokens, lengths, labels, key, penalty):
    def loss(params):
        variables, rngs = {"params": params}, {"gate": key}
        scores, logits, mask = Classifier().apply(variables, tokens, lengths, True, rngs=rngs)
        entropy = optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()
        return entropy + penalty * F.gate_penalty(jax.nn.sigmoid(logits), mask).mean()

    updates, opt_state = optimizer.update(jax.grad(loss)(params), opt_state, params)
    return optax.apply_updates(params, updates), opt_state


rng, optimizer = np.random.default_rng(0), optax.adam(1e-2)
params = Classifier().init(jax.random.key(0), *draw_batch(rng)[:2])["params"]
opt_state = optimizer.init(params)
for i in range(300):
    batch, penalty = draw_batch(rng)[:3], 0.05 * (i > 150)
    params, opt_state = train_step(params, opt_state, *batch, jax.random.key(i), penalty)

tokens, lengths, labels, places = draw_batch(np.random.default_rng(1))
scores, logits, mask = Classifier().apply({"params": params}, tokens, lengths)
assert np.mean(np.argmax(scores, -1) == labels) > 0.95
assert np.mean(F.hard_gates(logits, mask)[ROWS, places]) > 0.95  # the key words are open
