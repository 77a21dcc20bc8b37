"""Checkpoints: the same bits come back, damage is found, old steps go, a failed save is told."""

import re
import shutil
import subprocess

import _store
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from orbax.checkpoint import CheckpointManager

from gatedjax.training import (
    CheckpointDamaged,
    CheckpointMismatch,
    CheckpointNotSaved,
    CheckpointStore,
    OptimizerConfig,
    average_params,
    restore_params,
)
from tests._slow import slow_but
from tests.training._tiny import (
    Plane,
    assert_equal,
    assert_same_run,
    events_to,
    lines,
    plane,
    run,
    saved,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return _store.make(tmp_path_factory.mktemp("made"), 5, 10)


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in pairs]
    assert all(x.dtype == y.dtype and x.shape == y.shape for x, y in pairs)
    assert all(x.tobytes() == y.tobytes() for x, y in pairs)


def test_a_step_comes_back_bit_for_bit_with_its_record(made):
    assert made.steps() == [5, 10]
    for step in (5, 10):
        trees = _store.trees(step)
        same(made.restore(step, state=None, best=None), trees)
        same(made.restore(step, **jax.eval_shape(lambda trees=trees: trees)), trees)
        assert made.record(step) == {"step": step}
    assert made.checksums(10)["state"].keys() == {
        "count", "nan", "params.dense.bias", "params.dense.kernel", "params.scale",
    }  # fmt: skip


@pytest.mark.slow
def test_steps_that_are_superseded_go_and_strangers_stay(made, tmp_path):
    store = CheckpointStore(tmp_path / "run" / "checkpoints", 2, every=10)
    for step in (10, 13, 20, 30, 31):
        store.save(step, {}, **_store.trees(step))
        store.wait()
    store.close()
    # a step between, as after a signal, goes with the next one
    assert store.steps() in ([30, 31], [20, 30, 31])
    assert not (store.directory / "removed").exists()
    # what a killed save left is not listed, and goes with the next save
    store = _store.copy(made, tmp_path)
    for name in ("12.orbax-checkpoint-tmp", "notes"):
        (store.directory / name).mkdir()
    assert store.steps() == [5, 10]
    store.save(15, {"step": 15}, **_store.trees(15))
    store.close()
    assert store.steps() == [10, 15]
    assert (store.directory / "notes").is_dir()


def test_arrays_that_change_after_save_do_not_change_the_checkpoint(tmp_path):
    memory = np.zeros(12, np.float32)
    trees = _store.trees(5)
    trees["state"]["params"]["dense"]["kernel"] = memory.reshape(3, 4)
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(5, {}, **trees)
    memory[:] = 7
    store.close()
    (store.directory / "06").mkdir()  # no save writes such a name
    assert store.steps() == [5]
    assert not store.arrays(5, "state")["params.dense.kernel"].any()


# -- damage ----------------------------------------------------------------------------------------


# what Orbax leaves open when it cannot read a file
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", slow_but(_store.DAMAGES, "flip"))
def test_no_damage_to_any_file_is_read_as_another_array(way, made, tmp_path):
    names = _store.files(made.folder(10))
    assert len(names) > 10
    refused = 0
    for number, name in enumerate(names):
        store = _store.copy(made, tmp_path / str(number))
        _store.DAMAGES[way](store.folder(10) / name)
        try:
            found, record = store.restore(10, state=None, best=None), store.record(10)
        except CheckpointDamaged as error:
            refused += bool(error.problems)
        else:  # the file is not needed for the numbers
            same(found, _store.trees(10))
            assert record == {"step": 10}
    same(store.restore(5, state=None, best=None), _store.trees(5))
    assert refused >= 3


def test_a_flipped_number_is_named(tmp_path):
    # Orbax alone would return the changed array.
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(1, {}, state={"w": np.arange(100_000, dtype=np.float32), "v": np.ones(3)})
    store.close()
    files = (tmp_path / "checkpoints" / "1" / "state").rglob("*")
    _store.flip(max(filter(lambda p: p.is_file(), files), key=lambda path: path.stat().st_size))
    with pytest.raises(CheckpointDamaged, match=r"1 is damaged: state: "):
        store.restore(1, state=None)


