"""GA-Net's inference as a file gives the logits of the model, at any batch size."""

import functools
import re

import jax
import numpy as np
import pytest

from gatedjax import export
from gatedjax import functional as F
from gatedjax.export._card import facts_of
from gatedjax.functional import _directions
from gatedjax.models import GANet, GANetConfig
from tests._grouped import grouped
from tests.tolerances import F32

CONFIG = grouped(
    GANetConfig,
    embedding_dim=5,
    hidden=4,
    num_layers=1,
    aux_hidden=3,
    test_gate="threshold",
    dtype="float32",
)
ONE = np.ones(1, np.float32)
MODEL = GANet(CONFIG, vocab_size=11, num_classes=3)


def _batch(rows, width=7, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "tokens": rng.integers(1, 11, (rows, width)).astype(np.int32),
        "lengths": rng.integers(0, width + 1, rows).astype(np.int32),
    }


@jax.jit
def _apply(params, batch):
    return MODEL.apply({"params": params}, batch)


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(MODEL.init, {"params": jax.random.key(0)}, _batch(2))["params"]
    return jax.tree.map(lambda s: (0.4 * rng.normal(size=s.shape)).astype(s.dtype), shapes)


@pytest.fixture(scope="module")
def data(params):
    return export.export_inference(_apply, params, _batch(2))


@pytest.fixture(scope="module")
def inference(data):
    return export.load_inference(bytearray(data))


@pytest.mark.slow
def test_outputs_are_those_of_the_model_at_any_batch_size(params, data, inference):
    assert len(data) < 100_000
    assert inference.platforms == ("cpu", "cuda", "tpu")
    assert str(inference.batch_like["tokens"].shape) == "(b, 7)"
    other = jax.tree.map(lambda x: x + np.float32(0.1), params)
    for rows, used in ((1, params), (5, other)):
        batch = _batch(rows, seed=rows)
        got, wanted = inference(used, batch), _apply(used, batch)
        assert set(got) == {"logits", "attention", "gates", "gate_logits", "scores", "closed"}
        for name, value in got.items():
            np.testing.assert_allclose(value, getattr(wanted, name), **F32)
    # integers of NumPy's width are taken
    wide = {name: value.astype(np.int64) for name, value in batch.items()}
    np.testing.assert_array_equal(inference(other, wide)["logits"], got["logits"])


@pytest.mark.slow
def test_the_padded_length_may_be_open_too(params):
    data = export.export_inference(
        lambda p, b: _apply(p, b).logits, params, _batch(2), shapes={"tokens": "b, t"}
    )
    inference = export.load_inference(data)
    for rows, width in ((1, 7), (5, 9)):
        batch = _batch(rows, width, seed=rows)
        np.testing.assert_allclose(inference(params, batch), _apply(params, batch).logits, **F32)


def test_a_shape_may_take_sizes_from_the_example():
    params, batch = {"w": np.ones((4, 2), np.float32)}, {"x": np.ones((2, 3, 4), np.float32)}
    data = export.export_inference(
        lambda p, b: b["x"] @ p["w"], params, batch, shapes={"x": "b, t, _"}, platforms=["cpu"]
    )
    inference = export.load_inference(data)
    assert str(inference.batch_like["x"].shape) == "(b, t, 4)"
    assert inference(params, {"x": np.ones((5, 7, 4), np.float32)}).shape == (5, 7, 2)


def test_a_folder_predicts_without_the_models_code(tmp_path, params, data):
    config = facts_of("text") | {"model": CONFIG}
    folder = export.save(tmp_path / "model", params, config=config, inference=data)
    program = folder / "model.jax_export"
    assert program.read_bytes() == data
    # the line before has a class that loads the folder
    loads = "from gatedjax import export\npredict = export.load_predictor('model')"
    assert loads in (folder / "README.md").read_text()
    batch = _batch(5)
    predict = export.load_predictor(folder)
    np.testing.assert_allclose(predict(batch)["logits"], _apply(params, batch).logits, **F32)
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    program.write_bytes(damaged)
    with pytest.raises(export.BadFile, match="SHA-256"):
        export.load_predictor(folder)
    program.write_bytes(b"no program")
    (folder / "SHA256SUMS").unlink()
    export.load(folder, params)  # does not read the program
    with pytest.raises(export.BadFile, match="must be an exported inference function"):
        export.load_predictor(folder)


