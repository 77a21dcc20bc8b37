"""Every function under `shard_map` with checked types and on a mesh with explicit axes."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from gatedjax import functional as F
from tests._modes import assert_same, mesh_of, run
from tests.functional._calls import NOT_CALLED, calls

CALLS = calls()


def is_float(x) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


def with_gradients(call, shared, rows, total):
    """(what all devices share, what is by row): results and the gradients of their sum."""
    if not call.differentiated:
        return (), call.function(shared, rows)
    leaves, tree = jax.tree.flatten((shared, rows))
    chosen = [i for i, leaf in enumerate(leaves) if is_float(leaf)]

    def loss(values):
        given = dict(zip(chosen, values, strict=True))
        found = call.function(
            *jax.tree.unflatten(tree, [given.get(i, x) for i, x in enumerate(leaves)])
        )
        parts = [x for x in jax.tree.leaves(found) if is_float(x)]
        finite = [jnp.where(jnp.isfinite(x), x, 0) for x in parts]
        return sum((jnp.sum(jnp.sin(x)) for x in finite), jnp.zeros(())), found

    (value, found), gradient = jax.value_and_grad(loss, has_aux=True)([leaves[i] for i in chosen])
    changes = dict(zip(chosen, gradient, strict=True))
    of_shared, of_rows = jax.tree.unflatten(tree, [changes.get(i) for i in range(len(leaves))])
    if not call.rows:
        return (value, found), ()
    return (total(value), of_shared), (found, of_rows)


def everything(shared, rows, total):
    """One program of many calls: most of the time of a small one is its compilation."""
    both = {n: with_gradients(CALLS[n], shared[n], rows[n], total) for n in shared}
    return {n: pair[0] for n, pair in both.items()}, {n: pair[1] for n, pair in both.items()}


def found_in(mode, names, **options):
    shared = {name: CALLS[name].shared for name in names}
    return run(mode, everything, shared, {name: CALLS[name].rows for name in names}, **options)


# loops and derivatives of our own, and random bits: what adds up over devices by rules of ours
WITH_RULES = (
    *("lstm", "gru", "gru reset after", "rau feature_proj", "rau concat", "rau time_causal"),
    *("bidirectional", "skip_lstm", "masked_scan", "gated_stack", "linear_cross_entropy"),
    *("clip_gradient", "gated_softmax", "selective_attention", "selective_attention of pairs"),
    *("selective_weights", "relative_bias", "scaled_dot_product", "gumbel_sigmoid"),
    *("gumbel_softmax", "uniform_sigmoid", "selection_entropy", "selection_log_prob"),
    *("example_dropout", "pair_uniform", "feature_bytes"),
)


def test_every_public_function_is_called():
    public = {name for name in vars(F) if not name.startswith("_")}
    public = {name for name in public if not inspect.ismodule(getattr(F, name))}
    called = {name.split(" ")[0] for name in CALLS}
    assert called | set(NOT_CALLED) == public
    assert not called & set(NOT_CALLED)


@pytest.mark.slow
def test_values_and_gradients_are_those_of_one_device():
    assert_same(found_in("shard_map", WITH_RULES), found_in("one", WITH_RULES))
    # what the modes ask for is asked while tracing; on an explicit mesh tests below run
    found_in("shard_map", CALLS.keys() - set(WITH_RULES), only_trace=True)
    found_in("explicit", CALLS, only_trace=True)


def weights_and_inputs():
    call = CALLS["lstm"]
    return call.shared, call.rows["xs"], call.rows["mask"]


def scanned(weights, xs, mask=None):
    """`lstm` as a scan of its step."""
    zeros = jnp.zeros((len(xs), len(weights.recurrent)))
    return F.masked_scan(
        functools.partial(F.lstm_step, weights), F.LSTMState(zeros, zeros), xs, mask
    )


def cost(weights, xs, mask=None, unroll=F.lstm):
    return jnp.sum(jnp.sin(unroll(weights, xs, mask)[1]))


def test_a_call_outside_jit_on_a_mesh_with_explicit_axes_is_that_of_one_device():
    weights, xs, mask = weights_and_inputs()
    want = jax.jit(F.lstm)(weights, xs, mask)
    mesh = mesh_of(2, AxisType.Explicit)
    with jax.set_mesh(mesh):
        xs, mask = jax.device_put((xs, mask), NamedSharding(mesh, PartitionSpec("d")))
        got = F.lstm(weights, xs, mask)
        assert jax.typeof(got[1]).sharding.spec[0] == "d"
    assert_same(jax.device_get(got), jax.device_get(want))


@pytest.mark.slow
def test_weights_sharded_over_an_explicit_axis_get_gradients_that_are():
    weights, xs, _ = weights_and_inputs()
    want = jax.jit(jax.grad(cost))(weights, xs)
    mesh = mesh_of(2, AxisType.Explicit)
    with jax.set_mesh(mesh):
        split = NamedSharding(mesh, PartitionSpec(None, "d"))
        kernel = jax.device_put(weights.recurrent, split)
        got = jax.jit(jax.grad(cost))(weights._replace(recurrent=kernel), xs)
    assert got.recurrent.sharding.spec == split.spec
    assert_same(jax.device_get(got), jax.device_get(want))


@pytest.mark.slow
@pytest.mark.parametrize("unroll", [F.lstm, scanned])
def test_weights_that_differ_between_devices_read_the_same_rows_under_shard_map(unroll):
    """As for several seeds in one program."""
    weights, xs, _ = weights_and_inputs()
    slopes = jax.grad(functools.partial(cost, unroll=unroll))
    stack = jax.tree.map(lambda w: np.stack([w, 2 * w]), weights)
    want = jax.jit(jax.vmap(slopes, (0, None)))(stack, xs)
    mesh = mesh_of(2, AxisType.Auto)

    def one(stack, xs):
        own = slopes(jax.tree.map(lambda w: w[0], stack), xs)
        return jax.tree.map(lambda w: w[None], own)

    by_seed = PartitionSpec("d")
    mapped = jax.shard_map(one, mesh=mesh, in_specs=(by_seed, PartitionSpec()), out_specs=by_seed)
    assert_same(jax.device_get(jax.jit(mapped)(stack, xs)), jax.device_get(want))


def test_a_carry_keeps_how_its_features_are_sharded():
    xs = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    mask = np.array([[True, True, False], [True, False, False]])

    @jax.jit
    def run(initial, xs):
        step = lambda h, x: (jnp.tanh(h + x), h)  # noqa: E731
        return F.masked_scan(step, initial, xs, mask)

    want = run(np.ones((2, 4), np.float32), xs)
    mesh = mesh_of(2, AxisType.Explicit)
    with jax.set_mesh(mesh):
        place = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))  # noqa: E731
        got = run(place(np.ones((2, 4), np.float32), None, "d"), place(xs, None, None, "d"))
        assert jax.typeof(got[0]).sharding.spec == PartitionSpec(None, "d")
    assert_same(jax.device_get(got), jax.device_get(want))


@pytest.mark.parametrize("sharded", ["xs", "mask", "resets", "initial"])
def test_rows_are_sharded_as_any_of_the_arguments_is(sharded):
    rng = np.random.default_rng(0)
    given = {
        "xs": rng.normal(size=(2, 3, 4)).astype(np.float32),
        "mask": np.array([[True, True, False], [True, False, False]]),
        "resets": np.array([[True, True, False], [False, False, False]]),
        "initial": (np.ones((2, 4), np.float32), np.zeros(2, np.int32)),
    }

    @jax.jit
    def run(xs, mask, resets, initial):
        step = lambda c, x: ((jnp.tanh(c[0] + x), c[1] + 1), c)  # noqa: E731
        return F.masked_scan(step, initial, xs, mask, resets=resets)

    want = run(**given)
    mesh = mesh_of(2, AxisType.Explicit)
    with jax.set_mesh(mesh):
        split = NamedSharding(mesh, PartitionSpec("d"))
        got = run(**given | {sharded: jax.device_put(given[sharded], split)})
        assert jax.typeof(got[0][0]).sharding.spec[0] == "d"
    assert_same(jax.device_get(got), jax.device_get(want))
