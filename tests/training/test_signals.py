"""Ctrl-C and SIGTERM during `fit`: heard at once, and not to be missed by the program."""

import os
import signal
import threading
import time

import pytest

from gatedjax.training import StoppedBySignal, TrainConfig, fit, fit_lanes, make_parallel
from gatedjax.training._signals import Signals
from tests.training._tiny import Data, Tiny, interrupt

HEARD = "stopping after this step; again to stop now"


def run(workdir, on_event=None, seeds=1, **options):
    config = TrainConfig(
        num_steps=8, log_every=4, eval_every=4, checkpoint_every=8, progress=False,
        best_metric="accuracy", parallel="single", seeds=seeds,
    )  # fmt: skip
    if seeds > 1:
        return fit_lanes(Tiny(), lambda seed: Data(), [Data()[1000]], config, workdir,
                         on_event=on_event, **options)  # fmt: skip
    return fit(Tiny(), Data(), [Data()[1000]], config, workdir, on_event=on_event, **options)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_signal_during_an_evaluation_is_acknowledged_before_it_ends(seeds, tmp_path, capsys):
    heard = []

    def kill(name, step):
        if (name, step) == ("evaluate", 4):
            os.kill(os.getpid(), signal.SIGINT)
            deadline = time.monotonic() + 10
            while HEARD not in "".join(heard) and time.monotonic() < deadline:
                time.sleep(0.01)
                heard.append(capsys.readouterr().err)

    results = run(tmp_path, kill, seeds)
    result = results[0] if seeds > 1 else results
    assert "".join(heard).count(HEARD) == 1
    assert (result.stopped, result.exit_code) == ("signal", 130)
    assert result.steps in (4, 5)


def test_a_signal_is_heard_while_the_main_thread_is_busy_and_once():
    heard = []
    before = signal.getsignal(signal.SIGTERM)
    with Signals(lambda: heard.append(threading.current_thread())) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 10
        while not heard and time.monotonic() < deadline:
            time.sleep(0.01)
        assert signals.received == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == before
    assert len(heard) == 1
    assert heard[0] is not threading.main_thread()
    assert signal.set_wakeup_fd(-1) == -1
    assert not heard[0].is_alive()


@pytest.mark.parametrize(("number", "seeds"), [(signal.SIGTERM, 1), (signal.SIGINT, 2)])
def test_a_script_that_asks_for_it_cannot_miss_a_signal(number, seeds, tmp_path):
    with pytest.raises(StoppedBySignal) as caught:
        run(tmp_path, interrupt("step", 3, number=number), seeds, raise_on_signal=True)
    assert caught.value.code == 128 + number
    assert [result.stopped for result in caught.value.results] == ["signal"] * seeds
    assert not isinstance(caught.value, Exception)  # so that no `except Exception` swallows it
    again = run(tmp_path, None, seeds, raise_on_signal=True)
    assert (again if seeds == 1 else again[0]).stopped == "done"


def test_a_signal_to_another_process_is_raised_in_this_one_too(tmp_path, monkeypatch):
    # what the other one tells wherever they agree
    monkeypatch.setattr("gatedjax.training.loop.max_over_processes", lambda number: signal.SIGINT)
    parallel = make_parallel("single")
    parallel.several_processes = True
    with pytest.raises(StoppedBySignal) as caught:
        run(tmp_path, parallel=parallel, raise_on_signal=True)
    (result,) = caught.value.results
    assert (result.stopped, result.steps, result.exit_code) == ("signal", 4, 130)
