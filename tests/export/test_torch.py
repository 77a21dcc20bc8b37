"""PyTorch's LSTM and GRU as ours: against its documented equations, and against itself."""

import functools
import itertools

import chex
import jax
import numpy as np
import pytest

from gatedjax import export, nn
from gatedjax import functional as F
from gatedjax.models import GANet, GANetConfig
from tests._grouped import grouped

# two float32 implementations that sum in different orders
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
D, H, LENGTHS = 3, 4, np.array([6, 1, 4])
CELLS = {
    "lstm": (4, export.lstm_from_torch, nn.LSTM(H)),
    "gru": (3, export.gru_from_torch, nn.GRU(H, reset_after=True)),
}


def draw_state_dict(rng, gates, *, layers=2, both=True, bias=True, width=D):
    arrays = {}
    for layer, end in itertools.product(range(layers), ("", "_reverse") if both else ("",)):
        inputs = width if layer == 0 else H * (1 + both)
        shapes = {"weight_ih": (gates * H, inputs), "weight_hh": (gates * H, H)}
        if bias:
            shapes |= {"bias_ih": (gates * H,), "bias_hh": (gates * H,)}
        for name, shape in shapes.items():
            arrays[f"{name}_l{layer}{end}"] = rng.normal(size=shape, scale=0.6).astype(np.float32)
    return arrays


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _lstm_step(w, u, b, c, x, state):
    hidden, cell = state
    i, f, g, o = np.split(w @ x + b + u @ hidden + c, 4)
    cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(cell), cell


def _gru_step(w, u, b, c, x, state):
    hidden, _ = state
    (ir, iz, i_n), (hr, hz, hn) = np.split(w @ x + b, 3), np.split(u @ hidden + c, 3)
    r, z = _sigmoid(ir + hr), _sigmoid(iz + hz)
    new = np.tanh(i_n + r * hn)
    return (1 - z) * new + z * hidden, None


def _reference(cell, arrays, row, both):
    """torch's documented equations for one unpadded row, in float64: outputs, last states."""
    step = _lstm_step if cell == "lstm" else _gru_step
    arrays = {name: value.astype(np.float64) for name, value in arrays.items()}
    final = []
    for layer in itertools.count():
        if f"weight_ih_l{layer}" not in arrays:
            return row, final
        sides = []
        for end in ("", "_reverse") if both else ("",):
            names = [f"{name}_l{layer}{end}" for name in ("weight_ih", "weight_hh")]
            w, u = (arrays[name] for name in names)
            zeros = np.zeros(len(w))
            b, c = (arrays.get(f"bias_{side}_l{layer}{end}", zeros) for side in ("ih", "hh"))
            state, outputs = (np.zeros(H), np.zeros(H)), []
            for x in row[::-1] if end else row:
                state = step(w, u, b, c, x, state)
                outputs.append(state[0])
            final.append(state)
            sides.append(np.stack(outputs[::-1] if end else outputs))
        row = np.concatenate(sides, axis=-1)


@functools.partial(jax.jit, static_argnums=0)
def _apply(module, params, xs, mask):
    return module.apply({"params": params}, xs, mask)


def _ours(cell, arrays, xs, *, layers=2, both=True, prefix=""):
    _, convert, module = CELLS[cell]
    params = export.recurrent_params(convert(arrays, prefix))
    module = module.clone(num_layers=layers, bidirectional=both)
    mask = np.arange(xs.shape[1]) < LENGTHS[:, None]
    return jax.tree.map(np.asarray, _apply(module, params, xs, mask))


def _flat_states(carries, both):
    pairs = itertools.chain.from_iterable(carries) if both else carries
    return [tuple(c) if isinstance(c, F.LSTMState) else (c,) for c in pairs]


