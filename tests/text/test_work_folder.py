"""The work folder of a training: whose it is, and what of it is ever removed."""

import contextlib
import resource
from pathlib import Path

import pytest
import sklearn.linear_model  # noqa: F401 - its import needs a file, which a full disk refuses

from gatedjax.__main__ import main
from gatedjax.text.fit._network import remove_work, work_folder
from gatedjax.training import WorkdirBusy, workdir
from gatedjax.training.workdir import (
    LOCK,
    TRAIN_LOCK,
    MetricsLog,
    WorkdirLock,
    check_workdir,
    mark_run,
    remove_run,
)
from tests.text._own import TEXTS, write_csv


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_run(folder):
    """Files as a run leaves them."""
    for name in (LOCK, "config.json", "metrics.jsonl", "seconds", "train-0.ids", "test-tags.ids",
                 "checkpoints/3/record/metadata", "checkpoints/4.orbax-checkpoint-tmp/x",
                 ".seconds.partial-0123456789abcdef"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def test_a_run_is_removed_whole(tmp_path):
    write_run(tmp_path / "run")
    assert remove_run(tmp_path / "run") == []
    assert names(tmp_path) == []
    assert remove_run(tmp_path / "run") == []


def test_a_removal_that_is_killed_leaves_no_checkpoint_by_halves(tmp_path, monkeypatch):
    def killed(path, **options):
        raise KeyboardInterrupt

    write_run(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(workdir.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_run(tmp_path / "run")
    assert "3" not in names(tmp_path / "run" / "checkpoints")
    assert remove_run(tmp_path / "run") == []


@pytest.mark.parametrize(
    "mine", ["notes.txt", ".seconds.partial-mine", "checkpoints/notes.txt",
             "checkpoints-bad/notes.txt", "data/train-0.ids"],
)  # fmt: skip
def test_files_of_others_stay_in_a_run_that_is_removed(tmp_path, mine):
    write_run(tmp_path)
    (tmp_path / mine).parent.mkdir(exist_ok=True)
    (tmp_path / mine).write_text("mine")
    assert remove_run(tmp_path) == [mine.split("/")[0]]
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / mine]


def test_a_link_in_a_run_is_removed_and_not_what_it_leads_to(tmp_path):
    far = tmp_path / "far"
    (far / "3").mkdir(parents=True)
    (far / "3" / "file").write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / LOCK).touch()
    (run / "checkpoints").symlink_to(far)
    assert remove_run(run) == ["checkpoints"]
    assert (far / "3" / "file").read_text() == "mine"


def test_a_folder_that_no_run_made_is_not_removed(tmp_path):
    for name in ("config.json", "seconds"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds config\.json, seconds and no lock of a run"):
        remove_run(tmp_path)
    with pytest.raises(FileExistsError, match="no lock of a run"), work_folder(tmp_path):
        pass
    with pytest.raises(FileExistsError, match=r"holds config\.json and.* another workdir"):
        check_workdir(tmp_path)
    with pytest.raises(FileExistsError, match=r"holds config\.json, seconds and.* another workdir"):
        mark_run(tmp_path)
    assert names(tmp_path) == ["config.json", "seconds"]


@pytest.mark.parametrize("lock", [LOCK, TRAIN_LOCK])
def test_a_run_that_is_alive_is_not_removed(tmp_path, lock):
    write_run(tmp_path)
    before = names(tmp_path)
    held = WorkdirLock(tmp_path, lock)
    with pytest.raises(WorkdirBusy):
        remove_run(tmp_path)
    assert set(names(tmp_path)) >= set(before)
    held.release()


def test_the_second_training_leaves_the_folder_of_the_first(tmp_path):
    run = tmp_path / "deep" / "run"
    with work_folder(run):
        (run / "train-0.ids").write_text("of the first")
        with pytest.raises(WorkdirBusy, match="is being written by another run"), work_folder(run):
            pass
        assert (run / "train-0.ids").read_text() == "of the first"
        assert remove_work(run) == ""
    assert names(tmp_path) == ["deep"] or names(tmp_path) == []


def test_a_vocabulary_may_be_saved_before_fit(tmp_path):
    (tmp_path / "vocabulary.json").write_text("mine")
    check_workdir(tmp_path)


def test_both_may_have_seen_no_folder(tmp_path, monkeypatch):
    """Two processes begin at once; the folder belongs to the one that has the lock."""
    run = tmp_path / "run"
    with work_folder(run):
        (run / "train-0.ids").write_text("of the first")
        with monkeypatch.context() as patch:
            is_dir, answers = Path.is_dir, iter([False])
            patch.setattr(
                Path, "is_dir", lambda path: next(answers, True) if path == run else is_dir(path)
            )
            with pytest.raises(WorkdirBusy), work_folder(run):
                pass
        assert (run / "train-0.ids").exists()


def fail_in(run, name):
    """Fails like a training that has written a file."""
    with work_folder(run):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("")
        raise ValueError("no data")


def test_a_training_that_fails_leaves_no_new_folder_and_every_old_one(tmp_path):
    run = tmp_path / "deep" / "run"
    for there in (False, True):
        if there:
            run.mkdir(parents=True)
        with pytest.raises(ValueError, match="no data"):
            fail_in(run, "train-0.ids")
        assert run.exists() == there
        assert (tmp_path / "deep").exists() == there
    assert TRAIN_LOCK in names(run)


def test_checkpoints_and_files_of_others_stay_when_a_training_fails(tmp_path):
    for name in ("checkpoints/3/record/metadata", "notes.txt"):
        run = tmp_path / name[:2]
        with pytest.raises(ValueError, match="no data"):
            fail_in(run, name)
        assert (run / name).exists()


@contextlib.contextmanager
def no_space(size=0):
    """No file may have more bytes in the block, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "file"),
    [(["--share", "0.5"], "model.safetensors"), (["--model", "ganet"], "model.run/config.json")],
)
def test_on_a_full_disk_the_file_is_named_and_nothing_is_left(options, file, tmp_path, capsys):
    data = write_csv(tmp_path / "reviews.csv", TEXTS)
    with no_space(), pytest.raises(SystemExit, match="2"):
        main(["train", str(data), "--out", str(tmp_path / "model"), "--no-cache", *options])
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"error: {tmp_path}/")
    assert last.endswith(f"{file}: File too large")
    assert names(tmp_path) == ["reviews.csv"]


def test_a_save_that_failed_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="no data"):
        fail_in(tmp_path / "run", "checkpoints/2.orbax-checkpoint-tmp/state")
    assert names(tmp_path) == []


@pytest.mark.slow
def test_a_line_that_does_not_fit_on_the_disk_names_its_file(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.begin(None)
    with no_space(5), pytest.raises(OSError, match=r"File too large: '.*/metrics\.jsonl'"):
        log.write({"step": 1})
    with no_space(5), pytest.raises(OSError, match=r"File too large: '.*/metrics\.jsonl'"):
        log.close()
