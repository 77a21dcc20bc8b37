"""Dropout of every network: each rate acts at its sites, and no two sites share their bits."""

import contextlib
import functools
import inspect
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import models
from tests._drawn import drawn
from tests._grouped import grouped, option
from tests._slow import slow_but
from tests.models._losses import rates_of, total_loss
from tests.models._passes import DRAWS, RNGS, watch


class Case(NamedTuple):
    """A task, its batch, and at how many sites of a pass each rate of its configuration acts."""

    task: Any
    batch: dict[str, np.ndarray]
    sites: dict[str, int]


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


def texts(rows=2, size=5, vocabulary=9, name="tokens"):
    rng = np.random.default_rng(0)
    lengths = np.array([size, size - 2], np.int32)[:rows]
    tokens = rng.integers(4, vocabulary, (rows, size)).astype(np.int32)
    return {
        name: tokens * (np.arange(size) < lengths[:, None]),
        f"{'' if name == 'tokens' else name + '_'}lengths": lengths,
    }


def batch_of(**more):
    rows = {"label": np.array([1, 0]), "example_id": np.array([5, 8]), "weight": np.ones(2)}
    kinds = {"label": np.int32, "example_id": np.int32, "weight": np.float32}
    return texts() | {name: value.astype(kinds[name]) for name, value in rows.items()} | more


def made(config: Any, options: dict[str, Any]) -> Any:
    return grouped(config, **options, **rates_of(config()))


def ga_net(**options) -> Case:
    small = {"embedding_dim": 4, "hidden": 3, "aux_hidden": 3, "num_layers": 2}
    config = made(models.GANetConfig, small | options)
    sites = {
        "embedding_dropout": 1,
        "layer_dropout": config.num_layers - 1,
        "recurrent_dropout": 2 * config.num_layers,
        "pool_dropout": 1,
    }
    return Case(models.GANetTask(models.GANet(config, 9, 2)), batch_of(), sites)


def agt(**options) -> Case:
    small = {"num_layers": 3, "hidden": 4, "attention_hidden": 3, "embedding_dim": 4}
    config = made(models.AGTConfig, {"head_hidden": (4, 4)} | small | options)
    # the words, and the inputs of two hidden layers and of the class layer
    sites = {"dropout": ("words" in config.dropout_sites) + 3 * ("head" in config.dropout_sites)}
    return Case(models.AGTTask(models.AGT(config, 9, 2)), batch_of(), sites)


def rau_config(options):
    config = made(models.RAUConfig, {"hidden": 3, "embedding_dim": 4, "num_layers": 2} | options)
    layers = config.num_layers
    sites = {"embedding_dropout": 1, "layer_dropout": layers - 1, "recurrent_dropout": layers}
    return config, sites | {"state_dropout": 1}


def rau(**options) -> Case:
    config, sites = rau_config(options)
    return Case(models.RAUTask(models.RAUClassifier(config, 2, 9)), batch_of(), sites)


def rau_language(**options) -> Case:
    config, sites = rau_config(options)
    words = texts()["tokens"]
    more = {"targets": words, "token_weight": (words > 0).astype(np.float32)}
    task = models.RAULanguageTask(models.RAULanguageModel(config, 9))
    return Case(task, batch_of(**more), sites)


def ga_reader(**options) -> Case:
    small = {"hops": 3, "hidden": 3, "embedding_dim": 4, "char_dim": 0}
    config = made(models.GAReaderConfig, small | options)
    document, query = texts(name="document"), texts(size=3, name="query")
    occurrence = np.zeros((2, 5, 2), bool)
    occurrence[:, 0, 0] = occurrence[:, 1, 1] = True
    more = {
        "occurrence": occurrence,
        "candidate_mask": np.ones((2, 2), bool),
        "cloze": np.zeros(2, np.int32),
    }
    # between hops; on the vectors of the document and on those of the query
    sites = {"dropout": config.hops - 1, "embed_dropout": 2}
    task = models.GAReaderTask(models.GAReader(config, 9))
    return Case(task, batch_of(**document, **query, **more), sites)


SSAN = {"num_layers": 2, "hidden": 8, "filter_size": 16, "num_heads": 2}


def encoder_sites(config) -> Counter:
    layers = config.num_layers
    return Counter(dropout=1 + 2 * layers, attention_dropout=layers, relu_dropout=layers)


def ssan_probe(**options) -> Case:
    config = made(models.SSANProbeConfig, SSAN | {"head_hidden": (4, 4)} | options)
    sites = encoder_sites(config) + Counter(dropout=len(config.head_hidden))
    return Case(models.SSANProbeTask(models.SSANProbe(config, 9, 2)), batch_of(), sites)