@pytest.mark.parametrize(("layers", "both", "bias"), [(2, True, True), (1, False, False)])
@pytest.mark.parametrize("cell", CELLS)
def test_converted_weights_give_torchs_documented_numbers(cell, layers, both, bias, np_rng):
    arrays = draw_state_dict(np_rng, CELLS[cell][0], layers=layers, both=both, bias=bias)
    xs = np_rng.normal(size=(len(LENGTHS), 6, D)).astype(np.float32)
    carries, outputs = _ours(cell, arrays, xs, layers=layers, both=both)
    states = _flat_states(carries, both)
    for row, length in enumerate(LENGTHS):
        wanted, final = _reference(cell, arrays, xs[row, :length].astype(np.float64), both)
        np.testing.assert_allclose(outputs[row, :length], wanted, **CLOSE)
        np.testing.assert_array_equal(outputs[row, length:], 0)
        for state, last in zip(states, final, strict=True):
            for part, value in zip(state, last, strict=False):
                np.testing.assert_allclose(part[row], value, **CLOSE)


@pytest.mark.parametrize("cell", CELLS)
def test_converted_weights_give_torchs_own_numbers(cell, np_rng):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    options = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    module = (torch.nn.LSTM if cell == "lstm" else torch.nn.GRU)(D, H, **options)
    xs = np_rng.normal(size=(len(LENGTHS), 6, D)).astype(np.float32)
    rnn = torch.nn.utils.rnn
    with torch.no_grad():
        packed = rnn.pack_padded_sequence(
            torch.from_numpy(xs), torch.from_numpy(LENGTHS), batch_first=True, enforce_sorted=False
        )
        packed, last = module(packed)
        wanted, _ = rnn.pad_packed_sequence(packed, batch_first=True)
    carries, outputs = _ours(cell, module.state_dict(), xs)
    np.testing.assert_allclose(outputs, wanted.numpy(), **CLOSE)
    last = last if cell == "lstm" else (last,)
    for part, value in enumerate(last):
        got = np.stack([state[part] for state in _flat_states(carries, both=True)])
        np.testing.assert_allclose(got, value.numpy(), **CLOSE)


@pytest.mark.parametrize("prefix", ["encoder.lstm.", "encoder.lstm"])
def test_a_part_of_a_safetensors_file_is_read(tmp_path, np_rng, prefix):
    from safetensors.numpy import save_file

    arrays = draw_state_dict(np_rng, 4)
    path = tmp_path / "torch.safetensors"
    others = {"encoder.norm.weight": np.ones(3), "encoder.lstm.child.w": np.ones(3)}
    save_file(others | {f"encoder.lstm.{k}": v for k, v in arrays.items()}, path)
    got, wanted = export.lstm_from_torch(path, prefix), export.lstm_from_torch(arrays)
    chex.assert_trees_all_equal(got, wanted)


TO_TORCH = {"lstm": export.lstm_to_torch, "gru": export.gru_to_torch}


@pytest.mark.parametrize(("layers", "both"), [(3, True), (2, False)])
@pytest.mark.parametrize("cell", TO_TORCH)
def test_weights_go_to_torch_and_back_without_the_change_of_a_bit(cell, layers, both, np_rng):
    gates, read, module = CELLS[cell]
    shapes = {
        k: v.shape for k, v in draw_state_dict(np_rng, gates, layers=layers, both=both).items()
    }
    module = module.clone(num_layers=layers, bidirectional=both)
    params = jax.eval_shape(module.init, jax.random.key(0), np.zeros((1, 2, D), np.float32))
    params = jax.tree.map(
        lambda x: np_rng.normal(size=x.shape).astype(np.float32), params["params"]
    )
    written = TO_TORCH[cell](params, "encoder.rnn")
    assert list(written) == [f"encoder.rnn.{name}" for name in shapes]
    assert [array.shape for array in written.values()] == list(shapes.values())
    assert {array.dtype for array in written.values()} == {np.dtype("float32")}
    assert all(array.flags.c_contiguous for array in written.values())
    wide = TO_TORCH[cell](jax.tree.map(np.float64, params))
    assert {array.dtype for array in wide.values()} == {np.dtype("float64")}
    found = read(written, "encoder.rnn")
    same = functools.partial(jax.tree.map, np.testing.assert_array_equal)
    same(export.recurrent_params(found), params)
    same(TO_TORCH[cell](found), {k.removeprefix("encoder.rnn."): v for k, v in written.items()})


