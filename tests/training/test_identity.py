"""A used workdir knows its task and its data again: others are refused by name."""

import dataclasses
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gatedjax._utils.json import to_json_values
from gatedjax._utils.run_files import read_json
from gatedjax.training import (
    CheckpointMismatch,
    CheckpointStore,
    OptimizerConfig,
    Ratio,
)
from gatedjax.training import identity as digests
from tests.training._tiny import (
    EVALUATION,
    Changed,
    Data,
    Tiny,
    assert_equal,
    contents,
    options,
    run,
)

FEW = {"num_steps": 4, "log_every": 2, "eval_every": 2, "checkpoint_every": 2}
BIAS = np.linspace(0, 1, 8, dtype=np.float32)
BATCH = EVALUATION[0]
NEGATED = Changed(lambda step, batch: {"label": 1 - batch["label"]})


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
        return {"loss": Ratio.of(each, batch["weight"])}

    def evaluate(self, params, batch):
        correct = ((batch["x"] @ params["w"] > self.above) == (batch["label"] > 0)) + 0.0
        return {"accuracy": Ratio.of(correct, batch["weight"])}, {}


def go(workdir, task=None, train=None, evaluation=EVALUATION, **more):
    return run(workdir, task or Biased(), train, evaluation, **FEW | more)


