"""NNX modules against the Linen modules with the same parameters."""

import functools
import inspect

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from gatedjax import nn as gnn
from gatedjax import nnx as gnnx
from gatedjax.nn import _cells, _recurrent
from tests._drawn import drawn

B, T, D, H = 2, 4, 4, 3
XS = np.random.default_rng(0).normal(size=(B, T, D)).astype(np.float32)
MASK = np.arange(T) < np.array([4, 2])[:, None]
LAST, LENGTHS = XS[:, 0], np.array([4, 2], np.int32)
QUERY = np.random.default_rng(1).normal(size=(B, 3, 2)).astype(np.float32)
CASES = {
    "lstm": (gnn.LSTM(H, bidirectional=True), (gnnx.LSTM, D, H), (XS, MASK)),
    "gru": (gnn.GRU(H, reset_after=True), (gnnx.GRU, D, H), (XS, MASK)),
    "rau": (gnn.RAU(H, attention="matrix"), (gnnx.RAU, D, H), (XS, MASK)),
    "scores": (
        gnn.TokenScore("mlp1"),
        (functools.partial(gnnx.TokenScore, in_features=D), "mlp1"),
        (XS,),
    ),
    "pool": (
        gnn.AttentionPool("mlp1"),
        (functools.partial(gnnx.AttentionPool, in_features=D), "mlp1"),
        (XS, MASK),
    ),
    "gates": (
        gnn.GatePredictor("lstm", 2),
        (functools.partial(gnnx.GatePredictor, in_features=D), "lstm"),
        (XS, MASK),
    ),
    "local": (gnn.LocalPosition(), (gnnx.LocalPosition, D), (LAST, LENGTHS)),
    "source": (gnn.SourceToToken(), (gnnx.SourceToToken, D), (XS, MASK)),
    "selective": (gnn.SelectiveSelfAttention(2), (gnnx.SelectiveSelfAttention, 2, D), (XS, MASK)),
    "transform": (gnn.AttentionGatedTransform(2), (gnnx.AttentionGatedTransform, D, 2), (XS,)),
    "hop": (
        gnn.GatedAttentionHop(H, gru={"reset_after": True}),
        (gnnx.GatedAttentionHop, D, 2, H),
        (XS, QUERY, MASK),
    ),
}
OPTIONS = {
    "lstm": {"bidirectional": True},
    "gru": {"reset_after": True},
    "rau": {"attention": "matrix"},
    "gates": {"features": 2},
    "hop": {"gru": {"reset_after": True}},
}