@pytest.mark.parametrize(
    ("way", "name"),
    slow_but([("flip", "record/metadata"), ("delete", "state/_METADATA")], "flip"),
)
def test_fit_sets_a_damaged_step_aside_and_continues_from_the_one_before(
    way, name, whole, tmp_path
):
    shutil.copytree(whole[0], tmp_path / "run")
    _store.DAMAGES[way](tmp_path / "run" / "checkpoints" / "12" / name)
    bad = tmp_path / "run" / "checkpoints-bad"
    (bad / "12").mkdir(parents=True)  # of an earlier time
    part = name.partition("/")[0]
    expected = rf"checkpoint 12 cannot be read.*is damaged: {part}: .*continuing from step 10"
    with pytest.warns(RuntimeWarning, match=re.compile(expected, re.S)):
        again = run(tmp_path / "run")
    assert_same_run(again, whole[1])
    assert lines(tmp_path / "run") == lines(whole[0])
    assert sorted(path.name for path in bad.iterdir()) == ["12", "12-2"]


def test_a_run_without_a_readable_checkpoint_says_so_and_keeps_the_files(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    for step in ("10", "12"):
        _store.cut(tmp_path / "run" / "checkpoints" / step / "record" / "metadata")
    with pytest.raises(RuntimeError, match=r"no checkpoint .* can be read: tried \[10, 12\]"):
        run(tmp_path / "run")
    assert saved(tmp_path / "run") == [10, 12]


# -- a save that fails -----------------------------------------------------------------------------


def broken(*errors):
    def fail(*args, **options):
        raise OSError(*errors)

    return fail


def test_a_failed_save_is_told_once_and_the_steps_before_stay(tmp_path, monkeypatch):
    store = _store.make(tmp_path, 1)
    assert store.poll() == [1]
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointManager, "save", broken(28, "No space left on device"))
        with pytest.raises(CheckpointNotSaved, match=r"2 was not saved .*No space .*whole: \[1\]"):
            store.save(2, {}, **_store.trees(2))
    assert store.poll() == []
    store.save(2, {}, **_store.trees(2))
    store.wait()
    assert store.steps() == [1, 2]
    store.save(2, {"step": "again"}, **_store.trees(2))
    store.close()
    assert store.record(2) == {}


# Orbax tells a failure in the background, such as that of the last save, when it has ended.
@pytest.mark.slow
@pytest.mark.parametrize(("method", "last"), [("save", False), ("check_for_errors", True)])
def test_a_failure_of_a_save_ends_a_run_soon(method, last, tmp_path, monkeypatch, whole):
    real, events, error = getattr(CheckpointManager, method), [], (28, "No space left on device")

    def fail(self, *step, **options):
        return broken(*error)() if last or step[0] == 10 else real(self, *step, **options)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointManager, method, fail)
        with pytest.raises(CheckpointNotSaved, match=r"was not saved .*No space left") as caught:
            run(tmp_path, hook=events_to(events), num_steps=3 if last else 12)
    assert caught.value.errno == 28
    assert ("saved", 3 if last else 10) not in events
    assert ("step", 12) not in events
    if not last:
        assert saved(tmp_path) == [5]
        assert_same_run(run(tmp_path), whole[1])


# what Orbax leaves open when it cannot write a file
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_keeps_the_steps_and_a_read_only_one_can_be_read(tmp_path):
    def mount(*options):
        return subprocess.run(["mount", *options, str(tmp_path)], capture_output=True).returncode

    # only root in a machine of its own may
    if not shutil.which("mount") or mount("-t", "tmpfs", "-o", "size=4m", "none"):
        pytest.skip("may not mount a small disk here")
    try:
        store, filler = _store.make(tmp_path, 1, 2), tmp_path / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(b"x" * (4 << 20))
        store.save(3, {}, **_store.trees(3))
        with pytest.raises(CheckpointNotSaved, match=r"3 was not saved.*No space left on device"):
            store.wait()
        filler.unlink()
        store.save(3, {}, **_store.trees(3))
        store.close()
        mount("-o", "remount,ro")
        assert store.steps() == [2, 3]
        same(store.restore(3, state=None, best=None), _store.trees(3))
        with pytest.raises(OSError, match="Read-only file system"):
            run(tmp_path / "run")
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True, capture_output=True)


