"""Dropout of every network: each rate acts at its sites, and no two sites share their bits."""

import contextlib
import dataclasses
import functools
import inspect
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import models
from tests._drawn import drawn
from tests._grouped import grouped, option
from tests.models._losses import MAKERS, Loss, make, rates_of, total_loss, with_dropout
from tests.models._passes import DRAWS, RNGS, watch

pytestmark = pytest.mark.slow


class Pass:
    """What one traced pass drew and dropped; site i is multiplied by 1 + factors[i]."""

    def __init__(self, factors: Any = None) -> None:
        self.factors = factors
        self.rates: list[float] = []
        self.keys: list[Any] = []
        self.bytes: list[Any] = []

    @contextlib.contextmanager
    def watched(self):
        """Watches the functions of the library through which all dropout goes."""
        with pytest.MonkeyPatch.context() as patch:
            for name, place in DRAWS.items():
                watch(patch, name, functools.partial(self._drawing, place))
            for name in ("example_dropout", "byte_dropout"):
                watch(patch, name, self._site)
            yield

    def _drawing(self, place, draw):
        def drawn(*args, **options):
            self.keys.append(jax.random.key_data(args[place]))
            return draw(*args, **options)

        return drawn

    def _site(self, drop):
        def dropped(inputs, rate, drawn):
            output = drop(inputs, rate, drawn)
            if drawn.dtype == jnp.uint8:
                self.bytes.append(drawn)
            number = len(self.rates)
            self.rates.append(rate)
            if self.factors is None:
                return output
            return output * (1 + self.factors[number]).astype(output.dtype)

        return dropped


# two layers and three hops: dropout between layers has sites
SIZES: dict[str, dict[str, Any]] = {
    "ga_net": {"num_layers": 2},
    "agt": {"head_hidden": (4, 4)},
    "rau": {"num_layers": 2},
    "rau_language": {"num_layers": 2},
    "ga_reader": {"hops": 3},
    "ssan_probe": {"num_layers": 2, "head_hidden": (4, 4)},
    "ssan_reordering": {"num_layers": 2},
    "ssan_translation": {"decoder_layers": 2},
}


@functools.cache
def case(name: str, **options: Any) -> Loss:
    """A task of that name in which every rate of dropout acts, and its batch."""
    made = make(name, **SIZES.get(name, {}) | options)
    return dataclasses.replace(made, task=with_dropout(made.task))


def sites(name: str, config: Any) -> Counter:
    """At how many sites of a pass each rate of a configuration acts."""
    if name == "ga_net":
        layers = config.num_layers
        found = Counter(embedding_dropout=1, layer_dropout=layers - 1, pool_dropout=1)
        return found + Counter(recurrent_dropout=2 * layers)
    if name == "agt":  # the words, and the inputs of the hidden layers and of the class layer
        layers = len(config.head_hidden) + 1
        places = {"words": 1, "head": layers}
        return Counter(dropout=sum(places[site] for site in config.dropout_sites))
    if name in ("rau", "rau_language"):
        layers = config.num_layers
        found = Counter(embedding_dropout=1, layer_dropout=layers - 1, state_dropout=1)
        return found + Counter(recurrent_dropout=layers)
    if name == "ga_reader":  # between hops; on the vectors of the document and of the query
        return Counter(dropout=config.hops - 1, embed_dropout=2)
    if name == "ssan_nli":  # word vectors and pooled words of both; both layers of the comparison
        return Counter(dropout=6)
    layers = config.num_layers
    found = Counter(dropout=1 + 2 * layers, attention_dropout=layers, relu_dropout=layers)
    if name == "ssan_probe":
        return found + Counter(dropout=len(config.head_hidden))
    if name == "ssan_translation":
        # the embedded targets, and the results of three sublayers, of which two are attentions
        layers = config.decoder_layers
        found += Counter(dropout=1 + 3 * layers, attention_dropout=2 * layers, relu_dropout=layers)
    return found


# other ways through the same networks: their sites are counted, without a compilation
VARIANTS = [
    ("ga_net", {"system": "bilstm"}),
    ("ga_net", {"system": "soft"}),
    ("ga_net", {"system": "local"}),
    ("ga_net", {"estimator": "st_gumbel", "aux": "att", "merge": "sum", "num_layers": 1}),
    ("agt", {"system": "average"}),
    ("agt", {"system": "highway"}),
    ("agt", {"dropout_sites": ("words",)}),
    ("agt", {"dropout_sites": ("head",), "attend_raw": True}),
    ("rau", {"cell": "gru"}),
    ("rau", {"cell": "lstm", "num_layers": 3}),
    ("rau_language", {"cell": "lstm"}),
    ("ga_reader", {"gating": "none"}),
    ("ga_reader", {"hops": 1}),
    ("ga_reader", {"hops": 4, "token_attention": False, "feature": True}),
    ("ssan_probe", {"block": 2}),
    ("ssan_probe", {"remat": True, "norm": "post", "select_layers": (0,)}),
    ("ssan_reordering", {"estimator": "reinmax"}),
    ("ssan_tagger", {"norm": "pre", "estimator": "soft_gumbel"}),
    ("ssan_translation", {"norm": "post", "share_embeddings": False, "decoder_layers": 1}),
    ("ssan_nli", {"t2t": "multi_dim", "fusion": False}),
]


