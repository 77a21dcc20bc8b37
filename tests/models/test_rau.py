"""The RAU classifier: parameter counts, invariances, attention."""

import jax
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax.models import RAUClassifier, RAUConfig, RAUTask
from tests._drawn import drawn
from tests._grouped import grouped
from tests._weights import weights_of
from tests.models._losses import make
from tests.models._passes import apply
from tests.models._passes import make_batch as make_texts
from tests.tolerances import F32


def make_task(**config) -> RAUTask:
    return RAUTask(RAUClassifier(grouped(RAUConfig, **{"hidden": 5} | config), num_classes=3))


def make_batch(rng, lengths=(4, 7, 1), size=8):
    """Images by rows, of which each has four numbers."""
    texts = make_texts(rng, lengths, size)
    real = texts.pop("tokens") > 0
    rows = rng.normal(size=(*real.shape, 4)) * real[..., None]
    return texts | {"rows": rows.astype(np.float32)}


def draw(task, batch):
    return drawn(task.init, batch, std=0.4)


def size_of(tree) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(("cell", "count"), [("gru", 60_288), ("lstm", 80_384), ("rau", 100_480)])
def test_parameter_counts_of_the_paper(cell, count):
    config = RAUConfig(cell=cell, freeze_embeddings=True)  # images have no words to freeze
    task = RAUTask(RAUClassifier(config, num_classes=10))
    assert task.frozen == ()
    batch = {"rows": np.zeros((1, 28, 28), np.float32), "lengths": np.array([28])}
    params = jax.eval_shape(task.init, jax.random.key(0), batch)
    assert size_of(params["recurrent"]) == count
    assert size_of(params["classifier"]) == 128 * 10 + 10


def test_the_logits_are_the_dense_layer_on_the_state_after_the_last_true_step(np_rng):
    task = make_task()
    batch = make_batch(np_rng)
    params = draw(task, batch)
    output = apply(task.model, params, batch)
    cell = weights_of(F.RAUWeights, params["recurrent"])
    step = jax.jit(F.rau_step)
    for row, length in enumerate(batch["lengths"]):
        state = np.zeros((1, 5), np.float32)
        for x in batch["rows"][row, :length]:
            state = np.asarray(step(cell, state, x[None])[0])
        wanted = state @ params["classifier"]["kernel"] + params["classifier"]["bias"][None]
        np.testing.assert_allclose(output.logits[row], wanted[0], **F32)
        np.testing.assert_allclose(output.states[row, length - 1], state[0], **F32)


@pytest.mark.parametrize("form", ["concat", "matrix", "sigmoid", "time_causal"])
def test_attention_over_time_sums_to_one_and_is_zero_at_padding(form, np_rng):
    task = make_task(attention=form)
    batch = make_batch(np_rng)
    params = draw(task, batch)
    output = apply(task.model, params, batch, attention=True)
    found, ends = output.attention, output.states[np.arange(3), batch["lengths"] - 1]
    np.testing.assert_allclose(output.state, ends, **F32)
    width = {"concat": (9,), "matrix": (5, 9), "time_causal": (1,), "sigmoid": (5,)}[form]
    assert found.shape == (3, 8, *width)
    mask = np.arange(8) < batch["lengths"][:, None]
    assert np.all(found[~mask] == 0)
    if form == "time_causal":
        np.testing.assert_allclose(found[:, 0], 1, **F32)
    elif form != "sigmoid":
        np.testing.assert_allclose(found[mask].sum(-1), 1, **F32)


def test_attention_of_the_default_form_is_the_softmax_of_its_logits(np_rng):
    task = make_task(rescale=True)
    batch = make_batch(np_rng, lengths=(8, 8, 8))
    params = draw(task, batch)
    output = apply(task.model, params, batch, attention=True)
    before = np.pad(output.states, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    own, at = params["recurrent"]["layer_0"]["forward"], slice(15, 20)
    kernel = np.concatenate([own["kernel"], own["recurrent_kernel"]])[:, at]
    logits = np.concatenate([batch["rows"], before], axis=-1) @ kernel
    logits += own["bias"][None, None, at]
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(output.attention, 5 * shares, **F32)


@pytest.mark.slow
def test_attention_in_training_is_that_of_evaluation():
    one = make("rau", embedding_dropout=0.5)
    trained, quiet = (
        apply(one.task.model, one.params, one.batch, train=train, attention=True)
        for train in (True, False)
    )
    np.testing.assert_allclose(trained.attention, quiet.attention, **F32)
    assert not np.allclose(trained.states, quiet.states)


@pytest.mark.parametrize("cell", ["rau", "lstm"])
def test_a_row_of_length_0_has_the_zero_state_and_one_step_is_legal(cell, np_rng):
    task, batch = make_task(cell=cell), make_batch(np_rng, lengths=(1, 0), size=1)
    params = draw(task, batch)
    output = apply(task.model, params, batch)
    np.testing.assert_array_equal(output.state[1], 0.0)
    np.testing.assert_allclose(output.logits[1], params["classifier"]["bias"], **F32)
    np.testing.assert_allclose(output.states[0, 0], output.state[0], **F32)
    assert np.abs(output.state[0]).min() > 0
