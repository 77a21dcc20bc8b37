"""One example of a step, alone, sees the noise that it saw in its batch."""

import jax
import numpy as np
import pytest

from gatedjax import data as gdata
from gatedjax import functional as F
from gatedjax.models import GANet, GANetConfig, GANetTask
from gatedjax.training import replay, step_rngs


@pytest.fixture(scope="module")
def training():
    source = gdata.load("polarity", "train")
    vocabulary = gdata.Vocabulary.build([source])
    encoded = gdata.encode(source, vocabulary)
    train_data = gdata.Batches(encoded, batch_size=8, max_buckets=2, seed=3)
    config = GANetConfig(embedding_dim=6, hidden=5, aux_hidden=4, num_layers=1)
    model = GANet(config, vocab_size=len(vocabulary), num_classes=2)
    params = GANetTask(model).init(jax.random.key(0), train_data[0])
    return model, params, train_data


@pytest.mark.slow
def test_the_gates_of_an_example_are_those_of_its_batch(training):
    model, params, train_data = training
    seed, step = 5, 7
    rngs = step_rngs(jax.random.key(seed), step)
    whole = model.apply({"params": params}, train_data[step], train=True, rngs=rngs)
    for row in (0, 3):
        example = int(train_data[step]["example_id"][row])
        batch, streams = replay(train_data, seed, step, example)
        alone = model.apply({"params": params}, batch, train=True, rngs=streams)
        np.testing.assert_allclose(alone.gates[0], whole.gates[row], rtol=2e-6)
        np.testing.assert_allclose(alone.logits[0], whole.logits[row], rtol=1e-5, atol=1e-6)
        later, streams = replay(train_data, seed + 1, step, example)
        other = model.apply({"params": params}, later, train=True, rngs=streams)
        assert np.abs(other.gates[0] - whole.gates[row]).max() > 1e-3


def test_the_bits_are_equal(training):
    _, _, train_data = training
    batch = train_data[4]
    rngs = step_rngs(jax.random.key(0), 4)
    one, streams = replay(train_data, 0, 4, int(batch["example_id"][2]))
    for draw in (
        lambda keys: F.example_noise(keys, 9),
        lambda keys: F.example_dropout(np.ones((len(keys), 9, 3), np.float32), 0.5, keys),
    ):
        for stream in ("gate", "dropout"):
            whole = draw(F.example_keys(rngs[stream], batch["example_id"]))
            alone = draw(F.example_keys(streams[stream], one["example_id"]))
            np.testing.assert_array_equal(alone[0], whole[2])


def test_an_example_that_is_not_in_the_step_is_refused(training):
    _, _, train_data = training
    absent = set(range(100)) - set(train_data[0]["example_id"].tolist())
    for example in (absent.pop(), -1):
        with pytest.raises(ValueError, match=f"must be in the batch of step 0, .* got {example}"):
            replay(train_data, 0, 0, example)
