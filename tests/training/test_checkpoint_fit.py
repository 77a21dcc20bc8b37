"""`fit` and its checkpoints: locks, full disks, kills, and damage to any file."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import _store
import _tiny
import chex
import jax
import numpy as np
import pytest
from _tiny import lines

from gatedjax.training import (
    CheckpointMismatch,
    CheckpointNotSaved,
    CheckpointStore,
    TrainConfig,
    WorkdirBusy,
    fit,
    manifest,
    restore_params,
)
from gatedjax.training.lock import WorkdirLock
from tests._programs import environment


def run(workdir, on_event=None, **changes):
    settings = {"num_steps": 20, "log_every": 10, "eval_every": 4, "checkpoint_every": 5}
    config = TrainConfig(
        **(
            settings
            | {"best_metric": "accuracy", "progress": False, "parallel": "single"}
            | changes
        )
    )
    return fit(_tiny.Tiny(), _tiny.Data(), [_tiny.Data()[1000]], config, workdir, on_event=on_event)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, run(workdir)


@pytest.mark.slow
def test_saved_comes_only_when_the_manifest_is_in_place(tmp_path):
    events = []

    def note(name, step):
        events.append((name, step))
        if name == "saved":
            assert (tmp_path / "checkpoints" / str(step) / "manifest.json").is_file()

    run(tmp_path, note)
    assert [step for name, step in events if name == "saved"] == [5, 10, 15, 20]
    assert [step for name, step in events if name == "save"] == [5, 10, 15, 20]


@pytest.mark.slow
def test_a_full_disk_stops_the_run_soon_and_leaves_the_steps_before(tmp_path, whole, monkeypatch):
    real, events = manifest.write, []

    def full(folder, step, leaves):
        if step == 15:
            raise OSError(28, "No space left on device")
        real(folder, step, leaves)

    def note(name, step):
        events.append((name, step))
        if name == "step" and step > 15:
            time.sleep(0.2)  # more than a save takes

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "write", full)
        with pytest.raises(
            CheckpointNotSaved, match=r"checkpoint 15 was not saved .*No space left"
        ):
            run(tmp_path, note)
    assert ("saved", 15) not in events
    assert max(step for name, step in events if name == "step") < 20
    assert CheckpointStore(tmp_path / "checkpoints").steps() == [5, 10]
    again = run(tmp_path)
    chex.assert_trees_all_equal(again.state, whole[1].state)


def test_a_failure_of_the_last_save_is_an_error_too(tmp_path, monkeypatch):
    def broken(*args):
        raise OSError(5, "Input/output error")

    events = []
    monkeypatch.setattr(manifest, "write", broken)
    with pytest.raises(CheckpointNotSaved, match="Input/output error"):
        run(tmp_path, lambda *event: events.append(event), num_steps=3)
    assert [name for name, _ in events if name == "saved"] == []
    assert list((tmp_path / "checkpoints").iterdir()) == []


SMALL_DISK = """
    import resource, signal, sys
    import numpy as np
    from gatedjax.training import CheckpointNotSaved, CheckpointStore

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = CheckpointStore(sys.argv[1])
    tree = lambda size: {"w": np.random.default_rng(0).normal(size=size)}
    store.save(1, tree(10), tree(10), {})
    store.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    store.save(2, tree(100_000), tree(10), {})
    try:
        store.close()
    except CheckpointNotSaved as error:
        print("refused:", error)
    CheckpointStore(sys.argv[1]).restore(1, tree(10), tree(10))
