"""Batches, parameters and optimizer states split over devices give the numbers of one device."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import gatedjax.nn
from gatedjax.training import (
    OptimizerConfig,
    Ratio,
    evaluate,
    fsdp_rule,
    init_state,
    make_optimizer,
    make_parallel,
    make_train_step,
)
from tests.training._tiny import Data, Plane, Tiny, assert_close, lines, lines_to, run

AVERAGED = OptimizerConfig(learning_rate=0.01, ema_decay=0.9, clip_norm=1.0)
EVERY = {"log_every": 1, "eval_every": 6, "checkpoint_every": 4, "optimizer": AVERAGED}
HELD_OUT = [Data(rows=6)[1000]]


class Net(nn.Module):
    """Two layers, one of which is large."""

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(64, name="inner")(x))
        return nn.Dense(1, name="out")(nn.tanh(nn.Dense(32, name="large")(h)))


@dataclasses.dataclass(frozen=True)
class Regression:
    def init(self, key, batch):
        return Net().init(key, batch["x"])["params"]

    def loss(self, params, batch, rngs):
        y = Net().apply({"params": params}, batch["x"])[:, 0]
        each = (y - batch["label"]) ** 2 * batch["weight"]
        return {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        y = Net().apply({"params": params}, batch["x"])[:, 0]
        right = ((y > 0.5) == (batch["label"] > 0)).astype(np.float32)
        return {"accuracy": Ratio.of(right, batch["weight"])}, {"y": y}


def go(workdir=None, **given):
    return run(workdir, Regression(), None, HELD_OUT, **EVERY | given)


def mesh_of(data=4, model=2, kind=AxisType.Auto):
    devices = jax.devices()[: data * model]
    return jax.make_mesh((data, model), ("data", "model"), axis_types=(kind, kind), devices=devices)


def small_rule(count):
    """The rule of "fsdp" for parameters of any size, on the mesh of this number of devices."""
    return fsdp_rule(jax.make_mesh((count,), ("data",), devices=jax.devices()[:count]), min_size=0)


def share(tree):
    """The largest part of the bytes of a tree that any device has."""
    bytes_of = {}
    for leaf in jax.tree.leaves(tree):
        for shard in leaf.addressable_shards:
            bytes_of[shard.device] = bytes_of.get(shard.device, 0) + shard.data.nbytes
    return max(bytes_of.values()) / sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def logged(**given):
    """The result of a run, and its log: the kind of each line, and its numbers."""
    log = []
    return go(hook=lines_to(log), **given), numbers(log)


def numbers(log):
    return [(line.pop("split"), line) for line in lines(log)]


@pytest.fixture(scope="module")
def alone():
    return logged()


def assert_as_alone(found, alone):
    for name in ("state", "best_params"):
        pair = (getattr(result, name) for result, _ in (found, alone))
        assert_close(*pair, rtol=1e-5, atol=1e-6)
    for (split, got), (wanted_split, want) in zip(found[1], alone[1], strict=True):
        assert split == wanted_split
        assert got == pytest.approx(want, abs=1e-6, rel=1e-6)


# -- batches ---------------------------------------------------------------------------------------


# The rows are 8, and filler rows are needed for parts on 3 devices.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "devices", "accumulate"),
    [("fsdp", 4, 1), ("single", 1, 2), ("sharding", 3, 2), ("pmap", 3, 2)],
)
def test_every_kind_of_parallelism_gives_the_numbers_of_one_device(
    kind, devices, accumulate, alone
):
    assert_as_alone(logged(parallel=kind, devices=devices, accumulate=accumulate), alone)


def test_rows_that_do_not_divide_are_counted_once():
    batch = Data(rows=5)[0]
    params = Tiny().init(jax.random.key(0), batch)
    wanted = (batch["x"] @ params["w"] > 0) == (batch["label"] > 0)
    # weights of 0 are filler rows of the data
    filled = [batch, Data(rows=5)[1] | {"weight": np.zeros(5, np.float32)}]
    for kind in ("sharding", "pmap", "single"):
        parallel = make_parallel(kind, jax.devices()[:4])
        metrics, predictions = evaluate(Tiny(), params, filled, parallel)
        assert list(predictions["example_id"]) == [0, 1, 2, 3, 4]
        np.testing.assert_array_equal(predictions["correct"], wanted)
        assert metrics["accuracy"] == pytest.approx(wanted.mean())
        assert set(parallel.pad(batch)["example_id"][5:]) <= {-1}


@pytest.mark.slow
def test_batches_may_be_split_over_two_axes_and_in_parts(alone):
    parallel = make_parallel("fsdp", mesh=mesh_of(2, 2), batch_axis=("data", "model"), accumulate=2)
    assert parallel.put_batch({"weight": np.ones(3)})["weight"].shape == (8,)
    found = parallel.shardings({"w": np.zeros((3, 1024)), "b": np.zeros(8)})
    assert found["w"].spec == P(None, ("data", "model"))
    assert found["b"].spec == P()
    assert_as_alone(logged(parallel="fsdp", accumulate=2, on=parallel), alone)


def test_programs_that_were_used_last_are_kept():
    parallel = make_parallel("single")
    own = type("Own", (Plane,), {})  # no dataclass: it may have other attributes
    assert parallel.evaluation(own()) is not parallel.evaluation(own())
    tasks = [Plane(frozen=(str(number),)) for number in range(17)]
    first, second, *_ = [parallel.evaluation(task) for task in tasks[:16]]
    assert parallel.evaluation(tasks[0]) is first
    parallel.evaluation(tasks[16])
    assert parallel.evaluation(tasks[0]) is first
    assert parallel.evaluation(tasks[1]) is not second


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_continues_on_8_then_4_then_1_devices(tmp_path, alone):
    for count, end in ((8, 4), (4, 8)):
        shares = []  # the largest of a device, of parameters and of optimizer state

        def watch(event, step, state, metrics, end=end, shares=shares):
            if event == "step":
                shares.append((share(state.params), share(state.opt_state)))
            return step == end

        parallel = make_parallel("fsdp", jax.devices()[:count])
        go(tmp_path, parallel="fsdp", on=parallel, hook=watch)
        assert len(shares) == 4
        # `large/kernel` has 2048 of 2433 numbers and is the only parameter of 1024 or more.
        part = (2433 - 2048 + 2048 / count) / 2433
        assert shares[-1][0] == pytest.approx(part)
        # Two moments and the moving average are split like the parameters; counters are whole.
        assert shares[-1][1] == pytest.approx(part, abs=1e-3)
    result = go(tmp_path, parallel="fsdp", devices=1)
    assert result.steps == 12
    assert_as_alone((result, numbers(tmp_path)), alone)


@pytest.mark.slow
def test_a_rule_of_ones_own_splits_over_an_axis_of_the_model(alone):
    seen = set()

    def rule(path, array):
        seen.add((path, array.shape))
        return P(None, "model") if path.endswith("large/kernel") else P()

    parallel = make_parallel(mesh=mesh_of(kind=AxisType.Explicit), param_sharding=rule)
    found = parallel.shardings(Regression().init(jax.random.key(0), Data()[0]))
    assert found["large"]["kernel"] == NamedSharding(parallel.mesh, P(None, "model"))
    assert ("inner/kernel", (4, 64)) in seen
    result, log = logged(on=parallel)
    assert_as_alone((result, log), alone)
    metrics, predictions = evaluate(Regression(), result.best_params, HELD_OUT, parallel)
    want = evaluate(Regression(), alone[0].best_params, HELD_OUT, make_parallel("single"))
    assert metrics == want[0]
    np.testing.assert_allclose(predictions["y"], want[1]["y"], atol=1e-5)


OPTIMIZERS = {
    "adamw": optax.adamw(0.01),
    "multi_steps": optax.MultiSteps(optax.adam(0.01), 2),
    "lbfgs": optax.lbfgs(),
    "adafactor": optax.adafactor(0.01, min_dim_size_to_factor=8),
    "partition": optax.partition(
        {"a": optax.adam(0.1), "b": optax.sgd(0.1, 0.9)}, {"w": "a", "v": "b"}
    ),
    "schedule_free": optax.contrib.schedule_free_adamw(0.1),
    "average": make_optimizer(OptimizerConfig(ema_decay=0.9), 10),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_state_is_split_by_the_rule_of_its_parameters(name):
    params = {"w": jnp.zeros((16, 8)), "v": jnp.zeros((8, 4, 2))}
    parallel = make_parallel("fsdp", jax.devices()[:8], param_sharding=small_rule(8))
    state = jax.eval_shape(OPTIMIZERS[name].init, params)
    for leaf, sharding in zip(
        *map(jax.tree.leaves, (state, parallel.shardings(state))), strict=True
    ):
        # No dimension of a counter, and of some factors of Adafactor, can be split in 8.
        fits = any(size % 8 == 0 for size in leaf.shape)
        assert sharding.is_fully_replicated == (not fits), leaf.shape


class Layer:
    """A recurrence, whose kernels are needed in each step of a loop."""

    module = gatedjax.nn.GRU(16)

    def init(self, key, batch):
        return self.module.init(key, batch["x"])["params"]

    def loss(self, params, batch, rngs):
        _, outputs = self.module.apply({"params": params}, batch["x"])
        each = (outputs**2).sum((1, 2)) * batch["weight"]
        return {"loss": Ratio.of(each, batch["weight"])}


@pytest.mark.slow
def test_a_recurrence_gathers_its_kernels_once_and_not_in_each_step():
    batch = {"x": np.ones((8, 5, 8), np.float32), "weight": np.ones(8, np.float32)}
    tx = optax.sgd(0.1)
    parallel = make_parallel("fsdp", jax.devices()[:2], param_sharding=small_rule(2))
    state = init_state(Layer(), tx, jax.random.key(0), batch)
    gather = functools.partial(parallel._gather, parallel.shardings(state.params))
    step = make_train_step(Layer(), tx, gather=gather)
    state = parallel.put(state, parallel.shardings(state))
    arguments = state, parallel.put_batch(batch), jax.random.key(0)
    text = jax.jit(step).lower(*arguments).compile().as_text()
    loops = re.findall(r"\bbody=%?([\w.-]+)", text)
    assert loops
    assert "all-gather" in text
    for body in loops:
        (lines_of_body,) = re.findall(rf"^%?{re.escape(body)} .*?^}}", text, re.M | re.S)
        assert "all-gather" not in lines_of_body
        assert "all-reduce" not in lines_of_body


@pytest.mark.slow
def test_the_rule_of_fsdp():
    mesh = mesh_of(4, 2)
    rule = fsdp_rule(mesh)
    like = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
    assert rule("w", like(30, 40)) == P(None, "data")
    assert rule("w", like(64, 64)) == P("data")
    assert rule("w", like(4, 9, 31)) == P("data")  # no longer dimension is a multiple of 4
    assert rule("w", like(31, 37)) == P()
    assert rule("w", like(1023)) == rule("w", like(0, 4)) == rule("w", like()) == P()
    assert fsdp_rule(mesh, ("data", "model"), min_size=0)("w", like(8)) == P(("data", "model"))
