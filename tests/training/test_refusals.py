"""What cannot work is refused by name: calls, and runs before they write anything."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from gatedjax.training import (
    CheckpointMismatch,
    CheckpointStore,
    DistributedConfig,
    NonFiniteError,
    OptimizerConfig,
    Ratio,
    TrainConfig,
    average_params,
    evaluate,
    fit,
    init_state,
    lanes_of,
    make_optimizer,
    make_parallel,
    make_train_step,
    params_ema,
    replay,
    restore_params,
)
from tests.refusals import each_row, refused
from tests.training._tiny import (
    EVALUATION,
    Changed,
    Data,
    Far,
    Memory,
    Normalised,
    Plane,
    Points,
    Rows,
    Tiny,
    options,
    plane,
    poisoned,
    run,
)

BATCH, X = Data()[0], np.ones(1)
START = {"w": np.ones((3, 2), np.float32), "b": np.zeros(2, np.float32)}


def rate(parts, **given):
    return lambda: make_optimizer(OptimizerConfig(**given), 10), parts


def mesh():
    return jax.make_mesh((4, 2), ("data", "model"), devices=jax.devices()[:8])


def devices(parts, error=ValueError, **given):
    made = lambda: mesh() if given["mesh"] is mesh else given["mesh"]  # noqa: E731
    return lambda: make_parallel(**given | ({"mesh": made()} if "mesh" in given else {})), (
        parts
    ), error  # fmt: skip


def step_in_parts():
    tx = optax.sgd(0.1)
    state = init_state(Tiny(), tx, jax.random.key(0), BATCH)
    make_train_step(Tiny(), tx, accumulate=3)(state, BATCH, jax.random.key(0))


CALLS = {
    "TrainConfig": [
        *((lambda name=name: TrainConfig(**{name: 0}), f"{name}|at least 1|got 0")
          for name in ("num_steps", "log_every", "eval_every", "keep_checkpoints", "seeds")),
        (lambda: TrainConfig(optimizer=optax.adam(0.1)),
         "optimizer must be an OptimizerConfig|GradientTransformation|fit", TypeError),
    ],
    "make_optimizer": [
        rate("learning_rate|positive|got 0.0", learning_rate=0.0),
        rate("weight_decay|adamw|got 0.1", weight_decay=0.1),
        rate("weight_decay|got -0.1", name="adamw", weight_decay=-0.1),
        rate("clip_norm must be positive|got -1.0", clip_norm=-1.0),
        rate("warmup_steps|num_steps = 10|got 11", warmup_steps=11),
        rate("beta2 must be in (0, 1|got 1.0", beta2=1.0),
        rate("rho must be in (0, 1|got 0.0", rho=0.0),
        rate("epsilon must be positive|got 0.0", epsilon=0.0),
        rate("ema_decay must be in [0, 1|got -0.1", ema_decay=-0.1),
        rate("ema_decay must be in [0, 1|got 1.0", ema_decay=1.0),
        (lambda: params_ema(0.5).update({}, None), "params must be given to update of params_ema"),
        rate("decay_rate|got 0.0", schedule="staircase", decay_rate=0.0),
        rate("decay_rate|got 1.5", schedule="staircase", decay_rate=1.5),
        rate("decay_every|got 0", schedule="staircase", decay_every=0),
        rate("decay_begin|got -1", schedule="staircase", decay_begin=-1),
        rate("reset_moments must be False unless|staircase", reset_moments=True),
        rate("reset_moments|got True", name="sgd", schedule="staircase", reset_moments=True),
    ],
    "lanes_of": [
        (lambda: lanes_of(TrainConfig(sweep=(float("nan"),))), "sweep|finite|got nan"),
        (lambda: lanes_of(TrainConfig(sweep=(-1.0,))), "learning_rate must be positive|-1.0"),
    ],
    "make_parallel": [
        devices("kind must be 'sharding', 'fsdp', 'pmap' or 'single'|'zero'", kind="zero"),
        devices("accumulate must be at least 1|got 0", accumulate=0),
        devices("mesh must be a jax.sharding.Mesh|got 'mesh'", TypeError, mesh="mesh"),
        devices("param_sharding must be a function|list", TypeError, param_sharding=[1]),
        devices("batch_axis='batch'|('data', 'model'", mesh=mesh, batch_axis="batch"),
        devices("must have the axis over which", mesh=mesh, batch_axis=()),
        devices("mesh must be None with kind 'pmap'", mesh=mesh, kind="pmap"),
        devices("None with kind 'single'", param_sharding=print, kind="single"),
        devices("devices must be None with a mesh|got []", mesh=mesh, devices=[]),
        devices("devices must not be empty", devices=[]),
    ],
    "DistributedConfig": [
        (lambda: DistributedConfig(coordinator="a:1"), "must be given together|'a:1'"),
        (lambda: DistributedConfig(coordinator="a", num_processes=2, process_id=0),
         "coordinator must be HOST:PORT|got 'a'"),
        (lambda: DistributedConfig(coordinator="a:1", num_processes=2, process_id=2),
         "process_id|num_processes = 2|got 2"),
        (lambda: DistributedConfig(coordinator="a:1", num_processes=2, process_id=-1),
         "process_id|got -1"),
        (lambda: DistributedConfig(coordinator="a:1", num_processes=1, process_id=0, auto=True),
         "auto must be False"),
        (lambda: DistributedConfig(timeout_s=0), "timeout_s must be at least 1|got 0"),
    ],
    "Ratio.of": [
        (lambda shape=shape: Ratio.of(np.ones(shape, np.float32), np.ones(4, np.float32)),
         f"values must have the shape of weight (4,|got {shape}"[:-1])
        for shape in [(4, 1), (1, 4), (1,), (4, 3), (3,)]
    ],
    "step": [
        (step_in_parts, "accumulate must divide the rows of a batch|got 3 for 8"),
        (lambda: init_state(Plane(frozen=("c", "w")), optax.sgd(1), jax.random.key(0), BATCH),
         "frozen|'b', 'w'|got ['c'"),
    ],
    "checkpoints": [
        (lambda: CheckpointStore("nowhere").save(1, {}, state={"a.b": X, "a": {"b": X}}),
         "arrays must have different names"),
        (lambda: CheckpointStore("nowhere", keep=0), "keep must be at least 1|got 0"),
        (lambda: CheckpointStore("nowhere", every=0), "every must be at least 1|got 0"),
        (lambda: average_params("nowhere", {}, 0), "count must be at least 1|got 0"),
        (lambda: average_params("nowhere", {}, 2), "no checkpoint", FileNotFoundError),
        (lambda: restore_params("nowhere", {}), "no checkpoint in", FileNotFoundError),
        (lambda: restore_params("nowhere", {}, which="first"), "which must be|'first'"),
    ],
    "replay": [
        (lambda: replay(Data(), 0, 0, 99), "in the batch of step 0|got 99"),
        (lambda: replay(Data(), 0, 0, -1), "in the batch of step 0|got -1"),
    ],
}  # fmt: skip


@each_row(CALLS)
def test_what_cannot_be_called_is_refused_by_name(call, parts, error):
    refused(call, parts, error)


# -- runs ------------------------------------------------------------------------------------------


class Endless:
    def __getitem__(self, step):
        return EVALUATION[0]


class Short:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return EVALUATION[index]


class WithoutEvaluate:
    init, loss = Tiny.init, Tiny.loss


def returns(loss=None, evaluate=None, base=Tiny):
    """A task with changed results of its loss or its evaluation."""

    class Task(base):
        pass

    for name, change in (("loss", loss), ("evaluate", evaluate)):
        if change is not None:
            real = getattr(base, name)
            setattr(Task, name, lambda *given, f=real, g=change: g(f(*given)))
    return Task()


def as_halves(result):
    return result[0], jax.tree.map(lambda x: x.astype("bfloat16"), result[1])


def one_array(carried):
    return carried.replace(shared={"mean": carried.shared["mean"]})


def rows(count, **changes):
    return {name: value[:count] for name, value in BATCH.items()} | changes


def weights(value):
    return rows(8, weight=np.array([1, 0, 0.5, value, 1, 1, 1, 1], np.float32))


PER_ROW = Ratio(np.ones(8, np.float32), np.ones(8, np.float32))
RUNS = {
    "task": [
        ({"task": WithoutEvaluate()}, "task must have a method 'evaluate'"),
        ({"task": Data()}, "task must have a method 'init'|got Data without"),
        ({"task": returns(lambda m: {"loss": m["loss"].total})}, "loss must be Ratio|got Array"),
        ({"task": returns(lambda m: {"nll": m["loss"]})}, "must have 'loss'|got ['nll'"),
        ({"task": returns(lambda m: {"loss": Ratio(np.int32(1), np.int32(1))})},
         "the loss must be a float|int32"),
        ({"task": returns(lambda m: {"loss": PER_ROW})},
         "metrics of loss must be scalars|got 'loss'"),
        ({"task": returns(lambda m: (m["loss"].total, m))}, "loss must return metrics|Array, dict"),
        ({"task": returns(None, lambda e: ({"accuracy": PER_ROW}, {}))},
         "metrics of evaluate must be scalars|got 'accuracy'"),
        ({"task": returns(None, lambda e: e[0])}, "evaluate must return (metrics, predictions"),
        ({"task": returns(None, lambda e: ({"accuracy": jnp.ones(())}, {}))},
         "metrics of evaluate must be Ratio|'accuracy'"),
        ({"best_metric": "f1"}, "best_metric must be one of ['accuracy'|got 'f1'"),
        ({"task": Plane(more={"odd": jax.random.key(0)}), "train": Points(), "evaluation": None},
         "odd must not be a PRNG key"),
        ({"task": Plane(more={"odd": np.arange(3)}), "train": Points(), "evaluation": None},
         "params.odd must be|floating-point numbers|got int32[3"),
    ],
    "training data": [
        ({"train": []}, "at least num_steps = 12 batches|got 0"),
        ({"train": [BATCH] * 3}, "at least num_steps = 12 batches|got 3"),
        ({"train": type("Once", (Data,), {"one_pass": True})()}, "num_steps = 12 batches|got 6"),
        ({"train": BATCH}, "train_data[0] must be the batch of step 0|got KeyError"),
        ({"train": [1.0] * 12}, "train_data[0] must be a dict of arrays|got float"),
        ({"train": [rows(0)] * 12}, "train_data[0] must have at least one row"),
        ({"train": [rows(8, weight=1.0)] * 12}, "got 'weight' of shape"),
        ({"train": [{"x": np.ones(3)}] * 12}, "train_data[0] must have 'weight'|got ['x'"),
        *(({"train": [weights(value)] * 12},
           f"train_data[0] must have a finite 'weight' of at least 0|got {value} in row 3")
          for value in (-1.0, -0.25, np.nan, np.inf)),
        ({"train": [{"weight": np.repeat([1.0, -1.0], 2000)}] * 12}, "got -1.0 in row 2000"),
    ],
    "evaluation data": [
        ({"evaluation": []}, "eval_data must not be empty"),
        ({"evaluation": iter(EVALUATION)}, "eval_data must|read again|got list_iterator"),
        ({"evaluation": EVALUATION[0]}, "eval_data must be a list of batches|got dict"),
        ({"evaluation": 3}, "eval_data must be a list of batches|got int"),
        ({"evaluation": Endless()}, "eval_data must be a list|Endless, which has no __len__"),
        ({"evaluation": [rows(0)]}, "first batch of eval_data must have at least one row"),
        ({"evaluation": [weights(-1.0)]}, "the first batch of eval_data|got -1.0 in row 3"),
    ],
}  # fmt: skip
NAN, INF = np.float32([np.nan, 1]), START["w"] - np.float32(np.inf)
WRONG_LOSS = returns(lambda r: (r[0], one_array(r[1])), base=Normalised)
NOT_CARRIED, WITH_KEY = Normalised(), Normalised()
NOT_CARRIED.init_carried = lambda key, batch: {}
WITH_KEY.init_carried = lambda key, batch: (
    Normalised().init_carried(key, batch).replace(shared={"key": key})
)
OF_FIT = [
    ({"config": OptimizerConfig()},
     "config must be a TrainConfig|got OptimizerConfig"),
    ({"config": TrainConfig(seeds=3)}, "config must have seeds = 1|got 3|call fit_lanes"),
    ({"optimizer": OptimizerConfig()}, "optimizer must be an optax.GradientTransformation"),
    ({"config": options(optimizer=OptimizerConfig(name="sgd")), "optimizer": optax.adam(0.1)},
     "optimizer must be None with config.optimizer|got both"),
    ({"config": options(accumulate=4), "parallel": make_parallel("single")},
     "parallel|accumulate of config, 4|got 1"),
    *(({"steps": value}, f"steps must be an integer|got {value!r}") for value in ("10", 2.5, True)),
    ({"steps": 0}, "num_steps must be at least 1|got 0"),
    ({"workdir": ""}, "workdir must be the path of a folder|got ''"),
    *(({"params": params} | {"task": Plane(), "train": Points(), "evaluation": None},
       f"params must have|{parts}")
      for params, parts in (
          ({"w": START["w"]}, "b: wanted float32[2], got nothing"),
          (START | {"w": np.ones((2, 3), np.float32)}, "w: wanted float32[3, 2], got float32[2, 3"),
          (START | {"b": np.zeros(2, np.int32)}, "b: wanted float32[2], got int32[2"),
          (START | {"b": NAN}, "finite numbers|got 1 of 2 numbers of b that"),
          (START | {"w": INF}, "got 6 of 6 numbers of w that are NaN"))),
    *(({name: value}, f"{name} must be|{parts}") for name in ("settings", "metadata")
      for value, parts in ((3, "a mapping or a dataclass|got int"), ({"a": {1}}, "JSON|got set"))),
    ({"settings": {"train": None}}, "settings['train'] must be a mapping|got NoneType"),
    ({"eval_params": lambda params, state: {}}, "eval_params must return|w: wanted float32[4"),
    ({"eval_params": lambda params, state: state.ema}, "eval_params must compute|an error"),
    *(({"task": task, "train": Far(), "evaluation": None} | more, parts) for task, more, parts in (
        (WRONG_LOSS, {}, "loss must return carried arrays like those of init_carried|'var'"),
        (returns(as_halves, base=Normalised), {}, "like those of init_carried|bfloat16"),
        (returns(lambda r: r[0], base=Normalised), {}, "loss must return (metrics, carried|dict"),
        (returns(lambda r: (r[0], {}), base=Normalised), {}, "(metrics, carried|(dict, dict"),
        (NOT_CARRIED, {}, "init_carried must return Carried, got dict"),
        (WITH_KEY, {}, "must not be a PRNG key"),
        (Normalised(), {"config": options(accumulate=2)}, "accumulate must be 1 for Normalised"))),
    *(({"parallel": rule}, parts) for rule, parts in (
        (lambda p, a: P("modle"), "the sharding of 'w'|'modle'|must fit"),
        (lambda p, a: ("data",), "must return a jax.sharding.PartitionSpec|got ('data'"),
        (lambda p, a: None, "got None for 'w': return PartitionSpec"),
        (lambda p, a: P(None, None, "data"), "must fit"))),
    ({"train": iter([BATCH])}, "train_data|each batch again|list_iterator|repeatable=False"),
    ({"train": set(), "repeatable": False}, "at least one batch|got set without"),
    ({"train": [(1, 2)] * 12, "repeatable": False}, "train_data[0] must be a dict"),
    ({"train": (pair for pair in [(1, 2)]), "repeatable": False}, "first batch of train_data|dict"),
    ({"train": 3}, "train_data[step], or be an iterable|got int"),
    *(({"train": state}, "get_state() of train_data must return bytes or") for state in (
        object(), {"a": (1, 2)}, {"a": np.int64(3)})),
]  # fmt: skip


class Stated:
    """An iterator with a state."""

    def __init__(self, state):
        self.get_state = lambda: state

    def __iter__(self):
        return self

    def __next__(self):
        return BATCH


OF_LANES = [
    *(({"parallel": kind}, f"parallel must be 'sharding' or 'single'|got {kind!r}")
      for kind in ("pmap", "fsdp")),
    ({"sweep": (1.0,), "sweep_over": "width"}, "sweep_over must be one of|got 'width'"),
    ({"train": lambda seed: Data(rows=8 + seed)}, "training batches|the same shapes for all seeds"),
    ({"evaluation": lambda seed: [Data(rows=8 + seed)[1000]]}, "evaluation batches|same shapes"),
    ({"task": Memory(), "train": Rows(), "evaluation": None}, "task must not carry rows|Memory"),
    ({"sweep": (0.1, 0.2), "optimizer": optax.sgd(0.1)}, "sweep_over must be a number of the task"),
    ({"train": lambda seed: iter([BATCH])}, "train_data(seed) must give the batch of a step as"),
]  # fmt: skip
EITHER = (TypeError, ValueError)
FLAT = [(given, parts) for table in RUNS.values() for given, parts in table]
name_of = lambda given: given if isinstance(given, str) else ""  # noqa: E731


@pytest.mark.parametrize(("given", "parts"), FLAT, ids=name_of)
def test_a_run_that_cannot_work_is_refused_before_anything_is_written(given, parts, tmp_path):
    for seeds in (1, 2):
        refused(lambda seeds=seeds: run(tmp_path / "run", seeds=seeds, **given), parts, EITHER)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("given", "parts"), OF_FIT, ids=name_of)
def test_arguments_of_fit_that_cannot_work_are_refused_before_anything_is_written(
    given, parts, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    given = {"config": options(), "workdir": "run", "task": Tiny(), "train": Data()} | given
    if callable(given.get("parallel")):
        given["parallel"] = make_parallel(mesh=mesh(), param_sharding=given["parallel"])
    train, held_out = given.pop("train"), given.pop("evaluation", EVALUATION)
    if "get_state" in parts:
        train = Stated(train)
    call = lambda: fit(given.pop("task"), train, held_out, **given)  # noqa: E731
    refused(call, parts, EITHER)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("given", "parts"), OF_LANES, ids=name_of)
def test_what_cannot_be_trained_side_by_side_is_refused(given, parts, tmp_path):
    refused(lambda: run(tmp_path, **{"seeds": 2} | given), parts, EITHER)


# -- what only the run itself shows ----------------------------------------------------------------


class Summary(Plane):
    def __init__(self, value):
        super().__init__()
        self.summarise = lambda predictions: value

    def evaluate(self, params, batch):
        return super().evaluate(params, batch)[0], {"tokens": batch.get("tokens", batch["x"])}


def later(batch):
    return [BATCH, batch, *(Data()[step] for step in range(2, 12))]


def of_a_lane(number, seed):
    return later(weights(-1.0)) if seed == number else later(Data()[1])


def summary(value, parts, **given):
    call = lambda: plane(task=Summary(value), evaluation=[Points()[0]], **given)  # noqa: E731
    return call, parts, EITHER


RAGGED = [Points()[0] | {"tokens": np.zeros((8, width))} for width in (3, 4)]
LATER = {
    "data": [
        (lambda: run(train=later(rows(0))), "the batch of step 1 must have at least one row"),
        (lambda: run(train=later(weights(-1.0))), "the batch of step 1|got -1.0 in row 3"),
        (lambda: run(evaluation=later(weights(np.nan))), "evaluation batch 1|got nan in row 3"),
        (lambda: run(evaluation=later(rows(0))), "evaluation batch 1 must have at least one row"),
        (lambda: run(seeds=2, train=lambda seed: of_a_lane(1, seed)), "the batch of step 1|weight"),
        (lambda: run(seeds=2, evaluation=lambda seed: of_a_lane(1, seed)), "evaluation batch 1"),
        (lambda: run(seeds=2, evaluation=later(weights(-1.0))), "evaluation batch 1|'weight'"),
        (lambda: run(evaluation=Short()), "eval_data must have len(eval_data) = 2|IndexError"),
        (lambda: evaluate(Tiny(), {"w": np.zeros(4, np.float32)}, later(weights(-1.0))),
         "evaluation batch 1|got -1.0 in row 3"),
        (lambda: evaluate(Tiny(), {}, Endless()), "data must be a list of batches|Endless",
         TypeError),
    ],
    "summarise": [
        summary(0.5, "summarise must return a dict of floats by name|got float"),
        summary({"auc": "high"}, "must return numbers|'auc' is 'high'"),
        summary({"auc": np.ones(2)}, "must return numbers|'auc' is array"),
        *(summary({name: 1.0}, f"other names than evaluate|got {name!r}: rename it")
          for name in ("loss", "step")),
        summary({"f1": 1.0}, "best_metric must be one of ['f1', 'loss'|'auc'", best_metric="auc"),
        (lambda: plane(task=Summary({}), evaluation=RAGGED),
         "predictions 'tokens' must have the same shape|pad"),
    ],
    "shared": [
        (lambda: evaluate(Normalised(), {}, [Far()[0]], make_parallel("single")),
         "shared must fit Normalised, with the arrays"),
        (lambda: evaluate(Tiny(), {"w": np.zeros(4)}, [BATCH], None, {"mean": np.zeros(2)}),
         "shared must fit Tiny"),
    ],
    "updates": [
        (lambda: run(train=lambda seed: poisoned(*range(12 * seed), shift=0), seeds=2,
                     evaluation=None, max_skipped=1), "seed 1: 2 updates in a row", NonFiniteError),
    ],
}  # fmt: skip


@each_row(LATER)
def test_what_only_a_run_shows_is_named(call, parts, error):
    refused(call, parts, error)


def test_too_many_skipped_updates_are_named_with_the_last_of_them():
    change = lambda step, batch: {"x": batch["x"] * np.nan, "example_id": np.arange(10) - 1}  # noqa: E731
    data = Changed(lambda step, batch: change(step, batch) if 0 < step < 4 else {})
    data.rows = 10
    parts = (
        "3 updates in a row had a loss, gradient or updated parameters .*limit 2.* at step 4 with"
    )
    with pytest.raises(NonFiniteError, match=rf"{parts} .* 0, .*, 7, and 1 more in") as caught:
        run(train=data, evaluation=None, max_skipped=2)
    assert caught.value.step == 4


def test_a_workdir_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    refused(lambda: run(tmp_path / "file" / "run"), "file/run", OSError)


@pytest.mark.slow
def test_fewer_steps_than_a_workdir_has_are_refused(tmp_path):
    for seeds in (1, 2):
        go = lambda steps, n=seeds: run(  # noqa: E731
            tmp_path / str(n), evaluation=None, seeds=n, num_steps=steps
        )
        go(6)
        refused(lambda go=go: go(4), "is at step 6|num_steps is 4", CheckpointMismatch)
