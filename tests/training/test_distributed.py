"""Two processes as one run: the same numbers, and what happens when one of them is not there."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from gatedjax.training import (
    CheckpointStore,
    DistributedConfig,
    ProcessMismatch,
    TrainConfig,
    TrainState,
    _agreement,
    initialize,
)
from gatedjax.training._agreement import Seen, agree, collect_shared_values
from gatedjax.training._digests import run_digests
from gatedjax.training.lock import WorkdirLock
from tests._programs import environment
from tests.training._process import tiny
from tests.training._tiny import Data, Tiny

SCRIPT = Path(__file__).with_name("_process.py")
KINDS = ("sharding", "pmap", "fsdp")
HEARTBEAT = 5


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def start(*runs, number=None, port=None, processes=2, devices=4, seconds=60):
    """A process that makes some runs, one of several if it has a number."""
    options = {"devices": devices, "runs": runs}
    if number is not None:
        options["distributed"] = {
            "coordinator": f"localhost:{port}",
            "num_processes": processes,
            "process_id": number,
            "timeout_s": seconds,
            "heartbeat_s": HEARTBEAT,
        }
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps(options, default=str)],
        env=environment(XLA_FLAGS=""),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def together(*runs, processes=2, second=None, **options):
    """Processes of the same runs; what is other in those of the second is added to each of them."""
    port = free_port()
    second = second or [{}] * len(runs)
    return [
        start(
            *(run | other if number == 1 else run for run, other in zip(runs, second, strict=True)),
            number=number,
            port=port,
            processes=processes,
            **options,
        )
        for number in range(processes)
    ]


def answers(process, seconds=90):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err[-2000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def answer(process):
    return answers(process)[-1]


def wait_for_step(workdir, step, seconds=120):
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
def test_two_processes_give_the_losses_of_one_device_after_runs_that_both_refuse(tmp_path, alone):
    runs = [
        {"workdir": tmp_path / "held", "go_on": True},
        {"workdir": tmp_path / "few", "go_on": True, "rows": 1},
        *(
            {"workdir": tmp_path / kind, "train": {"parallel": kind}, "split": kind == "fsdp"}
            for kind in KINDS
        ),
    ]
    (tmp_path / "held").mkdir()
    lock = WorkdirLock(tmp_path / "held")
    found = [answers(process) for process in together(*runs)]
    lock.release()
    for held, few, *_ in found:
        assert "is being written by another run" in held["refused"]
        assert "each of the 2 processes, got 1 examples" in few["refused"]
    for kind, first, other in zip(KINDS, *(own[2:] for own in found), strict=True):
        assert first["devices"] == 8
        assert len(first["losses"]) == 20
        assert first["losses"] == pytest.approx(alone["losses"], abs=1e-6, rel=1e-6)
        assert first["best"] == other["best"] == alone["best"]
        assert first["w"] == other["w"] == pytest.approx(alone["w"], abs=1e-6)
        assert other["losses"] == []  # process 0 alone writes
        assert CheckpointStore(tmp_path / kind / "checkpoints").steps() == [15, 20]


@pytest.mark.slow
def test_four_processes_see_the_same_examples_and_two_continue(tmp_path, alone):
    run = {"workdir": tmp_path}
    short = run | {"train": {"num_steps": 10}}
    found = [answer(p) for p in together(short, processes=4, devices=1)]
    assert found[0]["losses"] == pytest.approx(alone["losses"][:10], abs=1e-6, rel=1e-6)
    rest = [answer(p) for p in together(run, devices=2)]
    assert rest[0]["losses"] == pytest.approx(alone["losses"][10:], abs=1e-6, rel=1e-6)


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


@pytest.mark.slow
def test_an_error_in_one_process_ends_the_other_too(tmp_path):
    first, second = together({"workdir": tmp_path, "pause": 0.05}, second=[{"fail_at": 7}])
    began = time.monotonic()
    _, err = second.communicate(timeout=90)
    assert "this file is broken" in err
    first.communicate(timeout=60)
    assert first.returncode not in (0, None)
    assert time.monotonic() - began < 30 + 4 * HEARTBEAT


@pytest.mark.slow
def test_sigterm_to_one_process_saves_and_stops_both(tmp_path, alone):
    first, second = together({"workdir": tmp_path, "pause": 0.05})
    wait_for_step(tmp_path, 3)
    second.send_signal(signal.SIGTERM)
    found = [answer(p) for p in (first, second)]
    assert [f["stopped"] for f in found] == ["signal", "signal"]
    assert [f["signal"] for f in found] == [signal.SIGTERM, signal.SIGTERM]
    assert CheckpointStore(tmp_path / "checkpoints").latest() == found[0]["steps"] < 20
    again = tiny({"workdir": tmp_path, "train": {"parallel": "single"}})
    assert again["w"] == pytest.approx(alone["w"], abs=1e-6)


@pytest.mark.slow
def test_processes_with_other_settings_are_refused_on_all_of_them(tmp_path):
    began = time.monotonic()
    settings = {"num_steps": 9, "seed": 3, "max_skipped": 4, "progress": True}
    cases = [
        ({"train": settings, "rows": 7},
         ["train.num_steps is 9, process 0 has 20", "train.seed is 3, process 0 has 0",
          "train.max_skipped is 4", "first batch, x is 'float32[7, 4] "]),
        ({"learning_rate": 0.1, "shift": 1},
         ["train.optimizer.learning_rate is 0.1, process 0 has 0.05",
          "first batch, label is 'float32[8] "]),
    ]  # fmt: skip
    # the first refusal is caught, the second one ends the processes
    runs = [{"workdir": tmp_path / "run", "go_on": True}, {"workdir": tmp_path / "run"}]
    for process in together(*runs, second=[changes for changes, _ in cases]):
        out, err = process.communicate(timeout=90)
        assert process.returncode not in (0, -signal.SIGABRT), err[-2000:]
        (caught,) = (json.loads(line) for line in out.splitlines() if line.startswith("{"))
        for said, (_, fields) in zip((caught["refused"], err), cases, strict=True):
            assert "the 2 processes of this run must be given the same:" in said
            for field in fields:
                assert f"process 1: {field}" in said
            assert "progress" not in said.partition("must be given the same")[2]
    assert time.monotonic() - began < 60
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_processes_with_another_program_other_packages_or_later_data_end_by_name(tmp_path):
    run = {"workdir": tmp_path / "run", "go_on": True}
    noisy = {"workdir": tmp_path / "noisy", "go_on": True, "noise": 0.1}
    mapped = run | {"workdir": tmp_path / "mapped", "train": {"parallel": "pmap"}}
    cases = [
        (noisy, {"noise": 0.2}, ["program of a step is ", "program of loss is "]),
        (noisy, {"turned": True}, ["program of a step is ", "program of loss is "]),
        (run, {"flip": 3}, ["batches of steps 1 to 5, label is "]),
        (noisy, {"flip_evaluation": 1001}, ["later evaluation batches, label is "]),
        (mapped, {"flip": 7}, ["batches of steps 6 to 10, label is "]),
        # the last case, because the version stays what it is
        (noisy, {"jax": "0.0.1"}, ["software, jax is '0.0.1', process 0 has "]),
    ]
    runs, second = [one for one, _, _ in cases], [other for _, other, _ in cases]
    for process in together(*runs, second=second, seconds=60):
        for answered, (_, _, fields) in zip(answers(process), cases, strict=True):
            named = [line.strip() for line in answered["refused"].splitlines()[1:]]
            for line, field in zip(named, fields, strict=True):
                assert line.startswith(f"process 1: {field}")
    assert not (tmp_path / "noisy").exists()
    # what went wrong after the checkpoint is in none
    assert CheckpointStore(tmp_path / "run" / "checkpoints").steps() == []
    assert CheckpointStore(tmp_path / "mapped" / "checkpoints").steps() == [5]


def test_batches_and_parameters_that_differ_are_named_with_the_process(monkeypatch):
    def compared(*others):
        """Compares what this process has seen with what the others have."""
        texts = []
        monkeypatch.setattr(_agreement, "gather_text", lambda text: texts.append(text) or texts)
        for batches, params in others:
            seen = Seen(5)
            for batch in batches:
                seen.add(batch)
            seen.compare(5 + len(batches), {"layer": {"w": np.float32(params)}})

    batches = [Data()[step] for step in range(3)]
    compared((batches, [1.0]), (batches, [1.0]))
    swapped = [batches[1], batches[0], batches[2]]
    with pytest.raises(ProcessMismatch) as error:
        compared((batches, [1.0]), (batches, [1.0]), (swapped, [2.0]))
    said = str(error.value)
    for name in ("example_id", "label", "x"):
        assert f"process 2: batches of steps 6 to 8, {name} is " in said
    assert "process 2: parameters after step 8, layer.w is 'float32[1] " in said
    assert "process 1:" not in said
    assert "weight" not in said


def test_what_a_process_has_for_itself_is_not_compared():
    state = TrainState(step=0, params={"w": np.zeros(4, np.float32)}, opt_state=())
    digests = run_digests(Tiny(), state, Data()[0], Data()[1], [])
    evaluation = [Data()[1], Data()[2]]

    def of(settings, **changes):
        config = TrainConfig(num_steps=5, **changes)
        return collect_shared_values(
            settings, config, digests, {"w": np.zeros(4)}, evaluation, "program"
        )

    plain = of({"vocabulary": "abc"})
    assert plain["vocabulary"] == "abc"
    assert plain["train.optimizer.name"] == "adam"
    assert plain["parameters, w"] == "float64[4]"
    assert plain["first batch, x"].startswith("float32[8, 4] ")
    assert plain["first evaluation batch, x"] != plain["first batch, x"]
    assert plain["software, jax"] == jax.__version__
    later = plain["later evaluation batches, x"]
    evaluation.append(Data()[3])
    assert of({"vocabulary": "abc"})["later evaluation batches, x"] != later
    evaluation.pop()
    own = {"progress": False, "tensorboard": True, "keep_checkpoints": 5, "profile_steps": 2}
    assert of({"vocabulary": "abc"}, **own) == plain
    nested = {"train": {"keep_checkpoints": 7}, "config": {"model": {"width": 3}}}
    assert of(nested).keys() - plain.keys() == {"config.model.width"}
    assert agree(plain) is None  # one process agrees with itself


@pytest.mark.slow
def test_process_0_says_so_when_the_others_do_not_come(tmp_path):
    process = start({"workdir": tmp_path}, number=0, port=free_port(), seconds=3)
    _, err = process.communicate(timeout=90)
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
        ({"coordinator": "a:1"}, "must be given together"),
        ({"coordinator": "a", "num_processes": 2, "process_id": 0}, "must be HOST:PORT"),
        ({"coordinator": "a:1", "num_processes": 2, "process_id": 2}, r"= 2\), got 2"),
        (
            {"coordinator": "a:1", "num_processes": 1, "process_id": 0, "auto": True},
            "auto must be False",
        ),
        ({"timeout_s": 0}, "timeout_s must be at least 1"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DistributedConfig(**options)
