"""The folder of a run: one writer, taken away while it runs, and files that no run has written."""

import errno
import fcntl
import json
import os
import re
import shutil
import time
from pathlib import Path

import _store
import pytest

from gatedjax.training import WorkdirBusy, WorkdirLost
from gatedjax.training.workdir import MetricsLog, WorkdirLock
from tests.training._tiny import assert_same_run, contents, run, saved


@pytest.fixture
def used(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    return tmp_path / "run"


# -- one writer ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_run_in_the_same_workdir_is_told_who_has_it(tmp_path):
    messages = []

    def second(name, step, *rest):
        if (name, step) == ("step", 3):
            with pytest.raises(WorkdirBusy) as caught:
                run(tmp_path)
            messages.append(str(caught.value))

    first = run(tmp_path, hook=second)
    host = os.uname().nodename
    assert f"is being written by another run (process {os.getpid()} on {host!r})" in messages[0]
    assert run(tmp_path, num_steps=13).steps == first.steps + 1


@pytest.mark.slow
def test_the_lock_is_free_after_an_error(tmp_path, monkeypatch):
    close = MetricsLog.close

    def fail(log):
        close(log)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MetricsLog, "close", fail)
    with pytest.raises(OSError, match="No space"):
        run(tmp_path, num_steps=2)
    lock = WorkdirLock(tmp_path)
    lock.release()
    lock.release()


def test_a_lock_file_without_a_readable_holder_still_locks(tmp_path):
    lock = WorkdirLock(tmp_path)
    (tmp_path / ".lock").write_text("garbage")
    with pytest.raises(WorkdirBusy, match="its name is not written yet"):
        WorkdirLock(tmp_path)
    lock.release()
    assert (tmp_path / ".lock").read_text() == ""


def test_a_lock_where_there_are_none_or_where_a_link_leads_away(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    (tmp_path / ".lock").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        WorkdirLock(tmp_path)
    assert (tmp_path / "file").read_text() == "mine"

    def fail(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.warns(RuntimeWarning, match="on a file system without locks"):
        WorkdirLock(tmp_path, ".other").release()


# -- taken away ------------------------------------------------------------------------------------


def wait_for(workdir, step):
    """Waits until the run has a checkpoint: no save may be under way when its folder goes."""
    deadline = time.monotonic() + 120
    while step not in saved(workdir):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("event", "seeds"), [(("save", 10), 1), (("step", 6), 2)])
def test_a_run_whose_workdir_is_removed_stops_and_writes_nothing_there(event, seeds, tmp_path):
    def remove(*now):
        if now[:2] == event:
            wait_for(tmp_path / "run", 5)
            shutil.rmtree(tmp_path / "run")

    message = rf"{re.escape(str(tmp_path / 'run'))} is gone: it was removed, moved or replaced"
    with pytest.raises(WorkdirLost, match=message) as caught:
        run(tmp_path / "run", hook=remove, seeds=seeds)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_second_run_at_the_same_path_keeps_its_own_checkpoints(tmp_path, whole):
    found = []

    def replace(name, step, *rest):
        if (name, step) == ("step", 6):
            wait_for(tmp_path / "run", 5)
            os.rename(tmp_path / "run", tmp_path / "moved")
            run(tmp_path / "run", seed=1)
            found.append(contents(tmp_path / "run"))

    with pytest.raises(WorkdirLost, match="is another folder now"):
        run(tmp_path / "run", hook=replace)
    assert [contents(tmp_path / "run")] == found
    # what was moved is whole, and goes on where it is
    assert_same_run(run(tmp_path / "moved"), whole[1])


# -- metrics.jsonl ---------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["5", "[1]", '{"step": 2.0}', "{}"])
def test_a_line_that_no_run_has_written_is_named_and_nothing_is_changed(line, used):
    log = used / "metrics.jsonl"
    first, *rest = log.read_text().splitlines()
    log.write_text("\n".join([first, line, *rest]) + "\n")
    # a damaged checkpoint is not set aside either
    _store.flip(used / "checkpoints" / "12" / "record" / "metadata")
    before = contents(used)
    named = re.escape("metrics.jsonl, line 2: a line must be an object with an integer 'step'")
    with pytest.raises(ValueError, match=rf"{named}, got '{re.escape(line)}'"):
        run(used, num_steps=16)
    assert contents(used) == before


@pytest.mark.slow
def test_a_log_that_was_deleted_is_missed_aloud(used):
    (used / "metrics.jsonl").unlink()
    (used / ".lock").unlink()  # checkpoints show that this is a run
    with pytest.warns(RuntimeWarning, match=r"metrics\.jsonl is gone: the metrics up to step 12"):
        run(used, num_steps=16)
    lines = (used / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["step"] for line in lines} == {15, 16}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_the_log_is_on_disk_whenever_a_checkpoint_is_saved(seeds, tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def note(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.name == "metrics.jsonl":
            synced.append(json.loads(path.read_text().splitlines()[-1])["step"])
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    run(tmp_path, seeds=seeds, checkpoint_every=4)
    assert synced == [4, 8, 12]


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "environment.json"])
def test_files_that_no_run_wrote_are_not_replaced(name, tmp_path):
    (tmp_path / name).write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    for seeds in (1, 2):
        with pytest.raises(FileExistsError, match=f"holds {name} and no lock of a run.* another w"):
            run(tmp_path, seeds=seeds)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "notes.txt"])
    assert (tmp_path / name).read_text() == "mine"
