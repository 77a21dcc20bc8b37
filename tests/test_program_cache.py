"""The folder of compiled programs of the commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gatedjax._utils import program_cache
from gatedjax._utils.program_cache import remove_oldest, take_cache_option, use_program_cache

NAMES = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", *program_cache._SETTINGS)


@pytest.fixture
def before_jax(monkeypatch, tmp_path):
    """The state of a command at its start: JAX is not imported and has no settings."""
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that the test's own settings go when it ends
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gatedjax"


def test_the_folder_is_private_and_its_name_has_the_versions_and_the_processor(before_jax):
    use_program_cache()
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert folder.parent == before_jax
    assert folder.name == f"{program_cache.jax_versions()}-{program_cache.machine_key()}"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_no_cache_switches_it_off(before_jax):
    use_program_cache(enabled=False)
    assert os.environ["JAX_ENABLE_COMPILATION_CACHE"] == "false"
    assert not before_jax.exists()


def test_a_folder_of_the_user_and_a_folder_that_others_may_write_to_are_left_alone(
    before_jax, monkeypatch
):
    use_program_cache()
    folder = Path(os.environ.pop("JAX_COMPILATION_CACHE_DIR"))
    folder.chmod(0o777)
    use_program_cache()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/mine")
    use_program_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "/mine"


def test_a_cache_that_cannot_be_written_is_no_error(before_jax):
    before_jax.write_text("a file where the folder would be")
    use_program_cache()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_the_oldest_files_go_first_until_the_folder_is_small_enough(tmp_path):
    for age, name in enumerate(("new", "middle", "old")):
        path = tmp_path / "sub" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"0" * 100)
        os.utime(path, (1e9 - age, 1e9 - age))
    remove_oldest(tmp_path, 250)
    assert sorted(path.name for path in (tmp_path / "sub").iterdir()) == ["middle", "new"]
    remove_oldest(tmp_path, 0)
    assert not list((tmp_path / "sub").iterdir())


@pytest.mark.parametrize(
    ("args", "rest", "enabled"),
    [
        (["train", "a.csv"], ["train", "a.csv"], True),
        (["--no-cache", "train"], ["train"], False),
        (["predict", "m", "--", "--no-cache"], ["predict", "m", "--", "--no-cache"], True),
        ([], [], True),
    ],
)
def test_the_option_may_stand_anywhere_before_two_dashes(args, rest, enabled):
    assert take_cache_option(args) == (rest, enabled)


def test_the_list_of_commands_names_the_option():
    done = subprocess.run(
        [sys.executable, "-m", "gatedjax", "--help"], capture_output=True, text=True, check=True
    )
    assert "--no-cache" in done.stdout
    assert ".cache/gatedjax" in done.stdout