def used(case: Loss, seen: Pass) -> Counter:
    """How often each rate was used; a rate that is none of the configuration stays a number."""
    config = case.task.model.config
    names = {option(config, name): name for name in rates_of(config)}
    return Counter(names.get(rate, rate) for rate in seen.rates)


def test_every_configuration_with_a_rate_of_dropout_is_here():
    configs = {
        value
        for value in vars(models).values()
        if inspect.isclass(value) and value.__name__.endswith("Config") and rates_of(value())
    }
    covered = {name: case(name).task.model.config for name in MAKERS}
    # SSANConfig is that of the encoder, which the others of its kind train
    of_any = tuple(map(type, covered.values()))
    assert {kind for kind in configs if not any(issubclass(one, kind) for one in of_any)} == set()
    for name, config in covered.items():
        assert set(sites(name, config)) == set(rates_of(config)), "a rate that acts nowhere"


# the others have the encoder of the probe, and their sites are counted below
@pytest.mark.parametrize(
    "name",
    [name for name in MAKERS if name not in ("ssan_reordering", "ssan_tagger")],
)
def test_rates_act_at_each_site_in_training_alone_and_no_two_sites_share_their_bits(name):
    one = case(name)
    task, batch, carry = one.task, one.batch, one.carried
    params, wanted = drawn(task.init, batch), sites(name, task.model.config)
    count = wanted.total()
    evaluation, seen = Pass(), Pass()
    with evaluation.watched():
        jax.eval_shape(task.evaluate, params, batch, *carry)
    assert not evaluation.rates

    def run(factors):
        nonlocal seen
        seen = Pass(factors)
        with seen.watched():
            total, _ = total_loss(task, params, batch, RNGS, *carry)
        return total, (seen.keys, seen.bytes)

    # one site at a time is made larger, the last time none
    factors = np.eye(count + 1, count, dtype=np.float32)
    losses, (keys, bytes_) = jax.jit(jax.vmap(run, out_axes=(0, None)))(factors)
    assert used(one, seen) == wanted

    changes = np.abs(np.asarray(losses[:-1]) - losses[-1])
    assert np.all(changes > 1e-5), f"sites without effect on the loss: {changes}"

    # a key that is used twice, in one stream or two, gives the same bits twice
    every = np.concatenate([np.asarray(key).reshape(-1, key.shape[-1]) for key in keys])
    assert len(np.unique(every, axis=0)) == len(every)
    # several sites read parts of one draw: what two of them have in common is drawn twice. The
    # columns are those of features, or heads of pairs, over all else
    columns = [
        np.asarray(site if site.ndim == 3 else np.moveaxis(site, 1, -1)).reshape(-1, width)
        for site in bytes_
        for width in [site.shape[2] if site.ndim == 3 else site.shape[1]]
    ]
    for one in range(len(columns)):
        for other in range(one):
            if len(columns[one]) == len(columns[other]):
                same = (columns[one][:, :, None] == columns[other][:, None, :]).all(axis=0)
                assert not same.any(), f"sites {other} and {one} of bytes share {same.sum()}"


def test_an_estimate_by_values_of_the_loss_draws_with_no_key_twice():
    one = case("ga_net", estimator="disarm")

    def keys(params):
        seen = Pass()
        with seen.watched():
            one.task.loss(params, one.batch, RNGS)
        return seen.keys

    # nothing but the keys is compiled
    every = np.concatenate([key.reshape(-1, 2) for key in jax.jit(keys)(one.params)])
    assert len(np.unique(every, axis=0)) == len(every)


@pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{n}-{'-'.join(map(str, o))}" for n, o in VARIANTS]
)
def test_every_variant_has_the_sites_of_its_options(name, options):
    one, seen = case(name, **options), Pass()
    shapes = one.shapes  # which trace a pass in training too
    with seen.watched():
        jax.eval_shape(one.task.loss, shapes, one.batch, RNGS, *one.carried)
    wanted, found = sites(name, one.task.model.config), used(one, seen)
    if options.get("remat") or options.get("block"):
        # computed again for the gradient: traced once or twice
        found = {field: min(number, wanted[field]) for field, number in found.items()}
    assert found == +wanted


@pytest.mark.parametrize("name", list(MAKERS))
def test_each_rate_acts_without_the_others(name):
    one = case(name)
    config, shapes = one.task.model.config, one.shapes
    for rate, value in rates_of(config).items():
        others = dict.fromkeys(rates_of(config).keys() - {rate}, 0.0)
        model = one.task.model.clone(config=grouped(config, **others))
        seen = Pass()
        with seen.watched():
            task = dataclasses.replace(one.task, model=model)
            jax.eval_shape(task.loss, shapes, one.batch, RNGS, *one.carried)
        assert seen.rates.count(value) == sites(name, config)[rate], rate
