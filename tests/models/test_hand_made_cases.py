"""Small rules of the networks that a case by hand shows at once."""

import jax
import numpy as np

from gatedjax.models import (
    AGT,
    AGTConfig,
    SSANConfig,
    SSANEncoder,
    SSANTagger,
    SSANTaggerConfig,
    SSANTaggingTask,
)
from tests._drawn import drawn
from tests._grouped import grouped

LENGTHS = np.array([3, 1], np.int32)
TOKENS = np.array([[2, 3, 2, 0, 0], [4, 0, 0, 0, 0]], np.int32)
BATCH = {"tokens": TOKENS, "lengths": LENGTHS, "example_id": np.arange(2, dtype=np.int32)}


def test_the_average_of_word_vectors_is_over_the_words_that_are_there():
    model = AGT(AGTConfig(system="average", embedding_dim=3, head_hidden=()), 5, 2)
    params = drawn(model.init, BATCH)["params"]
    got = jax.jit(lambda p: model.apply({"params": p}, BATCH).logits)(params)
    table, out = params["embed"]["embedding"], params["classifier"]
    means = np.stack([(2 * table[2] + table[3]) / 3, table[4]])
    np.testing.assert_allclose(got, means @ out["kernel"] + out["bias"], rtol=1e-5)


def test_pretrained_vectors_are_taken_as_they_are_and_drawn_ones_are_scaled():
    config = grouped(
        SSANConfig, num_layers=1, hidden=4, filter_size=4, num_heads=1, select_layers=(0,)
    )
    plain = SSANEncoder(config, 5)
    params = drawn(plain.init, BATCH)["params"]
    table = np.asarray(params["embed"]["embedding"])
    given = SSANEncoder(config, 5, embeddings=table * config.hidden**0.5)
    scaled = params | {"embed": {"embedding": table * config.hidden**0.5}}

    @jax.jit
    def states(params, scaled):
        one = plain.apply({"params": params}, BATCH).states
        return one, given.apply({"params": scaled}, BATCH).states

    one, other = states(params, scaled)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_label_that_nobody_knows_is_wrong_even_where_the_first_label_is_predicted():
    config = grouped(
        SSANTaggerConfig,
        num_layers=1,
        embedding_dim=2,
        hidden=4,
        filter_size=4,
        num_heads=1,
        select_layers=(0,),
    )
    task = SSANTaggingTask(SSANTagger(config, 5, 3), width=5)
    labels = np.array([[0, -1, 3, 0, 0], [0, 0, 0, 0, 0]], np.int32)
    batch = BATCH | {"labels": labels, "is_predicate": np.zeros((2, 5), np.int32)}
    params = drawn(task.init, batch)
    params["classifier"]["bias"] = np.array([50, 0, 0], np.float32)
    metrics, predictions = jax.jit(task.evaluate)(params, batch | {"weight": np.ones(2)})
    assert (predictions["predicted"][0, :3] == 0).all()
    # of four words two have the first label
    assert (metrics["accuracy"].total, metrics["accuracy"].count) == (2, 4)
    assert metrics["loss"].count == 2


def test_a_tagger_selects_from_what_its_feed_forward_network_made_of_the_words():
    config = grouped(
        SSANTaggerConfig,
        num_layers=1,
        embedding_dim=2,
        hidden=4,
        filter_size=4,
        num_heads=1,
        select_layers=(1,),
    )
    model = SSANTagger(config, 5, 3)
    batch = BATCH | {"is_predicate": np.zeros((2, 5), np.int32)}
    params = drawn(model.init, batch)["params"]
    layer = params["layer_1"]
    narrow = jax.tree.map(lambda x: 2 * x, layer["feed_forward"]["narrow"])
    changed = layer | {"feed_forward": layer["feed_forward"] | {"narrow": narrow}}

    @jax.jit
    def selected(*every):
        return [model.apply({"params": p}, batch).selections[0].logits for p in every]

    one, other = selected(params, params | {"layer_1": changed})
    assert np.abs(one - other)[0, 0, :3, :3].max() > 1e-3
