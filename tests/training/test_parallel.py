"""Parameters and optimizer states that are split over devices give the numbers of one device."""

import dataclasses
import math
import re

import chex
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
    Parallel,
    Ratio,
    TrainConfig,
    TrainState,
    evaluate,
    fit,
    fsdp_rule,
    init_state,
    make_optimizer,
    make_parallel,
    make_train_step,
)
from tests.training._counting import Memory, Rows
from tests.training._tiny import Data, lines

CONFIG = TrainConfig(
    num_steps=12, log_every=1, eval_every=6, checkpoint_every=4, progress=False,
    best_metric="accuracy",
    optimizer=OptimizerConfig(learning_rate=0.01, ema_decay=0.9, clip_norm=1.0),
)  # fmt: skip
EVALUATION = [Data(rows=6)[1000]]
DRAW = nn.initializers.lecun_normal()


class Net(nn.Module):
    """Two layers, of which the large one may carry the names of mesh axes."""

    box: str | None = None

    @nn.compact
    def __call__(self, x):
        init = DRAW
        if self.box == "mesh":
            init = nn.with_partitioning(DRAW, (None, "model"))
        elif self.box == "logical":
            init = nn.with_logical_partitioning(DRAW, ("embed", "mlp"))
        h = nn.tanh(nn.Dense(64, name="inner")(x))
        return nn.Dense(1, name="out")(nn.tanh(nn.Dense(32, name="large", kernel_init=init)(h)))


