"""What is frozen in SSAN's networks stays as it is, whatever the optimiser does with it."""

import jax
import numpy as np
import pytest

from gatedjax import models
from gatedjax.training import OptimizerConfig, init_state, make_optimizer, make_train_step
from tests._drawn import drawn
from tests._slow import slow_but

V, D = 9, 8
DECAYING = OptimizerConfig(name="adamw", learning_rate=0.1, weight_decay=0.1)
LAYERS = {"num_layers": 1, "filter_size": 8, "num_heads": 2}
TABLE = np.random.default_rng(0).normal(size=(V, D)).astype(np.float32)


def batch():
    tokens = np.array([[2, 3, 4, 3], [5, 6, 3, 0]], np.int32)
    lengths = np.array([4, 3], np.int32)
    ids = np.arange(2, dtype=np.int32)
    return {
        "tokens": tokens,
        "lengths": lengths,
        "hypothesis": tokens,
        "hypothesis_lengths": lengths,
        "targets": tokens,
        "target_lengths": lengths,
        "labels": tokens % 3,
        "is_predicate": np.array([[0, 1, 0, 0], [1, 0, 0, 0]], np.int32),
        "insert": ids,
        "original": ids + 1,
        "label": ids,
        "example_id": ids,
        "weight": np.ones(2, np.float32),
    }


def task_of(name, freeze, table=TABLE):
    words = {"hidden": D, "freeze_embeddings": freeze, **LAYERS}
    if name == "probe":
        probe = models.SSANProbeConfig(head_hidden=(4,), **words)
        return models.SSANProbeTask(models.SSANProbe(probe, V, 2, table))
    if name == "reordering":
        reordering = models.WordReorderingConfig(**words)
        return models.WordReorderingTask(models.WordReorderingDetector(reordering, V, table))
    if name == "nli":
        nli = models.SSANNLIConfig(hidden=D, embedding_dim=D, freeze_embeddings=freeze)
        return models.SSANNLITask(models.SSANNLI(nli, V, 2, table))
    if name == "tagger":
        tagger = models.SSANTaggerConfig(**(words | {"hidden": 2 * D, "embedding_dim": D}))
        return models.SSANTaggingTask(models.SSANTagger(tagger, V, 3, table), width=4)
    translator = models.SSANTranslatorConfig(decoder_layers=1, **words)
    return models.SSANTranslationTask(models.SSANTranslator(translator, V))


def table_of(name, params):
    part = params if name in ("nli", "tagger") else params["encoder"]
    return np.asarray(part["embed"]["embedding"])


def begun(task):
    """The optimiser, and the shapes of the state of the beginning."""
    tx = make_optimizer(DECAYING, 10, frozen=task.frozen)
    return tx, jax.eval_shape(lambda key: init_state(task, tx, key, batch()), jax.random.key(0))


def trained(task):
    tx, shapes = begun(task)
    # a state of the beginning without a compilation: moments and counts are zero
    zeros = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
    first = zeros.replace(params=drawn(task.init, batch(), std=0.3))
    last, _ = jax.jit(make_train_step(task, tx))(first, batch(), jax.random.key(1))
    return first, last


def kept_by_the_optimiser(state, shape):
    return sum(x.shape == shape for x in jax.tree.leaves(state.opt_state))


@pytest.mark.parametrize(
    "name", slow_but(["probe", "reordering", "nli", "tagger", "translation"], "tagger")
)
def test_frozen_words_stay_without_optimiser_state_and_others_have_one(name):
    first, last = trained(task_of(name, freeze=True))
    np.testing.assert_array_equal(table_of(name, first.params), table_of(name, last.params))
    assert kept_by_the_optimiser(last, (V, D)) == 0
    # that they move is in the next test, and a gradient of theirs in those of equality
    free = task_of(name, freeze=False)
    assert free.frozen == ()
    assert kept_by_the_optimiser(begun(free)[1], (V, D)) == 2


@pytest.mark.slow
def test_inference_trains_words_that_nobody_trained_before():
    task = task_of("nli", freeze=True, table=None)
    assert task.frozen == ()
    first, last = trained(task)
    assert not np.array_equal(table_of("nli", first.params), table_of("nli", last.params))


@pytest.mark.slow
def test_a_frozen_encoder_is_frozen_as_a_whole():
    config = models.WordReorderingConfig(hidden=D, freeze_encoder=True, **LAYERS)
    task = models.WordReorderingTask(models.WordReorderingDetector(config, V))
    first, last = trained(task)
    for before, after in zip(
        jax.tree.leaves(first.params["encoder"]),
        jax.tree.leaves(last.params["encoder"]),
        strict=True,
    ):
        np.testing.assert_array_equal(before, after)
    assert not np.array_equal(first.params["parts"]["kernel"], last.params["parts"]["kernel"])
    assert kept_by_the_optimiser(last, (V, D)) == 0
