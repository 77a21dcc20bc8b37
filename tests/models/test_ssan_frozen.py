"""What is frozen in SSAN's networks stays as it is, whatever the optimiser does with it."""

import jax
import numpy as np
import pytest

from gatedjax import models
from gatedjax.training import OptimizerConfig, init_state, make_optimizer, make_train_step
from tests._drawn import drawn
from tests._grouped import grouped
from tests._slow import slow_but
from tests.models._losses import total_loss

V, D = 9, 8
DECAYING = OptimizerConfig(name="adamw", learning_rate=0.1, weight_decay=0.1)
LAYERS = {"num_layers": 1, "filter_size": 8, "num_heads": 2}
NO_DROPOUT = models.ssan.SSANDropout(dropout=0.0, attention_dropout=0.0, relu_dropout=0.0)
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


def task_of(name, freeze, table=TABLE, **gates):
    words = {"hidden": D, "freeze_embeddings": freeze, **LAYERS}
    words["gates"] = models.SelectorConfig(**gates)
    if gates:  # the outputs of training and of evaluation are compared
        words["dropouts"] = NO_DROPOUT
    if name == "probe":
        probe = grouped(models.SSANProbeConfig, head_hidden=(4,), **words)
        return models.SSANProbeTask(models.SSANProbe(probe, V, 2, table))
    if name == "reordering":
        reordering = grouped(models.WordReorderingConfig, **words)
        return models.WordReorderingTask(models.WordReorderingDetector(reordering, V, table))
    if name == "nli":
        rate = {"dropout": 0.0} if gates else {}
        nli = grouped(
            models.SSANNLIConfig,
            hidden=D,
            embedding_dim=D,
            freeze_embeddings=freeze,
            gates=words["gates"],
            **rate,
        )
        return models.SSANNLITask(models.SSANNLI(nli, V, 2, table))
    if name == "tagger":
        tagger = grouped(models.SSANTaggerConfig, **(words | {"hidden": 2 * D, "embedding_dim": D}))
        return models.SSANTaggingTask(models.SSANTagger(tagger, V, 3, table), width=4)
    translator = grouped(models.SSANTranslatorConfig, decoder_layers=1, **words)
    return models.SSANTranslationTask(models.SSANTranslator(translator, V))


def table_of(name, params):
    part = params if name in ("nli", "tagger") else params["encoder"]
    return np.asarray(part["embed"]["embedding"])


def begun(task):
    """The optimiser, and the shapes of the state of the beginning."""
    tx = make_optimizer(DECAYING, 10)
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


def by_path(params):
    leaves = jax.tree.leaves_with_path(params)
    return {jax.tree_util.keystr(at, simple=True, separator="/"): x for at, x in leaves}


@pytest.mark.parametrize(
    "name", slow_but(["probe", "reordering", "nli", "tagger", "translation"], "tagger")
)
def test_frozen_words_and_selectors_stay_without_optimiser_state_and_others_have_one(name):
    task = task_of(name, freeze=True, freeze_selector=True)
    first, last = trained(task)
    np.testing.assert_array_equal(table_of(name, first.params), table_of(name, last.params))
    assert kept_by_the_optimiser(last, (V, D)) == 0
    before, after = by_path(first.params), by_path(last.params)
    selectors = {at for at in before if "/selector_" in at}
    assert len(selectors) == 4  # kernel and bias for queries and for keys
    frozen = {at for at in before if any(at == x or at.startswith(f"{x}/") for x in task.frozen)}
    assert selectors == {at for at in frozen if "embed" not in at}
    for at in before:
        assert np.array_equal(before[at], after[at]) == (at in frozen), at
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
    config = grouped(models.WordReorderingConfig, hidden=D, freeze_encoder=True, **LAYERS)
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


@pytest.mark.parametrize("name", slow_but(["reordering", "nli"], "nli"))
def test_a_frozen_selector_has_no_gradient(name):
    task = task_of(name, freeze=False, freeze_selector=True)
    params = drawn(task.init, batch(), std=0.3)
    # Without the list of the optimiser the gradient itself is 0, also that of the batch's rows.
    loss = jax.jit(jax.grad(lambda params: total_loss(task, params, batch(), {})[0]))
    slopes = by_path(loss(params))
    frozen = [at for at in slopes if "/selector_" in at]
    assert all(not np.any(slopes[at]) for at in frozen)
    assert np.any(slopes[frozen[0].split("/selector_")[0] + "/query/kernel"])


@pytest.mark.parametrize("name", slow_but(["reordering", "nli"], "reordering"))
def test_a_frozen_selector_selects_in_training_as_in_evaluation(name):
    task = task_of(name, freeze=False, freeze_selector=True)
    params = drawn(task.init, batch(), std=0.3)
    apply = jax.jit(task.model.apply, static_argnames="train")
    # No stream is given, so that nothing can be drawn.
    training, evaluation = (apply({"params": params}, batch(), train=x) for x in (True, False))
    gates = np.asarray(task._selections(training)[0].gates)
    assert set(np.unique(gates)) == {0, 1}
    np.testing.assert_array_equal(gates, task._selections(training)[0].logits > 0)
    for one, other in zip(jax.tree.leaves(training), jax.tree.leaves(evaluation), strict=True):
        np.testing.assert_array_equal(one, other)
    # The evaluation of a trained selector with these parameters is the same.
    usual = task_of(name, freeze=False, select_layers=(1,))
    output = jax.jit(usual.model.apply)({"params": params}, batch())
    np.testing.assert_array_equal(output.logits, evaluation.logits)


def test_frozen_words_of_another_width_are_mapped_to_that_of_the_layers():
    sizes = {"hidden": 2 * D, "embedding_dim": D, **LAYERS}
    config = grouped(models.WordReorderingConfig, freeze_embeddings=True, **sizes)
    task = models.WordReorderingTask(models.WordReorderingDetector(config, V, TABLE))
    first, last = trained(task)
    np.testing.assert_array_equal(table_of("reordering", first.params).shape, TABLE.shape)
    np.testing.assert_array_equal(
        table_of("reordering", first.params), table_of("reordering", last.params)
    )
    kernels = [state.params["encoder"]["projection"]["kernel"] for state in (first, last)]
    assert kernels[0].shape == (D, 2 * D)
    assert not np.array_equal(*kernels)
    assert kept_by_the_optimiser(last, (V, D)) == 0
    start = jax.jit(task.init)(jax.random.key(0), batch())
    words = np.concatenate([np.zeros((1, D)), TABLE[1:]])  # padding
    np.testing.assert_array_equal(table_of("reordering", start)[1:], words[1:].astype(np.float32))
