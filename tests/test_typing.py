"""Type checkers find the errors in a user's program, and report no others."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest

from tests._programs import cache_folder, environment
from tests.conftest import ROOT

PROGRAM = ROOT / "tests" / "typed_program.py"
LINES = PROGRAM.read_text(encoding="utf-8").splitlines()


def numbers_of_lines(output):
    return {int(number) for number in re.findall(r"typed_program\.py:(\d+):.*error", output)}


def assert_finds_the_errors(output):
    wrong = {n for n, line in enumerate(LINES, 1) if line.endswith("# wrong")}
    assert len(wrong) > 20
    found = numbers_of_lines(output)
    assert sorted(wrong - found) == [], "errors that the type checker does not find"
    assert sorted(found - wrong) == [], output


@pytest.mark.slow
def test_mypy_finds_the_errors_and_no_others(tmp_path):
    # Optax has no types, which mypy would report at its import.
    options = ["--ignore-missing-imports", "--follow-imports=silent", "--config-file="]
    # Reading JAX and Flax takes minutes the first time.
    folder = cache_folder()
    cache = tmp_path if folder is None else folder.parent.with_name("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(cache), str(PROGRAM)],
        capture_output=True, text=True, cwd=tmp_path, env=environment(MYPYPATH=str(ROOT)),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert_finds_the_errors(done.stdout)


@pytest.mark.slow
def test_pyright_finds_the_errors_and_no_others(tmp_path):
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed: pip install pyright")
    # pyright takes only paths inside the folder of its settings.
    shutil.copy(PROGRAM, tmp_path)
    settings = {"include": [PROGRAM.name], "extraPaths": [str(ROOT)], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path, env=environment(),
    )  # fmt: skip
    if "typed_program.py:" not in done.stdout:
        pytest.skip(f"pyright could not start, perhaps without a network: {done.stderr[-300:]}")
    assert_finds_the_errors(done.stdout)
