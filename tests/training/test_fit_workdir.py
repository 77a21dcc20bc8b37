"""`fit` and its work folder: taken away while it runs, logs and records that no run has written."""

import hashlib
import json
import os
import re
import shutil
import time
from pathlib import Path

import _store
import chex
import jax
import pytest

from gatedjax.training import TrainConfig, WorkdirLost, fit, fit_lanes, manifest
from gatedjax.training.checkpoint import CheckpointStore
from gatedjax.training.lock import WorkdirLock
from gatedjax.training.log import MetricsLog
from tests.training._tiny import Data, Tiny


def run(workdir, on_event=None, seeds=1, **changes):
    settings = {"num_steps": 12, "log_every": 3, "eval_every": 4, "checkpoint_every": 4}
    config = TrainConfig(
        **(
            settings
            | {"best_metric": "accuracy", "progress": False, "parallel": "single", "seeds": seeds}
            | changes
        )
    )
    if seeds > 1:
        return fit_lanes(
            Tiny(), lambda seed: Data(), [Data()[1000]], config, workdir, on_event=on_event
        )[0]
    return fit(Tiny(), Data(), [Data()[1000]], config, workdir, on_event=on_event)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("whole") / "run"
    return workdir, run(workdir)


@pytest.fixture(scope="module")
def two_lanes(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("lanes") / "run"
    return workdir, run(workdir, seeds=2)


def contents(workdir):
    return {
        str(path.relative_to(workdir)): path.read_bytes()
        for path in sorted(workdir.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_a_log_that_cannot_be_closed_does_not_keep_the_folder_locked(tmp_path, monkeypatch):
    close = MetricsLog.close

    def fail(log):
        close(log)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MetricsLog, "close", fail)
    with pytest.raises(OSError, match="No space"):
        run(tmp_path)
    WorkdirLock(tmp_path).release()


# -- taken away ----------------------------------------------------------------------------------


def saved(workdir, step):
    """Waits until the run has a checkpoint: no save may be under way when its folder goes."""
    deadline = time.monotonic() + 120
    while not (workdir / "checkpoints" / str(step) / "manifest.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("event", [("step", 6), ("save", 12)])
def test_a_run_whose_workdir_is_removed_stops_and_writes_nothing_there(event, seeds, tmp_path):
    def remove(*now):
        if now == event:
            saved(tmp_path / "run", 4 if event[1] == 6 else 8)
            shutil.rmtree(tmp_path / "run")

    message = rf"{re.escape(str(tmp_path / 'run'))} is gone: it was removed, moved or replaced"
    with pytest.raises(WorkdirLost, match=message) as caught:
        run(tmp_path / "run", remove, seeds)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_workdir_that_goes_during_the_last_save_is_no_success(tmp_path, monkeypatch):
    real = manifest.write

    def broken(folder, step, leaves):
        real(folder, step, leaves)
        if step == 12:
            shutil.rmtree(tmp_path / "run")

    monkeypatch.setattr(manifest, "write", broken)
    with pytest.raises(WorkdirLost, match="is gone"):
        run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_second_run_at_the_same_path_keeps_its_own_checkpoints(tmp_path):
    expected = run(tmp_path / "expected", seed=1)
    found = []

    def replace(name, step):
        if (name, step) == ("step", 6):
            saved(tmp_path / "run", 4)
            os.rename(tmp_path / "run", tmp_path / "moved")
            found.append(run(tmp_path / "run", seed=1))
            found.append(contents(tmp_path / "run"))

    with pytest.raises(WorkdirLost, match="is another folder now"):
        run(tmp_path / "run", replace)
    chex.assert_trees_all_equal(found[0].state, expected.state)
    assert contents(tmp_path / "run") == found[1]
    # what was moved is whole, and goes on where it is
    chex.assert_trees_all_equal(run(tmp_path / "moved").state, run(tmp_path / "unbroken").state)


# -- metrics.jsonl -------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["5", "null", "[1]", '{"step": null}', '{"step": 2.0}', "{}"])
def test_a_line_that_no_run_has_written_is_named_and_nothing_is_changed(line, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    log = tmp_path / "run" / "metrics.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([lines[0], line, *lines[1:]]) + "\n")
    # a damaged checkpoint is not set aside either
    _store.flip(tmp_path / "run" / "checkpoints" / "12" / "record" / "metadata")
    before = contents(tmp_path / "run")
    named = re.escape("metrics.jsonl, line 2: a line must be an object with an integer 'step'")
    with pytest.raises(ValueError, match=rf"{named}, got '{re.escape(line)}'"):
        run(tmp_path / "run", num_steps=16)
    assert contents(tmp_path / "run") == before


def test_lanes_name_such_a_line_too(two_lanes, tmp_path):
    shutil.copytree(two_lanes[0], tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write("null\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line \d+: a line must be an object"):
        run(tmp_path / "run", seeds=2, num_steps=16)


def test_a_log_that_was_deleted_is_missed_aloud(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.warns(RuntimeWarning, match=r"metrics\.jsonl is gone: the metrics up to step 12"):
        run(tmp_path / "run", num_steps=16)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert set(steps) == {15, 16}


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_log_is_on_disk_whenever_a_checkpoint_is_saved(seeds, tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def note(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.name == "metrics.jsonl":
            synced.append(json.loads(path.read_text().splitlines()[-1])["step"])
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    run(tmp_path, seeds=seeds)
    assert synced == [4, 8, 12]


# -- records -------------------------------------------------------------------------------------


def forge_record(folder, change):
    """Rewrites the record of a step with good hashes, as an attacker would."""
    path = folder / "record" / "metadata"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    entry = {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    _store.forge(folder, lambda content: content["files"].update({"record/metadata": entry}))


def change(**values):
    return lambda record: record["run"].update(values)


def of_lane(**values):
    return lambda record: record["run"]["lanes"][1].update(values)


FORGED = {
    "step of another": (change(step=10), r"run\.step must be 12, got 10"),
    "step of another type": (change(step="12"), r"run\.step must be 12, got '12'"),
    "best step": (change(best_step=1.5), r"run: best_step must be a count, got '1\.5'"),
    "best metrics": (change(best_metrics=[1]), "best_metrics must be numbers by name"),
    "finished": (change(finished=1), "finished must be 'done', 'early' or null, got '1'"),
    "history": (change(history=[{"step": None}]), "history must be a list of evaluations"),
    "pending": (change(pending={"loss": [1]}), "pending must be a sum and a count by name"),
    "patience": (change(without_improvement=-1), "without_improvement must be a count, got '-1'"),
    "skipped": (change(skipped_in_a_row=None), "skipped_in_a_row must be a count, got 'None'"),
    "a field of no run": (change(evil=1), r"its fields must be among .* got \['evil'\]"),
    "no object": (lambda record: record.update(run=[12]), "run must be an object, got list"),
}
FORGED_LANES = {
    "step": (of_lane(step=10), r"run\.lanes\[1\]\.step must be 12, .* got 10"),
    "type": (of_lane(history={}), r"run\.lanes\[1\]: history must be a list"),
    "fewer": (lambda record: record["run"]["lanes"].pop(), r"run\.lanes must be 2 records"),
    "pending": (change(pending={"loss": [1, 2]}), r"run\.pending must be sums and counts of 2"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_record_is_refused_by_name_and_the_step_before_continued(name, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    forge, message = FORGED[name]
    forge_record(tmp_path / "run" / "checkpoints" / "12", forge)
    with pytest.warns(RuntimeWarning, match=rf"checkpoint 12 cannot be read.*{message}.*step 8"):
        again = run(tmp_path / "run")
    chex.assert_trees_all_equal(
        (again.state, again.best_params), (whole[1].state, whole[1].best_params)
    )


@pytest.mark.parametrize("name", FORGED_LANES)
def test_forged_records_of_all_steps_end_the_run_by_name(name, two_lanes, tmp_path):
    shutil.copytree(two_lanes[0], tmp_path / "run")
    forge, message = FORGED_LANES[name]
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "8")
    forge_record(tmp_path / "run" / "checkpoints" / "12", forge)
    before = contents(tmp_path / "run")
    with pytest.raises(RuntimeError, match=rf"tried \[12\] \(.*{message}"):
        run(tmp_path / "run", seeds=2)
    assert contents(tmp_path / "run") == before


@pytest.mark.slow
def test_arrays_of_another_step_are_refused(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    store = CheckpointStore(tmp_path / "run" / "checkpoints", keep=3)
    like = jax.eval_shape(lambda: whole[1].state)
    state, best = store.restore(8, like, like.params)
    record = store.record(8)
    record["run"]["step"] = 13
    store.save(13, state, best, record)
    store.close()
    with pytest.warns(RuntimeWarning, match=r"run.step must be 8, the step of its arrays, got 13"):
        run(tmp_path / "run", num_steps=16)


# -- files of others -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "environment.json"])
@pytest.mark.parametrize("seeds", [1, 2])
def test_files_that_no_run_wrote_are_not_replaced(name, seeds, tmp_path):
    (tmp_path / name).write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=f"holds {name} and no lock of a run.* another work"):
        run(tmp_path, seeds=seeds)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "notes.txt"])
    assert (tmp_path / name).read_text() == "mine"