def other(match, workdir, *given, **more):
    """Checks that a run is refused; returns the message."""
    with pytest.raises(CheckpointMismatch, match=match) as error:
        go(workdir, *given, **more)
    return str(error.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    return path, go(path)


@pytest.fixture
def used(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "used")
    return tmp_path / "used"


WIDER = Changed(lambda step, batch: {"label": batch["label"].astype(np.int32)})
LONGER = Changed(lambda step, batch: {"x": np.concatenate([batch["x"]] * 2, axis=1)})
START = {"w": np.ones(4, np.float32), "v": np.zeros(2, np.float32)}
OPTIMIZER = OptimizerConfig(learning_rate=0.5)
OTHER = {
    "start": ({"task": Biased(start=0.5)}, "the initialisation of the task: saved"),
    "loss": ({"task": Biased(scale=-1.0)}, "the training step .*: saved"),
    "gradient": ({"task": Biased(straight=True)}, "the training step .*: saved"),
    "constant": ({"task": Biased(BIAS + 1)}, "the training step .*: saved"),
    "optimizer": ({"optimizer": optax.adam(0.06)}, r"the training step \(loss, optimizer or sch"),
    "evaluation": ({"task": Biased(above=0.5)}, "the evaluation .*: saved"),
    "eval_params": ({"eval_params": lambda params, state: jax.tree.map(lambda p: p / 2, params)},
                    r"or eval_params\): saved"),
    "training data": ({"train": NEGATED},
                      r"the training data, label: saved float32\[8\] \w+, now"),
    "training data of another dtype": ({"train": WIDER}, r"float32\[8\] \w+, now int32\[8\]"),
    "evaluation data": ({"evaluation": [NEGATED[1000]]},
                        r"the evaluation data, label: saved float32\[8\]"),
    "more evaluation data": ({"evaluation": [BATCH, BATCH]},
                             "the evaluation data, batches: saved 1, now 2"),
    "no evaluation data": ({"evaluation": None},
                           r"the evaluation data, x: .*, now nothing"),
    "given parameters": ({"params": START}, "the initial parameters, v: saved nothing"),
    "frozen": ({"task": Biased(frozen=("v",))}, r"the frozen .*: saved \[\], now \['v'\]"),
    "seed": ({"seed": 1}, r"train\.seed: saved 0, now 1"),
    "learning rate": ({"optimizer": OPTIMIZER}, r"train\.optimizer\.learning_rate: saved 0.001"),
    "seeds": ({"seeds": 3}, r"train\.seeds: saved 1, now 3"),
    "network": ({"train": LONGER, "evaluation": None}, r"params\.w: saved float32\[4\], now"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_a_used_workdir_refuses_another_task_and_other_data_by_name(name, used):
    changes, message = OTHER[name]
    before = contents(used)
    for num_steps in (4, 8) if name == "loss" else (4,):
        said = other(message, used, **changes | {"num_steps": num_steps})
        assert said.startswith(f"{used} holds a checkpoint of another run:")
        assert "Use another workdir, or the task, data and settings of the checkpoint." in said
        titles = {title for title in digests.TITLES.values() if f"  {title}" in said}
        assert len(titles) == (name not in ("seed", "learning rate", "seeds", "network")) or (
            name in ("frozen", "network")
        )
    assert contents(used) == before


@pytest.mark.slow
def test_an_initialisation_may_read_the_first_batch(tmp_path):
    class Read(Biased):
        def init(self, key, batch):
            return super().init(key, batch) | {"v": jnp.full(2, float(batch["label"].sum()))}

    go(tmp_path, Read())
    said = other("the training data", tmp_path, Read(), NEGATED)
    assert "the initialisation" not in said


@pytest.mark.slow
def test_a_finished_run_says_so_in_one_line_and_what_to_do(whole, used, capsys, tmp_path):
    again = go(used)
    (said,) = capsys.readouterr().err.splitlines()
    assert said == (
        f"{used} holds a finished run of 4 steps: nothing is trained, and its result is returned. "
        "Use another workdir to train anew, or a larger num_steps to continue it."
    )
    assert_equal((again.state, again.best_params), (whole[1].state, whole[1].best_params))
    assert again.history == whole[1].history
    # Options that change no result of a step are free, and "auto" is the mode that it stands for.
    free = {"num_steps": 6, "keep_checkpoints": 5, "max_skipped": 1, "best_mode": "max"}
    assert go(used, **free, parallel="sharding", devices=1).steps == 6
    assert capsys.readouterr().err == ""
    early = {"num_steps": 40, "early_stop_patience": 1}
    first = go(tmp_path / "early", **early)
    assert (first.stopped, go(tmp_path / "early", **early).steps) == ("early", first.steps)
    assert capsys.readouterr().err.endswith("Use another workdir to train anew.\n")


@pytest.mark.slow
def test_only_a_schedule_that_ends_cannot_be_made_longer(tmp_path):
    cosine = {"optimizer": OptimizerConfig(schedule="cosine")}
    for settings in (lambda steps: None, lambda steps: {"train": {"num_steps": steps}}):
        go(tmp_path / "cosine", num_steps=4, settings=settings(4), **cosine)
        said = other("the training step", tmp_path / "cosine", settings=settings(6), num_steps=6,
                     **cosine)  # fmt: skip
        assert "num_steps was 4 and is 6, which a schedule may depend on" in said
        shutil.rmtree(tmp_path / "cosine")
    endless = {"optimizer": OptimizerConfig(schedule="rsqrt", warmup_steps=2)}
    go(tmp_path / "rsqrt", **endless)
    assert go(tmp_path / "rsqrt", num_steps=6, **endless).steps == 6


@dataclasses.dataclass
class Words:
    """Settings of a run."""

    config: dict
    vocabulary: str = "a1"


@pytest.mark.slow
def test_other_settings_are_refused_with_both_values_and_other_metadata_are_not(tmp_path):
    go(tmp_path, settings=Words({"width": 3}), metadata={"name": "first", "width": 3})
    for settings, difference in (
        (Words({"width": 4}), r"config\.width: saved 3, now 4"),
        (Words({"width": 3}, "b2"), "vocabulary: saved 'a1', now 'b2'"),
        ({"config": {"width": 3}}, "vocabulary: saved 'a1', now 'nothing'"),
    ):
        other(difference, tmp_path, settings=settings, num_steps=6)
    other("Use another workdir", tmp_path, metadata={"vocabulary": "a1", "config": {"width": 3}})
    same = {"vocabulary": "a1", "config": {"width": 3}}
    assert go(tmp_path, settings=same, metadata={"name": "second"}, num_steps=6).steps == 6
    record = CheckpointStore(tmp_path / "checkpoints").record(6)
    assert record["metadata"] == {"name": "second"}
    train = [to_json_values(options(**FEW | {"num_steps": steps})) for steps in (6, 4)]
    assert record["identity"]["settings"] == same | {"train": train[0]}
    about = read_json(tmp_path / "config.json")
    assert about == same | {"name": "first", "width": 3, "train": train[1]}


@pytest.mark.slow
def test_programs_of_other_packages_are_not_compared_but_the_data_are(used, capsys):
    store = CheckpointStore(used / "checkpoints")
    step = store.latest()
    record, trees = store.record(step), store.restore(step, **dict.fromkeys(store.checksums(step)))
    shutil.rmtree(store.directory)
    record["identity"]["versions"]["jax"] = "0.0.1"
    store.save(step, record, **trees)
    store.close()
    go(used, Biased(scale=2.0, above=1.0))
    err = capsys.readouterr().err
    assert "the evaluation (of the task, or eval_params) and the training step" in err
    assert "cannot be compared with the checkpoint" in err
    said = other("the training data, label: saved", used, Biased(scale=2.0), NEGATED)
    assert "the training step" not in said


@pytest.mark.slow
def test_settings_may_name_what_a_digest_would_know(tmp_path):
    named = {"step": "squares", "train_data": "drawn"}
    go(tmp_path, settings=named)
    go(tmp_path, Biased(scale=-1.0), NEGATED, settings=named)
    other("step: saved 'squares', now 'halves'", tmp_path, settings=named | {"step": "halves"})
    other(r"the evaluation \(of the task", tmp_path, Biased(above=0.5), settings=named)


@pytest.mark.slow
def test_lanes_know_their_task_and_the_data_of_every_seed(tmp_path):
    data = lambda second: {0: Data(), 1: second}.get  # noqa: E731
    go(tmp_path, train=data(Data()), seeds=2)
    other("the training step", tmp_path, Biased(scale=2.0), data(Data()), seeds=2)
    other(r"the training data, seed 1\.label: saved", tmp_path, None, data(NEGATED), seeds=2)
    other("the initial parameters, w: saved", tmp_path, None, data(Data()), seeds=2, params=START)
    assert [result.steps for result in go(tmp_path, train=data(Data()), seeds=2)] == [4, 4]


# -- the digests themselves ------------------------------------------------------------------------


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


@pytest.mark.slow
def test_a_sharding_constraint_may_be_of_another_number_of_devices():
    def of(count, name="data"):
        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((count,), (name,), axis_types=auto, devices=jax.devices()[:count])
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(name))
        double = lambda x: 2 * jax.lax.with_sharding_constraint(x, rows)  # noqa: E731
        return digests.program_digest(double, jax.ShapeDtypeStruct((8,), np.float32))

    assert of(4) == of(8)
    assert of(4) != of(4, "rows")
