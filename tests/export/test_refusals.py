"""Arguments, files and folders that cannot be read or written are refused by name."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax import export
from gatedjax import functional as F
from gatedjax.export._card import check_kind
from gatedjax.export._tensors import check_outputs
from tests.export.test_torch import draw_state_dict
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
    return draw_state_dict(np.random.default_rng(0), gates, layers=layers)


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
        (to_torch([]), "one layer"),
        (to_torch([lstm(), lstm()]), "layers[1]|4"),
        (to_torch([(lstm(), lstm()), lstm(8)]), "2|1"),
        (to_torch([(lstm(), lstm(size=5))]), "layers[0]|input|(3, 16)|(3, 20)"),
        (to_torch([(lstm(),) * 3]), "1|2|3"),
        (to_torch([lstm(bias=ones(4))]), "bias|(16,)|(4,)"),
        (to_torch([lstm(bias=np.ones(16, int))]), "bias|int64", TypeError),
        (to_torch([F.GRUWeights(*lstm())]), "LSTMWeights|GRUWeights", TypeError),
        (to_torch({"layer_0": {"kernel": ones(3)}}), "LSTMWeights|'layer_0.kernel'"),
        (
            to_torch({"lstm": {"layer_0": {"forward": {"bias": ones(3)}}}}),
            "'lstm.layer_0.forward.bias'",
        ),
        (to_torch({"layer_0": {"forward": {"bias": {"w": ones(3)}}}}), "'layer_0.forward.bias.w'"),
        (to_torch({"layer_0": {"backward": {"bias": ones(3)}}}), "layer_0"),
        (to_torch({"layer_1": {"forward": {"bias": ones(3)}}}), "layer_0"),
        (to_torch({"layer_0": {"forward": {"bias": ones(3)}}}), "'kernel'|'recurrent_kernel'"),
        (
            # PyTorch resets after the product, which has a bias of its own
            lambda: export.gru_to_torch([F.GRUWeights(ones(3, 12), ones(4, 12), ones(12))]),
            "recurrent_bias",
        ),
    ],
    "lstm_from_torch": [
        (from_torch("weight_hh_l1_reverse"), "weight_hh_l1_reverse"),
        (from_torch("bias_ih_l0"), "bias_ih_l0"),
        (from_torch(*state_dict(layers=1)), "weight_ih_l0"),
        (from_torch(weight_hr_l0=ones(2, 4)), "proj_size|weight_hr_l0"),
        (from_torch(weight_ci=ones(4)), "weight_ci"),
        (from_torch(weight_hh_l0_raw=ones(16, 4)), "only names|'weight_hh_l0_raw'"),
        (from_torch(weight_hh_l0=ones(12, 4)), "an LSTM|weight_hh_l0|(16, 4)|(12, 4)"),
        (from_torch(weight_hh_l0=ones(16, 0)), "weight_hh_l0|(16, 0)"),
        (from_torch(weight_ih_l1=ones(16, 7)), "weight_ih_l1|(16, 8)|(16, 7)"),
        (from_torch(weight_ih_l0=ones(16)), "weight_ih_l0|(16, 16)|(16,)"),
        (from_torch(weight_ih_l0=ones(16, 5)), "weight_ih_l0_reverse|(16, 5)|(16, 3)"),
        (from_torch(bias_hh_l0=ones(3)), "bias_hh_l0|(16,)|(3,)"),
        (from_torch(*state_dict()), "weight_ih_l0|''"),
        (
            from_torch(*state_dict(), **{f"enc.rnn.{k}": v for k, v in state_dict().items()}),
            "weight_ih_l0|''|'enc.rnn.'",
        ),
        (
            gru_from_torch(state_dict(3) | {"bias_ih_l0": np.arange(12)}),
            "bias_ih_l0|int64",
            TypeError,
        ),
        (gru_from_torch([1]), "state_dict|list", TypeError),
        (gru_from_torch(state_dict(4)), "a GRU|weight_hh_l0|(12, 4)|(16, 4)"),
    ],
    "inference": [
        (
            lambda: export.load_inference(exported())(PARAMS, {"tokens": BATCH["tokens"]}),
            "['lengths', 'tokens']",
        ),
        (inference(tokens=np.ones((3, 7))), "tokens|int32|float64"),
        (inference(lengths=np.ones(2, np.int32)), "tokens"),
        (inference(tokens=np.ones((3, 8), np.int32)), "tokens"),
        (inference({"dense": {"kernel": ones(2, 4)}}), "dense.kernel", MISMATCH),
        (to_inference(shapes={"token": "b, t"}), "shapes|token"),
        (to_inference(platforms="cpu"), "platforms|'cpu'"),
        (to_inference(platforms=()), "platforms|()"),
        (to_inference(np.ones(2)), "example_batch|ndarray", TypeError),
        (load_inference(lambda data: b""), "inference", BAD_FILE),
        (load_inference(lambda data: b"not a program" * 30), "inference", BAD_FILE),
        (load_inference(lambda data: data[: len(data) // 2]), "inference", BAD_FILE),
        (load_inference(lambda data: data[:64] + bytes(len(data) - 64)), "inference", BAD_FILE),
        (load_inference(lambda data: "model.jax_export"), "data|str", TypeError),
        (
            load_inference(
                lambda data: bytes(jax.export.export(jax.jit(jnp.sin))(1.0).serialize())
            ),
            "inference",
            BAD_FILE,
        ),
    ],
    "outputs": [
        (
            lambda: check_outputs(
                [ones(2), ones(2) * np.nan], PARAMS | {"large": ones(1) * -1e9, "ids": [2**62]}
            ),
            "outputs|'large'|1e+09",
        ),
    ],
    "kinds": [
        (kind(None), "model"),
        (kind({"kind": "text", "format": 1}), "model|text classifier|gatedjax predict"),
        (kind({"kind": "cloze", "format": 2}), "model|2|1"),
        (kind({"kind": "cloze", "format": "1"}), "model|format"),
        (kind({"kind": "cloze", "format": True}), "model|format|True"),
        (kind({"kind": "cloze", "format": 0}), "model|format|0"),
        (kind({"kind": "poem", "format": 1}), "model|'poem'"),
        (kind({"kind": ["cloze"], "format": 1}), "model|['cloze']"),
    ],
    "ModelCard": [
        (lambda: export.ModelCard(name="a\n---\nb"), r"name|'a\n---\nb'"),
        (lambda: export.ModelCard(name="a", licence="b\nc"), r"licence|'b\nc'"),
        (lambda: export.ModelCard(name=" "), "name|empty"),
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


def folder_with(config=None, **options):
    """Saves a folder, of which nothing may appear."""

    def call(folder):
        place = folder.parent / "new"
        try:
            export.save(place, PARAMS, config={} if config is None else config, **options)
        finally:
            assert not place.exists()

    return call


WITH_BIAS = {"dense": PARAMS["dense"] | {"bias": ones(3)}}
FILES = {
    "load": [
        (load("none"), "none", MISSING),
        (load(NAME), "load_params", MISSING),
        (lambda folder: export.load_params(folder / "none"), "none", MISSING),
        (lambda folder: export.load_predictor(folder), "inference", MISSING),
        (without("config.json"), "config.json", MISSING),
        (load(like=WITH_BIAS), "dense.bias|float32[3]|nothing", MISMATCH),
        (flipped(NAME), NAME, BAD_FILE),
        (flipped("config.json"), "config.json", BAD_FILE),
    ],
    "config": [
        (folder_with([1]), "config|dict|list", TypeError),
        (folder_with({"a": object()}), "config|JSON|object", TypeError),
        (folder_with({"a": float("nan")}), "config|JSON"),
        (folder_with(inference=b"no program"), "inference", BAD_FILE),
    ],
    "files": [
        *(
            (folder_with(files={name: b""}), f"files|letters|{name!r}")
            for name in ("../up", ".hidden", "")
        ),
        (folder_with(files={"Config.json": b""}), "files|'Config.json'|taken"),
        (folder_with(files={"a.txt": b"", "A.txt": b""}), "files|'A.txt'|taken"),
        (folder_with(files={"a.txt": "text"}), "files['a.txt']|bytes|str", TypeError),
    ],
    "SHA256SUMS": [
        (digests(lambda text: "\n\n"), "SHA256SUMS|empty", BAD_FILE),
        (digests(lambda text: text[:100]), "SHA256SUMS|line 2", BAD_FILE),
        (digests(lambda text: text.split("\n")[0] + "\n"), f"SHA256SUMS|{NAME}", BAD_FILE),
        (digests(lambda text: text.split("\n")[1]), "SHA256SUMS|config.json", BAD_FILE),
        (digests(lambda text: text[:-3]), f"SHA256SUMS|{NAME}", BAD_FILE),
        (digests(lambda text: text + "and more\n"), "SHA256SUMS|line 3", BAD_FILE),
        (digests(lambda text: text + "x" * (1 << 20)), "SHA256SUMS|1,048,576", BAD_FILE),
    ],
}


@each_row(TABLE)
def test_bad_input_is_refused_by_name(call, parts, error):
    refused(call, parts, error)


@each_row(FILES)
def test_bad_files_are_refused_by_name(call, parts, error, tmp_path):
    folder = export.save(tmp_path / "model", PARAMS, config={"a": "text"})
    refused(lambda: call(folder), parts, error)


def test_a_torch_pickle_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"weight_ih_l0": torch.ones(2)}, tmp_path / NAME)
    refused(lambda: export.lstm_from_torch(tmp_path / NAME), f"{NAME}|pickle", BAD_FILE)