# -- parameters of a run ---------------------------------------------------------------------------


def test_restore_params_reads_best_or_last_and_refuses_others(whole):
    workdir, result = whole
    like = result.state.params
    params, skipped = restore_params(workdir, like)
    assert_equal(params, result.best_params)
    assert skipped == []
    assert_equal(restore_params(workdir, like, which="last")[0], result.state.params)
    abstract = jax.eval_shape(lambda: like)
    assert restore_params(workdir, abstract, step=10)[0].keys() == like.keys()
    other = {"w": np.zeros(4, np.float32), "head": np.ones(2, np.float32)}
    with pytest.raises(CheckpointMismatch, match=r"head: saved nothing, now float32\[2\]"):
        restore_params(workdir, other)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint 7 in .*it has \[10, 12\]"):
        restore_params(workdir, like, step=7)


def test_partial_restore_loads_what_fits_and_lists_the_rest(made):
    like = {
        "dense": {"kernel": np.zeros((3, 4), np.float32), "bias": np.zeros(7, jax.numpy.bfloat16)},
        "scale": np.array(0, np.float64),
        "fresh": np.array([7, 8]),
    }
    params, skipped = restore_params(made.directory.parent, like, True, which="last")
    np.testing.assert_array_equal(params["dense"]["kernel"], np.full((3, 4), 10))
    assert params["dense"]["bias"] is like["dense"]["bias"]
    assert params["fresh"] is like["fresh"]
    assert skipped == [
        "dense.bias: saved bfloat16[4], now bfloat16[7]",
        "fresh: saved nothing, now int64[2]",
        "scale: saved float32[], now float64[]",
    ]


LIKE = {"w": np.zeros(3, np.float32), "b": np.float32(0), "half": jnp.zeros(1, jnp.bfloat16)}


def save(workdir, *steps, **options):
    store = CheckpointStore(workdir / "checkpoints", **options)
    for step in steps:
        params = {"w": np.full(3, step, np.float32), "b": np.float32(10 * step)}
        # bfloat16 has no 257
        params["half"] = np.full(1, 256 if step == 1 else 1, jnp.bfloat16)
        store.save(step, {}, state={"params": params})
    store.close()
    return workdir


def test_the_newest_checkpoints_are_averaged(tmp_path):
    save(tmp_path, 1, 2, 4, keep=5)
    mean, steps = average_params(tmp_path, LIKE, 2)
    assert steps == (2, 4)
    same(mean, {"w": np.full(3, 3, np.float32), "b": np.float32(30), "half": LIKE["half"] + 1})
    assert average_params(tmp_path, LIKE, 1)[1] == (4,)
    every, steps = average_params(tmp_path, LIKE, 9)
    assert steps == (1, 2, 4)
    np.testing.assert_allclose(every["w"], np.full(3, 7 / 3), rtol=1e-6)
    assert every["half"] == 86
    with pytest.raises(CheckpointMismatch):
        average_params(tmp_path, LIKE | {"w": np.zeros(4, np.float32)}, 2)


@pytest.mark.slow
def test_where_a_run_was_stopped_changes_no_average(tmp_path):
    regular = {"keep": 3, "every": 5}
    save(tmp_path / "stopped", 5, 10, 15, 17, **regular)  # the last by a signal
    assert average_params(tmp_path / "stopped", LIKE, 3)[1] == (10, 15, 17)
    save(tmp_path / "stopped", 18, **regular)  # and again
    save(tmp_path / "stopped", 20, 22, **regular)
    save(tmp_path / "whole", 5, 10, 15, 20, 22, **regular)
    for name in ("stopped", "whole"):
        mean, steps = average_params(tmp_path / name, LIKE, 3)
        assert steps == (15, 20, 22)
        np.testing.assert_array_equal(mean["w"], np.full(3, 19.0))


