"""Several processes as one run: the same numbers, and what happens when one is not there."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from gatedjax.training import DistributedConfig, ProcessMismatch, initialize
from gatedjax.training.distributed import Seen, agree
from gatedjax.training.workdir import WorkdirLock
from tests._programs import environment
from tests.training._process import carried, tiny
from tests.training._tiny import Data, saved

SCRIPT = Path(__file__).with_name("_process.py")
KINDS = ("sharding", "fsdp")
HEARTBEAT = 5


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def start(*runs, number=0, port=None, processes=2, devices=4, seconds=60):
    """A process of several that make some runs together."""
    distributed = {
        "coordinator": f"localhost:{port}",
        "num_processes": processes,
        "process_id": number,
        "timeout_s": seconds,
        "heartbeat_s": HEARTBEAT,
    }
    options = {"devices": devices, "runs": runs, "distributed": distributed}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(options, default=str)],
        env=environment(XLA_FLAGS=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def together(*runs, processes=2, second=None, **options):
    """Processes of the same runs; what is other in those of the second is added to each of them."""
    port, changed = free_port(), second or [{}] * len(runs)
    changed = [run | other for run, other in zip(runs, changed, strict=True)]
    return [
        start(*(changed if number == 1 else runs), number=number, port=port, processes=processes,
              **options)
        for number in range(processes)
    ]  # fmt: skip


def answers(process, seconds=300):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err[-2000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def wait_for_step(workdir, step, seconds=300):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        log = workdir / "metrics.jsonl"
        if log.exists() and f'"step": {step},' in log.read_text():
            return
        time.sleep(0.02)
    raise TimeoutError(f"step {step} never came")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return tiny({"workdir": tmp_path_factory.mktemp("alone"), "train": {"parallel": "single"}})


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one_device_after_a_run_that_both_refuse(tmp_path, alone):
    runs = [{"workdir": tmp_path / "held", "go_on": True}]
    for kind in KINDS:
        train = {"parallel": kind, "num_steps": 20}
        runs += [{"workdir": tmp_path / kind, "train": train, "split": kind == "fsdp"}]
    train = [{"parallel": "sharding", "num_steps": n} for n in (5, 10)]
    runs += [{"workdir": tmp_path / "sharding", "carried": True, "train": part} for part in train]
    (tmp_path / "held").mkdir()
    lock = WorkdirLock(tmp_path / "held")
    found = [answers(process) for process in together(*runs, devices=2)]
    lock.release()
    for held, *_ in found:
        assert "is being written by another run" in held["refused"]
    one = {"parallel": "single", "num_steps": 10}
    wanted = carried({"workdir": tmp_path / "alone", "train": one})["arrays"]
    for number, kind in enumerate(KINDS, start=1):
        first, other = (own[number] for own in found)
        assert first["devices"] == 4
        assert len(first["losses"]) == 20
        assert first["losses"] == pytest.approx(alone["losses"], abs=1e-6, rel=1e-6)
        assert first["best"] == other["best"] == alone["best"]
        assert first["w"] == other["w"] == pytest.approx(alone["w"], abs=1e-6)
        assert other["losses"] == []  # process 0 alone writes
        assert saved(tmp_path / kind) == [15, 20]
    for own in found:
        for got, want in zip(own[-1]["arrays"], wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_three_processes_see_the_same_examples_until_a_signal_and_one_continues(tmp_path, alone):
    # 8 rows in 3 parts: a filler row
    processes = together({"workdir": tmp_path, "pause": 0.1}, processes=3, devices=1)
    wait_for_step(tmp_path, 8)
    processes[1].send_signal(signal.SIGTERM)
    found = [answers(process)[-1] for process in processes]
    assert {f["stopped"] for f in found} == {"signal"}
    assert {f["signal"] for f in found} == {signal.SIGTERM}
    steps = found[0]["steps"]
    assert saved(tmp_path)[-1] == steps < 20
    assert found[0]["losses"] == pytest.approx(alone["losses"][:steps], abs=1e-6, rel=1e-6)
    again = tiny({"workdir": tmp_path, "train": {"parallel": "single"}})
    assert again["w"] == pytest.approx(alone["w"], abs=1e-6)


@pytest.mark.slow
def test_a_dead_process_stops_the_other_and_one_process_continues(tmp_path, alone):
    first, second = together({"workdir": tmp_path, "pause": 0.1})
    wait_for_step(tmp_path, 8)
    second.send_signal(signal.SIGKILL)
    died = time.monotonic()
    _, err = first.communicate(timeout=60)
    # the heartbeat, the pause between two of them, and a busy machine
    assert time.monotonic() - died < 3 * HEARTBEAT + 10
    assert first.returncode not in (0, None)
    assert "unhealthy" in err or "another process" in err
    second.communicate()
    again = tiny({"workdir": tmp_path, "train": {"parallel": "single"}})
    assert again["steps"] == 20
    assert again["w"] == pytest.approx(alone["w"], abs=1e-6)


# What differs, and the fields that each process names; the last of them ends with an error.
NOISE = {"noise": 0.1}
SETTINGS = {"num_steps": 9, "seed": 3, "max_skipped": 4, "progress": True}
MISMATCHES = [
    ({}, {"train": SETTINGS, "rows": 7},
     ["settings.train.max_skipped is 4", "settings.train.num_steps is 9, process 0 has 20",
      "settings.train.seed is 3, process 0 has 0", "train_data.x is 'float32[7, 4] "]),
    ({}, {"learning_rate": 0.1, "shift": 1},
     ["settings.train.optimizer.learning_rate is 0.1, process 0 has 0.05",
      "train_data.label is 'float32[8] "]),
    (NOISE, {"noise": 0.2}, ["programs.step is "]),
    (NOISE, {"turned": True}, ["programs.step is "]),
    ({"workdir": "run"}, {"flip": 3}, ["batches of steps 1 to 5, label is "]),
    ({"workdir": "later"}, {"flip": 7}, ["batches of steps 6 to 10, label is "]),
    # almost the last case, because the version stays what it is
    (NOISE, {"jax": "0.0.1"}, ["versions.jax is '0.0.1', process 0 has "]),
    ({"workdir": "end", "go_on": False}, {"fail_at": 7, "jax": "0.0.1"}, ["versions.jax is "]),
]  # fmt: skip


@pytest.mark.slow
def test_processes_that_differ_name_the_fields_on_all_of_them(tmp_path):
    none = {"workdir": "none", "go_on": True}
    runs = [none | changes for changes, _, _ in MISMATCHES]
    runs = [run | {"workdir": tmp_path / run["workdir"]} for run in runs]
    for process in together(*runs, second=[changes for _, changes, _ in MISMATCHES]):
        out, err = process.communicate(timeout=300)
        assert process.returncode not in (0, -signal.SIGABRT), err[-2000:]
        said = [json.loads(line)["refused"] for line in out.splitlines() if line.startswith("{")]
        for message, (_, _, fields) in zip([*said, err], MISMATCHES, strict=True):
            assert "the 2 processes of this run must be given the same:" in message
            for field in fields:
                assert f"process 1: {field}" in message
            assert "progress" not in message.partition("must be given the same")[2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["later", "run"]
    # what went wrong after the checkpoint is in none
    assert (saved(tmp_path / "run"), saved(tmp_path / "later")) == ([], [5])


@pytest.mark.slow
def test_an_error_in_one_process_ends_the_other_too(tmp_path):
    first, second = together({"workdir": tmp_path, "pause": 0.05}, second=[{"fail_at": 7}])
    began = time.monotonic()
    _, err = second.communicate(timeout=300)
    assert "this file is broken" in err
    first.communicate(timeout=60)
    assert first.returncode not in (0, None)
    assert time.monotonic() - began < 300 + 4 * HEARTBEAT


def test_batches_that_differ_are_named_with_the_process(monkeypatch):
    texts, batches = [], [Data()[step] for step in range(3)]
    name = "gatedjax.training.distributed.gather_text"
    monkeypatch.setattr(name, lambda text: texts.append(text) or texts)
    for order in ((0, 1, 2), (0, 1, 2), (1, 0, 2)):
        seen = Seen()
        for number in order:
            seen.add(batches[number])
        if order == (0, 1, 2):
            seen.compare("batches of steps 6 to 8")
    with pytest.raises(ProcessMismatch) as error:
        seen.compare("batches of steps 6 to 8")
    for field in ("example_id", "label", "x"):
        assert f"process 2: batches of steps 6 to 8, {field} is " in str(error.value)
    assert "process 1:" not in str(error.value)
    assert "weight" not in str(error.value)
    monkeypatch.setattr(name, lambda text: [text, "{}"])
    with pytest.raises(ProcessMismatch, match="and 2 more"):
        agree({f"field {number}": number for number in range(14)})


@pytest.mark.parametrize("fails", [False, True])
def test_the_timer_of_the_start_ends_with_the_start(fails, monkeypatch):
    def connect(*_, **options):
        if fails:
            raise RuntimeError("no cluster")

    monkeypatch.setattr(jax.distributed, "initialize", connect)
    asked = []
    monkeypatch.setattr(socket, "create_connection",
                        lambda address, **_: asked.append(address) or socket.socket())  # fmt: skip
    explicit = {"coordinator": "[::1]:80", "num_processes": 2, "process_id": 1}
    with contextlib.suppress(RuntimeError):
        initialize(DistributedConfig(**{"auto": True} if fails else explicit))
    assert asked == ([] if fails else [("::1", 80)])
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    left = [timer for timer in timers if not timer.finished.is_set()]
    for timer in left:
        timer.cancel()
    assert not left


@pytest.mark.slow
def test_process_0_says_so_when_the_others_do_not_come(tmp_path):
    process = start({"workdir": tmp_path}, port=free_port(), seconds=3)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 69
    assert "did not come together within 3 s" in err


@pytest.mark.slow
def test_a_coordinator_that_does_not_answer_is_named_and_without_one_nothing_happens():
    address = f"localhost:{free_port()}"
    config = DistributedConfig(coordinator=address, num_processes=2, process_id=1, timeout_s=1)
    with pytest.raises(RuntimeError, match=f"coordinator {address} did not answer within 1 s"):
        initialize(config)
    assert initialize(DistributedConfig()) is False