@dataclasses.dataclass(frozen=True)
class Regression:
    box: str | None = None

    def init(self, key, batch):
        return Net(self.box).init(key, batch["x"])["params"]

    def loss(self, params, batch, rngs):
        y = Net(self.box).apply({"params": params}, batch["x"])[:, 0]
        each = (y - batch["label"]) ** 2 * batch["weight"]
        return each.sum(), {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        y = Net(self.box).apply({"params": params}, batch["x"])[:, 0]
        right = ((y > 0.5) == (batch["label"] > 0)).astype(np.float32)
        return {"accuracy": Ratio.of(right, batch["weight"])}, {"y": y}


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


class Watched(Parallel):
    """Notes for each step the largest share of a device in parameters and in optimizer state."""

    def train_step(self, task, tx, **options):
        step, self.shares = super().train_step(task, tx, **options), []

        def watch(state, batch, key):
            state, metrics = step(state, batch, key)
            self.shares.append((share(state.params), share(state.opt_state)))
            return state, metrics

        return watch


def unboxed(result):
    return nn.meta.unbox((result.state.params, result.best_params, result.state.opt_state))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    place = tmp_path_factory.mktemp("alone")
    config = dataclasses.replace(CONFIG, parallel="single")
    return fit(Regression(), Data(), EVALUATION, config, place), place


def assert_same_run(result, place, alone):
    expected, where = alone
    chex.assert_trees_all_close(unboxed(result), unboxed(expected), rtol=1e-5, atol=1e-6)
    for got, want in zip(lines(place), lines(where), strict=True):
        assert got.pop("split") == want.pop("split")
        assert got == pytest.approx(want, abs=1e-6, rel=1e-6)


def test_loss_and_gradient_are_those_of_one_device():
    # With plain gradient descent and a rate of 1 an update is the gradient.
    task, tx, batch = Regression(), optax.sgd(1.0), Data(rows=16)[0]
    params = task.init(jax.random.key(0), batch)
    state = TrainState(jnp.zeros((), jnp.int32), params, tx.init(params))
    found = {}
    for kind in ("single", "fsdp"):
        parallel = make_parallel(
            kind, jax.devices()[:8], param_sharding=small_rule(8) if kind == "fsdp" else None
        )
        placed = parallel.place(jax.device_get(state))
        if kind == "fsdp":
            assert placed.params["large"]["kernel"].sharding.spec == P("data")
            # Only the last bias, a single number, is copied to all 8 devices.
            assert share(placed.params) == pytest.approx(1 / 8, abs=1e-3)
        new, metrics = parallel.train_step(task, tx)(
            placed, parallel.shard(batch), jax.random.key(0)
        )
        updates = jax.tree.map(np.subtract, parallel.host(new.params), params)
        found[kind] = parallel.host(updates), metrics["loss"].value(), metrics["grad_norm"].value()
    chex.assert_trees_all_close(found["fsdp"], found["single"], rtol=1e-6, atol=1e-6)
    assert np.abs(found["single"][0]["large"]["kernel"]).max() > 0.01


def test_a_run_continues_on_8_then_4_then_1_devices(tmp_path, alone):
    config = dataclasses.replace(CONFIG, parallel="fsdp")
    for count, end in ((8, 4), (4, 8)):
        parallel = Watched("fsdp", jax.devices()[:count])
        fit(
            Regression(), Data(), EVALUATION, config, tmp_path, parallel=parallel,
            stop_when=lambda step, end=end: step == end,
        )  # fmt: skip
        assert len(parallel.shares) == 4
        # `large/kernel` has 2048 of 2433 numbers and is the only parameter of 1024 or more.
        part = (2433 - 2048 + 2048 / count) / 2433
        assert parallel.shares[-1][0] == pytest.approx(part)
        # Two moments and the moving average are split like the parameters; counters are whole.
        assert parallel.shares[-1][1] == pytest.approx(part, abs=1e-3)
        # The second part evaluates once, at step 6: a stop adds no evaluation.
        assert parallel.traces == 1 + (end == 8)
    result = fit(
        Regression(), Data(), EVALUATION, config, tmp_path,
        parallel=make_parallel("fsdp", jax.devices()[:1]),
    )  # fmt: skip
    assert result.steps == 12
    chex.assert_trees_all_close(result.state, alone[0].state, rtol=1e-5, atol=1e-6)
    assert result.best_step == alone[0].best_step
    chex.assert_trees_all_close(result.best_params, alone[0].best_params, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("box", ["mesh", "logical"])
def test_the_metadata_of_linen_place_a_parameter_and_the_rule_the_others(box, tmp_path, alone):
    seen = set()

    def rule(path, array):
        seen.add((path, array.shape))
        return P("model") if path == "inner/bias" else P()

    task = Regression(box)
    parallel = make_parallel(mesh=mesh_of(kind=AxisType.Explicit), param_sharding=rule)
    with nn.logical_axis_rules([("mlp", "model"), ("embed", None)]):
        assert nn.meta.unbox(parallel.param_shardings(task.init(jax.random.key(0), Data()[0]))) == {
            "inner": {"bias": sharding("model"), "kernel": sharding()},
            "large": {"bias": sharding(), "kernel": sharding(None, "model")},
            "out": {"bias": sharding(), "kernel": sharding()},
        }
        assert ("inner/kernel", (4, 64)) in seen
        assert not any(path.startswith("large/kernel") for path, _ in seen)
        result = fit(task, Data(), EVALUATION, CONFIG, tmp_path, parallel=parallel)
        assert result.compilations == 2
        assert_same_run(result, tmp_path, alone)
        metrics, predictions = evaluate(task, result.best_params, EVALUATION, parallel)
    want = evaluate(Regression(), alone[0].best_params, EVALUATION, make_parallel("single"))
    assert metrics == want[0]
    np.testing.assert_allclose(predictions["y"], want[1]["y"], atol=1e-5)


def sharding(*axes):
    return NamedSharding(mesh_of(), P(*axes))


def test_batches_may_be_split_over_two_axes_and_in_parts(tmp_path, alone):
    config = dataclasses.replace(CONFIG, parallel="fsdp", accumulate=2)
    parallel = make_parallel("fsdp", mesh=mesh_of(2, 2), batch_axis=("data", "model"), accumulate=2)
    assert parallel.shard({"weight": np.ones(3)})["weight"].shape == (8,)
    found = parallel.param_shardings({"w": np.zeros((3, 1024)), "b": np.zeros(8)})
    assert found["w"].spec == P(None, ("data", "model"))
    assert found["b"].spec == P()
    result = fit(Regression(), Data(), EVALUATION, config, tmp_path, parallel=parallel)
    assert_same_run(result, tmp_path, alone)


@pytest.mark.parametrize(
    "tx",
    [
        optax.adamw(0.01),
        optax.MultiSteps(optax.adam(0.01), 2),
        optax.lbfgs(),
        optax.adafactor(0.01, min_dim_size_to_factor=8),
        optax.partition({"a": optax.adam(0.1), "b": optax.sgd(0.1, 0.9)}, {"w": "a", "v": "b"}),
        optax.contrib.schedule_free_adamw(0.1),
        make_optimizer(OptimizerConfig(ema_decay=0.9), 10, frozen=("v",)),
    ],
    ids=["adamw", "multi_steps", "lbfgs", "adafactor", "partition", "schedule_free", "frozen"],
)
def test_the_optimizer_state_is_split_like_its_parameters(tx):
    params = {"w": jnp.zeros((16, 8)), "v": jnp.zeros((8, 4, 2))}
    parallel = make_parallel("fsdp", jax.devices()[:8], param_sharding=small_rule(8))
    state = TrainState(jnp.zeros((), jnp.int32), params, tx.init(params))
    placed = parallel.place(state)
    for leaf in jax.tree.leaves(placed.opt_state):
        is_whole = leaf.sharding.is_fully_replicated
        # The factors of Adafactor have other shapes than the parameters.
        assert is_whole == (leaf.size < 64 or leaf.shape in ((16,), (8, 4))), leaf.shape
    chex.assert_trees_all_equal(parallel.host(placed), jax.device_get(state))


def test_a_schedule_free_optimizer_is_evaluated_on_its_parts(tmp_path):
    tx, results = optax.contrib.schedule_free_adamw(0.01), {}
    for kind in ("single", "fsdp"):
        config = dataclasses.replace(CONFIG, parallel=kind, optimizer=OptimizerConfig())
        results[kind] = fit(
            Regression(), Data(), EVALUATION, config, tmp_path / kind, optimizer=tx
        ).best_params
    chex.assert_trees_all_close(results["fsdp"], results["single"], rtol=1e-4, atol=1e-6)


def test_rows_carry_their_state_with_split_parameters(tmp_path):
    config = TrainConfig(num_steps=6, log_every=1, eval_every=3, progress=False)
    results = [
        fit(
            Memory(), Rows(), None, dataclasses.replace(config, parallel=kind), tmp_path / kind,
            parallel=make_parallel(kind, jax.devices()[:4]),
        )
        for kind in ("single", "fsdp")
    ]  # fmt: skip
    chex.assert_trees_all_close(results[1].state, results[0].state, rtol=1e-6)


class Layer:
    """A recurrence, whose kernels are needed in each step of a loop."""

    module = gatedjax.nn.GRU(16)

    def init(self, key, batch):
        return self.module.init(key, batch["x"])["params"]

    def loss(self, params, batch, rngs):
        _, outputs = self.module.apply({"params": params}, batch["x"])
        each = (outputs**2).sum((1, 2)) * batch["weight"]
        return each.sum(), {"loss": Ratio.of(each, batch["weight"])}


def test_a_recurrence_gathers_its_kernels_once_and_not_in_each_step():
    batch = {"x": np.ones((8, 5, 8), np.float32), "weight": np.ones(8, np.float32)}
    tx = optax.sgd(0.1)
    parallel = make_parallel("fsdp", jax.devices()[:2], param_sharding=small_rule(2))
    state = parallel.place(init_state(Layer(), tx, jax.random.key(0), batch))
    step = make_train_step(Layer(), tx, gather=parallel._gather)
    arguments = state, parallel.shard(batch), jax.random.key(0)
    text = jax.jit(step).lower(*arguments).compile().as_text()
    loops = re.findall(r"\bbody=%?([\w.-]+)", text)
    assert loops
    assert "all-gather" in text
    for body in loops:
        (lines_of_body,) = re.findall(rf"^%?{re.escape(body)} .*?^}}", text, re.M | re.S)
        assert "all-gather" not in lines_of_body
        assert "all-reduce" not in lines_of_body


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


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (lambda p, a: P("modle"), ValueError, r"name axes of the mesh, got 'modle', but the mesh"),
        (lambda p, a: ("data",), TypeError, r"must return a jax.sharding.PartitionSpec, got \('da"),
        (lambda p, a: None, TypeError, r"got None for the parameter 'inner/bias': return Partit"),
        (
            lambda p, a: P("model") if p == "out/bias" else P(),
            ValueError,
            r"'out/bias'.*fit its shape \[1\]: dimension 0 has 1 numbers, which 2 devices must",
        ),
        (lambda p, a: P(None, None, "data"), ValueError, "at most 1 entries, got 3"),
        (lambda p, a: P(P.UNCONSTRAINED), ValueError, "must name axes of the mesh, got UNCONSTR"),
    ],
)
def test_a_wrong_rule_is_refused_before_files_are_written(rule, error, message, tmp_path):
    parallel = make_parallel(mesh=mesh_of(), param_sharding=rule)
    with pytest.raises(error, match=message):
        fit(Regression(), Data(), EVALUATION, CONFIG, tmp_path / "run", parallel=parallel)
    assert not (tmp_path / "run" / "config.json").exists()


