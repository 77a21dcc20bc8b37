"""Checkpoints where the machine gets in the way: two processes, a full or read-only disk."""

import shutil
import socket
import subprocess
import sys
import textwrap

import _store
import _tiny
import pytest

from gatedjax.training import CheckpointNotSaved, CheckpointStore
from tests._programs import environment

ALONE = """
    import sys
    import jax
    import numpy as np
    jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
    from gatedjax.training import CheckpointStore

    from jax.experimental import multihost_utils
    assert jax.process_count() == 2
    store = CheckpointStore(sys.argv[3])
    tree = {"w": np.arange(4.0)}
    if jax.process_index() == 0:
        for step in (1, 2, 3):
            store.save(step, tree, tree, {"step": step})
        store.close()
        assert store.steps() == [2, 3]
    else:
        try:
            store.save(1, tree, tree, {})
        except RuntimeError as error:
            assert "save must be called in process 0 of the run, got process 1" in str(error)
    multihost_utils.sync_global_devices("saved")
    state, best = store.restore(3, tree, tree)
    assert (state["w"] == tree["w"]).all() and store.record(3) == {"step": 3}
    print("done", flush=True)
    multihost_utils.sync_global_devices("end")
"""


@pytest.mark.slow
def test_the_first_of_two_processes_saves_alone_and_both_restore(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    arguments = [sys.executable, "-c", textwrap.dedent(ALONE), address]
    children = [
        subprocess.Popen(
            [*arguments, str(number), str(tmp_path / "checkpoints")],
            env=environment(XLA_FLAGS="", JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(2)
    ]  # fmt: skip
    try:
        results = [child.communicate(timeout=120) for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0], results[0][1] + results[1][1]
    assert all("done" in out.splitlines() for out, _ in results)


@pytest.fixture
def disk(tmp_path):
    """Mounts and unmounts a small disk; only root in a machine of its own may do that."""
    target = tmp_path / "disk"
    target.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=512k", "none", str(target)], capture_output=True
    )
    if not made or made.returncode:
        pytest.skip("may not mount a small disk here")
    yield target
    subprocess.run(["umount", "-l", str(target)], check=True, capture_output=True)


def test_a_full_disk_keeps_the_steps_and_saves_again_when_there_is_room(disk):
    store = _store.make(disk, 1, 2)
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(b"x" * (1 << 20))
    store.save(3, *_store.trees(3), {})
    with pytest.raises(CheckpointNotSaved, match="checkpoint 3 was not saved"):
        store.wait()
    assert sorted(p.name for p in store.directory.iterdir()) == ["1", "2"]
    for step in (1, 2):
        store.restore(step, *_store.trees(step))
    filler.unlink()
    store.save(3, *_store.trees(3), {})
    store.close()
    assert store.steps() == [2, 3]


@pytest.mark.slow
def test_a_read_only_disk_can_be_read_and_refuses_a_run(disk):
    _tiny.train(disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
    store = CheckpointStore(disk / "run" / "checkpoints")
    assert store.verify(60, arrays=True)["step"] == 60
    with pytest.raises(OSError, match="Read-only file system"):
        _tiny.train(disk / "run")
    store.save(64, *_store.trees(64), {})
    with pytest.raises(CheckpointNotSaved, match="Read-only file system"):
        store.close()
