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


def _made(kind, name, options, classes, *, seed=0, max_len=400):
    made = TrainedModel(
        kind=kind,
        network=name,
        config=grouped(networks(kind)[name].config, **options),
        vocabulary=Vocabulary(WORDS),
        classes=classes,
        prior=(1 / len(classes),) * len(classes),
        params={},
        max_len=max_len,
    )
    return dataclasses.replace(made, params=drawn(lambda key: made._init(), rng=seed))


def model(name="ganet", *, classes=("bad", "good"), seed=0, max_len=400, **changes):
    """A model of texts, of two classes."""
    options = _SMALL.get(name, _SMALL["ganet"]) | changes
    return _made("text", name, options, classes, seed=seed, max_len=max_len)


def of_classes(count):
    """A gated model of more classes."""
    return model(classes=tuple(f"class {i}" for i in range(count)))


def pair(name, *, seed=0, max_len=400):
    """A model of pairs, of three classes."""
    classes = ("entailed", "neutral", "contradicted")
    options = {"hidden": 8, "embedding_dim": 5}
    return _made("pair", name, options, classes, seed=seed, max_len=max_len)


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
