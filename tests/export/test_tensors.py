"""Parameters in a safetensors file: what comes back, and what is refused before it is read."""

import json
import pickle
from typing import Any, NamedTuple

import chex
import flax
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from flax import struct

from gatedjax import functional as F
from gatedjax.export import BadFile, ParamsMismatch, load_params, save_params


def _params(np_rng):
    kernel = np_rng.normal(size=(3, 4)).astype(np.float32)
    return {
        "dense": {"kernel": kernel, "bias": jnp.arange(4, dtype=jnp.bfloat16)},
        "scale": np.array(2.5, np.float16),
        "nested": {"a": {"b": np.zeros((0, 3), np.int8), "on": np.array([True, False])}},
    }


def _assert_same(got, wanted):
    chex.assert_trees_all_equal_shapes_and_dtypes(got, wanted)
    chex.assert_trees_all_equal(got, wanted)


class Pair(NamedTuple):
    first: Any
    second: Any


@struct.dataclass
class Node:
    weight: Any
    inner: Any
    name: str = struct.field(pytree_node=False, default="node")


def trees():
    half, numbers = jnp.arange(3, dtype=jnp.bfloat16), np.arange(4, dtype=np.int8)
    many = [np.full(1, i, np.uint8) for i in range(12)]
    return {
        "list": [half, numbers],
        "tuple": (half, [numbers, (np.float32(2.5),)]),
        "dict of lists": {"a": many, "b": {"c": (numbers,)}},
        "numbers": {"a": 1.5, "b": [7, True, -0.0, float("inf")], "c": np.float16(0.5)},
        "nothing": {"a": None, "b": [None, half], "c": {}, "d": [], "e": ((), numbers)},
    }


@pytest.mark.parametrize("name", trees())
def test_a_tree_comes_back_into_one_like_it(name, tmp_path):
    tree = trees()[name]
    path = save_params(tmp_path / "p.safetensors", tree)
    got = load_params(path, tree)
    _assert_same(got, jax.tree.map(np.asarray, tree))
    shapes = jax.eval_shape(lambda: tree) if name != "numbers" else tree
    _assert_same(load_params(path, shapes), got)


def test_without_like_a_tree_comes_back_as_dicts(tmp_path):
    half = jnp.arange(3, dtype=jnp.bfloat16)
    path = save_params(tmp_path / "p.safetensors", {"a": [half, (1.5, None)], "b": {}})
    got = load_params(path)
    _assert_same(got, {"a": {"0": half, "1": {"0": np.asarray(1.5)}}})


def test_a_tree_with_classes_comes_back_into_one_like_it(tmp_path):
    half = jnp.arange(3, dtype=jnp.bfloat16)
    gru = F.GRUWeights(*(np.ones((2, 6), np.float32) * i for i in range(3)))
    optimizer = optax.adam(1e-2).init({"w": half})
    tree = {
        "pair": Pair([half], {"x": np.float16(2)}),
        "node": Node(half, Pair(None, half), name="kept"),
        "cell": gru,
        "optimizer": optimizer,
        "frozen": flax.core.freeze({"a": half}),
    }
    path = save_params(tmp_path / "p.safetensors", tree)
    _assert_same(load_params(path, tree), tree)
    _assert_same(load_params(path, jax.eval_shape(lambda: tree)), tree)
    assert load_params(path, tree)["node"].name == "kept"
    with pytest.raises(ParamsMismatch, match=r"pair\.second\.x: wanted float32\[\], got float16"):
        load_params(path, tree | {"pair": Pair([half], {"x": np.float32(2)})})
    with pytest.raises(
        ParamsMismatch, match=r"cell\.recurrent_bias: wanted float32\[2\], got noth"
    ):
        load_params(path, tree | {"cell": gru._replace(recurrent_bias=np.ones(2, np.float32))})


def test_bfloat16_keeps_every_bit(tmp_path):
    bits = np.arange(2**16, dtype=np.uint16)
    value = bits.view(ml_dtypes.bfloat16)
    got = load_params(save_params(tmp_path / "p.safetensors", {"w": value}))["w"]
    np.testing.assert_array_equal(got.view(np.uint16), bits)


def test_every_dtype_of_a_file_is_that_of_like(tmp_path):
    names = [f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)]
    names += ["bool", "float16", "bfloat16", "float32", "float64", "complex64"]
    tree = {name: np.ones(2, name) for name in names}
    _assert_same(load_params(save_params(tmp_path / "p.safetensors", tree), tree), tree)


def test_transposed_and_strided_arrays_keep_their_values(tmp_path):
    # safetensors writes memory as it lies and ignores strides
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    params = {"t": base.T, "every_second": base[:, ::2], "big_endian": base.astype(">f4")}
    got = load_params(save_params(tmp_path / "p.safetensors", params))
    for name, value in params.items():
        np.testing.assert_array_equal(got[name], value)