def ssan_reordering(**options) -> Case:
    config = made(models.WordReorderingConfig, SSAN | {"num_layers": 1} | options)
    places = {"insert": np.array([1, 0], np.int32), "original": np.array([3, 2], np.int32)}
    task = models.WordReorderingTask(models.WordReorderingDetector(config, 9))
    return Case(task, batch_of(**places), encoder_sites(config))


def ssan_tagger(**options) -> Case:
    config = made(models.SSANTaggerConfig, SSAN | {"num_layers": 1, "embedding_dim": 4} | options)
    words = texts()["tokens"]
    more = {"is_predicate": (np.arange(5) == 1) * (words > 0), "labels": words % 3}
    more = {name: value.astype(np.int32) for name, value in more.items()}
    task = models.SSANTaggingTask(models.SSANTagger(config, 9, 3), width=5)
    return Case(task, batch_of(**more), encoder_sites(config))


def ssan_translation(**options) -> Case:
    small = {"num_layers": 1, "decoder_layers": 2}
    config = made(models.SSANTranslatorConfig, SSAN | small | options)
    targets = texts(size=4, name="target")
    more = {"targets": targets["target"], "target_lengths": targets["target_lengths"]}
    layers = config.decoder_layers
    # the embedded targets, and the results of three sublayers, of which two are attentions
    own = Counter(dropout=1 + 3 * layers, attention_dropout=2 * layers, relu_dropout=layers)
    task = models.SSANTranslationTask(models.SSANTranslator(config, 9))
    return Case(task, batch_of(**more), encoder_sites(config) + own)


def ssan_nli(**options) -> Case:
    small = {"hidden": 4, "embedding_dim": 4}
    config = made(models.SSANNLIConfig, small | options)
    # word vectors and pooled words of both sentences; both layers of the comparison
    task = models.SSANNLITask(models.SSANNLI(config, 9, 2))
    return Case(task, batch_of(**texts(size=4, name="hypothesis")), {"dropout": 6})


MAKERS = {
    maker.__name__: maker
    for maker in (
        ga_net,
        agt,
        rau,
        rau_language,
        ga_reader,
        ssan_probe,
        ssan_reordering,
        ssan_tagger,
        ssan_translation,
        ssan_nli,
    )
}
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
    ("ssan_tagger", {"norm": "pre", "estimator": "soft_gumbel"}),
    ("ssan_translation", {"norm": "post", "share_embeddings": False, "decoder_layers": 1}),
    ("ssan_nli", {"t2t": "multi_dim", "fusion": False}),
]


def shapes_of(case: Case) -> Any:
    return jax.eval_shape(case.task.init, jax.random.key(0), case.batch)


def carry_of(case: Case) -> tuple:
    """What a task that carries a state takes beside the batch."""
    init = getattr(case.task, "init_carried", None)
    return () if init is None else (init(None, case.batch),)


def sites_of(case: Case, seen: Pass) -> Counter:
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
    covered = [make().task.model.config for make in MAKERS.values()]
    # SSANConfig is that of the encoder, which the others of its kind train
    missing = {kind for kind in configs if not any(isinstance(one, kind) for one in covered)}
    assert not missing
    for make in MAKERS.values():
        case = make()
        assert set(case.sites) == set(rates_of(case.task.model.config))
        assert all(case.sites.values()), "a rate that acts nowhere"


@pytest.mark.parametrize("name", slow_but(MAKERS, "agt", "rau", "rau_language", "ssan_probe"))
def test_rates_act_at_each_site_in_training_alone_and_no_two_sites_share_their_bits(name):
    case = MAKERS[name]()
    params, carry = drawn(case.task.init, case.batch), carry_of(case)
    count = sum(case.sites.values())
    evaluation, seen = Pass(), Pass()
    with evaluation.watched():
        jax.eval_shape(case.task.evaluate, params, case.batch, *carry)
    assert not evaluation.rates

    def run(factors):
        nonlocal seen
        seen = Pass(factors)
        with seen.watched():
            total, _ = total_loss(case.task, params, case.batch, RNGS, *carry)
        return total, (seen.keys, seen.bytes)

    # one site at a time is made larger, the last time none
    factors = np.eye(count + 1, count, dtype=np.float32)
    losses, (keys, bytes_) = jax.jit(jax.vmap(run, out_axes=(0, None)))(factors)
    assert sites_of(case, seen) == Counter(case.sites)

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


@pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{n}-{'-'.join(map(str, o))}" for n, o in VARIANTS]
)
def test_every_variant_has_the_sites_of_its_options(name, options):
    case, seen = MAKERS[name](**options), Pass()
    shapes = shapes_of(case)
    with seen.watched():
        jax.eval_shape(case.task.loss, shapes, case.batch, RNGS, *carry_of(case))
    wanted = {field: number for field, number in case.sites.items() if number}
    found = sites_of(case, seen)
    if options.get("remat") or options.get("block"):
        # computed again for the gradient: traced once or twice
        found = {field: min(number, case.sites[field]) for field, number in found.items()}
    assert found == wanted
