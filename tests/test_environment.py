"""environment.json: the commit is gatedjax's own."""

import json
import os
import subprocess

import pytest

from gatedjax._utils import run_files


@pytest.fixture
def commit(tmp_path, monkeypatch):
    """Makes a repository with one file; returns its commit."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "n")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "e")
    (tmp_path / "tracked.py").write_text("")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_commit_is_that_of_the_repository_that_has_the_package(tmp_path, commit, monkeypatch):
    monkeypatch.setattr(run_files, "__file__", str(tmp_path / "tracked.py"))
    assert run_files.source()["commit"] == commit
    # git runs hooks with these; they say nothing of gatedjax
    monkeypatch.setenv("GIT_DIR", os.devnull)
    assert run_files.source()["commit"] == commit


def test_a_tree_is_clean_while_its_tracked_python_files_are_as_in_the_commit(
    tmp_path, commit, monkeypatch
):
    monkeypatch.setattr(run_files, "__file__", str(tmp_path / "tracked.py"))
    (tmp_path / "RESULTS.md").write_text("new")
    assert run_files.source() == {"commit": commit, "clean": True}
    (tmp_path / "tracked.py").write_text("x = 1")
    assert run_files.source() == {"commit": commit, "clean": False}
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run_files.py").write_text("")
    monkeypatch.setattr(run_files, "__file__", str(outside / "run_files.py"))
    monkeypatch.setattr(run_files.importlib.metadata, "distribution", lambda name: _Installed("{}"))
    assert run_files.source() == {"commit": None, "clean": None}


def test_an_environment_inside_another_repository_does_not_lend_its_commit(
    tmp_path, commit, monkeypatch
):
    folder = tmp_path / ".venv" / "site-packages" / "gatedjax" / "_utils"
    folder.mkdir(parents=True)
    (folder / "run_files.py").write_text("")
    monkeypatch.setattr(run_files, "__file__", str(folder / "run_files.py"))
    monkeypatch.setattr(run_files.importlib.metadata, "distribution", lambda name: _Installed("{}"))
    assert run_files.source()["commit"] is None
    origin = json.dumps({"vcs_info": {"vcs": "git", "commit_id": "abc"}})
    monkeypatch.setattr(
        run_files.importlib.metadata, "distribution", lambda name: _Installed(origin)
    )
    assert run_files.source()["commit"] == "abc"


class _Installed:
    def __init__(self, text):
        self.text = text

    def read_text(self, name):
        return self.text