@pytest.fixture
def superseded(tmp_path, monkeypatch):
    """A run that keeps one checkpoint and saves the next while the one before it is read."""
    store = _store.make(tmp_path, 10, keep=1)
    real, read = CheckpointStore.checksums, []

    def checksums(self, step):
        read.append(step)
        if len(read) == 1:
            store.save(20, {"step": 20}, **_store.trees(20))
            store.close()
        return real(self, step)

    monkeypatch.setattr(CheckpointStore, "checksums", checksums)
    return tmp_path, read


@pytest.mark.parametrize("reads", ["params", "average"])
def test_a_step_that_is_superseded_while_it_is_read_is_not_damage(reads, superseded):
    workdir, read = superseded
    like = _store.trees(0)["state"]["params"]
    if reads == "params":
        params, _ = restore_params(workdir, like, which="last")
    else:
        params, steps = average_params(workdir, like, 2)
        assert steps == (20,)
    same(params, _store.trees(20)["state"]["params"])
    assert read == [10, 20]


def test_a_damaged_newest_step_is_told_once_and_not_tried_for_ever(tmp_path):
    store = _store.make(tmp_path, 10, 20)
    _store.flip(store.folder(20) / "record" / "metadata")
    with pytest.raises(CheckpointDamaged, match="20 is damaged: record: "):
        restore_params(tmp_path, _store.trees(0)["state"]["params"], which="last")


# -- arrays that need care -------------------------------------------------------------------------


def empty_state():
    """Keeps an array without numbers beside nothing else."""
    return optax.GradientTransformation(
        lambda params: {"none": jnp.zeros((0, 3), jnp.bfloat16)}, lambda u, s, p=None: (u, s)
    )


NOISE = optax.chain(optax.add_noise(0.1, 0.5, key=jax.random.key(0)), optax.sgd(0.05))
AVERAGE = OptimizerConfig(name="sgd", learning_rate=0.05, ema_decay=0.9)
CARE = {
    "no numbers": (Plane(more={"empty": np.zeros((2, 0), np.float32)}),
                   {"optimizer": optax.chain(empty_state(), optax.sgd(0.1))}),
    "a key on devices": (Plane(), {"optimizer": NOISE, "parallel": "pmap", "devices": 2}),
    "half precision": (Plane(jnp.bfloat16), {"optimizer": AVERAGE}),
    "half precision, lanes": (Plane(jnp.bfloat16), {"optimizer": AVERAGE, "seeds": 2}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CARE)
def test_arrays_that_need_care_are_saved_and_go_on(name, tmp_path):
    task, options = CARE[name]

    def go(folder, steps):
        result = plane(tmp_path / folder, task=task, num_steps=steps, **options)
        return result[0] if "lanes" in name else result

    unbroken = go("whole", 4)
    go("parts", 2)
    parts = go("parts", 4)
    assert_equal((parts.state, parts.best_params), (unbroken.state, unbroken.best_params))
    if name == "no numbers":
        assert parts.state.opt_state[0]["none"].shape == (0, 3)
        params, left = restore_params(tmp_path / "whole", unbroken.best_params)
        assert (params["empty"].shape, left) == ((2, 0), [])
        assert "params.empty" not in CheckpointStore(tmp_path / "whole" / "checkpoints").arrays(4)
    if "half" in name:
        average, best = unbroken.state.opt_state[-1].ema["w"], unbroken.best_params["w"]
        assert (average.dtype, best.dtype) == (jnp.float32, jnp.bfloat16)
        # it has bits that bfloat16 does not have
        assert np.any(average != average.astype(jnp.bfloat16).astype(np.float32))
        np.testing.assert_array_equal(best, average.astype(jnp.bfloat16))
