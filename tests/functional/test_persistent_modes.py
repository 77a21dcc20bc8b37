"""The kernels under the transformations of JAX, in emulation; the scan is the truth."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax.functional import _directions
from tests._modes import BY_ROW, REPLICATED, assert_same, mesh_of
from tests._modes import run as run_mode
from tests.functional import emulator
from tests.functional._persistent_cases import Case, cast, draw, run

CASE = Case("gru", 4, directions=2, rows=4, steps=3, has_resets=True, has_dropout=True)
LOOSE = {"rtol": 1e-5, "atol": 2e-6}


@pytest.fixture(autouse=True, scope="module")
def kernels():
    with emulator.emulated() as launches:
        yield launches


@pytest.fixture
def arrays():
    floats, masks = draw(CASE)
    floats = cast(floats, np.float32)
    floats["xs"] = np.nan_to_num(floats["xs"])
    return floats, masks


def loss(floats, masks, implementation="persistent"):
    """A nonlinear function of all results, so that second derivatives are not 0."""
    results = run(CASE, floats, masks, implementation=implementation)
    return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(results))


def both(function, *arguments):
    """Returns the results of `function` with the kernels, and with the scan."""
    return [
        jax.device_get(
            jax.jit(functools.partial(function, implementation=implementation))(*arguments)
        )
        for implementation in ("persistent", "scan")
    ]


@pytest.mark.slow
def test_vmap_over_rows_merges_them_into_one_launch(arrays, kernels):
    floats, masks = arrays
    shared = {"weights": floats["weights"]}

    def mapped(shared, rows, implementation):
        one = functools.partial(loss, masks=masks, implementation=implementation)
        return jax.vmap(lambda rows: jax.value_and_grad(one)(shared | rows))(rows)

    rest = {name: value for name, value in floats.items() if name != "weights"}
    rows = jax.tree.map(lambda leaf: np.stack([leaf, 0.5 * leaf, -leaf]), rest)
    kernels.clear()
    assert_same(*both(mapped, shared, rows), LOOSE)
    assert {launch.grid for launch in kernels if launch.kernel == "backward"} >= {(12, 2)}


@pytest.mark.slow
def test_vmap_over_weights_merges_them_into_directions(arrays, kernels):
    floats, masks = arrays

    def mapped(weights, implementation):
        def one(weights):
            return loss(floats | {"weights": weights}, masks, implementation)

        return jax.vmap(jax.value_and_grad(one))(weights)

    weights = jax.tree.map(lambda leaf: np.stack([leaf, 0.5 * leaf, -leaf]), floats["weights"])
    kernels.clear()
    assert_same(*both(mapped, weights), LOOSE)
    assert {launch.grid for launch in kernels if launch.kernel == "backward"} >= {(4, 6)}


@pytest.mark.slow
def test_second_derivatives_are_those_of_the_scan(arrays):
    floats, masks = arrays
    direction = jax.tree.map(np.cos, floats)

    def derivatives(floats, implementation):
        one = functools.partial(loss, masks=masks, implementation=implementation)
        gradient = jax.grad(one)

        def slope(floats):
            pairs = zip(*map(jax.tree.leaves, (gradient(floats), direction)), strict=True)
            return sum(jnp.vdot(a, b) for a, b in pairs)

        return jax.grad(slope)(floats), jax.jvp(gradient, (floats,), (direction,))

    (reverse, forward), (want, want_forward) = both(derivatives, floats)
    assert_same(reverse, want, {"rtol": 1e-4, "atol": 1e-5})
    assert_same(forward, want_forward, {"rtol": 1e-4, "atol": 1e-5})


@pytest.mark.slow
def test_remat_and_a_scan_over_layers(arrays):
    _, masks = arrays
    rng = np.random.default_rng(3)
    layers = F.LSTMWeights(
        *(rng.normal(size=(3, *shape)).astype("f") / 3 for shape in ((4, 16), (4, 16), (16,)))
    )
    xs = rng.normal(size=(4, 3, 4)).astype("f")

    def network(layers, xs, implementation):
        @jax.checkpoint
        def layer(xs, weights):
            return F.lstm(weights, xs, masks["mask"], implementation=implementation)[::-1]

        def total(layers, xs):
            outputs, finals = jax.lax.scan(layer, xs, layers)
            return jnp.sum(outputs**2) + jnp.sum(finals.cell)

        return jax.value_and_grad(total, argnums=(0, 1))(layers, xs)

    assert_same(*both(network, layers, xs), LOOSE)


def split(floats, masks):
    """Divides the arguments of `loss` into shared arrays and arrays with an axis of rows."""
    rows = {name: value for name, value in floats.items() if name != "weights"}
    return {"weights": floats["weights"]}, (rows, masks)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shard_map", "explicit"])
def test_several_devices_compute_what_one_does(arrays, mode):
    shared, rows = split(*arrays)

    def function(shared, rows, total, implementation="persistent"):
        floats, masks = rows

        def one(shared, floats):
            return loss(shared | floats, masks, implementation)

        value, gradients = jax.value_and_grad(one, argnums=(0, 1))(shared, floats)
        outputs = run(CASE, shared | floats, masks, implementation=implementation)
        return (total(value), gradients[0]), (gradients[1], outputs)

    want = run_mode("one", functools.partial(function, implementation="scan"), shared, rows)
    assert_same(run_mode(mode, function, shared, rows), want, LOOSE)


def test_pmap(arrays):
    floats, masks = arrays
    shared, rows = split(floats, masks)
    count = 2
    by_device = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), rows)
    mapped = jax.pmap(
        lambda shared, rows: run(CASE, shared | rows[0], rows[1], implementation="persistent"),
        in_axes=(None, 0),
        devices=jax.devices()[:count],
    )
    got = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), mapped(shared, by_device))
    assert_same(jax.device_get(got), run(CASE, floats, masks, implementation="scan"), LOOSE)


@pytest.mark.slow
def test_a_sharded_batch_is_not_gathered():
    case = CASE._replace(rows=8, has_resets=False)
    floats, masks = draw(case)
    floats = cast(floats, np.float32)
    floats["xs"] = np.nan_to_num(floats["xs"])
    mesh = mesh_of(8, AxisType.Auto)
    shared, rows = split(floats, masks)

    def function(shared, rows):
        def one(shared, rows):
            results = run(case, shared | rows[0], rows[1], implementation="persistent")
            return jnp.sum(jnp.sin(results[1])), results

        (_, results), gradients = jax.value_and_grad(one, argnums=0, has_aux=True)(shared, rows)
        return gradients, results

    placed = [
        jax.device_put(tree, NamedSharding(mesh, spec))
        for tree, spec in ((shared, REPLICATED), (rows, BY_ROW))
    ]
    compiled = jax.jit(function).lower(*placed).compile()
    text = compiled.as_text()
    # The gradients of the weights are summed over the devices; no array of rows moves.
    assert not re.search("all-gather|all-to-all|collective-permute", text)
    assert "all-reduce" in text
    assert text.count('custom_call_target="emulated') == 2  # forward and backward
    gradients, results = compiled(*placed)
    assert results[1].sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec("d")), 3)

    def want(shared, rows):
        results = run(case, shared | rows[0], rows[1], implementation="scan")
        return jnp.sum(jnp.sin(results[1])), results

    (_, expected), want_gradients = jax.value_and_grad(want, has_aux=True)(shared, rows)
    assert_same(jax.device_get((gradients, results)), (want_gradients, expected), LOOSE)


@pytest.mark.slow
def test_without_jit(arrays):
    floats, masks = arrays
    with jax.disable_jit():
        got = run(CASE, floats, masks, implementation="persistent")
    assert_same(jax.device_get(got), run(CASE, floats, masks, implementation="scan"), LOOSE)


@pytest.mark.slow
def test_a_bidirectional_layer_of_a_module_is_one_launch():
    xs, mask = jnp.ones((2, 9, 3)), jnp.arange(9)[None] < jnp.array([[9], [4]])
    layer = functools.partial(gnn.LSTM, 5, num_layers=2, bidirectional=True, recurrent_dropout=0.5)
    params = layer().init(jax.random.key(0), xs, mask)
    noisy = {"deterministic": False, "rngs": {"dropout": jax.random.key(1)}}
    program = jax.jit(lambda params: layer().apply(params, xs, mask, **noisy))  # "auto"
    compiled = program.lower(params).compile()
    assert compiled.as_text().count('custom_call_target="emulated') == 2
    want = layer(implementation="scan").apply(params, xs, mask, **noisy)
    assert_same(jax.device_get(compiled(params)), jax.device_get(want), LOOSE)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", "gru", "rau"])
def test_both_directions_in_one_scan_are_those_of_two_scans(cell, monkeypatch):
    # more steps than a GPU unrolls, of which a shorter loop would leave nothing to count
    case = CASE._replace(cell=cell, steps=9)
    floats, masks = draw(case)
    floats = cast(floats, np.float32)
    found = []
    for together in (True, False):
        platform = "gpu" if together else "cpu"
        monkeypatch.setattr(_directions, "target_platform", lambda platform=platform: platform)

        @jax.jit
        def scanned(floats):
            results, pull = jax.vjp(
                lambda floats: run(case, floats, masks, implementation="scan"), floats
            )
            return results, pull(jax.tree.map(jnp.cos, results))

        found.append((jax.device_get(scanned(floats)), scanned.lower(floats).as_text()))
    (got, text), (want, other) = found
    assert_same(got, want, {"rtol": 1e-6, "atol": 1e-6})
    # A loop for each pass, instead of two.
    assert [each.count("stablehlo.while") for each in (text, other)] == [2, 4]
