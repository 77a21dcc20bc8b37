"""The folder of compiled programs of the commands."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from gatedjax._utils import program_cache
from gatedjax._utils.program_cache import take_cache_option, use_program_cache
from tests._programs import environment

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


def test_the_folder_is_private_and_its_name_has_the_processor(before_jax):
    use_program_cache()
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert folder.parent == before_jax
    assert folder.name == f"jax-{program_cache.machine_key()}"
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
    for mode, user in ((0o770, os.getuid()), (0o702, os.getuid()), (0o700, os.getuid() + 1)):
        folder.chmod(mode)
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        use_program_cache()
        assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/mine")
    use_program_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "/mine"


def test_a_cache_that_cannot_be_written_is_no_error(before_jax, monkeypatch):
    before_jax.write_text("a file where the folder would be")
    use_program_cache()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", mock.Mock(side_effect=RuntimeError("no home folder")))
    use_program_cache()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


@pytest.mark.slow
def test_jax_keeps_the_programs_that_were_used_last_within_its_limit(before_jax):
    program = (
        "from gatedjax._utils.program_cache import use_program_cache; use_program_cache()\n"
        "import jax, sys\nfor n in map(int, sys.argv[1:]):\n"
        "    jax.jit(lambda x: jax.numpy.sin(x) @ x.T)(jax.numpy.ones((n, n)))\n"
    )
    folder = before_jax / f"jax-{program_cache.machine_key()}"
    folder.mkdir(0o700, parents=True)
    (folder / "half-cache").write_bytes(b"of a process that was killed")
    environ = {"XDG_CACHE_HOME": str(before_jax.parent)}
    environ |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    most = 8_000
    for sizes, limit in ("345", {}), ("67", {"JAX_COMPILATION_CACHE_MAX_SIZE": str(most)}):
        variables = environment(**environ, **limit).items()
        variables = {name: value for name, value in variables if name != NAMES[0]}
        subprocess.run([sys.executable, "-c", program, *sizes], env=variables, check=True)
        entries = {path.name: path.stat().st_size for path in folder.glob("*-cache")}
        assert "half-cache" not in entries
        assert entries
        assert (sum(entries.values()) <= most) == bool(limit), entries


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
