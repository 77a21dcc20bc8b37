"""A translator learns three sentences, and networks leave word vectors that are to stay."""

import functools

import jax
import numpy as np
import optax
import pytest

from gatedjax.models import translate
from gatedjax.training import init_state, make_train_step
from tests.models._losses import VOCABULARY, make, total_loss
from tests.models._passes import RNGS

SILENT = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0, "label_smoothing": 0.0}
# each target ends with the stop token
TARGETS = np.array([[5, 7, 3, 0, 0], [9, 4, 6, 3, 0], [0] * 5, [8, 3, 0, 0, 0]], np.int32)


@functools.partial(jax.jit, static_argnums=(0, 2))
def learn(task, batch, steps, key):
    tx = optax.adam(0.02)
    step = make_train_step(task, tx)

    def again(state, _):
        state, metrics = step(state, batch, jax.random.key(1))
        return state, metrics["loss"].total / metrics["loss"].count

    state, losses = jax.lax.scan(again, init_state(task, tx, key, batch), length=steps)
    return state.params, losses


@pytest.mark.slow
def test_translations_are_learned_by_heart_and_found_by_the_search():
    one = make("ssan_translation", hidden=16, filter_size=16, **SILENT)
    lengths = np.sum(TARGETS > 0, axis=1, dtype=np.int32)
    batch = one.batch | {"targets": TARGETS, "target_lengths": lengths}
    params, losses = learn(one.task, batch, 100, jax.random.key(0))
    assert losses[-1] < 0.2 * losses[0]
    search = jax.jit(functools.partial(translate, one.task.model, beam_size=2, extra=2))
    tokens = np.asarray(search(params, batch).tokens[:, 0])
    for found, target, length in zip(tokens, TARGETS, lengths, strict=True):
        np.testing.assert_array_equal(found[:length], target[:length])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agt", "rau_language"])
def test_frozen_word_vectors_have_no_gradient_and_start_from_the_table(name):
    one = make(name, freeze_embeddings=True)
    task, carried, table = one.task, one.carried, None
    if name != "rau_language":  # which has no pretrained vectors
        table = np.random.default_rng(0).normal(size=(VOCABULARY, 3)).astype(np.float32)
        task = type(task)(task.model.clone(embeddings=table))

    @jax.jit
    def start(key):
        params = task.init(key, one.batch)
        cost = lambda p: total_loss(task, p, one.batch, RNGS, *carried)[0]  # noqa: E731
        return params, jax.grad(cost)(params)

    params, gradient = jax.tree.map(np.asarray, start(jax.random.key(0)))
    assert table is None or np.array_equal(params["embed"]["embedding"], table)
    assert not np.any(gradient.pop("embed")["embedding"])
    assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient))
