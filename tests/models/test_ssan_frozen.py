"""What is frozen in SSAN's networks stays as it is, whatever the optimiser does with it."""

import jax
import numpy as np
import pytest

from gatedjax.training import OptimizerConfig, init_state, make_optimizer, make_train_step
from tests._drawn import drawn
from tests.models._losses import VOCABULARY, Loss, make, total_loss
from tests.models._passes import RNGS

pytestmark = pytest.mark.slow

DECAYING = OptimizerConfig(name="adamw", learning_rate=0.1, weight_decay=0.1)
WIDTHS = {"probe": 4, "reordering": 4, "nli": 3, "tagger": 2}
SILENT = {"dropout": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0}


def table(name):
    """Pretrained vectors of the width of a network."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(VOCABULARY, WIDTHS[name])).astype(np.float32)


def made(name, **options) -> Loss:
    """A task with frozen word vectors or selectors, without dropout."""
    rates = {"dropout": 0.0} if name == "nli" else SILENT
    return make(f"ssan_{name}", **{"embeddings": table(name)} | rates | options)


def begun(one):
    """The optimiser, and the shapes of the state of the beginning."""
    tx = make_optimizer(DECAYING, 10)
    start = lambda key: init_state(one.task, tx, key, one.batch)  # noqa: E731
    return tx, jax.eval_shape(start, jax.random.key(0))


def trained(one):
    tx, shapes = begun(one)
    # a state of the beginning without a compilation: moments and counts are zero
    zeros = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
    first = zeros.replace(params=drawn(one.task.init, one.batch, std=0.3))
    last, _ = jax.jit(make_train_step(one.task, tx))(first, one.batch, jax.random.key(1))
    return first, last


def moments(name, state):
    """The number of arrays like the word vectors that the optimiser stores."""
    shape = (VOCABULARY, WIDTHS[name])
    return sum(x.shape == shape for x in jax.tree.leaves(state.opt_state))


def by_path(params):
    leaves = jax.tree.leaves_with_path(params)
    return {jax.tree_util.keystr(at, simple=True, separator="/"): x for at, x in leaves}


@pytest.mark.parametrize("name", ["probe", "nli", "tagger"])
def test_frozen_words_and_selectors_stay_without_optimiser_state_and_others_have_one(name):
    one = made(name, freeze_embeddings=True, freeze_selector=True)
    first, last = trained(one)
    assert moments(name, last) == 0
    before, after = by_path(first.params), by_path(last.params)
    selectors = {at for at in before if "/selector_" in at}
    assert len(selectors) == 4  # kernel and bias for queries and for keys
    places = one.task.frozen
    frozen = {at for at in before if any(at == x or at.startswith(f"{x}/") for x in places)}
    assert selectors == {at for at in frozen if "embed" not in at}
    assert len(frozen) == 5
    for at in before:
        assert np.array_equal(before[at], after[at]) == (at in frozen), at
    free = made(name, freeze_embeddings=False)
    assert free.task.frozen == ()
    assert moments(name, begun(free)[1]) == 2


def test_inference_trains_words_that_nobody_trained_before():
    assert made("nli", freeze_embeddings=True, embeddings=None).task.frozen == ()


def test_a_frozen_encoder_is_frozen_as_a_whole():
    one = made("reordering", freeze_encoder=True)
    first, last = trained(one)
    for before, after in zip(
        jax.tree.leaves(first.params["encoder"]),
        jax.tree.leaves(last.params["encoder"]),
        strict=True,
    ):
        np.testing.assert_array_equal(before, after)
    assert not np.array_equal(first.params["parts"]["kernel"], last.params["parts"]["kernel"])
    assert moments("reordering", last) == 0
    # Without the list of the optimiser the gradient itself is 0.
    slopes = jax.jit(jax.grad(lambda p: total_loss(one.task, p, one.batch, RNGS)[0]))(first.params)
    assert not any(np.any(slope) for slope in jax.tree.leaves(slopes["encoder"]))
    assert np.any(slopes["parts"]["kernel"])


@pytest.mark.parametrize("name", ["reordering", "nli"])
def test_a_frozen_selector_has_no_gradient_and_selects_in_training_as_in_evaluation(name):
    one = made(name, freeze_embeddings=False, freeze_selector=True)
    params = drawn(one.task.init, one.batch, std=0.3)

    @jax.jit
    def run(params):
        # No stream is given, so that nothing can be drawn.
        passes = [one.task.model.apply({"params": params}, one.batch, train=x) for x in (1, 0)]
        return passes, jax.grad(lambda p: total_loss(one.task, p, one.batch, {})[0])(params)

    (training, evaluation), slopes = jax.tree.map(np.asarray, run(params))
    slopes = by_path(slopes)
    frozen = [at for at in slopes if "/selector_" in at]
    assert all(not np.any(slopes[at]) for at in frozen)
    assert np.any(slopes[frozen[0].split("/selector_")[0] + "/query/kernel"])
    gates = one.task._selections(training)[0]
    assert set(np.unique(gates.gates)) == {0, 1}
    np.testing.assert_array_equal(gates.gates, gates.logits > 0)
    jax.tree.map(np.testing.assert_array_equal, training, evaluation)
    # The evaluation of a trained selector with these parameters is the same.
    usual = made(name, freeze_embeddings=False).task.model
    output = jax.jit(usual.apply)({"params": params}, one.batch)
    np.testing.assert_array_equal(output.logits, evaluation.logits)


def test_frozen_words_of_another_width_are_mapped_to_that_of_the_layers():
    one = made("reordering", freeze_embeddings=True, hidden=8, embedding_dim=4)
    start = jax.jit(one.task.init)(jax.random.key(0), one.batch)
    first, last = (state.params["encoder"] for state in trained(one))
    vectors = start["encoder"]["embed"]["embedding"]
    np.testing.assert_array_equal(vectors[1:], table("reordering")[1:])
    np.testing.assert_array_equal(last["embed"]["embedding"], first["embed"]["embedding"])
    kernels = [encoder["projection"]["kernel"] for encoder in (first, last)]
    assert kernels[0].shape == (4, 8)
    assert not np.array_equal(*kernels)
