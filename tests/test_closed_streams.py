"""Commands whose standard streams are closed, full, or read by nobody."""

import os
import shlex
import subprocess
import sys

import pytest

from gatedjax.__main__ import main
from gatedjax._utils.terminal import UNREAD
from tests._programs import environment
from tests.text._own import TEXTS, write_csv
from tests.text._runs import DOCUMENT, QUESTION, reader_run

STREAMS = {
    "no output": ">&-",
    "no errors": "2>&-",
    "no input": "<&-",
    "nothing": "<&- >&- 2>&-",
    "full output": ">/dev/full",
    "full errors": "2>/dev/full",
    "unread": "| true; exit ${PIPESTATUS[0]}",
}
FULL = b"error: standard output: No space left on device\n"
TABLE = {
    "predict model 'a dull film'": 0,
    "predict model - --out OUT": 0,
    "predict missing 'a dull film'": 2,
    "explain model 'a dull film' --html OUT": 0,
    "train reviews.csv --out model2 --overwrite": 0,
    "verify-resume -- true": 2,
    f"answer reader --document story.txt {shlex.join(QUESTION)}": 0,
}
"""Command lines, and the status with which each ends with an empty input. The other commands write
by the same functions, see the test that nothing else prints."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with models and data."""
    folder = tmp_path_factory.mktemp("streams")
    write_csv(folder / "reviews.csv", TEXTS)
    (folder / "story.txt").write_text(DOCUMENT)
    main(["train", str(folder / "reviews.csv"), "--out", str(folder / "model")])
    return folder


@pytest.fixture(scope="module")
def networks(place):
    """The same folder, with a network that nobody trained."""
    reader_run(place / "reader")
    return place


def run(folder, line, streams):
    """The finished process of a command line, with these streams."""
    program = shlex.join([sys.executable, "-m", "gatedjax"])
    variables = environment()
    variables.pop("PYTHONUNBUFFERED", None)  # without a buffer nothing fails at the end
    return subprocess.run(
        ["bash", "-c", f"{program} {line} {streams}"],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def check(folder, line, names):
    """Runs a command with streams that it cannot use, and without: nothing else differs."""
    out, args = folder / "OUT", line.replace("--out OUT", "--out OUT --overwrite")
    plain = run(folder, args, "")
    assert plain.returncode == TABLE[line], plain.stderr
    written = out.read_bytes() if out.exists() else None
    # a full output is no matter to a command that writes none
    for name in names if plain.stdout else set(names) - {"full output", "unread"}:
        out.unlink(missing_ok=True)
        done = run(folder, args, STREAMS[name])
        said = b"" if "errors" in name or name == "nothing" else done.stderr
        assert b"Traceback" not in said, name
        assert b"Exception ignored" not in said, name
        status = TABLE[line]
        if name in ("full output", "unread"):
            status = 2 if name == "full output" else UNREAD
            assert said.endswith(FULL) == (name == "full output")
        assert done.returncode == status, (name, done.stderr)
        if name in ("no errors", "no input", "full errors"):
            assert done.stdout == plain.stdout, name
        if status == TABLE[line]:
            assert (out.read_bytes() if out.exists() else None) == written, name
    out.unlink(missing_ok=True)


@pytest.mark.slow
def test_a_prediction_needs_no_stream(place):
    check(place, "predict model 'a dull film'", STREAMS)


@pytest.mark.slow
@pytest.mark.parametrize("line", [*TABLE][1:])
def test_no_command_fails_for_want_of_a_stream(line, networks):
    check(networks, line, ("nothing", "full output"))


def test_a_stream_that_is_missing_is_there_for_the_command_only(monkeypatch, capsys):
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert main(["--version"]) == 0
    assert (sys.stdin, sys.stdout, sys.stderr) == (None, None, None)
    monkeypatch.undo()
    assert before is None or len(os.listdir("/proc/self/fd")) == before
