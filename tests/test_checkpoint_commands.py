"""`python -m gatedjax checkpoints`: looks, and leaves everything as it is."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax.training import CheckpointStore
from gatedjax.training.workdir import WorkdirLock
from tests._programs import environment
from tests.training import _store
from tests.training._tiny import SIXTY
from tests.training._tiny import run as train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("commands") / "run"
    train(workdir, **SIXTY | {"checkpoint_every": 28})
    return workdir


@pytest.fixture
def workdir(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def snapshot(folder):
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in [folder, *folder.rglob("*")]}


def command(capsys, *args):
    status = main(["checkpoints", *map(str, args)])
    return status, *capsys.readouterr()


@pytest.mark.slow
def test_ls_shows_steps_and_what_is_wrong_with_them(workdir, capsys):
    _store.flip(workdir / "checkpoints" / "56" / "record" / "metadata")
    status, out, _ = command(capsys, "ls", workdir)
    lines = out.splitlines()
    assert status == 0
    assert "| damaged: record: " in lines[2]
    assert lines[3].startswith("|   60 |")
    assert "accuracy 0.75 (step 20)" in lines[3]


def test_verify_names_every_damaged_checkpoint(workdir, capsys):
    assert command(capsys, "verify", workdir)[0] == 0
    _store.flip(workdir / "checkpoints" / "60" / "state" / "_METADATA")
    _store.flip(workdir / "checkpoints" / "60" / "record" / "metadata")
    status, out, _ = command(capsys, "verify", workdir)
    assert status == 1
    assert "checkpoint 60: record: " in out
    assert "|   56 |" in out


def test_diff_compares_two_steps_and_two_runs(workdir, tmp_path, capsys):
    steps = workdir / "checkpoints"
    shutil.copytree(steps / "56", steps / "28")  # of three steps the last two are compared
    status, out, _ = command(capsys, "diff", workdir)
    row = next(line for line in out.splitlines() if line.startswith("| opt_state.0.count"))
    assert [cell.strip() for cell in row.split("|")[2:5]] == ["int32[]", "int32[]", "4"]
    assert (status, "0 identical arrays, 5 differ" in out) == (0, True)
    shutil.copytree(workdir, tmp_path / "other")
    status, out, _ = command(capsys, "diff", workdir, tmp_path / "other", "--steps", 60, 60)
    assert (status, out) == (0, "5 identical arrays, 0 differ\nidentical settings\n")
    _store.make(tmp_path / "third", 3)
    status, out, err = command(capsys, "diff", workdir, tmp_path / "third", "--part", "best")
    assert (status, err) == (0, "")
    assert "| params.dense.kernel | nothing" in out
    assert "train.seed" in out


def test_nothing_is_written_and_no_lock_is_taken(workdir, capsys):
    (workdir / "checkpoints" / "64.orbax-checkpoint-tmp").mkdir()
    lock = WorkdirLock(workdir)
    before = snapshot(workdir)
    for name in ("ls", "verify", "diff"):
        assert command(capsys, name, workdir)[0] == 0
    assert snapshot(workdir) == before
    lock.release()


def test_what_cannot_be_done_is_said_with_status_2(workdir, tmp_path, capsys):
    status, _, err = command(capsys, "ls", tmp_path / "nowhere")
    assert (status, "nowhere must be the work folder of a run" in err) == (2, True)
    status, _, err = command(capsys, "ls", workdir / "checkpoints")
    assert (status, f"Did you mean {workdir}?" in err) == (2, True)
    status, _, err = command(capsys, "diff", workdir, "--steps", 1, 60)
    assert (status, "no checkpoint 1 in" in err) == (2, True)
    with pytest.raises(SystemExit) as caught:
        command(capsys, "destroy", workdir)
    assert caught.value.code == 2
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    assert command(capsys, "verify", tmp_path / "empty")[0] == 1
    assert command(capsys, "diff", tmp_path / "empty")[0] == 2


def test_names_are_shown_and_not_sent_and_arrays_compared_by_their_bits(tmp_path, capsys):
    store = CheckpointStore(tmp_path / "checkpoints")
    before = {"w\x1b[2J": [np.nan, 0.0, -2.0], "x": [np.nan, 1.0], "y": [0.0], "z": [np.nan]}
    after = {"w\x1b[2J": [np.nan, 0.0, 1.5], "x": [np.nan, 1.0], "y": [-0.0], "z": [1.0]}
    for step, arrays in ((1, before), (2, after)):
        store.save(step, {}, best={"params": {n: np.array(v) for n, v in arrays.items()}})
    store.close()
    status, out, err = command(capsys, "diff", tmp_path, "--part", "best")
    assert "\x1b" not in out + err
    rows = [line.split("|") for line in out.splitlines() if line.startswith("| params")]
    assert (status, [row[4].strip() for row in rows]) == (0, ["3.5 (1 NaN)", "0", "- (1 NaN)"])


@pytest.mark.slow
def test_a_process_of_its_own_stays_on_one_cpu_device(workdir):
    code = (
        "import sys, jax; from gatedjax.__main__ import main; status = main(sys.argv[1:]);"
        "print(jax.default_backend(), jax.device_count()); sys.exit(status)"
    )
    variables = environment()
    del variables["XLA_FLAGS"], variables["JAX_PLATFORMS"]
    done = subprocess.run(
        [sys.executable, "-c", code, "checkpoints", "verify", str(workdir)],
        capture_output=True, text=True, timeout=120, env=variables,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "cpu 1"), done.stderr
