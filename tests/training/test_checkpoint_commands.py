"""`python -m gatedjax checkpoints`: looks, and leaves everything as it is."""

import contextlib
import re
import shutil
import subprocess
import sys
import tracemalloc

import _store
import _tiny
import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax.training import CheckpointDamaged, CheckpointStore, manifest
from gatedjax.training.lock import WorkdirLock
from tests._programs import environment

_MB = 1_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("commands") / "run"
    _tiny.train(workdir)
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


def test_ls_shows_steps_and_what_is_wrong_with_them(workdir, capsys):
    (workdir / "checkpoints" / "56" / "manifest.json").unlink()
    status, out, _ = command(capsys, "ls", workdir)
    lines = out.splitlines()
    assert status == 0
    assert "| no: manifest.json is missing" in lines[2]
    assert lines[3].startswith("|   60 |")
    assert "| yes " in lines[3]
    assert "accuracy 0.75 (step 20)" in lines[3]


def test_verify_names_every_damaged_file(workdir, capsys):
    assert command(capsys, "verify", workdir)[0] == 0
    _store.flip(workdir / "checkpoints" / "60" / "state" / "_METADATA")
    _store.flip(workdir / "checkpoints" / "60" / "record" / "metadata")
    status, out, _ = command(capsys, "verify", workdir)
    assert status == 1
    assert "checkpoint 60: state/_METADATA has other bytes than were saved" in out
    assert "checkpoint 60: record/metadata has other bytes than were saved" in out
    assert "|   56 |" in out


def test_diff_compares_two_steps_and_two_runs(workdir, tmp_path, capsys):
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
    assert "| dense.kernel | nothing" in out
    assert "train.seed" in out


def test_nothing_is_written_and_no_lock_is_taken(workdir, capsys):
    (workdir / "checkpoints" / "64.partial.orbax-checkpoint-tmp").mkdir()
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


def constant(workdir, count, monkeypatch=None):
    """A step that is next to nothing but zeros; with monkeypatch as Orbax would pack them."""
    zeros = {"w": np.zeros(count, np.float32)}
    store = CheckpointStore(workdir / "checkpoints")
    with monkeypatch.context() if monkeypatch else contextlib.nullcontext() as patch:
        if patch:
            patch.setattr(manifest, "find_excess", lambda content: None)
        store.save(1, {"params": zeros}, zeros, {"run": {}})
        store.close()
    return store, zeros


def test_a_small_folder_that_declares_large_arrays_is_refused_before_they_are_read(
    tmp_path, monkeypatch, capsys
):
    # 80 MB of zeros in 12 KB: what the manifest says of every file and array is true
    store, zeros = constant(tmp_path / "run", 10 * _MB, monkeypatch)
    size = sum(file.stat().st_size for file in store.directory.rglob("*") if file.is_file())
    assert size < 0.1 * _MB
    said = r"its files of [\d,]+ bytes declare arrays of 80,000,000 bytes"
    tracemalloc.start()
    try:
        status, out, _ = command(capsys, "verify", tmp_path / "run")
        assert (status, bool(re.search(said, out))) == (1, True)
        status, _, err = command(capsys, "diff", tmp_path / "run", "--steps", 1, 1)
        assert (status, bool(re.search(said, err))) == (1, True)
        assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 1
        assert re.search(said, capsys.readouterr().err)
        with pytest.raises(CheckpointDamaged, match=said):
            store.restore(1, {"params": zeros}, zeros)
        assert tracemalloc.get_traced_memory()[1] < 5 * _MB
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "out").exists()


def test_a_run_of_constants_is_saved_so_that_it_can_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(manifest, "ROOM", _MB)
    store, zeros = constant(tmp_path / "run", _MB)
    assert command(capsys, "verify", tmp_path / "run")[0] == 0
    state, best = store.restore(1, {"params": zeros}, zeros)
    assert not state["params"]["w"].any()
    assert not best["w"].any()


@pytest.mark.parametrize(
    ("entry", "size"),
    [
        ("float32[3, 4]", 48),
        ("bfloat16[5]", 10),
        ("int32[]", 4),
        ("float64[0, 99999999999]", 0),
        ("float32[-1]", 0),
        ("object", 0),
        ("nothing[2]", 0),
        ("uint8[" + "9" * 5000 + "]", 0),
    ],
)
def test_the_size_of_an_array_is_read_off_its_manifest(entry, size):
    assert manifest._count_bytes(entry) == size


def test_keys_with_escape_codes_are_shown_and_not_sent(tmp_path, capsys):
    tree = {"w\x1b[2J": np.ones(2, np.float32)}
    store = CheckpointStore(tmp_path / "run\x1b[1m" / "checkpoints")
    for step in (1, 2):
        scaled = {name: step * value for name, value in tree.items()}
        store.save(step, {"params": scaled}, scaled, {"metadata": {"a\x1b[3J": step}})
    store.close()
    workdir = store.directory.parent
    said = [*command(capsys, "diff", workdir), *command(capsys, "diff", workdir, "--steps", 1, 3)]

    def damage(content):
        content["leaves"]["best"]["w\x1b[2J"][1] = "0" * 64

    _store.forge(store.folder(2), damage)
    said += command(capsys, "verify", workdir)
    status = main(["export", str(workdir), "--out", str(tmp_path / "out"), "--step", "1"])
    assert status == 2
    said += capsys.readouterr()
    text = "".join(part for part in said if isinstance(part, str))
    assert r"array w\x1b[2J in best/ is not what was saved" in text
    assert "\x1b" not in text


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
