"""Files and folders are replaced whole; devices, pipes, links and folders stay what they are."""

import errno
import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from gatedjax import export
from gatedjax._commands._lines import lines_to
from gatedjax._utils import write as _write
from gatedjax._utils.write import check_place, new_folder, write_atomic, write_text
from tests._programs import environment

PARAMS = {"w": np.zeros(2, np.float32)}


def write_lines(path, content):
    with lines_to(path) as write:
        write(content.decode())


WRITERS = {
    "write_atomic": write_atomic,
    "lines_to": write_lines,
    "write_text": lambda path, content: write_text(path, content.decode()),
    "save_params": lambda path, _: export.save_params(path, PARAMS),
}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=WRITERS)
def write(request):
    return WRITERS[request.param]


def test_a_pipe_is_written_into(tmp_path, write):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe, b"text")
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    reader.join(5)
    assert len(heard[0]) >= 4
    assert names(tmp_path) == ["pipe"]


def test_a_device_is_written_into(tmp_path, write):
    # a null device of its own: a fault here must not replace that of the machine
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        pytest.skip("devices cannot be made here")
    check_place(device)
    write(device, b"text")
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert names(tmp_path) == ["null"]


def test_a_pipe_that_disappears_is_not_created_as_a_file(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    monkeypatch.setattr(_write, "_replaceable", lambda _: None)  # it was there at this time
    with pytest.raises(FileNotFoundError):
        write_atomic(pipe, b"text")
    assert names(tmp_path) == []


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_file_is_replaced(tmp_path, write, there):
    (tmp_path / "far").mkdir()
    file, link = tmp_path / "far" / "file", tmp_path / "link"
    (tmp_path / "step").symlink_to("far/file")
    link.symlink_to("step")
    if there:
        file.write_bytes(b"old")
        os.link(file, tmp_path / "kept")
    write(link, b"new")
    assert link.is_symlink()
    assert b"old" not in file.read_bytes()
    if there:  # it was replaced, and not written over
        assert (tmp_path / "kept").read_bytes() == b"old"
    assert names(tmp_path / "far") == ["file"]


def test_a_folder_is_refused_before_the_work(tmp_path, write):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "lost").symlink_to(tmp_path / "no" / "file")
    for place in (tmp_path, tmp_path / "link"):
        with pytest.raises(IsADirectoryError, match="must be a file, got a folder"):
            check_place(place)
        with pytest.raises(IsADirectoryError, match="must be a file, got a folder"):
            write(place, b"text")
    for place in (tmp_path / "no" / "file", tmp_path / "lost"):
        with pytest.raises(FileNotFoundError, match=r"/no: there is no such folder"):
            check_place(place)


def test_inputs_and_files_of_other_kinds_are_not_replaced(tmp_path):
    data, page = tmp_path / "data.csv", tmp_path / "page.html"
    data.write_text("text,label\n")
    page.write_text("\n<!DOCTYPE html>\n")
    (tmp_path / "link").symlink_to(data)
    for place in (data, tmp_path / "link"):
        with pytest.raises(FileExistsError, match=r"must be another file than .*data\.csv"):
            check_place(place, inputs=[None, "no file", tmp_path, os.path.relpath(data)])
        with pytest.raises(FileExistsError, match="no file that this command wrote"):
            check_place(place, begins=b"{")
    check_place(page, inputs=[data], begins=b"<!doctype html>")
    page.write_text("")
    check_place(page, begins=b"{")
    check_place(tmp_path / "new", inputs=[data, "no file"], begins=b"{")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("into", ["file", "stdout"])
