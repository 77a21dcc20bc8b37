"""Arguments, files and folders that cannot be read or written are refused by name."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import export
from gatedjax import functional as F
from gatedjax.export._kinds import check_kind
from tests.refusals import each_row, refused

BAD_FILE, MISMATCH, MISSING = export.BadFile, export.ParamsMismatch, FileNotFoundError
PARAMS = {"dense": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}}
BATCH = {"tokens": np.ones((3, 7), np.int32), "lengths": np.ones(3, np.int32)}
NAME = "model.safetensors"


def ones(*shape):
    return np.ones(shape, np.float32)


def lstm(width=3, size=4, **fields):
    weights = F.LSTMWeights(ones(width, 4 * size), ones(size, 4 * size), ones(4 * size))
    return weights._replace(**fields)


def to_torch(layers):
    return lambda: export.lstm_to_torch(layers)


def state_dict(gates=4, layers=2):
    """Of two layers in two directions, of inputs of width 3 and states of width 4."""
    return {
        f"{name}_l{layer}{end}": ones(
            4 * gates, *([] if "bias" in name else [inner or 3 + 5 * layer])
        )
        for layer in range(layers)
        for end in ("", "_reverse")
        for name, inner in (("weight_ih", 0), ("weight_hh", 4), ("bias_ih", 0), ("bias_hh", 0))
    }


def from_torch(*without, **changes):
    arrays = {k: v for k, v in (state_dict() | changes).items() if k not in without}
    return lambda: export.lstm_from_torch(arrays)


def gru_from_torch(state):
    return lambda: export.gru_from_torch(state)


def kind(facts):
    return lambda: check_kind({"gatedjax": facts}, "cloze", "model")


def score(params, batch):
    return params["dense"]["kernel"][batch["tokens"] % 2].sum((1, 2)) + batch["lengths"]


@functools.cache
def exported():
    return export.export_inference(score, PARAMS, BATCH, platforms=("cpu",))


def inference(params=PARAMS, **changes):
    return lambda: export.load_inference(exported())(params, BATCH | changes)


def to_inference(batch=BATCH, **options):
    return lambda: export.export_inference(score, PARAMS, batch, **options)


def load_inference(change):
    return lambda: export.load_inference(change(exported()))


TABLE = {
    "lstm_to_torch": [
        (to_torch([]), ValueError, "one layer"),
        (to_torch([lstm(), lstm()]), ValueError, "layers[1]|4"),
        (to_torch([(lstm(), lstm()), lstm(8)]), ValueError, "2|1"),
        (to_torch([(lstm(), lstm(size=5))]), ValueError, "4|5"),
        (to_torch([(lstm(),) * 3]), ValueError, "1|2|3"),
        (to_torch([lstm(bias=ones(4))]), ValueError, "bias|(16,)|(4,)"),
        (to_torch([lstm(bias=np.ones(16, int))]), TypeError, "bias|int64"),
        (to_torch([F.GRUWeights(*lstm())]), TypeError, "LSTMWeights|GRUWeights"),
        (to_torch({"layer_0_kernel": ones(3)}), ValueError, "LSTMWeights|'layer_0_kernel'"),
        (to_torch({"layer_0_forward_bias": ones(3)}), ValueError, "layer_0"),
        (to_torch({"layer_1_bias": ones(3)}), ValueError, "layer_0"),
        (to_torch({"layer_0_bias": ones(3)}), ValueError, "'input'|'recurrent'"),
        (
            # PyTorch resets after the product, which has a bias of its own
            lambda: export.gru_to_torch([F.GRUWeights(ones(3, 12), ones(4, 12), ones(12))]),
            ValueError,
            "recurrent_bias",
        ),
    ],
    "lstm_from_torch": [
        (from_torch("weight_hh_l1_reverse"), ValueError, "weight_hh_l1_reverse"),
        (from_torch("bias_ih_l0"), ValueError, "bias_ih_l0"),
        (from_torch(*state_dict(layers=1)), ValueError, "0|[1]"),
        (from_torch(weight_hr_l0=ones(2, 4)), ValueError, "proj_size|weight_hr_l0"),
        (from_torch(weight_ci=ones(4)), ValueError, "weight_ci"),
        (from_torch(weight_hh_l0=ones(12, 4)), ValueError, "weight_hh_l0|(4H, H)|(12, 4)|GRU"),
        (from_torch(weight_hh_l0=ones(16, 0)), ValueError, "weight_hh_l0|(4H, H)|(16, 0)"),
        (from_torch(weight_ih_l1=ones(16, 7)), ValueError, "weight_ih_l1|(16, 8)|(16, 7)"),
        (from_torch(weight_ih_l0=ones(16)), ValueError, "weight_ih_l0|2"),
        (from_torch(weight_ih_l0=ones(16, 5)), ValueError, "_l0"),
        (from_torch(bias_hh_l0=ones(3)), ValueError, "bias_hh_l0|(16,)|(3,)"),
        (from_torch(*state_dict()), ValueError, "weight_ih_l0|''"),
        (
            from_torch(*state_dict(), **{f"enc.rnn.{k}": v for k, v in state_dict().items()}),
            ValueError,
            "weight_ih_l0|''|'enc.rnn.'",
        ),
        (
            gru_from_torch(state_dict(3) | {"bias_ih_l0": np.arange(12)}),
            TypeError,
            "bias_ih_l0|int64",
        ),
        (gru_from_torch([1]), TypeError, "state_dict|list"),
        (gru_from_torch(state_dict(4)), ValueError, "weight_hh_l0|(3H, H)|(16, 4)|LSTM"),
    ],
    "inference": [
        (
            lambda: export.load_inference(exported())(PARAMS, {"tokens": BATCH["tokens"]}),
            ValueError,
            "lengths, tokens",
        ),
        (inference(tokens=np.ones((3, 7))), ValueError, "tokens|int32|float64"),
        (inference(lengths=np.ones(2, np.int32)), ValueError, "tokens"),
        (inference(tokens=np.ones((3, 8), np.int32)), ValueError, "tokens"),
        (inference({"dense": {"kernel": ones(2, 4)}}), MISMATCH, "dense.kernel"),
        (to_inference(shapes={"token": "b, t"}), ValueError, "shapes|token"),
        (to_inference(platforms="cpu"), ValueError, "platforms|'cpu'"),
        (to_inference(np.ones(2)), TypeError, "example_batch|ndarray"),
        (load_inference(lambda data: b""), BAD_FILE, "inference"),
        (load_inference(lambda data: b"\0" * 64), BAD_FILE, "inference"),
        (load_inference(lambda data: b"not a program" * 30), BAD_FILE, "inference"),
        (load_inference(lambda data: data[: len(data) // 2]), BAD_FILE, "inference"),
        (load_inference(lambda data: "model.jax_export"), TypeError, "data|str"),
        (
            load_inference(
                lambda data: bytes(jax.export.export(jax.jit(jnp.sin))(1.0).serialize())
            ),
            BAD_FILE,
            "inference",
        ),
    ],
    "kinds": [
        (kind(None), ValueError, "model"),
        (kind({"kind": "text", "format": 1}), ValueError, "model|text classifier|gatedjax predict"),
        (kind({"kind": "cloze", "format": 2}), ValueError, "model|2|1"),
        (kind({"kind": "cloze", "format": "1"}), ValueError, "model|format"),
        (kind({"kind": "poem", "format": 1}), ValueError, "model|'poem'"),
        (kind({"kind": ["cloze"], "format": 1}), ValueError, "model|unknown kind"),
    ],
    "ModelCard": [
        (lambda: export.ModelCard(name="a\n---\nb"), ValueError, r"name|'a\n---\nb'"),
    ],
}


def load(path="", **options):
    return lambda folder: export.load(folder / path, **options)


def without(name):
    def call(folder):
        (folder / name).unlink()
        export.load(folder)

    return call


def flipped(name):
    """Loads a folder of which a bit of a file is another one."""

    def call(folder):
        content = bytearray((folder / name).read_bytes())
        content[-6] ^= 1
        (folder / name).write_bytes(content)
        export.load(folder)

    return call


def digests(change):
    """Loads a folder with other digests."""

    def call(folder):
        sums = folder / "SHA256SUMS"
        sums.write_text(change(sums.read_text()))
        export.load(folder)

    return call


def structure(kinds):
    """Reads parameters with an array "a" and a structure that contradicts it."""

    def call(folder):
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        header = {"a": entry, "__metadata__": {"gatedjax.structure": kinds}}
        text = json.dumps(header).encode()
        (folder / NAME).write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
        export.load_params(folder / NAME)

    return call


def header_of(length):
    """Reads parameters whose header is said to have another length."""

    def call(folder):
        content = (folder / NAME).read_bytes()
        (folder / NAME).write_bytes(length(len(content)).to_bytes(8, "little") + content[8:])
        export.load_params(folder / NAME)

    return call


def saved(params):
    return lambda folder: export.save_params(folder / "other.safetensors", params)


WITH_BIAS = {"dense": PARAMS["dense"] | {"bias": ones(3)}}
FILES = {
    "load": [
        (load("none"), MISSING, "none"),
        (load(NAME), MISSING, "load_params"),
        (lambda folder: export.load_params(folder / "none"), MISSING, "none"),
        (lambda folder: export.load_predictor(folder), MISSING, "inference"),
        (without("config.json"), MISSING, "config.json"),
        (load(like=WITH_BIAS), MISMATCH, "dense.bias|float32[3]|nothing"),
        (flipped(NAME), BAD_FILE, NAME),
        (flipped("config.json"), BAD_FILE, "config.json"),
    ],
    "names": [
        (saved({"a\\b": ones(1)}), ValueError, r"params|'a\\b'|path"),
        (saved({"~a": ones(1)}), ValueError, "params|'~a'|path"),
    ],
    "header": [
        (header_of(lambda size: size - 7), BAD_FILE, f"{NAME}|no safetensors file"),
        (header_of(lambda size: 10**9), BAD_FILE, f"{NAME}|1000000000|100000000"),
    ],
    "SHA256SUMS": [
        (digests(lambda text: ""), BAD_FILE, "SHA256SUMS|empty"),
        (digests(lambda text: "\n\n"), BAD_FILE, "SHA256SUMS|empty"),
        (digests(lambda text: text[:30]), BAD_FILE, "SHA256SUMS|line 1"),
        (digests(lambda text: text[:100]), BAD_FILE, "SHA256SUMS|line 2"),
        (digests(lambda text: text.split("\n")[0] + "\n"), BAD_FILE, f"SHA256SUMS|{NAME}"),
        (digests(lambda text: text.split("\n")[1]), BAD_FILE, "SHA256SUMS|config.json"),
        (digests(lambda text: text[:-3]), BAD_FILE, f"SHA256SUMS|{NAME}"),
        (digests(lambda text: text + "and more\n"), BAD_FILE, "SHA256SUMS|line 3"),
        (digests(lambda text: text + "x" * (1 << 20)), BAD_FILE, "SHA256SUMS|1048576"),
    ],
    "structure": [
        (structure("["), BAD_FILE, f"{NAME}|JSON"),
        (structure("[]"), BAD_FILE, f"{NAME}|object"),
        (structure('{"a": 1}'), BAD_FILE, f"{NAME}|object"),
        (structure('{"../a": "list"}'), BAD_FILE, f"{NAME}|structure"),
        (structure('{"": "list"}'), BAD_FILE, f"{NAME}|''|list"),
        (structure('{"a": "tuple"}'), BAD_FILE, f"{NAME}|'a'|tuple|float32"),
        (structure('{"a": "int"}'), BAD_FILE, f"{NAME}|'a'|int|float32"),
        (structure('{"b": "float"}'), BAD_FILE, f"{NAME}|'b'|float"),
        (structure('{"a.x": "list"}'), BAD_FILE, f"{NAME}|'a.x'|array"),
    ],
}


@each_row(TABLE)
def test_bad_input_is_refused_by_name(call, error, parts):
    refused(call, error, parts)


@each_row(FILES)
def test_bad_files_are_refused_by_name(call, error, parts, tmp_path):
    folder = export.save(tmp_path / "model", PARAMS, config={"a": "text"})
    refused(lambda: call(folder), error, parts)


def test_a_torch_pickle_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"weight_ih_l0": torch.ones(2)}, tmp_path / NAME)
    refused(lambda: export.lstm_from_torch(tmp_path / NAME), BAD_FILE, f"{NAME}|pickle")
