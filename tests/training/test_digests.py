"""A used workdir knows its task and its data again: others are refused by name."""

import dataclasses
import json
import shutil
import subprocess
import sys
import types
from collections import ChainMap

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gatedjax._utils.json import to_json_values
from gatedjax.training import (
    CheckpointMismatch,
    CheckpointStore,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    TrainState,
    fit,
    fit_lanes,
    init_state,
    make_optimizer,
)
from gatedjax.training import _digests as digests
from gatedjax.training.log import read_json
from tests._programs import Plugin, environment
from tests.training._tiny import Data, Tiny

CONFIG = TrainConfig(
    num_steps=4,
    log_every=2,
    eval_every=2,
    checkpoint_every=2,
    best_metric="accuracy",
    progress=False,
    parallel="single",
)
BIAS = np.linspace(0, 1, 8, dtype=np.float32)
BATCH = Data()[1000]


class Biased(Tiny):
    """A loss that closes over an array and scales it, and an evaluation with a threshold."""

    def __init__(self, bias=BIAS, scale=1.0, straight=False, above=0.0, start=1.0, frozen=()):
        self.bias, self.scale, self.straight, self.above = bias, scale, straight, above
        self.start, self.frozen = start, frozen

    def init(self, key, batch):
        return {"w": self.start * super().init(key, batch)["w"], "v": jnp.zeros(2)}

    def loss(self, params, batch, rngs):
        w = params["w"]
        if self.straight:  # the same loss with half of its gradient
            w = 0.5 * (w + jax.lax.stop_gradient(w))
        fixed = self.scale * batch["label"] + jnp.asarray(self.bias) + jnp.sum(params["v"])
        each = (batch["x"] @ w - fixed) ** 2
        return (each * batch["weight"]).sum(), {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        correct = ((batch["x"] @ params["w"] > self.above) == (batch["label"] > 0)) + 0.0
        return {"accuracy": Ratio.of(correct, batch["weight"])}, {}


class Changed(Data):
    """Data of which one array of every batch is made by a function of its values."""

    def __init__(self, name, change):
        super().__init__()
        self.name, self.change = name, change

    def __getitem__(self, step):
        batch = super().__getitem__(step)
        return batch | {self.name: self.change(batch[self.name])}


def run(workdir, task=None, train=None, evaluation=(BATCH,), config=CONFIG, **more):
    evaluation = None if evaluation is None else list(evaluation)
    return fit(task or Biased(), train or Data(), evaluation, config, workdir, **more)


def contents(folder):
    return {
        p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and "lock" not in p.name
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    return path, run(path)


@pytest.fixture
def used(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "used")
    return tmp_path / "used"


NEGATED = Changed("label", lambda label: 1 - label)
OTHER = {
    "start": ({"task": Biased(start=0.5)}, "the initialisation of the task: saved program"),
    "loss": ({"task": Biased(scale=-1.0)}, "the loss of the task: saved program"),
    "gradient": ({"task": Biased(straight=True)}, "the loss of the task: saved program"),
    "constant": ({"task": Biased(BIAS + 1)}, "the loss of the task: saved program"),
    "evaluation": ({"task": Biased(above=0.5)}, "the evaluation of the task: saved program"),
    "training data": ({"train": NEGATED},
                      r"the training data, label in the first batch: saved float32\[8\] \w+, now"),
    "evaluation data": ({"evaluation": [NEGATED[1000]]},
                        r"the evaluation data, label in the first batch: saved float32\[8\]"),
    "more evaluation data": ({"evaluation": [BATCH, BATCH]},
                             "the evaluation data, number of batches: saved 1, now 2"),
    "no evaluation data": ({"evaluation": None},
                           r"the evaluation data, x in the first batch: .*, now nothing"),
}  # fmt: skip


@pytest.mark.parametrize("num_steps", [4, 8])
@pytest.mark.parametrize("name", OTHER)
def test_a_used_workdir_refuses_another_task_and_other_data_by_name(name, num_steps, used):
    changes, message = OTHER[name]
    before = contents(used)
    with pytest.raises(CheckpointMismatch, match=message) as error:
        run(used, config=dataclasses.replace(CONFIG, num_steps=num_steps), **changes)
    said = str(error.value)
    assert said.startswith(f"{used} holds a checkpoint of another task or of other data:")
    assert said.endswith(
        "Use another workdir to train this, or the task and data of the checkpoint."
    )
    titles = (
        "the initial",
        "the loss",
        "the evaluation of",
        "the training data",
        "the evaluation data",
    )
    assert sum(title in said.partition(":")[2] for title in titles) == 1
    assert contents(used) == before


def test_data_of_another_shape_are_not_taken_for_another_loss(used):
    wider = Changed("label", lambda label: label.astype(np.int32))
    with pytest.raises(
        CheckpointMismatch, match=r"saved float32\[8\] \w+, now int32\[8\]"
    ) as error:
        run(used, train=wider)
    assert "the loss" not in str(error.value)


def test_parameters_that_are_now_frozen_are_named(tmp_path):
    sgd = OptimizerConfig(name="sgd")  # whose state has no arrays that would differ
    config = dataclasses.replace(CONFIG, optimizer=sgd)
    run(tmp_path, Biased(frozen=("v",)), config=config)
    with pytest.raises(CheckpointMismatch, match=r"frozen .*: saved \['v'\], now \['w'\]"):
        run(tmp_path, Biased(frozen=("w",)), config=config)


def test_an_initialisation_may_read_the_first_batch(tmp_path):
    class Read(Biased):
        def init(self, key, batch):
            return super().init(key, batch) | {"v": jnp.full(2, float(batch["label"].sum()))}

    run(tmp_path, Read())
    with pytest.raises(CheckpointMismatch, match="the training data") as error:
        run(tmp_path, Read(), NEGATED)
    assert "the initialisation" not in str(error.value)


def test_a_finished_run_says_so_in_one_line_and_what_to_do(whole, used, capsys):
    again = run(used)
    (said,) = capsys.readouterr().err.splitlines()
    assert said == (
        f"{used} holds a finished run of 4 steps: nothing is trained, and its result is returned. "
        "Use another workdir to train anew, or a larger num_steps to continue it."
    )
    chex.assert_trees_all_equal(again.state, whole[1].state)
    assert again.history == whole[1].history
    assert run(used, config=dataclasses.replace(CONFIG, num_steps=6)).steps == 6
    assert capsys.readouterr().err == ""


def test_a_finished_run_that_cannot_be_longer_does_not_offer_it(tmp_path, capsys):
    config = dataclasses.replace(CONFIG, num_steps=40, early_stop_patience=1)
    first = run(tmp_path, config=config)
    assert first.stopped == "early"
    assert run(tmp_path, config=config).steps == first.steps
    assert capsys.readouterr().err.endswith("Use another workdir to train anew.\n")


def forge(workdir, change):
    """Replaces the checkpoints by the newest one with a changed record."""
    store = CheckpointStore(workdir / "checkpoints")
    step = store.latest()
    record = store.record(step)
    tx = make_optimizer(CONFIG.optimizer, CONFIG.num_steps)
    like = jax.eval_shape(lambda: init_state(Biased(), tx, jax.random.key(0), BATCH))
    trees = store.restore(step, like, like.params)
    shutil.rmtree(store.directory)
    change(record)
    store.save(step, *trees, record)
    store.close()


@dataclasses.dataclass
class Words:
    """Settings of a run."""

    config: dict
    vocabulary: str = "a1"


def test_other_settings_are_refused_with_both_values_and_other_metadata_are_not(tmp_path):
    run(tmp_path, settings=Words({"width": 3}), metadata={"name": "first", "width": 3})
    longer = {"config": dataclasses.replace(CONFIG, num_steps=6)}
    for settings, difference in (
        (Words({"width": 4}), r"config\.width: saved 3, now 4"),
        (Words({"width": 3}, "b2"), "vocabulary: saved 'a1', now 'b2'"),
        ({"config": {"width": 3}}, "vocabulary: saved 'a1', now 'nothing'"),
    ):
        with pytest.raises(CheckpointMismatch, match=difference):
            run(tmp_path, settings=settings, **longer)
    with pytest.raises(CheckpointMismatch, match="Use another workdir"):
        run(tmp_path, metadata={"vocabulary": "a1", "config": {"width": 4}}, **longer)
    same = {"vocabulary": "a1", "config": {"width": 3}}
    assert run(tmp_path, settings=same, metadata={"name": "second"}, **longer).steps == 6
    record = CheckpointStore(tmp_path / "checkpoints").record(6)
    assert record["metadata"] == {"name": "second"}
    assert record["settings"] == same | {"train": to_json_values(longer["config"])}
    about = read_json(tmp_path / "config.json")
    assert about == record["settings"] | {
        "name": "first", "width": 3, "train": to_json_values(CONFIG)
    }  # fmt: skip


@pytest.mark.parametrize("name", ["settings", "metadata"])
def test_settings_and_metadata_are_mappings_of_json(name, tmp_path):
    for given, got in ((3, "a mapping or a dataclass, got int"), ({"a": {1}}, "JSON .* got set")):
        with pytest.raises(TypeError, match=f"{name} must be .*{got}"):
            run(tmp_path, **{name: given})
    assert not list(tmp_path.iterdir())


def test_programs_of_other_packages_are_not_compared_but_the_data_are(used, capsys):
    forge(used, lambda record: record["digests"]["software"].update(jax="0.0.1"))
    run(used, Biased(scale=2.0, above=1.0))
    assert "the loss of the task and the evaluation of the task cannot be compared" in (
        capsys.readouterr().err
    )
    with pytest.raises(CheckpointMismatch, match="the training data, label") as error:
        run(used, Biased(scale=2.0), NEGATED)
    assert "the loss" not in str(error.value)


def test_settings_may_name_what_a_digest_would_know(tmp_path):
    named = {"loss": "squares", "train_data": "drawn"}
    run(tmp_path, settings=named)
    run(tmp_path, Biased(scale=-1.0), NEGATED, settings=named)
    with pytest.raises(CheckpointMismatch, match="loss: saved 'squares', now 'halves'"):
        run(tmp_path, settings=named | {"loss": "halves"})
    with pytest.raises(CheckpointMismatch, match="the evaluation of the task"):
        run(tmp_path, Biased(above=0.5), settings=named)


def test_a_task_that_cannot_be_lowered_alone_trains_with_a_warning(tmp_path, monkeypatch):
    def fails(*given):
        raise NotImplementedError("no lowering for this platform")

    monkeypatch.setattr(digests, "program_digest", fails)
    with pytest.warns(RuntimeWarning) as warned:
        assert run(tmp_path).steps == 4
    said = [str(warning.message).partition(":")[0] for warning in warned]
    reason = "cannot be lowered (NotImplementedError"
    assert said == [
        f"the {name} of the task {reason}" for name in ("initialisation", "loss", "evaluation")
    ]


def test_lanes_know_their_task_and_the_data_of_every_seed(tmp_path):
    config = dataclasses.replace(CONFIG, seeds=2)

    def lanes(task, change):
        data = {0: Data(), 1: change}
        return fit_lanes(task, data.get, [BATCH], config, tmp_path)

    lanes(Biased(), Data())
    with pytest.raises(CheckpointMismatch, match="the loss of the task"):
        lanes(Biased(scale=2.0), Data())
    with pytest.raises(CheckpointMismatch, match=r"the training data, seed 1\.label in the first"):
        lanes(Biased(), NEGATED)
    assert [result.steps for result in lanes(Biased(), Data())] == [4, 4]


# -- the digests themselves ------------------------------------------------------------------------

SHAPES = {name: jax.ShapeDtypeStruct((n,), np.float32) for name, n in {"w": 4, "v": 2}.items()}


def digest(task, batch=BATCH):
    state = TrainState(step=0, params=SHAPES, opt_state=())
    return digests.run_digests(task, state, batch, batch, [batch])


def test_digests_compile_nothing_and_follow_the_lowered_program():
    counts = Plugin.running.counts
    digest(Biased())
    before = counts.total()
    assert digest(Biased())["loss"] == digest(Biased(np.array(BIAS)))["loss"]
    assert digest(Biased(scale=3.0))["loss"] != digest(Biased())["loss"]
    with jax.disable_jit():
        assert digest(Biased())["loss"] == digest(Biased())["loss"]
    assert counts.total() == before


def test_the_name_of_a_jitted_helper_is_no_part_of_a_program():
    def double(x):
        return 2 * x

    def of(name, helper=double):
        renamed = types.FunctionType(helper.__code__, {}, name)
        jitted = jax.jit(renamed)
        return digests.program_digest(lambda x: jitted(x) + jitted(x + 1), np.float32(1))

    assert of("double") == of("twice")
    assert of("double") != of("double", lambda x: 3 * x)


@pytest.mark.parametrize("hoisted", [False, True])
@pytest.mark.parametrize("size", [3, 5000])
def test_every_constant_is_part_of_a_program(size, hoisted):
    """JAX can hoist constants out of the program, of which the text then has the shape alone."""

    def of(outer, inner, key):
        @jax.jit
        def nested(x):
            return jax.lax.cond(x[0] > 0, lambda x: x * jnp.asarray(inner), lambda x: x, x)

        def function(x):
            total = jax.lax.scan(lambda c, _: (c + jnp.asarray(outer), None), x, None, length=2)[0]
            return nested(total) + jax.random.normal(key, x.shape)

        return digests.program_digest(function, jax.ShapeDtypeStruct((size,), np.float32))

    def changed(values):
        return np.append(values[:-1], np.float32(7))

    option = "jax_use_simplified_jaxpr_constants"
    before = getattr(jax.config, option)
    jax.config.update(option, hoisted)
    try:
        ones, twos = np.ones(size, np.float32), np.full(size, 2, np.float32)
        keys = jax.random.key(0), jax.random.key(1)
        found = {
            of(ones, twos, keys[0]), of(changed(ones), twos, keys[0]),
            of(ones, changed(twos), keys[0]), of(ones, twos, keys[1]),
        }  # fmt: skip
        assert len(found) == 4
        assert of(ones.copy(), twos.copy(), jax.random.key(0)) in found
    finally:
        jax.config.update(option, before)


def test_a_program_has_no_source_locations_and_no_addresses():
    source = """
import jax, jax.numpy as jnp, numpy as np
def function(x):
    jax.debug.print("{}", x[0])
    y = jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    with jax.named_scope("here"):
        return jax.nn.relu(jnp.where(x > 0, y, jnp.flip(x)))
"""
    found = set()
    for number in range(3):
        names = {}
        moved = "\n" * (7 * number) + source
        exec(compile(moved, f"/some/{number}/file.py", "exec"), names)
        found.add(digests.program_digest(names["function"], jax.ShapeDtypeStruct((4,), np.float32)))
    assert len(found) == 1


def test_a_sharding_constraint_may_be_of_another_number_of_devices():
    def of(count, name="data"):
        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((count,), (name,), axis_types=auto, devices=jax.devices()[:count])
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(name))
        double = lambda x: 2 * jax.lax.with_sharding_constraint(x, rows)  # noqa: E731
        return digests.program_digest(double, jax.ShapeDtypeStruct((8,), np.float32))

    assert of(4) == of(8)
    assert of(4) != of(4, "rows")


def test_arrays_are_known_by_path_dtype_shape_and_bytes():
    batch = {"a": np.zeros((2, 3), np.float32), "n": {"k": jax.random.key(3)}, "b": [1.5]}
    known = digests.array_digests(ChainMap(batch))
    assert known["a"].startswith("float32[2, 3] ")
    assert set(known) == {"a", "n.k", "b.0"}
    assert digests.array_digests(batch | {"a": jnp.zeros((2, 3))}) == known
    assert digests.array_digests(batch | {"n": {"k": jax.random.key(4)}})["n.k"] != known["n.k"]


@pytest.mark.slow
def test_another_process_with_another_hash_seed_has_the_same_digests():
    script = "from tests.training.test_digests import *; print(json.dumps(digest(Biased())))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment(PYTHONHASHSEED=seed),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout) == digest(Biased())