def test_metadata_that_do_not_fit_the_mesh_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'large/kernel'.*got 'model', but the mesh has \('data'"):
        fit(
            Regression("mesh"), Data(), EVALUATION,
            dataclasses.replace(CONFIG, parallel="fsdp"), tmp_path / "run",
        )  # fmt: skip
    parallel = make_parallel(mesh=mesh_of())
    params = Regression("logical").init(jax.random.key(0), Data()[0])
    with pytest.raises(ValueError, match=r"got none for \['embed', 'mlp'\]: call fit inside"):
        parallel.param_shardings(params)
    # A mesh that only splits the batch leaves the metadata to other programs.
    assert make_parallel("sharding").param_shardings(params)["inner"]["bias"].spec == P()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "zero"}, ValueError, "kind must be 'sharding', 'fsdp', 'pmap' or 'single'"),
        ({"mesh": "mesh"}, TypeError, "mesh must be a jax.sharding.Mesh, got 'mesh'"),
        ({"param_sharding": [("kernel", P())]}, TypeError, "must be a function .*, got list"),
        ({"mesh": mesh_of, "batch_axis": "batch"}, ValueError, "batch_axis='batch', got the axes"),
        ({"mesh": mesh_of, "batch_axis": ()}, ValueError, "must have the axis over which"),
        ({"mesh": mesh_of, "kind": "pmap"}, ValueError, "mesh must be None with kind 'pmap'"),
        ({"param_sharding": print, "kind": "single"}, ValueError, "None with kind 'single'"),
        ({"mesh": mesh_of, "devices": []}, ValueError, "devices must be None with a mesh"),
    ],
)
def test_what_no_mesh_can_do_is_refused(options, error, message):
    if options.get("mesh") is mesh_of:
        options = options | {"mesh": mesh_of()}
    with pytest.raises(error, match=message):
        make_parallel(**options)


def test_a_parameter_on_a_device_is_a_part_of_it():
    parallel = make_parallel("fsdp", jax.devices()[:8])
    kernel = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    placed = parallel.place_params({"kernel": kernel})["kernel"]
    shapes = {shard.data.shape for shard in placed.addressable_shards}
    assert shapes == {(8, 32)}
    assert math.prod((8, 32)) * 8 == kernel.size
    np.testing.assert_array_equal(parallel.host(placed), kernel)
