"""The tagger: predicate, labels that nobody knows, padding, and what is refused."""

import functools

import jax
import numpy as np
import pytest

from gatedjax.models import SSANTagger, SSANTaggerConfig, SSANTaggingTask
from gatedjax.training import OptimizerConfig, make_optimizer
from tests._drawn import drawn
from tests._grouped import grouped
from tests.models._passes import apply, evaluate, loss
from tests.models.learning import learn

V, L = 11, 5


def config(**options):
    small = {"num_layers": 2, "embedding_dim": 8, "hidden": 16, "filter_size": 32, "num_heads": 2}
    return grouped(SSANTaggerConfig, **{**small, **options})


def batch_of(np_rng, lengths=(5, 3, 1)):
    width = max(lengths)
    real = np.arange(width)[None] < np.array(lengths)[:, None]
    batch = {
        "tokens": np.where(real, np_rng.integers(2, V, real.shape), 0),
        "labels": np.where(real, np_rng.integers(0, L, real.shape), 0),
        "is_predicate": real & (np.arange(width)[None] == 0),
        "lengths": np.array(lengths),
        "example_id": np.arange(len(lengths)),
    }
    return {name: value.astype(np.int32) for name, value in batch.items()} | {
        "weight": np.ones(len(lengths), np.float32),
    }


@functools.cache
def made(**options):
    task = SSANTaggingTask(SSANTagger(config(**dict(options)), V, L), width=9)
    return task, drawn(task.init, batch_of(np.random.default_rng(0)), std=0.3, rng=5)


def test_labels_depend_on_which_word_is_the_predicate(np_rng):
    task, params = made()
    batch = batch_of(np_rng)
    other = batch | {"is_predicate": np.roll(batch["is_predicate"], 1, axis=1)}
    one, two = (apply(task.model, params, b).logits for b in (batch, other))
    assert not np.allclose(one[0, :5], two[0, :5])
    assert not np.any(one[1, 3:])  # padding


def test_a_label_that_training_does_not_know_is_wrong_and_costs_nothing(np_rng):
    task, params = made()
    batch = batch_of(np_rng)
    _known, predictions = evaluate(task, params, batch)
    best = predictions["predicted"]
    assert best.shape == (3, 9)
    assert np.all(best[1, 3:] == -1)
    right = batch | {"labels": np.where(best[:, :5] < 0, 0, best[:, :5])}
    assert evaluate(task, params, right)[0]["accuracy"].value() == 1.0
    for outside in (-1, L, 1_000):
        unknown = right | {"labels": right["labels"].copy()}
        unknown["labels"][0, 0] = outside
        metrics, _ = evaluate(task, params, unknown)
        assert metrics["accuracy"].value() == pytest.approx(8 / 9)
        assert metrics["loss"].count == 8
        _, gradient = loss(task, params, unknown)
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradient))


def test_the_selector_sees_what_the_first_feed_forward_network_made():
    task, _ = made()
    params = jax.jit(task.init)(jax.random.key(0), batch_of(np.random.default_rng(0)))
    assert "selector_query" in params["layer_1"]["attention"]
    assert "selector_query" not in params["layer_2"]["attention"]
    # an orthogonal matrix, and word vectors of half the width
    kernel = np.asarray(params["layer_1"]["feed_forward"]["wide"]["kernel"])
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(16), atol=1e-5)
    assert params["embed"]["embedding"].shape == (V, 8)


def test_bad_batches_and_widths_are_refused(np_rng):
    task, params = made()
    batch = batch_of(np_rng)
    with pytest.raises(ValueError, match="batch must have is_predicate, got"):
        jax.eval_shape(task.evaluate, params, {n: batch[n] for n in ("tokens", "lengths")})
    with pytest.raises(ValueError, match=r"tokens and is_predicate \[B, N\]"):
        jax.eval_shape(task.evaluate, params, batch | {"is_predicate": batch["tokens"][:, :2]})
    with pytest.raises(ValueError, match="width must be at least 5, got 4"):
        jax.eval_shape(SSANTaggingTask(task.model, width=4).evaluate, params, batch)


@pytest.mark.slow
def test_fifty_predicates_are_learned_by_heart(np_rng):
    batch = batch_of(np_rng, lengths=(6,) * 50)
    task = SSANTaggingTask(
        SSANTagger(config(embedding_dim=16, hidden=32, dropout=0.0, attention_dropout=0.0,
                          relu_dropout=0.0), V, L), width=6
    )  # fmt: skip
    tx = make_optimizer(OptimizerConfig(learning_rate=5e-3, warmup_steps=20), 120)
    _, _, metrics = learn(task, tx, batch, 120)
    assert metrics["accuracy"].value() > 0.9