def test_a_missing_package_is_no_fault_of_the_file(data, monkeypatch):
    def lacks(_):
        raise ImportError("flatbuffers")

    monkeypatch.setattr(jax.export, "deserialize", lacks)
    with pytest.raises(ImportError, match="flatbuffers"):
        export.load_inference(data)


def test_containers_become_dicts_and_tuples():
    def apply(params, batch):
        del params
        return {"list": [batch["x"], batch["x"] + 1], "none": None, "scalar": batch["s"]}

    data = export.export_inference(
        apply, {"w": ONE}, {"x": np.ones(2, np.float32), "s": np.float32(1)}, platforms=("cpu",)
    )
    got = export.load_inference(data)({"w": ONE}, {"x": np.ones(4, np.float32), "s": np.float32(3)})
    assert set(got) == {"list", "scalar"}
    assert isinstance(got["list"], tuple)
    assert got["list"][1].shape == (4,)


def test_parameters_in_lists_and_a_decomposition_are_exported():
    def apply(params, batch):
        return jax.numpy.linalg.cholesky(params[0] + batch["x"])

    params, batch = [np.eye(2, dtype=np.float32)], {"x": np.eye(2, dtype=np.float32)}
    data = export.export_inference(apply, params, batch, batch=None, platforms=("cpu",))
    got = export.load_inference(data)(params, batch)
    np.testing.assert_allclose(got, np.sqrt(2) * np.eye(2), **F32)


# B = 2 rows and H = 3 units: an accelerator runs four steps in an iteration of the loop
WEIGHTS = {
    F.lstm: F.LSTMWeights(np.ones((5, 12), "f"), np.ones((3, 12), "f"), np.ones(12, "f")),
    F.gru: F.GRUWeights(np.ones((5, 9), "f"), np.ones((3, 9), "f"), np.ones(9, "f")),
    F.rau: F.RAUWeights(np.ones((5, 15), "f"), np.ones((3, 15), "f"), np.ones(15, "f")),
}


def _products(program):
    """The number of loops, and the shapes of all products, of a program."""
    text = str(program.mlir_module())
    return text.count("stablehlo.while"), set(re.findall(r"dot_general.* : (.*) loc", text))


def _forced(monkeypatch, platform, apply, *arguments):
    """What JAX exports for the layout of a platform that is named in each call."""
    with monkeypatch.context() as patch:
        patch.setattr(_directions, "target_platform", lambda: platform)
        # a new function, because the trace of another layout is kept with the old one
        return jax.export.export(jax.jit(lambda *a: apply(*a)), platforms=[platform])(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unroll", "both_directions"),
    [(F.lstm, True), (F.gru, False), (F.rau, True)],
    ids=["lstm", "gru", "rau"],
)
def test_each_platform_has_its_own_layout(unroll, both_directions, monkeypatch):
    fields = {k: v for k, v in WEIGHTS[unroll]._asdict().items() if v is not None}
    arguments = fields, {"x": np.ones((2, 4, 5), np.float32)}

    def plain(params, batch):
        weights = type(WEIGHTS[unroll])(**params)
        if both_directions:
            return F.bidirectional(unroll, weights, weights, batch["x"])[1]
        return unroll(weights, batch["x"])[1]

    apply = jax.jit(plain)
    wanted = {name: _forced(monkeypatch, name, plain, *arguments) for name in ("cpu", "cuda")}
    assert _products(wanted["cpu"]) != _products(wanted["cuda"])
    here = apply(*arguments)  # its trace, in the layout of this CPU, is not taken for the others
    write = functools.partial(export.export_inference, apply, *arguments, batch=None)
    for platform in ("cpu", "cuda", "tpu"):
        got = jax.export.deserialize(bytearray(write(platforms=[platform])))
        like = wanted["cpu" if platform == "cpu" else "cuda"]
        assert _products(got) == _products(like)
    data = write()  # for all of them
    (loops, shapes), (more_loops, more_shapes) = map(_products, wanted.values())
    both = loops + more_loops, shapes | more_shapes
    assert _products(jax.export.deserialize(bytearray(data))) == both
    np.testing.assert_array_equal(export.load_inference(data)(*arguments), here)
