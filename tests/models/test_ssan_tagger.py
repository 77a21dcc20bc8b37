"""The tagger: predicate, labels that nobody knows, padding, and what is refused."""

import functools

import jax
import numpy as np
import pytest

from gatedjax.models import SSANTagger, SSANTaggerConfig, SSANTaggingTask
from tests._drawn import drawn
from tests._grouped import grouped
from tests.models._losses import make
from tests.models._passes import apply, evaluate, loss

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


@pytest.mark.slow
def test_labels_depend_on_which_word_is_the_predicate(np_rng):
    task, params = made()
    batch = batch_of(np_rng)
    other = batch | {"is_predicate": np.roll(batch["is_predicate"], 1, axis=1)}
    one, two = (apply(task.model, params, b).logits for b in (batch, other))
    assert not np.allclose(one[0, :5], two[0, :5])
    assert not np.any(one[1, 3:])  # padding
    # a mark is 1 at most
    marked = apply(task.model, params, batch | {"is_predicate": 2 * batch["is_predicate"]}).logits
    np.testing.assert_array_equal(marked, one)


@pytest.mark.slow
@pytest.mark.parametrize("first", [False, True])
def test_a_label_that_training_does_not_know_is_wrong_and_costs_nothing(first, np_rng):
    task, params = made()
    batch = batch_of(np_rng)
    if first:  # the label in whose place the loss puts an unknown one is predicted everywhere
        bias = np.array([50, 0, 0, 0, 0], np.float32)
        params = params | {"classifier": params["classifier"] | {"bias": bias}}
    _known, predictions = evaluate(task, params, batch)
    best = predictions["predicted"]
    assert best.shape == (3, 9)
    assert np.all(best[1, 3:] == -1)
    np.testing.assert_array_equal(predictions["example_id"], batch["example_id"])
    assert not first or np.all(best[0, :5] == 0)
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


@pytest.mark.slow
def test_matrices_start_orthogonal_and_words_have_half_of_the_width():
    one = make("ssan_tagger", num_layers=2)
    params = jax.jit(one.task.init)(jax.random.key(0), one.batch)
    assert "selector_query" in params["layer_1"]["attention"]
    assert "selector_query" not in params["layer_2"]["attention"]
    kernel = np.asarray(params["layer_1"]["feed_forward"]["wide"]["kernel"])
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(4), atol=1e-5)
    assert params["embed"]["embedding"].shape == (12, 2)


@pytest.mark.slow
def test_the_selections_are_of_what_the_feed_forward_network_made_of_the_words(np_rng):
    task, params = made()
    layer = params["layer_1"]
    narrow = jax.tree.map(lambda x: 2 * x, layer["feed_forward"]["narrow"])
    other = layer | {"feed_forward": layer["feed_forward"] | {"narrow": narrow}}
    batch = batch_of(np_rng)
    changed = params | {"layer_1": other}
    one, two = (apply(task.model, p, batch).selections[0].logits for p in (params, changed))
    assert np.abs(one - two)[0, 0].max() > 1e-3