def test_an_error_of_a_full_disk_names_the_file(into):
    program = {
        "file": "write_atomic(Path('/dev/full'), b'content')",
        "stdout": "say('content')",
    }[into]
    imports = (
        "from pathlib import Path\nfrom gatedjax._utils.cli import refusals\n"
        "from gatedjax._utils.terminal import say\nfrom gatedjax._utils.write import write_atomic\n"
    )
    # The block ends with status 2, and Python would report the full standard output once more.
    program = f"{imports}import os, sys\ntry:\n    with refusals({{}}):\n        {program}\n"
    program += "except SystemExit as stop:\n    sys.stderr.flush()\n    os._exit(stop.code)\n"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
            timeout=60,
        )
    name = "/dev/full" if into == "file" else "standard output"
    assert done.stderr.decode() == f"error: {name}: No space left on device\n"
    assert done.returncode == 2


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_what_standard_output_leads_to_is_not_replaced(tmp_path, name):
    program = (
        "from pathlib import Path; from gatedjax._utils.write import write_atomic; print('before');"
        f"write_atomic(Path('{name}'), b'content\\n'); print('after')"
    )
    command = [sys.executable, "-c", program]
    with (tmp_path / "file").open("wb") as file:
        subprocess.run(command, stdout=file, env=environment(), check=True, timeout=60)
    assert (tmp_path / "file").read_text() == "before\ncontent\nafter\n"
    done = subprocess.run(command, capture_output=True, env=environment(), check=True, timeout=60)
    assert done.stdout == b"before\ncontent\nafter\n"
    assert names(tmp_path) == ["file"]


KILLED = """
import os, signal
from pathlib import Path
from gatedjax._utils.write import new_folder

NAMES = ("a", "b")


def save(place, text):
    with new_folder(place) as folder:
        for name in NAMES:
            (folder / name).write_text(text)


def kill_at(number):
    # dies before the call of this number of all that change names
    calls = 0

    def counted(call):
        def run(*args, **options):
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return run

    for name in ("replace", "open", "unlink", "rmdir", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))


killed = 0
for number in range(1, 100):
    place = Path(f"model{number}").absolute()
    save(place, "old")
    child = os.fork()
    if not child:
        kill_at(number)
        save(place, "new")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    killed += os.WIFSIGNALED(status)
    # between the two renames the old folder has a hidden name
    (found,) = [place] if place.exists() else place.parent.glob(f".{place.name}.old-*")
    texts = {(found / name).read_text() for name in NAMES}
    assert texts in ({"old"}, {"new"}), (number, texts)
    if not status:
        break
print(killed)
"""


def test_after_a_kill_a_folder_is_the_old_or_the_new_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=tmp_path, env=environment(),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 6


def refuse(*_args):
    raise OSError(errno.EIO, "the disk is broken")


def fill(folder, text):
    (folder / "file").write_text(text)


@pytest.fixture
def target(tmp_path):
    """A folder with old content."""
    with new_folder(tmp_path / "model") as folder:
        fill(folder, "old")
    return tmp_path / "model"


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failed_rename_leaves_the_old_folder_alone(tmp_path, target, monkeypatch, failing):
    replace, moved = os.replace, []

    def fail_once(*args):
        moved.append(args)
        if len(moved) == failing:
            refuse()
        replace(*args)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(OSError, match="disk is broken"), new_folder(target) as folder:
        fill(folder, "new")
    assert (target / "file").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_an_interrupt_after_the_second_rename_leaves_only_the_new_folder(
    tmp_path, target, monkeypatch
):
    replace = os.replace

    def interrupt(source, place):
        replace(source, place)
        if place == target:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt), new_folder(target) as folder:
        fill(folder, "new")
    assert (target / "file").read_text() == "new"
    assert names(tmp_path) == ["model"]


def test_what_a_living_process_writes_is_not_removed(tmp_path):
    with new_folder(tmp_path / "model") as folder, _write.open_atomic(tmp_path / "file") as file:
        fill(folder, "first")
        file.write(b"first")
        with new_folder(tmp_path / "model") as other:
            fill(other, "second")
        write_atomic(tmp_path / "file", b"second")
        assert (tmp_path / "model" / "file").read_text() == "second"
    assert (tmp_path / "model" / "file").read_text() == "first"
    assert (tmp_path / "file").read_text() == "first"
    assert names(tmp_path) == ["file", "model"]
