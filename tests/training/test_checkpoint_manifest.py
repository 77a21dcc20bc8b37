"""Checkpoints that prove themselves: damage, hostile archives, retention, failing disks."""

import hashlib
import json
import os
import shutil
import threading

import _store
import jax
import numpy as np
import pytest
import tensorstore

from gatedjax.training import (
    CheckpointDamaged,
    CheckpointMismatch,
    CheckpointNotSaved,
    CheckpointStore,
    average_params,
    checkpoint,
    manifest,
    restore_params,
)
from tests._slow import slow_but


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return _store.make(tmp_path_factory.mktemp("made"), 5, 10)


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def test_a_step_comes_back_bit_for_bit_with_its_record(made):
    assert made.steps() == [5, 10]
    for step in (5, 10):
        state, best = _store.trees(step)
        restored = made.restore(step, state, best)
        same(restored, (state, best))
        assert made.record(step) == {"step": step}


@pytest.mark.parametrize("way", slow_but(_store.DAMAGES, "flip"))
def test_damage_to_any_file_is_found_by_name_and_the_step_before_is_good(way, made, tmp_path):
    names = _store.files(made.folder(10))
    assert len(names) > 10
    for number, name in enumerate(names):
        store = _store.copy(made, tmp_path / str(number))
        _store.DAMAGES[way](store.folder(10) / name)
        with pytest.raises(CheckpointDamaged, match="checkpoint 10 is damaged") as caught:
            store.restore(10, *_store.trees(10))
        assert caught.value.problems[0].startswith(f"{name} "), caught.value
        assert store.steps() == ([5] if (way, name) == ("delete", "manifest.json") else [5, 10])
        same(store.restore(5, *_store.trees(5)), _store.trees(5))


def test_an_extra_file_is_damage_and_a_file_that_may_not_be_read_is_not(
    made, tmp_path, monkeypatch
):
    store = _store.copy(made, tmp_path)
    (store.folder(10) / "state" / "extra").touch()
    with pytest.raises(CheckpointDamaged, match=r"state/extra is not in manifest\.json"):
        store.restore(10, *_store.trees(10))

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(manifest, "_file_hash", refuse)
    with pytest.raises(PermissionError):
        store.restore(5, *_store.trees(5))


def test_arrays_are_checked_after_reading(made, tmp_path):
    # the files of another step under this one's hashes of arrays: every file is as the forged
    # manifest says, the values are not
    store = _store.copy(made, tmp_path)
    leaves = store.manifest(10)["leaves"]
    shutil.rmtree(store.folder(10))
    shutil.copytree(store.folder(5), store.folder(10))
    _store.forge(store.folder(10), lambda content: content.update(step=10, leaves=leaves))
    with pytest.raises(CheckpointDamaged, match="array count in state/ is not what was saved"):
        store.restore(10, *_store.trees(10))


def test_a_step_in_a_folder_of_another_number_is_refused(made, tmp_path):
    store = _store.copy(made, tmp_path)
    os.rename(store.folder(10), store.folder(11))
    with pytest.raises(CheckpointDamaged, match=r"manifest\.json is that of step 10"):
        store.record(11)


def listed(name):
    return lambda content: content["files"].update({name: {"size": 1, "sha256": "0" * 64}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (listed("../../outside"), r"'../../outside', which is not a file inside"),
        (listed("/etc/passwd"), r"'/etc/passwd', which is not a file inside"),
        (listed("state/./x"), "which is not a file inside"),
        (listed("state\\x"), "which is not a file inside"),
        (listed("state/weights.pkl"), r"state/weights\.pkl is a pickle"),
        (lambda c: c["files"]["_CHECKPOINT_METADATA"].update(size=1 << 60), "saved were 115"),
        (lambda c: c["files"].update(x=7), "has no size and hash for 'x'"),
        (lambda c: c.update(files=[]), "lists no files"),
        (lambda c: c["leaves"].update(state=[1]), "no shapes and hashes"),
        (lambda c: c.update(format=99), "has format 99, wanted 1"),
        (lambda c: c.update(step=3), "is that of step 3"),
    ],
)
def test_a_forged_manifest_is_refused(change, message, made, tmp_path):
    store = _store.copy(made, tmp_path)
    _store.forge(store.folder(10), change)
    with pytest.raises(CheckpointDamaged, match=message):
        store.restore(10, *_store.trees(10))


