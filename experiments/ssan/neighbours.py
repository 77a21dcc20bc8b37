"""A linear classifier of the pairs of neighbouring words, a reference for the probes.

    p(c | w) = softmax(b + sum_n T[h(w_n, w_{n+1})])_c

If this classifier is better than chance and a network is not, the network failed to learn from
sentences that can be learned from.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.core.curves import hardware
from experiments.core.experiment import Experiment
from experiments.core.kinds import Array, Batch, Batches, Json, Params
from gatedjax import functional as F

BITS = 20
"""The table T has 2^BITS rows, to which pairs of words are hashed."""
EPOCHS = 5
"""The number of passes over the training sentences; each is followed by a pass over the validation
sentences."""
RATE = 0.3
"""The learning rate of Adagrad, which suits rare features."""


def hashed_pairs(tokens: Array) -> Any:
    """Returns for each pair of neighbouring words its row in the table of weights, by a hash.
    `tokens` are ids, int [B, N]; the result is int32 [B, N - 1] in [0, 2^BITS)."""
    # Multiplications by odd constants mix the bits, and the upper bits are mixed best.
    words = tokens.astype(jnp.uint32)
    mixed = words[:, :-1] * jnp.uint32(0x9E3779B1) ^ words[:, 1:] * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ mixed >> 15) * jnp.uint32(0x2C1B3C6D)
    return (mixed >> (32 - BITS)).astype(jnp.int32)


@jax.jit
def scores(params: Params, batch: Batch) -> Any:
    """Computes the class scores [B, C] of sentences: a bias, and the weights of their pairs.
    `params` has "pairs" [2^BITS, C], the weights of each row, and "bias" [C]."""
    tokens = batch["tokens"]
    # n words have n - 1 pairs of neighbours.
    real = F.length_mask(batch["lengths"] - 1, tokens.shape[1] - 1)
    rows = jnp.take(params["pairs"], hashed_pairs(tokens), axis=0)
    return params["bias"][None] + jnp.sum(jnp.where(real[..., None], rows, 0), axis=1)


def train(experiment: Experiment) -> Json:
    """Trains the classifier on the batches of seed 0. The order of the sentences is the only source
    of randomness. Returns the accuracies "validation" and "test" after the epoch with the best
    validation accuracy, the number "epochs" of that epoch, the settings, and the source of the
    sentences."""
    training = experiment.train(0)
    classes = len(experiment.facts["class_names"])
    params = {"pairs": jnp.zeros((1 << BITS, classes)), "bias": jnp.zeros(classes)}
    optimizer = optax.adagrad(RATE, initial_accumulator_value=1e-6, eps=1e-6)
    state = optimizer.init(params)

    def loss(params: Params, batch: Batch) -> Any:
        costs = optax.softmax_cross_entropy_with_integer_labels(
            scores(params, batch), batch["label"]
        )
        return jnp.sum(jnp.where(batch["weight"] > 0, costs, 0))

    @jax.jit
    def step(params: Params, state: Any, batch: Batch) -> tuple[Any, Any]:
        updates, state = optimizer.update(jax.grad(loss)(params, batch), state)
        return optax.apply_updates(params, updates), state

    best: Json = {"validation": -1.0}
    size = len(training)
    for epoch in range(EPOCHS):
        for batch in training.iterate(epoch * size, (epoch + 1) * size):
            params, state = step(params, state, batch)
        reached = accuracy(params, experiment.validation)
        # The test set is read only for an epoch that is better in validation, so that it chooses
        # nothing.
        if reached > best["validation"]:
            best = {"validation": reached, "test": accuracy(params, experiment.test)}
            best["epochs"] = epoch + 1
    return {
        **{name: round(value, 6) for name, value in best.items()},
        "train_n": experiment.facts["train_n"],
        "settings": {"bits": BITS, "epochs": EPOCHS, "rate": RATE},
        "substitute": experiment.substitute,
        "hardware": hardware(),
    }


def accuracy(params: Params, batches: Batches) -> float:
    """Computes the share of the sentences with the right class."""
    right, seen = 0, 0
    for batch in batches:
        real = np.asarray(batch["weight"]) > 0
        predicted = np.argmax(np.asarray(scores(params, batch)), axis=1)
        right += int(np.sum((predicted == batch["label"]) & real))
        seen += int(np.sum(real))
    return right / seen