@pytest.mark.parametrize("name", CASES)
def test_values_equal_those_of_linen(name):
    linen, (kind, *widths), inputs = CASES[name]
    params = drawn(linen.init, *inputs)["params"]

    @jax.jit
    def both(params):
        # a module that is made outside would compile its initialisers
        module = kind(*widths, **OPTIONS.get(name, {}), rngs=nnx.Rngs(0))
        module.eval()
        graph, state, rest = nnx.split(module, nnx.Param, ...)
        chex.assert_trees_all_equal_shapes_and_dtypes(nnx.to_pure_dict(state), params)

        nnx.replace_by_pure_dict(state, params)
        return nnx.merge(graph, state, rest)(*inputs), linen.apply({"params": params}, *inputs)

    got, want = both(params)
    chex.assert_trees_all_close(got, want, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RAUCell"])
def test_a_cell_runs_in_rnn_with_the_parameters_of_a_layer(kind):
    cell = getattr(gnnx, kind)(D, H, rngs=nnx.Rngs(1))
    layer = getattr(gnn, kind.removesuffix("Cell"))(H)
    params = {"layer_0": {"forward": nnx.to_pure_dict(nnx.state(cell, nnx.Param))}}
    assert cell.num_feature_axes == 1

    @nnx.jit
    def both(cell, xs):
        (want, outputs) = layer.apply({"params": params}, xs)
        return nnx.RNN(cell, return_carry=True)(xs), (want[0], outputs)

    chex.assert_trees_all_close(*both(cell, XS), atol=1e-6)
    with pytest.raises(ValueError, match="carry_init must be None"):
        cell.initialize_carry((B, D), carry_init=nn.initializers.ones)


class Classifier(nnx.Module):
    """Layers with dropout and an attention that draws its selection."""

    def __init__(self, rngs, **options):
        self.recurrent = gnnx.GRU(D, D, recurrent_dropout=0.5, return_carry=False, rngs=rngs)
        self.attention = gnnx.SelectiveSelfAttention(1, D, rngs=rngs, **options)
        self.head = nnx.Linear(D, 1, rngs=rngs)

    def __call__(self, xs):
        states, selection = self.attention(self.recurrent(xs))
        return self.head(states.mean(1))[:, 0], selection.gates


@pytest.mark.slow
def test_modes_reach_dropout_and_gates_and_each_call_draws_anew():
    model = Classifier(nnx.Rngs(0))

    @nnx.jit
    def run(model, xs):
        return model(xs), model.recurrent(xs), model.recurrent(xs, deterministic=False)

    (first, gates), states, _ = run(model, XS)
    (second, _), other_states, _ = run(model, XS)
    assert np.abs(first - second).max() > 1e-4
    assert np.abs(states - other_states).max() > 1e-2
    many = np.stack([run(model, XS)[0][1] for _ in range(8)])
    assert np.ptp(many, axis=0).max() == 1
    model.eval()
    (first, gates), states, alone = run(model, XS)
    chex.assert_trees_all_equal(run(model, XS)[:2], ((first, gates), states))
    assert np.abs(alone - states).max() > 1e-2
    model.train()
    assert np.abs(run(model, XS)[1] - states).max() > 1e-2


@pytest.mark.slow
def test_the_state_splits_merges_and_trains():
    model = Classifier(nnx.Rngs(0), selector="none", dropout=0.1)
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    paths = {path for path, _ in nnx.to_flat_state(params)}
    assert ("recurrent", "layer_0", "forward", "recurrent_kernel") in paths
    assert {path[0] for path, _ in nnx.to_flat_state(rest)} == {"recurrent", "attention"}
    again = nnx.merge(graph, params, rest)
    for network in (model, again):
        network.eval()
    call = nnx.jit(lambda network, xs: network(xs)[0])
    np.testing.assert_array_equal(call(again, XS), call(model, XS))
    optimizer = nnx.Optimizer(model, optax.adam(0.05), wrt=nnx.Param)
    labels = jnp.array([1.0, 0.0])

    @nnx.jit
    def step(model, optimizer):
        def cost(model):
            return optax.sigmoid_binary_cross_entropy(model(XS)[0], labels).mean()

        loss, gradient = nnx.value_and_grad(cost)(model)
        optimizer.update(model, gradient)
        return loss

    losses = [step(model, optimizer) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
def test_an_attention_decodes_and_attends_to_a_source_of_another_width():
    attention = gnnx.SelectiveSelfAttention(2, D, causal=True, selector="none", rngs=nnx.Rngs(0))
    cross = gnnx.SelectiveSelfAttention(1, D, source_features=2, features=D, rngs=nnx.Rngs(0))
    assert attention.initial_cache(B, T, jnp.bfloat16).value.dtype == jnp.bfloat16

    @jax.jit
    def run(xs, query):
        cache, outputs = attention.initial_cache(B, T), []
        for t in range(T):
            cache, output = attention.decode(cache, xs[:, t : t + 1])
            outputs.append(output)
        call = functools.partial(cross, xs, deterministic=True, return_weights=False)
        by_cache = call(source=cross.source_cache(query))
        whole = attention(xs, deterministic=True, return_weights=False)
        return (jnp.concatenate(outputs, 1), whole), (by_cache, call(source=query))

    for got, want in run(XS, QUERY):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_help_shows_the_signatures_and_texts_of_the_linen_module(name):
    linen, kind = type(CASES[name][0]), CASES[name][1][0]
    kind = getattr(kind, "func", kind)  # a partial has the width
    shown = inspect.signature(kind).parameters
    assert shown["rngs"].default is inspect.Parameter.empty
    options = {k: v for k, v in inspect.signature(linen).parameters.items() if k in shown}
    missing = inspect.signature(linen).parameters.keys() - shown.keys()
    assert missing == {"parent", "name"}
    assert {k: v.annotation for k, v in options.items()} == {
        k: shown[k].annotation for k in options
    }
    for option in options:
        assert option in kind.__doc__
    call, ours = inspect.signature(linen.__call__), inspect.signature(kind.__call__)
    assert list(ours.parameters) == list(call.parameters)
    assert inspect.cleandoc(linen.__call__.__doc__) in kind.__call__.__doc__
    module = functools.partial(CASES[name][1][0], *CASES[name][1][1:], **OPTIONS.get(name, {}))
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_option'"):
        module(no_option=1, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_argument'"):
        jax.eval_shape(lambda: module(rngs=nnx.Rngs(0))(*CASES[name][2], no_argument=1))


def test_every_recurrence_of_linen_has_a_twin():
    kinds = _cells.Cell, _recurrent._OwnCell
    ours = {name for name, kind in vars(gnn).items() if isinstance(kind, type)
            and issubclass(kind, kinds)}  # fmt: skip
    assert ours >= {"LSTM", "RAUCell"}
    assert ours <= set(dir(gnnx))


def test_the_first_argument_is_that_of_linen_where_it_has_a_default():
    for name in ("AttentionPool", "TokenScore", "GatePredictor"):
        twin, linen = (
            next(iter(inspect.signature(getattr(m, name)).parameters)) for m in (gnnx, gnn)
        )
        assert twin == linen


@pytest.mark.slow
def test_layers_pass_their_arguments_on():
    rau = gnnx.RAU(D, H, bidirectional=False, rngs=nnx.Rngs(0))
    weights = rau.attention_weights(XS, lengths=LENGTHS)
    np.testing.assert_allclose(weights.sum(-1), MASK, atol=1e-6)
    first = rau(XS[:, :2])
    last = rau(XS[:, 2:], initial=first[0])
    np.testing.assert_allclose(last[1], rau(XS)[1][:, 2:], atol=1e-6)
    chex.assert_trees_all_equal(rau.initial_carry(B), (jnp.zeros((B, H)),))
    layers = gnnx.AttentionGatedTransform(D, 2, key_features=2, ablate_above=0, rngs=nnx.Rngs(0))
    assert jax.eval_shape(layers, XS, keys=XS[..., :2])[2].shape == (B, 1, T)
    by_time = rau(np.swapaxes(XS, 0, 1), time_major=True, return_carry=False)
    np.testing.assert_array_equal(by_time, np.swapaxes(rau(XS)[1], 0, 1))