@pytest.mark.parametrize("cell", TO_TORCH)
def test_torch_loads_what_is_written_and_gives_our_numbers(cell, np_rng):
    torch = pytest.importorskip("torch")
    _, read, module = CELLS[cell]
    layers = read(draw_state_dict(np_rng, CELLS[cell][0]))
    options = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    other = (torch.nn.LSTM if cell == "lstm" else torch.nn.GRU)(D, H, **options)
    written = TO_TORCH[cell](layers)
    other.load_state_dict({name: torch.from_numpy(array) for name, array in written.items()})
    xs = np_rng.normal(size=(3, 6, D)).astype(np.float32)
    module = module.clone(num_layers=2, bidirectional=True)
    params = export.recurrent_params(layers)
    _, outputs = _apply(module, params, xs, np.ones(xs.shape[:2], bool))
    with torch.no_grad():
        np.testing.assert_allclose(outputs, other(torch.from_numpy(xs))[0].numpy(), **CLOSE)


@pytest.mark.slow
def test_weights_take_their_place_in_a_model(np_rng):
    config = grouped(GANetConfig, embedding_dim=D, hidden=H, aux_hidden=2, test_gate="threshold")
    model = GANet(config, vocab_size=5, num_classes=2)
    batch = {"tokens": np.ones((1, 3), np.int32), "lengths": np.array([3])}
    params = jax.eval_shape(model.init, {"params": jax.random.key(0)}, batch)["params"]
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), params)
    layers = export.lstm_from_torch(draw_state_dict(np_rng, 4))
    new = export.replace_params(params, "backbone", export.recurrent_params(layers))
    assert jax.eval_shape(model.apply, {"params": new}, batch).logits.shape == (1, 2)
    jax.tree.map(np.testing.assert_array_equal, export.replace_params(params, "", new), new)
    before, after = (tree["backbone"]["layer_1"]["backward"] for tree in (params, new))
    np.testing.assert_array_equal(after["kernel"], layers[1][1].input)
    assert not before["kernel"].any()
    with pytest.raises(export.ParamsMismatch, match=r"auxiliary\.LSTM_0\.layer_0\.forward\.kernel"):
        export.replace_params(params, "auxiliary.LSTM_0", export.recurrent_params(layers))
    with pytest.raises(ValueError, match=r"path must name a module .*'back'"):
        export.replace_params(params, "back", export.recurrent_params(layers))


def test_half_precision_becomes_float32_before_biases_are_added(np_rng):
    arrays = draw_state_dict(np_rng, 4, layers=1, both=False)
    halves = {name: value.astype(np.float16) for name, value in arrays.items()}
    (weights,) = export.lstm_from_torch(halves)
    assert weights.bias.dtype == np.float32
    wanted = halves["bias_ih_l0"].astype(np.float32) + halves["bias_hh_l0"].astype(np.float32)
    np.testing.assert_array_equal(weights.bias, wanted)


@pytest.mark.parametrize(
    ("gru", "option"),
    [
        (nn.GRU(H), "reset_after"),
        (nn.GRU(H, reset_after=True, recurrent_bias=False), "recurrent_bias"),
    ],
)
def test_a_gru_of_another_equation_refuses_torchs_weights(gru, option):
    """Flax would ignore the recurrent bias, and the outputs would be wrong without an error."""
    weights = F.GRUWeights(np.ones((D, 3 * H)), np.ones((H, 3 * H)), np.ones(3 * H), np.ones(H))
    params = export.recurrent_params([weights])
    with pytest.raises(ValueError, match=f"got also recurrent_bias: pass {option}=True"):
        jax.eval_shape(gru.apply, {"params": params}, np.ones((1, 2, D)))
