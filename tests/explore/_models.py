"""Networks that nobody trained, of generated words: what they say is arbitrary, and stays so."""

import dataclasses
import functools

import jax
import numpy as np

from gatedjax.data import Vocabulary
from gatedjax.models import GANet
from gatedjax.text.models._network import TrainedModel, networks
from tests._drawn import drawn
from tests._grouped import grouped

WORDS = ("a", "dull", "film", "bright", "warm", "slow", "old", "story", "here", "now")
TEXT = "a dull film , bright and warm"

_SMALL = {
    "ganet": {"embedding_dim": 5, "hidden": 4, "aux_hidden": 3},
    "agt": {"num_layers": 2, "embedding_dim": 5, "hidden": 4, "attention_hidden": 3},
    "ssan": {"hidden": 8, "filter_size": 8, "num_heads": 2},
    **{name: {"embedding_dim": 5, "hidden": 4} for name in ("rau", "gru", "lstm")},
}


def model(name="ganet", *, seed=0, max_len=400, **changes):
    """A model of two classes."""
    entry = networks("text")[name]
    config = grouped(entry.config, **_SMALL.get(name, _SMALL["ganet"]), **changes)
    made = TrainedModel(
        kind="text",
        network=name,
        config=config,
        vocabulary=Vocabulary(WORDS),
        classes=("bad", "good"),
        prior=(0.5, 0.5),
        params={},
        max_len=max_len,
    )
    return dataclasses.replace(made, params=drawn(lambda key: made._init(), rng=seed))


def of_classes(count):
    """A gated model of more classes."""
    classes = tuple(f"class {i}" for i in range(count))
    made = dataclasses.replace(model(), classes=classes, prior=(1 / count,) * count)
    return dataclasses.replace(made, params=drawn(lambda key: made._init(), rng=0))


def pair(name, *, seed=0, max_len=400):
    """A model of pairs, of three classes."""
    config = dataclasses.replace(networks("pair")[name].config, hidden=8, embedding_dim=5)
    made = TrainedModel(
        kind="pair",
        network=name,
        config=config,
        vocabulary=Vocabulary(WORDS),
        classes=("entailed", "neutral", "contradicted"),
        prior=(0.5, 0.25, 0.25),
        params={},
        max_len=max_len,
    )
    return dataclasses.replace(made, params=drawn(lambda key: made._init(), rng=seed))


@functools.cache
def _program(made, soft):
    return jax.jit(
        lambda params, batch, gates: made.module.apply(
            {"params": params}, batch, gates, soft=soft, method=GANet.with_gates
        )
    )


def pure(made, tokens, gates, *, soft=False):
    """(class probabilities, attention) of one text under gates [T], without padding."""
    batch = {
        "tokens": np.array([made.vocabulary.encode(tokens)], np.int32),
        "lengths": np.array([len(tokens)], np.int32),
    }
    output = _program(made, soft)(made.params, batch, np.asarray(gates, np.float32)[None, None])
    logits = np.asarray(output.logits[0, 0], np.float64)
    shares = np.exp(logits - logits.max())
    return shares / shares.sum(), np.asarray(output.attention[0, 0])