@pytest.mark.parametrize(
    "text", [b"", b"[" * 100_000, b"null", b"\xff\xfe", b'{"a": NaN, "a": 1e999}']
)
def test_a_manifest_that_is_no_manifest_is_refused(text, made, tmp_path):
    store = _store.copy(made, tmp_path)
    (store.folder(10) / "manifest.json").write_bytes(text)
    with pytest.raises(CheckpointDamaged, match=r"manifest\.json is not as it was written"):
        store.restore(10, *_store.trees(10))


def test_links_and_pipes_are_refused_and_never_opened(made, tmp_path):
    store = _store.copy(made, tmp_path)
    target = store.folder(10) / "record" / "metadata"
    os.rename(target, tmp_path / "outside")
    target.symlink_to(tmp_path / "outside")
    with pytest.raises(CheckpointDamaged, match="record/metadata is a link"):
        store.record(10)
    target.unlink()
    os.mkfifo(target)
    with pytest.raises(CheckpointDamaged, match="record/metadata is not a plain file"):
        store.record(10)
    os.rename(store.folder(5), tmp_path / "5")
    store.folder(5).symlink_to(tmp_path / "5")
    with pytest.raises(CheckpointDamaged, match="the folder is a link"):
        store.restore(5, *_store.trees(5))


def test_an_array_that_is_larger_than_the_manifest_says_is_refused_before_it_is_read(tmp_path):
    # 64 MB of zeros are a small file; the manifest, with good hashes of files, says 12 numbers
    state, best = _store.trees(5)
    big = {**state, "params": {**state["params"], "scale": np.zeros(1 << 24, np.float32)}}
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(5, big, best, {})
    store.close()

    def shrink(content):
        content["leaves"]["state"]["params.scale"][0] = "float32[]"

    with pytest.raises(CheckpointMismatch, match=r"params\.scale: saved float32\[16777216\]"):
        store.restore(5, state, best)
    _store.forge(store.folder(5), shrink)
    with pytest.raises(CheckpointDamaged, match=r"params\.scale: .*stored float32\[16777216\]"):
        store.restore(5, state, best)


def test_a_chunk_that_would_be_unpacked_whole_is_refused_before_it_is_read(tmp_path):
    # every hash is good and every shape is right; the chunk is 20 MB of ones, packed by blosc
    store = _store.make(tmp_path, 5)
    folder = store.folder(5)
    base = {"driver": "file", "path": f"{folder}/state/"}
    state = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}).result()
    packed = {
        "compressor": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 0},
        "shape": [5_000_000],
        "chunks": [5_000_000],
        "dtype": "<f4",
    }
    spec = {"driver": "zarr", "kvstore": "memory://", "metadata": packed}
    big = tensorstore.open(spec, create=True).result()
    big[...] = 1.0
    described = json.loads(state.read("params.dense.kernel/.zarray").result().value)
    codec = json.loads(big.kvstore.read(".zarray").result().value)["compressor"]
    state.write(
        "params.dense.kernel/.zarray", json.dumps(described | {"compressor": codec})
    ).result()
    state.write("params.dense.kernel/0.0", big.kvstore.read("0").result().value).result()

    def vouch(content):
        content["files"] = {
            name: {"size": (folder / name).stat().st_size, "sha256": digest(folder / name)}
            for name in _store.files(folder)
            if name != manifest.NAME
        }

    _store.forge(folder, vouch)
    with pytest.raises(CheckpointDamaged, match=r"params\.dense\.kernel: packed by 'blosc'"):
        store.verify(5, arrays=True)
    with pytest.raises(CheckpointDamaged, match="packed by 'blosc'"):
        store.restore(5, *_store.trees(5))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_partial_restore_loads_what_fits_and_lists_the_rest(made):
    like = {
        "dense": {"kernel": np.zeros((3, 4), np.float32), "bias": np.zeros(7, jax.numpy.bfloat16)},
        "scale": np.array(0, np.float64),
        "fresh": np.array([7, 8]),
    }
    params, skipped = made.restore_partial(10, like, "last")
    np.testing.assert_array_equal(params["dense"]["kernel"], np.full((3, 4), 10))
    assert params["dense"]["bias"] is like["dense"]["bias"]
    assert params["fresh"] is like["fresh"]
    assert skipped == [
        "dense.bias: saved bfloat16[4], now bfloat16[7]",
        "fresh: saved nothing, now int64[2]",
        "scale: saved float32[], now float64[]",
    ]
    nothing, skipped = made.restore_partial(10, {"other": like["fresh"]})
    assert nothing["other"] is like["fresh"]
    assert skipped[0] == "dense.bias: saved bfloat16[4], now nothing"