def test_same_params_give_the_same_bytes(tmp_path, np_rng):
    params = _params(np_rng)
    turned = dict(reversed(params.items()))
    first = save_params(tmp_path / "a.safetensors", params).read_bytes()
    assert save_params(tmp_path / "b.safetensors", turned).read_bytes() == first


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = save_params(tmp_path / "p.safetensors", {"w": np.ones(3)})
    old = path.read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save", full)
    with pytest.raises(OSError, match="No space left"):
        save_params(path, {"w": np.zeros(3)})
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        (np.ones(2), TypeError, "params must be a dict, list, tuple or dataclass .* got ndarray"),
        ({"a": ["x"]}, TypeError, r"got str at 'a\.0'"),
        ((np.ones(2), 1j), TypeError, "got complex at '1'"),
        ({"a": 2**70}, TypeError, "'a'.*must have a dtype that files can hold.*got object"),
        (
            {"a": ml_dtypes.float8_e4m3(1)},
            TypeError,
            "'a'.*must have a dtype that files.*float8_e4m3",
        ),
        ({"a.b": [np.ones(2)]}, ValueError, "keys without dots, got 'a.b'"),
        ({"a": [{"b.c": np.ones(2), "b": {"c": np.ones(1)}}]}, ValueError, "each name once"),
        ({"a": {0: np.ones(2)}}, TypeError, "str keys, got 0 below 'a'"),
        ({"a": {}}, ValueError, "at least one array, got an empty dict"),
        ([(), None], ValueError, "at least one array, got an empty list"),
        ({"": np.ones(2)}, ValueError, "empty part"),
        ({"a/b": np.ones(2)}, ValueError, "looks like a path"),
        ({"a\\b": np.ones(2)}, ValueError, "looks like a path"),
        ({"~a": np.ones(2)}, ValueError, "looks like a path"),
        ({"a\n": np.ones(2)}, ValueError, "cannot be printed"),
        ({"a": np.array(["x"])}, TypeError, "must have a dtype that files can hold"),
        ({"a": (jax.random.key(0),)}, TypeError, r"plain arrays, got key<fry> at 'a\.0'"),
    ],
)
def test_what_would_not_come_back_is_refused(tmp_path, params, error, match):
    with pytest.raises(error, match=match):
        save_params(tmp_path / "p.safetensors", params)
    assert not list(tmp_path.iterdir())


def test_like_is_compared_leaf_by_leaf(tmp_path):
    path = save_params(tmp_path / "p.safetensors", {"a": np.ones((2, 3)), "b": np.ones(1)})
    like = {"a": jax.ShapeDtypeStruct((3, 2), jnp.float32), "c": jnp.ones(4)}
    with pytest.raises(ParamsMismatch) as caught:
        load_params(path, like)
    lines = str(caught.value).splitlines()[1:]
    assert lines == [
        "  a: wanted float32[3, 2], got float64[2, 3]",
        "  b: wanted nothing, got float64[1]",
        "  c: wanted float32[4], got nothing",
    ]


def _entry(begin=0, end=8, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def _file(header, data=b"\0" * 8, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


GOOD = {"a": _entry()}


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "header too small"),
        (_file(GOOD, length=2**63), "header too large"),
        (_file(b'{"a": '), "invalid JSON in header"),
        (_file(b'{"a":' * 100_000), "recursion limit"),
        (_file(GOOD, data=b"\0" * 4), "not fully covered"),
        (_file({"a": _entry(end=2**40)}), "invalid shape, data type, or offset"),
        (_file({"a": _entry(shape=(2**62, 2**62))}), "overflow"),
        (_file({"a": _entry(end=0, shape=(0, 2**62))}, data=b""), "array is too big"),
        (_file({"a": _entry(shape=(1,) * 70 + (2,))}), "maximum supported dimension"),
        (_file({"a": _entry(), "b": _entry(4, 12)}), "invalid offset"),
        (_file({"a": _entry(dtype="PICKLE")}), "unknown variant `PICKLE`"),
        (_file({"a": _entry(shape=(8,), dtype="F8_E4M3")}), "must have a dtype of .* got 'F8_E4M3"),
        (_file({"../../etc/passwd": _entry()}), "empty part"),
        (_file({"/etc/passwd": _entry()}), "looks like a path"),
        (
            _file({"a": _entry(0, 4, (1,)), "a.b": _entry(4, 8, (1,))}),
            "an array or a dict of arrays, got both",
        ),
        (pickle.dumps({"a": [1.0] * 20}), "looks like a pickle"),
        (b"PK\x03\x04" + b"\0" * 40, "looks like a pickle"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, match):
    path = tmp_path / "p.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=match) as caught:
        load_params(path)
    assert str(path) in str(caught.value)


def test_a_long_name_is_refused_in_few_words(tmp_path):
    path = tmp_path / "long.safetensors"
    path.write_bytes(_file({"a." * 200_000 + "a": _entry(0, 0, (0,))}, data=b""))
    with pytest.raises(BadFile, match="nested more than 100 deep") as caught:
        load_params(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.slow
def test_every_truncation_is_refused(tmp_path, np_rng):
    whole = save_params(tmp_path / "p.safetensors", _params(np_rng)).read_bytes()
    cut = tmp_path / "cut.safetensors"
    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        with pytest.raises(BadFile):
            load_params(cut)
