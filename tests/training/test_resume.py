"""A run that ends anywhere continues with the bits of an unbroken one."""

import concurrent.futures
import os
import signal
import time

import numpy as np
import pytest

from gatedjax.training import (
    OptimizerConfig,
    StoppedBySignal,
    average_params,
    make_parallel,
)
from gatedjax.training.loop import signals
from tests.training._tiny import (
    assert_equal,
    assert_same_run,
    interrupt,
    lines,
    plane,
    poisoned,
    run,
    saved,
    stop_at,
)

pytestmark = pytest.mark.slow

HEARD = "stopping after this step; again to stop now"


class Killed(Exception):
    pass


def die_at(step):
    """A hook that ends the run after a step as an error does, without a save."""

    def kill(name, now, *rest):
        if (name, now) == ("step", step):
            raise Killed

    return kill


# Python sees a signal during a compilation when that has ended. The steps are one with a checkpoint
# and one with a line in the log; a signal during an evaluation is below.
MOMENTS = [
    (("compiled",), 1),
    (("step", 5), 5),
    (("step", 6), 6),
    (("save",), 6),
    (("saved",), None),
]


@pytest.mark.parametrize(("where", "steps"), MOMENTS)
def test_sigterm_at_any_moment_leaves_a_whole_checkpoint(where, steps, whole, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    first = run(tmp_path, hook=interrupt(*where))
    assert signal.getsignal(signal.SIGTERM) == before
    assert (first.stopped, first.exit_code, first.signal) == ("signal", 0, signal.SIGTERM)
    assert first.steps == (steps or first.steps)
    assert saved(tmp_path)[-1] == first.steps
    assert_same_run(run(tmp_path), whole[1])
    assert lines(tmp_path) == lines(whole[0])


def early(workdir, hook=None, **more):
    """A run that early stopping ends, with an average of the parameters and a skipped update."""
    return run(
        workdir, train=poisoned(12), hook=hook, num_steps=90, log_every=7, eval_every=5,
        checkpoint_every=8, early_stop_patience=4,
        optimizer=OptimizerConfig(learning_rate=0.05, ema_decay=0.9), **more,
    )  # fmt: skip


def test_a_run_that_a_hook_has_stopped_often_and_that_continues_is_an_unbroken_one(tmp_path):
    unbroken = early(tmp_path / "whole")
    # before the first evaluation, at a skipped update, at an evaluation, at a checkpoint, between,
    # and where the best parameters are old
    stops = [3, 13, 15, 16, 17, unbroken.steps - 1]
    assert (unbroken.stopped, unbroken.best_step > 0) == ("early", True)
    assert 20 < unbroken.steps < 90
    asked = []
    for stop in stops:
        part = early(tmp_path / "parts", lambda *event, stop=stop: asked.append(event[:2]) or
                     stop_at(stop)(*event))  # fmt: skip
        assert (part.steps, part.stopped, part.exit_code) == (stop, "done", 0)
        assert saved(tmp_path / "parts")[-1] == stop
        # A line that an unbroken run lacks would count when the run continues.
        assert all(line["step"] % 7 == 0 for line in lines(tmp_path / "parts", "train"))
    steps = [step for name, step in asked if name == "step"]
    assert steps == [*range(1, stops[-1] + 1)]  # after every step, once
    assert_same_run(early(tmp_path / "parts"), unbroken)
    assert lines(tmp_path / "parts") == lines(tmp_path / "whole")
    assert [line["step"] for line in lines(tmp_path / "whole", "skipped")] == [13]
    assert saved(tmp_path / "parts") == saved(tmp_path / "whole")
    means = [average_params(tmp_path / name, part.best_params, 2) for name in ("parts", "whole")]
    assert means[0][1] == means[1][1]
    assert_equal(means[0][0], means[1][0])


@pytest.mark.parametrize("kind", ["single", "pmap"])
def test_a_run_that_died_repeats_the_steps_since_its_checkpoint(kind, tmp_path):
    unbroken = run(tmp_path / "whole", parallel=kind)
    with pytest.raises(Killed):
        run(tmp_path / "cut", parallel=kind, hook=die_at(8))
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"split": "train", "st')
    assert_same_run(run(tmp_path / "cut", parallel=kind), unbroken)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")


@pytest.mark.parametrize("seeds", [1, 2])
def test_as_many_steps_as_a_stopped_run_has_made_end_it(seeds, tmp_path):
    first = lambda result: result if seeds == 1 else result[0]  # noqa: E731
    stopped = first(run(tmp_path, evaluation=None, seeds=seeds, hook=interrupt("step", 6)))
    ended = first(run(tmp_path, evaluation=None, seeds=seeds, num_steps=6))
    assert (stopped.stopped, stopped.steps) == ("signal", 6)
    assert (ended.stopped, ended.steps, ended.signal) == ("done", 6, None)
    np.testing.assert_array_equal(ended.state.params["w"], stopped.state.params["w"])


# -- signals ---------------------------------------------------------------------------------------


def test_a_first_signal_is_acknowledged_and_a_second_one_has_its_usual_effect():
    heard, before = [], signal.getsignal(signal.SIGTERM)
    with signals(lambda: heard.append(1)) as received:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (received, heard) == ([signal.SIGTERM, signal.SIGINT], [1])
    assert signal.getsignal(signal.SIGTERM) == before
    with concurrent.futures.ThreadPoolExecutor() as pool:  # where Python takes no handler
        pool.submit(signals(lambda: None).__enter__).result()


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_signal_during_an_evaluation_is_acknowledged_before_it_ends(seeds, tmp_path, capsys):
    heard = []

    def kill(name, step, *rest):
        if (name, step) == ("evaluate", 4):
            os.kill(os.getpid(), signal.SIGINT)
            deadline = time.monotonic() + 10
            while HEARD not in "".join(heard) and time.monotonic() < deadline:
                time.sleep(0.01)
                heard.append(capsys.readouterr().err)

    results = run(tmp_path, hook=kill, seeds=seeds)
    results = results if seeds > 1 else [results]
    assert "".join(heard).count(HEARD) == 1
    for result in results:
        assert (result.stopped, result.exit_code, result.steps) == ("signal", 130, 4)
    # A script can stop with the status of the signal, and no `except Exception` swallows it.
    stopped = StoppedBySignal(results)
    assert stopped.code == 128 + signal.SIGINT
    assert not isinstance(stopped, Exception)


def test_a_signal_in_the_last_step_or_without_a_workdir_is_told(tmp_path):
    stop = interrupt("save", 4, number=signal.SIGINT)
    result = plane(tmp_path, hook=stop)
    assert (result.stopped, result.signal, result.exit_code) == ("done", signal.SIGINT, 130)
    result = plane(hook=interrupt("step", 2))
    assert (result.stopped, result.signal, result.steps) == ("signal", signal.SIGTERM, 2)


def test_a_signal_to_another_process_stops_this_one_too(monkeypatch):
    # what the other one tells wherever they agree
    monkeypatch.setattr("gatedjax.training.loop.gather", lambda x: np.array([[signal.SIGINT, 0]]))
    monkeypatch.setattr("gatedjax.training.loop.agree", lambda values: None)
    monkeypatch.setattr("gatedjax.training.loop.gather_text", lambda text: [text])
    parallel = make_parallel("single")
    parallel.several = True
    result = run(on=parallel, log_every=4, evaluation=None)
    assert (result.stopped, result.steps, result.exit_code) == ("signal", 4, 130)