def test_nothing_is_removed_before_newer_steps_are_whole(tmp_path, monkeypatch):
    store = _store.make(tmp_path, 1, 2)
    real = manifest.write
    monkeypatch.setattr(manifest, "write", lambda *args: (_ for _ in ()).throw(OSError(28, "full")))
    store.save(3, *_store.trees(3), {})
    with pytest.raises(CheckpointNotSaved, match=r"checkpoint 3 was not saved .*full.*\[1, 2\]"):
        store.wait()
    assert sorted(p.name for p in store.directory.iterdir()) == ["1", "2"]
    monkeypatch.setattr(manifest, "write", real)
    # a newer step that has lost a file does not count
    (store.folder(2) / "_CHECKPOINT_METADATA").unlink()
    store.save(3, *_store.trees(3), {})
    store.wait()
    assert store.steps() == [1, 2, 3]
    store.save(4, *_store.trees(4), {})
    store.close()
    assert store.steps() == [2, 3, 4]


def test_a_save_that_wrote_other_arrays_is_not_a_save(tmp_path, monkeypatch):
    store, real = _store.make(tmp_path, 1), checkpoint._orbax_save

    def lose(folder, trees, record):
        real(folder, jax.tree.map(np.zeros_like, trees), record)

    monkeypatch.setattr(checkpoint, "_orbax_save", lose)
    store.save(2, *_store.trees(2), {})
    with pytest.raises(CheckpointNotSaved, match=r"array .* in best/ is not what was saved"):
        store.close()
    assert store.found() == [1]


def test_a_failed_save_is_told_once_by_poll_and_the_next_one_works(tmp_path, monkeypatch):
    store = _store.make(tmp_path, 1)
    started, go_on = threading.Event(), threading.Event()

    def full(*args):
        started.set()
        go_on.wait(10)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        store.save(2, *_store.trees(2), {})
        started.wait(10)
        assert store.poll() == [1]
        assert store.poll() == []
        go_on.set()
        with pytest.raises(CheckpointNotSaved, match="No space left on device") as caught:
            store.save(3, *_store.trees(3), {})
    assert caught.value.errno == 28
    assert store.poll() == []
    store.save(2, *_store.trees(2), {})
    store.wait()
    assert (store.poll(), store.steps()) == ([2], [1, 2])
    store.close()


def test_what_a_killed_save_left_is_not_listed_and_goes_with_the_next_save(made, tmp_path):
    store = _store.copy(made, tmp_path)
    os.rename(store.folder(10), store.directory / "10.partial")
    (store.directory / "12.partial.orbax-checkpoint-tmp").mkdir()
    (store.directory / "notes").mkdir()
    assert store.steps() == store.found() == [5]
    store.save(10, *_store.trees(10), {"step": 10})
    store.close()
    assert sorted(p.name for p in store.directory.iterdir()) == ["10", "5", "notes"]


def test_a_step_without_manifest_is_not_listed_and_can_be_saved_again(made, tmp_path):
    store = _store.copy(made, tmp_path)
    (store.folder(10) / "manifest.json").unlink()
    assert (store.steps(), store.found()) == ([5], [5, 10])
    store.save(10, *_store.trees(10), {"step": 10})
    store.close()
    same(store.restore(10, *_store.trees(10)), _store.trees(10))
    assert (tmp_path / "checkpoints-bad" / "10").is_dir()


