"""The cache and the budgets of the tests themselves."""

import importlib.util
import os
import sys
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

from tests import _programs
from tests._programs import Plugin, Programs, clear_old, environment, is_whole, link_missing


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A process of the suite beside this one, with folders of its own."""
    before = {name: getattr(jax.config, name) for name in ("jax_compilation_cache_dir",)}
    monkeypatch.setenv("GATEDJAX_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Programs, "_listen", lambda self: None)
    yield Programs()
    for name, value in before.items():
        jax.config.update(name, value)


def test_half_an_entry_of_a_killed_child_is_not_passed_on(programs):
    child = programs.own.with_name("child-1")
    child.mkdir()
    whole = zlib.compress(np.random.default_rng(0).bytes(1000))
    (child / "whole").write_bytes(whole)
    (child / "torn").write_bytes(whole[:-1])
    (child / "empty").touch()
    (child / "other").write_bytes(b"\x28\xb5\x2f\xfd and so on")
    programs.exchange()
    assert entries(programs.own) == entries(programs.shared / "whole") == ["whole"]
    assert not child.exists()


def test_a_child_has_a_copy_and_cannot_spoil_an_entry(programs):
    (programs.own / "one").write_bytes(zlib.compress(b"program"))
    first, second = (programs.for_child()["JAX_COMPILATION_CACHE_DIR"] for _ in range(2))
    assert first != second
    for folder in (first, second):
        assert os.listdir(folder) == ["one"]
        os.unlink(os.path.join(folder, "one"))
    programs.exchange()
    assert entries(programs.own) == ["one"]


def test_what_one_process_compiled_another_one_has(programs):
    (programs.shared / "whole" / "theirs").write_bytes(b"x")
    (programs.own / "ours").write_bytes(b"y")
    programs.exchange()
    assert entries(programs.own) == entries(programs.shared / "whole") == ["ours", "theirs"]


def test_a_child_finds_the_project_and_the_cache():
    variables = environment(ANOTHER="1")
    assert variables["ANOTHER"] == "1"
    assert str(_programs.ROOT) in variables["PYTHONPATH"].split(os.pathsep)
    if Plugin.running.own is not None:
        assert variables["JAX_COMPILATION_CACHE_DIR"] != str(Plugin.running.own)


def test_bytecode_of_packages_is_found_in_the_folder_for_all_bytecode(tmp_path, monkeypatch):
    source = tmp_path / "lib" / "package" / "a.py"
    monkeypatch.setattr(sys, "pycache_prefix", None)
    beside = Path(importlib.util.cache_from_source(source))
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "all"))
    other = tmp_path / "lib" / "site-packages" / "b.py"
    for path in (beside, other.parent / "__pycache__" / beside.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"code")
    for _ in range(2):
        _programs.link_bytecode(tmp_path / "all", [str(tmp_path / "lib")])
    assert Path(importlib.util.cache_from_source(source)).read_bytes() == b"code"
    assert not Path(importlib.util.cache_from_source(other)).exists()


def test_the_oldest_entries_go_when_a_folder_is_full(tmp_path):
    for age, name in enumerate(["new", "older", "oldest"]):
        (tmp_path / name).write_bytes(b"x" * 10)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    clear_old(tmp_path, largest=20)
    assert entries(tmp_path) == ["new", "older"]


def test_a_file_that_compiles_more_than_its_budget_fails():
    table = {"tests/test_a.py": {"programs": 3}}
    assert _programs.over_budget("tests/test_a.py", 3, table) is None
    assert "its budget is 3" in _programs.over_budget("tests/test_a.py", 4, table)
    assert _programs.over_budget("tests/test_b.py", _programs.DEFAULT_BUDGET, table) is None
    assert _programs.over_budget("tests/test_b.py", _programs.DEFAULT_BUDGET + 1, table)


def test_programs_are_counted_for_the_file_that_runs():
    running = Plugin.running
    before = running.counts[running.file]
    jax.jit(lambda x: x * 3 + running.counts.total())(np.ones(3, np.float32))
    assert running.file == "tests/test_programs.py"
    assert running.counts[running.file] == before + 1


def test_links_leave_out_what_is_there(tmp_path):
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "a").write_bytes(zlib.compress(b"new"))
    (tmp_path / "target" / "a").write_bytes(b"old")
    link_missing(tmp_path / "source", tmp_path / "target", only_if=is_whole)
    assert (tmp_path / "target" / "a").read_bytes() == b"old"
