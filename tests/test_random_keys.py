"""Arguments that must be PRNG keys: each function refuses another value and names the argument."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gatedjax import analysis, gates, models, training
from gatedjax import functional as F
from gatedjax import nnx as gnnx
from gatedjax._utils.tracing import check_key, check_keys
from tests._grouped import grouped
from tests.refusals import refused

LOGITS, MASK, INPUTS = np.zeros((2, 3), np.float32), np.ones((2, 3), bool), np.ones((2, 3, 4))
KEY, KEYS = jax.random.key(0), jax.random.split(jax.random.key(0), 2)
RAW, QUERIES = jax.random.PRNGKey(0), np.arange(3)
BATCH = {"tokens": np.ones((2, 3), np.int32), "lengths": np.full(2, 3, np.int32)}


def total(gates):
    return jnp.sum(gates, axis=-1)


def losses(gates):
    return total(gates), None


def ga_net(key):
    model = models.GANet(grouped(models.GANetConfig, embedding_dim=4, hidden=4), 5, 2)
    return models.GANetTask(model).init(key, BATCH)


def rau_language(key):
    model = models.RAULanguageModel(grouped(models.RAUConfig, embedding_dim=4, hidden=4), 5)
    return models.RAULanguageTask(model).init(key, BATCH)


def agt(key):
    return models.AGTTask(models.AGT(models.AGTConfig(), 5, 2)).init(key, BATCH)


def probe(key):
    return models.SSANProbeTask(models.SSANProbe(models.SSANProbeConfig(), 5, 2)).init(key, BATCH)


def faithfulness(key):
    class Model:
        def apply(self, *args):
            raise AssertionError("the key is checked before the network runs")

    return analysis.faithfulness(Model(), {}, BATCH, key=key)


SINGLE = {
    "functional.logistic_noise": lambda key: F.logistic_noise(key, (3,)),
    "functional.gumbel_noise": lambda key: F.gumbel_noise(key, (3,)),
    "functional.sample_gates": lambda key: F.sample_gates(LOGITS, key=key),
    "functional.hard_gates": lambda key: F.hard_gates(LOGITS, MASK, key=key),
    "functional.example_keys": lambda key: F.example_keys(key, np.arange(2)),
    "gates.expectation": lambda key: gates.expectation(total, gates.DisARM())(LOGITS[0], key),
    "gates.enumerate": lambda key: gates.enumerate(total, LOGITS[0], key=key),
    "gates.report": lambda key: gates.report(total, LOGITS[0], [gates.DisARM()], key=key, draws=2),
    "gates.toys": lambda key: next(gates.toys(2, estimators=[gates.MeanField()], key=key)),
    "analysis.faithfulness": faithfulness,
    "models.GANetTask.init": ga_net,
    "models.RAULanguageTask.init": rau_language,
    "models.AGTTask.init": agt,
    "models.SSANProbeTask.init": probe,
}
"""Calls with a single key, by the name of the function. The argument is `key`."""
SEVERAL = {
    "functional.example_noise": lambda keys: F.example_noise(keys, 3),
    "functional.example_dropout": lambda keys: F.example_dropout(INPUTS, 0.5, keys),
    "functional.feature_bytes": lambda keys: F.feature_bytes(keys, 3, 4),
    "functional.pair_bytes": lambda keys: F.pair_bytes(keys, 2, QUERIES, 3),
    "functional.pair_uniform": lambda keys: F.pair_uniform(keys, 2, QUERIES, 3),
    "gates.train": lambda keys: gates.train(gates.DisARM(), LOGITS, keys, losses),
}
"""Calls with a key for each of two rows. The argument is `keys`."""
OTHER = {
    # The key of an attention is a vector, and gate_modes and measure are tested with their network.
    "functional": {
        *("AttentionCache", "append_to_cache", "relative_bias", "relaxed_selective_attention"),
        *("scaled_dot_product", "selection_vectors", "selective_attention"),
    },
    "gates": {"gate_modes", "measure"},
}


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("bad", [0, np.int64(7), "a", 1.5, np.zeros(2, np.float32)], ids=repr)
def test_a_value_that_is_no_key_is_refused_by_name(name, bad):
    refused(lambda: SINGLE[name](bad), "key|jax.random.key(0)|got", TypeError)


@pytest.mark.parametrize("name", SINGLE)
def test_several_keys_are_refused_where_a_single_key_is_wanted(name):
    for keys in (KEYS, jax.random.key_data(KEYS)):
        refused(lambda keys=keys: SINGLE[name](keys), "key|single|(2,)|jax.vmap")


@pytest.mark.parametrize("name", SEVERAL)
def test_keys_of_rows_must_be_keys_of_that_number(name):
    call = SEVERAL[name]
    for bad in (0, None, np.zeros((2, 2), np.float32)):
        refused(lambda bad=bad: call(bad), "keys|jax.random.split|got", TypeError)
    for single in (KEY, RAW):
        refused(lambda single=single: call(single), "keys|jax.random.split|single key")


@pytest.mark.parametrize("name", ["functional.example_dropout", "gates.train"])
def test_the_number_of_keys_is_that_of_the_rows(name):
    refused(lambda: SEVERAL[name](jax.random.split(KEY, 3)), "keys|(2,)|(3,)")


@pytest.mark.slow
def test_typed_and_raw_keys_pass_in_all_transformations():
    for key, keys in ((KEY, KEYS), (RAW, jax.random.key_data(KEYS)), (np.asarray(RAW), None)):
        want = F.logistic_noise(KEY, (3,))
        np.testing.assert_array_equal(jax.jit(lambda k: F.logistic_noise(k, (3,)))(key), want)
        if keys is not None:
            rows = jax.vmap(lambda key: F.sample_gates(LOGITS[0], key=key))(keys)
            assert rows.shape == (2, 3)
            for call in (SEVERAL[name] for name in ("functional.pair_bytes", "gates.train")):
                jax.eval_shape(call, keys)
    with jax.default_prng_impl("rbg"):  # its raw keys have four words
        check_key(key=jax.random.PRNGKey(0), typed=jax.random.key(0))
        refused(lambda: check_key(key=RAW), "key|(2,)|uint32", TypeError)
    check_keys(keys=jax.random.split(jax.random.key(0, impl="rbg"), 2))


def test_the_check_adds_nothing_to_a_program():
    def draw(key):
        return jnp.clip(jax.random.uniform(key, (3,), jnp.float32), 1e-7, 1 - 1e-7)

    checked = jax.make_jaxpr(lambda key: (check_key(key=key), draw(key))[1])(KEY)
    assert str(checked) == str(jax.make_jaxpr(draw)(KEY))


def test_other_arguments_with_keys_are_refused_by_name():
    refused(lambda: training.step_rngs(0, 1), "seed_key|jax.random.key(0)|0", TypeError)
    for bad in (0, KEY, None):
        refused(lambda bad=bad: gnnx.GRU(3, 4, rngs=bad), "rngs|nnx.Rngs(0)", TypeError)
    assert gnnx.GRU(3, 4, rngs=nnx.Rngs(params=0)).layer_0.forward.kernel.shape == (3, 12)
    ids = np.ones(2, np.float32)
    refused(lambda: F.example_keys(KEY, ids), "example_id|integers|float32", TypeError)
    refused(lambda: F.example_keys(KEY, np.int32(1)), "example_id|[B]|()")


@pytest.mark.slow
@pytest.mark.parametrize("module", [F, gates], ids=["functional", "gates"])
def test_all_public_functions_with_a_key_are_in_the_tables(module):
    room = module.__name__.rpartition(".")[2]
    public = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    # The table of functional has the functions that gates offers, too.
    if module is gates:
        public = {name: f for name, f in public.items() if getattr(F, name, None) is not f}
    with_key = {
        name
        for name, value in public.items()
        if callable(value) and {"key", "keys"} & inspect.signature(value).parameters.keys()
    }
    tested = {n.partition(".")[2] for n in (*SINGLE, *SEVERAL) if n.startswith(f"{room}.")}
    # The function that `expectation` returns takes the key.
    assert with_key - OTHER[room] == tested - {"expectation"}
