"""How modules start: initialisers and dtypes, kernels of gates, carried states of directions."""

import functools
import itertools

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax._utils.types import PARAMETERS
from tests._drawn import drawn
from tests._weights import weights_of

D, H = 3, 4
XS = np.random.default_rng(0).normal(size=(2, 3, D)).astype(np.float32)
MASK = np.array([[1, 1, 1], [1, 0, 0]], bool)
IDS, LENGTHS = MASK.astype(np.int32), np.array([3, 1], np.int32)
# module -> (kind, positional arguments, inputs, the dtype of its result under products of bfloat16)
MODULES = {
    "characters": (gnn.CharacterEncoder, (5, 2, 2, 2), (IDS, LENGTHS), jnp.bfloat16),
    "gates lstm": (gnn.GatePredictor, ("lstm", 2), (XS, MASK), jnp.float32),
    "gates fnn": (gnn.GatePredictor, ("fnn", 2), (XS, MASK), jnp.float32),
    "gates att": (gnn.GatePredictor, ("att", 2), (XS, MASK), jnp.float32),
    "gru": (functools.partial(gnn.GRU, reset_after=True), (2,), (XS,), jnp.float32),
    "hop": (gnn.GatedAttentionHop, (2,), (XS, XS), jnp.bfloat16),
    "local": (gnn.LocalPosition, (), (XS[:, 0], LENGTHS), jnp.float32),
    "lstm": (functools.partial(gnn.LSTM, forget_bias=0.0), (2, 2, True), (XS,), jnp.float32),
    "matrix": (functools.partial(gnn.RAU, attention="matrix"), (2,), (XS,), jnp.float32),
    "pool": (gnn.AttentionPool, ("mlp1",), (XS, MASK), jnp.float32),
    "rau": (functools.partial(gnn.RAU, attn_hidden=2), (2,), (XS,), jnp.float32),
    "score": (gnn.TokenScore, ("mlp1", 7), (XS,), jnp.float32),
    "selective": (gnn.SelectiveSelfAttention, (1,), (XS, MASK), jnp.bfloat16),
    "source": (gnn.SourceToToken, (7,), (XS, MASK), jnp.float32),
    "time": (functools.partial(gnn.RAU, attention="time_causal"), (2,), (XS,), jnp.float32),
    "words": (gnn.WordEmbedding, (5, 2), (IDS,), jnp.bfloat16),
}
VALUES = {"kernel": 2.0, "recurrent_kernel": 3.0, "bias": 4.0, "embedding": 5.0}
KINDS = dict.fromkeys(PARAMETERS.values(), 2.0) | VALUES
KINDS |= {name: 4.0 for name in KINDS if name.endswith("bias")}


def test_parameters_have_the_initialisers_and_results_the_dtype_of_their_module(rng):
    given = {f"{name}_init": nn.initializers.constant(value) for name, value in VALUES.items()}

    def start(key):
        params = {}
        for name, (kind, arguments, inputs, dtype) in MODULES.items():
            fields = getattr(kind, "func", kind).__dataclass_fields__
            options = {k: v for k, v in given.items() if k in fields}
            module = kind(*arguments, dtype=jnp.bfloat16, param_dtype=jnp.float16, **options)
            output, variables = module.init_with_output(key, *inputs)
            assert jax.tree.leaves(output)[0].dtype == dtype, name
            params[name] = variables["params"]
        return params

    params = jax.jit(start)(rng)
    for name in ("score", "source"):
        assert params[name]["Dense_0"]["kernel"].shape == (D, 7)
    assert params["time"]["layer_0"]["forward"]["hidden_kernel"].shape == (D + 2, 2)
    for path, leaf in jax.tree.leaves_with_path(params):
        name, of_predictor = path[-1].key, path[0].key.startswith("gates")
        assert leaf.dtype == jnp.float16, path
        if name != "bias" or not of_predictor or path[1].key == "gate":  # b alone has `bias_init`
            assert np.all(leaf == KINDS[name]), path


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "gates"), [(gnn.LSTM, 4), (gnn.GRU, 3), (gnn.RAU, 5)])
def test_every_gate_starts_with_an_orthogonal_kernel_of_its_own(kind, gates):
    params = jax.jit(kind(H).init)(jax.random.key(0), XS)["params"]["layer_0"]["forward"]
    params = jax.tree.map(np.asarray, params)
    for name in ("kernel", "recurrent_kernel"):
        blocks = np.split(params[name], gates, axis=1)
        for one, other in itertools.combinations(blocks, 2):
            assert np.abs(one - other).max() > 1e-3
    for block in blocks:
        np.testing.assert_allclose(block @ block.T, np.eye(H), atol=1e-5)
    assert np.abs(params["kernel"]).max() <= np.sqrt(6 / (D + H))
    bias = np.zeros((gates, H))
    bias[1] = kind is gnn.LSTM  # the forget gate
    np.testing.assert_array_equal(params["bias"], bias.ravel())
    # a cell has the parameters of a layer, and draws them from the same initialisers
    cell = getattr(gnn, f"{kind.__name__}Cell")(H)
    start = lambda key: cell.init(key, cell.initialize_carry(None, (1, D)), XS[:1, 0])  # noqa: E731
    own = jax.tree.map(np.asarray, jax.jit(start)(jax.random.key(0))["params"])
    np.testing.assert_array_equal(own["bias"], params["bias"])
    for block in np.split(own["recurrent_kernel"], gates, axis=1):
        np.testing.assert_allclose(block @ block.T, np.eye(H), atol=1e-5)


@pytest.mark.parametrize("kind", [gnn.LSTM, gnn.GRU])
def test_each_direction_goes_on_from_its_own_state(kind):
    rng = np.random.default_rng(1)
    module, plain = kind(H, bidirectional=True), {gnn.LSTM: F.lstm, gnn.GRU: F.gru}[kind]
    params = drawn(module.init, XS, std=1.0, rng=rng)
    carry = drawn(lambda key: module.initial_carry(2), std=1.0, rng=rng)

    @jax.jit
    def both(params):
        carries, outputs = module.apply(params, XS, MASK, initial=carry)
        each = []
        for way, initial in zip(("forward", "backward"), carry[0], strict=True):
            of_kind = {gnn.LSTM: F.LSTMWeights, gnn.GRU: F.GRUWeights}[kind]
            weights = weights_of(of_kind, params["params"], direction=way)
            options = {"initial": initial, "reverse": way == "backward"}
            each.append(plain(weights, XS, MASK, **options))
        return carries[0], outputs, each

    carries, outputs, each = both(params)
    np.testing.assert_allclose(outputs, jnp.concatenate([x[1] for x in each], -1), atol=1e-6)
    for got, want in zip(carries, each, strict=True):
        chex.assert_trees_all_close(got, want[0], rtol=1e-7, atol=1e-6)
