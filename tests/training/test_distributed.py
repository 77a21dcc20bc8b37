"""Two processes as one run: the same numbers, and what happens when one of them is not there."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gatedjax.training import CheckpointStore, DistributedConfig, TrainConfig, initialize
from gatedjax.training._agreement import agree, given
from gatedjax.training.lock import WorkdirLock
from tests._programs import environment
from tests.training._tiny import Data

SCRIPT = Path(__file__).with_name("_process.py")
ROOT = SCRIPT.parents[2]
HEARTBEAT = 5


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def start(workdir, *, number=None, port=None, processes=2, devices=4, seconds=30, **options):
    if number is not None:
        options["distributed"] = {
            "coordinator": f"localhost:{port}",
            "num_processes": processes,
            "process_id": number,
            "timeout_s": seconds,
            "heartbeat_s": HEARTBEAT,
        }
    given = {"workdir": str(workdir), "devices": devices, **options}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(given)],
        env=environment(XLA_FLAGS=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def together(workdir, processes=2, **options):
    port = free_port()
    return [
        start(workdir, number=n, port=port, processes=processes, **options)
        for n in range(processes)
    ]


def answer(process, seconds=90):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err[-2000:]
    return json.loads(out.splitlines()[-1])


def wait_for_step(workdir, step, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        log = workdir / "metrics.jsonl"
        if log.exists() and f'"step": {step},' in log.read_text():
            return
        time.sleep(0.02)
    raise TimeoutError(f"step {step} never came")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return answer(start(folder, devices=1, train={"parallel": "single"}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sharding", "pmap"])
def test_two_processes_give_the_losses_of_one_device(tmp_path, alone, kind):
    found = [answer(p) for p in together(tmp_path, train={"parallel": kind})]
    assert found[0]["devices"] == 8
    assert len(found[0]["losses"]) == 20
    assert found[0]["losses"] == pytest.approx(alone["losses"], abs=1e-6, rel=1e-6)
    assert found[0]["best"] == found[1]["best"] == alone["best"]
    assert found[0]["w"] == found[1]["w"] == pytest.approx(alone["w"], abs=1e-6)
    assert found[1]["losses"] == []  # process 0 alone writes
    assert CheckpointStore(tmp_path / "checkpoints").steps() == [15, 20]


@pytest.mark.slow
def test_four_processes_see_the_same_examples_and_two_continue(tmp_path, alone):
    short = {"num_steps": 10}
    found = [answer(p) for p in together(tmp_path, processes=4, devices=1, train=short)]
    assert found[0]["losses"] == pytest.approx(alone["losses"][:10], abs=1e-6, rel=1e-6)
    rest = [answer(p) for p in together(tmp_path, devices=2)]
    assert rest[0]["losses"] == pytest.approx(alone["losses"][10:], abs=1e-6, rel=1e-6)


@pytest.mark.slow
def test_a_dead_process_stops_the_other_and_one_process_continues(tmp_path, alone):
    first, second = together(tmp_path, pause=0.1)
    wait_for_step(tmp_path, 8)
    second.send_signal(signal.SIGKILL)
    died = time.monotonic()
    _, err = first.communicate(timeout=60)
    # the heartbeat, the pause between two of them, and a busy machine
    assert time.monotonic() - died < 3 * HEARTBEAT + 10
    assert first.returncode not in (0, None)
    assert "unhealthy" in err or "another process" in err
    second.communicate()
    again = answer(start(tmp_path, devices=2))
    assert again["steps"] == 20
    assert again["w"] == pytest.approx(alone["w"], abs=1e-6)


@pytest.mark.slow
def test_an_error_in_one_process_ends_the_other_too(tmp_path):
    port = free_port()
    first = start(tmp_path, number=0, port=port, pause=0.05)
    second = start(tmp_path, number=1, port=port, pause=0.05, fail_at=7)
    began = time.monotonic()
    _, err = second.communicate(timeout=90)
    assert "this file is broken" in err
    first.communicate(timeout=60)
    assert first.returncode not in (0, None)
    assert time.monotonic() - began < 30 + 4 * HEARTBEAT


@pytest.mark.slow
def test_a_workdir_that_another_run_holds_is_named_in_every_process(tmp_path):
    lock = WorkdirLock(tmp_path)
    for process in together(tmp_path):
        _, err = process.communicate(timeout=90)
        assert process.returncode != 0
        assert "is being written by another run" in err
    lock.release()


@pytest.mark.slow
def test_sigterm_to_one_process_saves_and_stops_both(tmp_path, alone):
    first, second = together(tmp_path, pause=0.05)
    wait_for_step(tmp_path, 3)
    second.send_signal(signal.SIGTERM)
    found = [answer(p) for p in (first, second)]
    assert [f["stopped"] for f in found] == ["signal", "signal"]
    assert CheckpointStore(tmp_path / "checkpoints").latest() == found[0]["steps"] < 20
    again = [answer(p) for p in together(tmp_path)]
    assert again[0]["w"] == pytest.approx(alone["w"], abs=1e-6)


@pytest.mark.slow
def test_more_processes_than_examples_are_refused(tmp_path):
    for process in together(tmp_path, rows=1):
        _, err = process.communicate(timeout=60)
        assert process.returncode != 0
        assert "a batch has 1 examples for 2 processes" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second", "fields"),
    [
        (
            {"train": {"num_steps": 9, "seed": 3, "max_skipped": 4, "progress": True}, "rows": 7},
            ["train.num_steps is 9, process 0 has 20", "train.seed is 3, process 0 has 0",
             "train.max_skipped is 4", "first batch, x is 'float32[7, 4] "],
        ),
        (
            {"learning_rate": 0.1, "shift": 1},
            ["train.optimizer.learning_rate is 0.1, process 0 has 0.05",
             "first batch, label is 'float32[8] "],
        ),
    ],
    ids=["steps, seed and rows", "rate and data"],
)  # fmt: skip
def test_processes_with_other_settings_are_refused_on_all_of_them(second, fields, tmp_path):
    port, began = free_port(), time.monotonic()
    processes = [start(tmp_path / "run", number=0, port=port)]
    processes.append(start(tmp_path / "run", number=1, port=port, **second))
    for process in processes:
        _, err = process.communicate(timeout=90)
        assert process.returncode not in (0, -signal.SIGABRT), err[-2000:]
        assert "the 2 processes of this run must be given the same:" in err
        for field in fields:
            assert f"process 1: {field}" in err
        assert "progress" not in err.partition("must be given the same")[2]
    assert time.monotonic() - began < 60
    assert not (tmp_path / "run").exists()


def test_what_a_process_has_for_itself_is_not_compared():
    def of(identity, **changes):
        config = TrainConfig(num_steps=5, **changes)
        return given(identity, config, Data()[0], {"w": np.zeros(4)}, True)

    plain = of({"vocabulary": "abc"})
    assert plain["vocabulary"] == "abc"
    assert plain["train.optimizer.name"] == "adam"
    assert plain["parameters, w"] == "float64[4]"
    assert plain["first batch, x"].startswith("float32[8, 4] ")
    own = {"progress": False, "tensorboard": True, "keep_checkpoints": 5, "profile_steps": 2}
    assert of({"vocabulary": "abc"}, **own) == plain
    nested = {"config": {"train": {"keep_checkpoints": 7}, "model": {"width": 3}}}
    assert of(nested).keys() - plain.keys() == {"config.model.width"}
    assert agree(plain) is None  # one process agrees with itself


@pytest.mark.slow
def test_process_0_says_so_when_the_others_do_not_come(tmp_path):
    process = start(tmp_path, number=0, port=free_port(), seconds=3)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 69
    assert "did not come together within 3 s" in err


@pytest.mark.slow
def test_a_coordinator_that_does_not_answer_is_named():
    address = f"localhost:{free_port()}"
    config = DistributedConfig(coordinator=address, num_processes=2, process_id=1, timeout_s=1)
    with pytest.raises(RuntimeError, match=f"coordinator {address} did not answer within 1 s"):
        initialize(config)


def test_without_options_nothing_happens():
    assert initialize(DistributedConfig()) is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coordinator": "a:1"}, "belong together"),
        ({"coordinator": "a", "num_processes": 2, "process_id": 0}, "must be HOST:PORT"),
        ({"coordinator": "a:1", "num_processes": 2, "process_id": 2}, "got 2 of 2"),
        ({"coordinator": "a:1", "num_processes": 1, "process_id": 0, "auto": True}, "exclude"),
        ({"timeout_s": 0}, "timeout_s must be at least 1"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DistributedConfig(**options)
