"""Parameters in a safetensors file: what comes back, and what is refused before it is read."""

import json
import pickle
import time
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


def test_params_come_back_with_their_dtypes(tmp_path, np_rng):
    params = _params(np_rng)
    got = load_params(save_params(tmp_path / "p.safetensors", params))
    _assert_same(got, params)
    assert got["dense"]["bias"].dtype == ml_dtypes.bfloat16
    assert [path.name for path in tmp_path.iterdir()] == ["p.safetensors"]


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
def test_a_tree_of_python_s_own_containers_comes_back(name, tmp_path):
    tree = trees()[name]
    path = save_params(tmp_path / "p.safetensors", tree)
    for like in (None, tree):
        got = load_params(path, like)
        _assert_same(jax.tree.map(np.asarray, got), jax.tree.map(np.asarray, tree))
        numbers = [(x, type(x)) for x in jax.tree.leaves(tree) if isinstance(x, float | int)]
        found = [(x, type(x)) for x in jax.tree.leaves(got) if isinstance(x, float | int)]
        assert found == numbers


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
    with pytest.raises(ValueError, match=r"got '.*GRUWeights' at 'cell': pass like="):
        load_params(path)
    want = tree | {"frozen": {"a": half}}  # every mapping comes back as a dict
    _assert_same(load_params(path, tree), want)
    _assert_same(load_params(path, jax.eval_shape(lambda: tree)), want)
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
        ({"a": [Pair(np.ones(2), None), {0: np.ones(1)}]}, TypeError, r"got 0 below 'a\.1'"),
        ({"a": {0: np.ones(2)}}, TypeError, "str keys, got 0 below 'a'"),
        ({"a.b": np.ones(2)}, ValueError, "keys without dots, got 'a.b'"),
        ({"a": {}}, ValueError, "at least one array, got an empty dict"),
        ([(), None], ValueError, "at least one array, got an empty list"),
        ({"": np.ones(2)}, ValueError, "empty part"),
        ({"../up": np.ones(2)}, ValueError, "dots"),
        ({"a/b": np.ones(2)}, ValueError, "looks like a path"),
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
        (b"", "must have at least 10 bytes, got 0"),
        (
            _file(GOOD, length=2**63),
            "header must have at most 100000000 bytes, got 9223372036854775808",
        ),
        (_file(GOOD, length=4096), "header must fit into its .* bytes, got a length of 4096"),
        (_file(b"[1, 2]"), "must start with"),
        (_file(b'{"a": '), "must be JSON"),
        (_file(b'{"a":' * 100_000), "must be JSON"),
        (_file(b'{"a": 1, "a": 2}'), "'a' must occur once"),
        (_file({"a": [1]}), "must have the fields"),
        (_file({"a": _entry() | {"more": 1}}), "must have the fields"),
        (_file(GOOD, data=b"\0" * 4), "must have 8 bytes for its arrays, got 4"),
        (_file(GOOD, data=b"\0" * 9), "must have 8 bytes for its arrays, got 9"),
        (_file({"a": _entry(end=2**40)}), "8 bytes for F32.*, got the data_offsets"),
        (
            _file({"a": _entry(end=2**50, shape=(2**48,))}),
            "must have 1125899906842624 bytes for its arrays, got 8",
        ),
        (_file({"a": _entry(shape=(2**62, 2**62))}), "got the data_offsets"),
        (_file({"a": _entry(), "b": _entry(4, 12)}), "overlaps"),
        (_file({"a": _entry(), "b": _entry(12, 20)}), "leaves a gap"),
        (_file({"a": _entry(shape=(-2,))}), "shape of sizes"),
        (_file({"a": _entry(shape=(True,))}), "shape of sizes"),
        (_file({"a": _entry(begin=8, end=0)}), "got the data_offsets"),
        (_file({"a": _entry(dtype="PICKLE")}), "must have a dtype of .*, got 'PICKLE'"),
        (_file({"a": _entry(dtype=["F32"])}), "must have a dtype of"),
        (_file({"../../etc/passwd": _entry()}), "empty part"),
        (_file({"/etc/passwd": _entry()}), "looks like a path"),
        (
            _file({"a": _entry(0, 4, (1,)), "a.b": _entry(4, 8, (1,))}),
            "an array or a dict of arrays, got both",
        ),
        (_file(GOOD | {"__metadata__": 3}), "__metadata__"),
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


def _many(entry, last):
    names = ",".join(f'"n{i}":{entry}' for i in range(40_000))
    return f"{{{names},{last}}}".encode()


@pytest.mark.parametrize(
    ("header", "match"),
    [
        (_many("1", '"a":1,"a":1'), "the name 'a' must occur once"),
        (b'{"__metadata__":' + _many("1", '"a":1,"a":1') + b"}", "'a' must occur once"),
        (b'{"a":{"dtype":"F32","shape":[' + b"9223372036854775807," * 20_000
         + b'1],"data_offsets":[0,0]}}', "must have at most 64 axes, got 20001"),
        (b'{"' + b"a." * 200_000 + b'a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}',
         "nested more than 100 deep"),
    ],
)  # fmt: skip
def test_a_long_header_is_judged_in_linear_time_and_few_words(tmp_path, header, match):
    # 400 KB: 15 to 90 s where every name was looked for among all others
    path = tmp_path / "long.safetensors"
    path.write_bytes(_file(header))
    began = time.process_time()
    with pytest.raises(BadFile, match=match) as caught:
        load_params(path)
    assert time.process_time() - began < 3
    assert len(str(caught.value)) < 1000


def test_good_file_made_by_hand_is_read(tmp_path):
    path = tmp_path / "p.safetensors"
    path.write_bytes(_file(GOOD | {"__metadata__": {"format": "pt"}}))
    np.testing.assert_array_equal(load_params(path)["a"], np.zeros(2, np.float32))


def test_every_truncation_is_refused(tmp_path, np_rng):
    whole = save_params(tmp_path / "p.safetensors", _params(np_rng)).read_bytes()
    cut = tmp_path / "cut.safetensors"
    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        with pytest.raises(BadFile):
            load_params(cut)