def test_arrays_that_change_after_save_do_not_change_the_checkpoint(tmp_path):
    memory = np.zeros(12, np.float32)
    state, best = _store.trees(5)
    state["params"]["dense"]["kernel"] = memory.reshape(3, 4)  # looks into memory of another
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save(5, state, best, {})
    memory[:] = 7
    store.close()
    assert not store.restore(5, state, best)[0]["params"]["dense"]["kernel"].any()


def test_reading_makes_no_folder(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    assert (store.steps(), store.latest(), store.poll()) == ([], None, [])
    store.close()
    assert list(tmp_path.iterdir()) == []


# -- what lies in the way -------------------------------------------------------------------------


def put(path, what):
    """A file, a link to nothing, a link to a folder, or a folder with a file at a path."""
    if what == "file":
        path.write_text("in the way")
    elif what == "folder":
        path.mkdir()
        (path / "file").write_text("in the way")
    else:
        aim = path.parent.with_name("elsewhere")
        if what == "link":
            aim.mkdir(exist_ok=True)
            (aim / "file").write_text("not ours")
        path.symlink_to(aim)


@pytest.mark.parametrize("what", ["file", "folder", "link", "dead link"])
def test_whatever_lies_in_the_way_of_a_save_is_removed_and_nothing_behind_a_link(what, tmp_path):
    store = _store.make(tmp_path, 10, 20)
    for name in ("5.removed", "40.partial"):
        put(store.directory / name, what)
    store.save(30, *_store.trees(30), {"step": 30})
    store.wait()
    assert sorted(path.name for path in store.directory.iterdir()) == ["20", "30"]
    # and what has come since the first save of this run
    for name in ("20.removed", "50.partial"):
        put(store.directory / name, what)
    store.save(50, *_store.trees(50), {"step": 50})
    store.close()
    assert sorted(path.name for path in store.directory.iterdir()) == ["30", "50"]
    if what == "link":
        assert (tmp_path / "elsewhere" / "file").read_text() == "not ours"


def test_a_dead_link_with_the_number_of_a_step_does_not_stop_its_save(tmp_path):
    store = _store.make(tmp_path, 10)
    put(store.folder(20), "dead link")
    store.save(20, *_store.trees(20), {"step": 20})
    store.close()
    assert store.steps() == [10, 20]


# -- a reader beside a writer ----------------------------------------------------------------------


@pytest.fixture
def superseded(tmp_path, monkeypatch):
    """A run that keeps one checkpoint and saves the next while the one before it is read."""
    store = _store.make(tmp_path, 10, keep=1)
    real, read = manifest.verify, []

    def verify(folder, *below):
        read.append(folder.name)
        if len(read) == 1:
            store.save(20, *_store.trees(20), {"step": 20})
            store.close()
        return real(folder, *below)

    monkeypatch.setattr(manifest, "verify", verify)
    return tmp_path, read


def test_a_step_that_is_superseded_while_it_is_read_is_not_damage(superseded):
    workdir, read = superseded
    like = _store.trees(0)[0]["params"]
    params, _ = restore_params(workdir, like, which="last")
    same(params, _store.trees(20)[0]["params"])
    assert read == ["10", "20"]


def test_an_average_goes_on_with_the_steps_that_are_there(superseded):
    workdir, read = superseded
    params, steps = average_params(workdir, _store.trees(0)[0]["params"], 2)
    same(params, _store.trees(20)[0]["params"])
    assert (steps, read) == ((20,), ["10", "20"])


def test_a_damaged_newest_step_is_told_once_and_not_tried_for_ever(tmp_path):
    store = _store.make(tmp_path, 10, 20)
    _store.flip(store.folder(20) / "manifest.json")
    with pytest.raises(CheckpointDamaged, match="checkpoint 20 is damaged"):
        restore_params(tmp_path, _store.trees(0)[0]["params"], which="last")