"""


@pytest.mark.slow
def test_a_write_that_the_system_refuses_to_orbax_is_an_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SMALL_DISK), str(tmp_path / "checkpoints")],
        capture_output=True, text=True, timeout=120, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "refused: checkpoint 2 was not saved" in done.stdout
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["1"]


# -- one writer ----------------------------------------------------------------------------------


def test_a_second_run_in_the_same_workdir_is_told_who_has_it(tmp_path):
    messages = []

    def second(name, step):
        if (name, step) == ("step", 3):
            with pytest.raises(WorkdirBusy) as caught:
                run(tmp_path)
            messages.append(str(caught.value))

    first = run(tmp_path, second)
    host = os.uname().nodename
    assert f"is being written by another run (process {os.getpid()} on {host!r})" in messages[0]
    assert run(tmp_path, num_steps=21).steps == first.steps + 1


@pytest.mark.slow
def test_the_lock_is_free_after_an_error_and_after_a_kill(tmp_path):
    with pytest.raises(ValueError, match="best_metric"):
        run(tmp_path, best_metric="nothing")
    hold = (
        "import sys, time; from gatedjax.training.lock import WorkdirLock\n"
        "lock = WorkdirLock(sys.argv[1]); print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, env=environment()
    )
    with child:
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(WorkdirBusy, match=f"process {child.pid} on "):
            WorkdirLock(tmp_path)
        child.kill()
        child.wait()
    lock = WorkdirLock(tmp_path)
    lock.release()
    lock.release()


def test_a_lock_file_without_a_readable_holder_still_locks(tmp_path):
    lock = WorkdirLock(tmp_path)
    (tmp_path / ".lock").write_text("garbage")
    with pytest.raises(WorkdirBusy, match="its name is not written yet"):
        WorkdirLock(tmp_path)
    lock.release()


# -- damage, and what fit makes of it -------------------------------------------------------------


def damaged_copy(whole, target, name, way):
    shutil.copytree(whole[0], target)
    _store.DAMAGES[way](target / "checkpoints" / "20" / name)


@pytest.mark.parametrize("name", ["manifest.json", "state/_METADATA", "record/metadata"])
@pytest.mark.parametrize("way", _store.DAMAGES)
def test_fit_names_the_damaged_file_and_continues_from_the_step_before(way, name, whole, tmp_path):
    damaged_copy(whole, tmp_path / "run", name, way)
    expected = rf"checkpoint 20 cannot be read.*{re.escape(name)} .*continuing from step 15"
    with pytest.warns(RuntimeWarning, match=expected):
        again = run(tmp_path / "run")
    chex.assert_trees_all_equal(
        (again.state, again.best_params), (whole[1].state, whole[1].best_params)
    )
    assert again.history == whole[1].history
    assert lines(tmp_path / "run") == lines(whole[0])
    assert [path.name for path in (tmp_path / "run" / "checkpoints-bad").iterdir()] == ["20"]


@pytest.mark.slow
def test_damage_to_any_file_of_a_run_costs_no_more_than_a_step(whole, tmp_path):
    # one way each: test_checkpoint_manifest tries all of them on every file of a store
    ways = itertools.cycle(_store.DAMAGES)
    for number, name in enumerate(_store.files(whole[0] / "checkpoints" / "20")):
        way = next(ways)
        damaged_copy(whole, tmp_path / str(number), name, way)
        with pytest.warns(RuntimeWarning, match=re.escape(name)):
            again = run(tmp_path / str(number))
        chex.assert_trees_all_equal(
            (again.state, again.best_params), (whole[1].state, whole[1].best_params)
        )


def test_restore_params_reads_best_or_last_and_refuses_others(whole):
    workdir, result = whole
    like = result.state.params
    params, skipped = restore_params(workdir, like)
    chex.assert_trees_all_equal(params, result.best_params)
    assert skipped == []
    chex.assert_trees_all_equal(restore_params(workdir, like, which="last")[0], result.state.params)
    abstract = jax.eval_shape(lambda: like)
    assert restore_params(workdir, abstract, step=15)[0].keys() == like.keys()
    other = {"w": np.zeros(4, np.float32), "head": np.ones(2, np.float32)}
    with pytest.raises(CheckpointMismatch, match=r"head: saved nothing, now float32\[2\]"):
        restore_params(workdir, other)
    params, skipped = restore_params(workdir, other, partial=True)
    np.testing.assert_array_equal(params["w"], result.best_params["w"])
    assert (params["head"] is other["head"], len(skipped)) == (True, 1)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint 7 in .*it has \[15, 20\]"):
        restore_params(workdir, like, step=7)
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        restore_params(workdir / "nowhere", like)
    with pytest.raises(ValueError, match="which must be"):
        restore_params(workdir, like, which="first")


# -- kills ----------------------------------------------------------------------------------------

# Saves without pause, so that a kill at any time falls into one.
SAVING = """
    import sys
    import numpy as np
    from gatedjax.training import CheckpointStore

    store = CheckpointStore(sys.argv[1])
    for step in range(1, 10_000):
        tree = {str(i): np.full(20_000, step, np.float32) for i in range(3)}
        store.save(step, tree, tree, {"step": step})
"""


@pytest.mark.slow
def test_a_kill_during_saves_leaves_only_whole_steps(tmp_path):
    folder = tmp_path / "checkpoints"
    partial = 0
    for number in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SAVING), str(folder)], env=environment()
        )
        before = max(CheckpointStore(folder).steps(), default=0)
        deadline = time.monotonic() + 120
        # steps that exist are left as they are, so that the child soon reaches new ones
        while max(CheckpointStore(folder).steps(), default=0) < before + 3:
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.01)
        time.sleep(0.013 * number)
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=60)
        store = CheckpointStore(folder)
        partial += any(not p.name.isdecimal() for p in folder.iterdir())
        assert store.found() == store.steps() != []
        for step in store.steps():
            like = {str(i): np.zeros(20_000, np.float32) for i in range(3)}
            state, _ = store.restore(step, like, like)
            assert all((x == step).all() for x in state.values())
    assert partial, "no kill fell into a save: the test tests nothing"


@pytest.mark.slow
def test_a_run_killed_in_a_save_continues_with_the_same_bits(tmp_path):
    expected = _tiny.train(tmp_path / "whole")
    child = subprocess.Popen(
        [sys.executable, _tiny.__file__, str(tmp_path / "cut"), "0.02"], env=environment()
    )
    folder, deadline = tmp_path / "cut" / "checkpoints", time.monotonic() + 120
    while not (list(folder.glob("*.partial*")) and CheckpointStore(folder).steps()):
        assert time.monotonic() < deadline
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    again = _tiny.train(tmp_path / "cut")
    chex.assert_trees_all_equal(
        (again.state, again.best_params), (expected.state, expected.best_params)
    )
    assert again.history == expected.history
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")


def test_the_training_thread_does_not_hash(tmp_path, monkeypatch):
    threads, real = set(), manifest.write

    def note(*args):
        threads.add(threading.current_thread())
        real(*args)

    monkeypatch.setattr(manifest, "write", note)
    run(tmp_path, num_steps=5)
    assert threads
    assert threading.main_thread() not in threads


def test_a_workdir_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=re.escape(str(Path("file") / "run"))):
        run(tmp_path / "file" / "run")
